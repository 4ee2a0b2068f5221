import type { Events } from 'annals'
import { canonicalJson } from '../core/canonical-json.ts'
import type { Value } from '../core/value.ts'
import type { EventLog } from './log.ts'

/** What of a database a log needs: `db.events`. */
export type LogDatabase = Pick<Events, 'append' | 'iterate'>

/** The lines, as the file would have them. */
export async function readLogDatabase(events: LogDatabase, runId: string): Promise<Buffer> {
  const lines: string[] = []
  for await (const { payload } of events.iterate(runId)) lines.push(`${canonicalJson(payload)}\n`)
  return Buffer.from(lines.join(''))
}

/** The first of them. */
export async function firstLineOfDatabase(events: LogDatabase, runId: string): Promise<string | undefined> {
  for await (const { payload } of events.iterate(runId)) return canonicalJson(payload)
  return undefined
}

/** The same log in `db.events`, in the scope of the run: an event of the database for each line, of the same type. */
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
    // A database has no half events.
  }

  append(line: string): Promise<void> {
    const event = JSON.parse(line) as { readonly type: string } & Value
    // One after the other: what a commit that failed leaves out must not be followed by another line.
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
