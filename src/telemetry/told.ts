import type { Disk } from '../disk/disk.ts'
import { readFile, removeIfThere, replaceFile } from '../disk/durable-file.ts'

/**
 * The file `telemetry_told.json` in a run's folder records how much of the
 * run's log the telemetry service was told. It is durable before the first
 * record is sent, and removed after the end of the run was told. So the file
 * belongs to a run in progress, or to one whose process died before its
 * telemetry was complete. It also has what telemetry needs to read the log
 * without the code of the launch.
 */
export const TOLD_FILE = 'telemetry_told.json'

export interface Told {
  readonly schema_version: 1
  /** Where the log of the run is. */
  readonly log: 'file' | 'database'
  /** How many events the service was told. Their records are accepted or in the outbox. */
  readonly events: number
  /** The state model of the launch. */
  readonly states: unknown
  /** The name of each state's node. */
  readonly nodes: Readonly<Record<string, string>>
  readonly environment?: string
}

/** Reads the file; undefined if there is none. A string says why it is invalid. */
export function readTold(disk: Disk): Told | string | undefined {
  const bytes = readFile(disk, TOLD_FILE)
  if (bytes === undefined) return undefined
  let value: unknown
  try {
    value = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    return String(error)
  }
  const { schema_version, log, events, states, nodes, environment } = Object(value) as Partial<Told>
  if (schema_version !== 1) return `its schema_version is ${String(schema_version)}, not 1`
  if (log !== 'file' && log !== 'database') return 'log is neither file nor database'
  if (!Number.isSafeInteger(events) || Number(events) < 0) return 'events is not a count'
  if (typeof states !== 'object' || states === null) return 'states is not an object'
  if (typeof nodes !== 'object' || nodes === null) return 'nodes is not an object'
  if (environment !== undefined && typeof environment !== 'string') return 'environment is not a string'
  return value as Told
}

/** Writes the file. N11: no call rejects, because telemetry must not fail a run. A failure is a warning. */
export class ToldFile {
  readonly #disk: Disk
  readonly #warn: (message: string) => void
  #told: Told
  #begun: Promise<void> | undefined
  /** The last write. Writes are made one after the other. */
  #last: Promise<void> = Promise.resolve()

  constructor(disk: Disk, told: Omit<Told, 'schema_version' | 'events'>, warn: (message: string) => void) {
    this.#disk = disk
    this.#told = { schema_version: 1, events: 0, ...told }
    this.#warn = warn
  }

  /** Writes the file before the first record is sent. It keeps the count of an earlier process. */
  begin(): Promise<void> {
    this.#begun ??= this.#inTurn(async () => {
      const found = readTold(this.#disk)
      if (typeof found === 'string') this.#warn(`${TOLD_FILE} is damaged and is rewritten: ${found}`)
      const before = typeof found === 'object' ? found : undefined
      const nodes = { ...before?.nodes, ...this.#told.nodes }
      this.#told = { ...this.#told, nodes, events: before?.events ?? 0 }
      if (JSON.stringify(before) !== JSON.stringify(this.#told)) await this.#write()
    })
    return this.#begun
  }

  /** Records that the service was told this many events. */
  advance(events: number): Promise<void> {
    return this.#inTurn(async () => {
      if (events <= this.#told.events) return
      this.#told = { ...this.#told, events }
      await this.#write()
    })
  }

  /**
   * Removes the file after the end of the run was told. The removal is not synced: if a power cut undoes it, the same records
   * are sent again, as duplicates.
   */
  remove(): Promise<void> {
    return this.#inTurn(async () => removeIfThere(this.#disk, TOLD_FILE))
  }

  async #write(): Promise<void> {
    await replaceFile(this.#disk, TOLD_FILE, Buffer.from(`${JSON.stringify(this.#told)}\n`), 'private')
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    this.#last = this.#last
      .then(work)
      .catch((error: unknown) => this.#warn(`${TOLD_FILE} can't be written: ${String(error)}`))
    return this.#last
  }
}
