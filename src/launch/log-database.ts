import type { Events } from 'annals'
import { canonicalJson } from '../core/canonical-json.ts'
import type { Value } from '../core/value.ts'
import type { EventLog } from './log.ts'

/** The part of `db.events` that a log uses. */
export type LogDatabase = Pick<Events, 'append' | 'iterate'>

/** The bytes of the log, the same as those of a log file. */
export async function readLogDatabase(events: LogDatabase, runId: string): Promise<Buffer> {
  const lines: string[] = []
  for await (const { payload } of events.iterate(runId)) lines.push(`${canonicalJson(payload)}\n`)
  return Buffer.from(lines.join(''))
}

/** The first line of the log. */
export async function firstLineOfDatabase(events: LogDatabase, runId: string): Promise<string | undefined> {
  for await (const { payload } of events.iterate(runId)) return canonicalJson(payload)
  return undefined
}

/** The log in `db.events`: one event of the same type for each line, in the scope of the run. */
export class DatabaseLog implements EventLog {
  readonly #events: LogDatabase
  readonly #runId: string
  #last: Promise<unknown> = Promise.resolve()

  constructor(events: LogDatabase, runId: string) {
    this.#events = events
    this.#runId = runId
  }

  read(): Promise<Buffer> {
    return readLogDatabase(this.#events, this.#runId)
  }

  async cut(): Promise<void> {
    // A database has no torn events.
  }

  append(line: string): Promise<void> {
    const event = JSON.parse(line) as { readonly type: string } & Value
    // One after the other, so that no line is stored after one that failed.
    const appended = this.#last.then(async () => {
      await this.#events.append(this.#runId, event.type, event)
    })
    this.#last = appended
    return appended
  }

  async close(): Promise<void> {
    await this.#last.catch(() => undefined)
  }
}
