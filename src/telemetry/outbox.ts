import type { Disk } from '../disk/disk.ts'
import { readFile, removeIfThere, replaceFile } from '../disk/durable-file.ts'
import { LineFile, wholeLines } from '../disk/line-file.ts'
import { readRecord, type TelemetryRecord } from './model.ts'

export const OUTBOX_FILE = 'telemetry_outbox.jsonl'
export const DEAD_FILE = 'telemetry_dead.jsonl'
const OUTBOX_BYTES_MAX = 10_000_000
/** The share that is dropped when the outbox is full. Dropping less would rewrite 10 MB for every further record. */
const CUT_SHARE = 0.1
const REWRITE_BYTES_MIN = 64 * 1024

/** Gets warnings and errors about telemetry. */
export interface TelemetryLog {
  warn(message: string): void
  error(message: string): void
}

export interface OutboxOptions {
  /** The run's folder. */
  readonly disk: Disk
  readonly log: TelemetryLog
  /** Makes the record about dropped records. */
  readonly truncated: (dropped: number) => TelemetryRecord
  readonly bytesMax?: number
}

/** Why a record will never be accepted. */
export interface Death {
  readonly reason: string
  readonly status?: number
  /** The answer of the service. */
  readonly answer?: unknown
  readonly died_at: string
}

interface Line {
  readonly sequence: number
  readonly text: string
  readonly bytes: number
}

/**
 * The records that the service has not accepted yet, the oldest first, in the
 * file `telemetry_outbox.jsonl` of the run's folder. Records that it refused
 * for good go to `telemetry_dead.jsonl`, with its answer.
 *
 * An accepted line stays in the file until the file is rewritten: when half of
 * it is stale, and at the end of a flush. After a crash in between, lines are
 * sent again and the service recognizes them as duplicates. All lines are in
 * memory too, at most 10 MB.
 */
export class Outbox {
  readonly #options: OutboxOptions
  readonly #bytesMax: number
  #lines: Line[] = []
  #bytes = 0
  #sequence = 0
  /** The length of the lines in the file that are not needed any more. */
  #staleBytes = 0
  /** The file, if it is open for appending. */
  #file: LineFile | undefined
  /** A write has failed, so the content of the file is unknown until it is rewritten. */
  #isSuspect = false
  #last: Promise<unknown> = Promise.resolve()

  private constructor(options: OutboxOptions) {
    this.#options = options
    this.#bytesMax = options.bytesMax ?? OUTBOX_BYTES_MAX
  }

  static async open(options: OutboxOptions): Promise<Outbox> {
    const outbox = new Outbox(options)
    await outbox.#load()
    return outbox
  }

  get isEmpty(): boolean {
    return this.#lines.length === 0
  }

  get length(): number {
    return this.#lines.length
  }

  /** Appends a record. Resolves once it is durable. */
  append(record: TelemetryRecord): Promise<void> {
    return this.#inTurn(async () => {
      const text = `${JSON.stringify(record)}\n`
      const bytes = Buffer.byteLength(text)
      if (bytes > this.#bytesMax * (1 - CUT_SHARE)) {
        this.#options.log.error(
          `a telemetry record of ${bytes} bytes was dropped: it is larger than the outbox`,
        )
        return
      }
      if (this.#bytes + bytes > this.#bytesMax) return this.#appendByCutting(text, bytes)
      this.#push(text, bytes)
      if (this.#isSuspect) return this.#rewrite()
      this.#isSuspect = true
      this.#file ??= await LineFile.open(this.#options.disk, OUTBOX_FILE, 'private')
      await this.#file.append(text)
      this.#isSuspect = false
    })
  }

  /** The oldest line, and the sequence number to accept or bury it with. */
  peek(): { readonly sequence: number; readonly text: string } | undefined {
    return this.#lines[0]
  }

  /** Removes a line that the service has accepted. It may have been dropped in the meantime. */
  accept(sequence: number): Promise<void> {
    return this.#inTurn(async () => {
      this.#shift(sequence)
      if (this.#staleBytes >= REWRITE_BYTES_MIN && this.#staleBytes >= this.#bytes) await this.#rewrite()
    })
  }

  /** Moves a line that the service refused for good to the dead records. */
  bury(sequence: number, death: Death): Promise<void> {
    return this.#inTurn(async () => {
      const line = this.#lines[0]
      if (line?.sequence !== sequence) return
      await this.#writeDead(line.text, death)
      this.#shift(sequence)
    })
  }

  /** Adds a record that was never in the outbox to the dead records. */
  buryRecord(record: TelemetryRecord, death: Death): Promise<void> {
    return this.#inTurn(() => this.#writeDead(JSON.stringify(record), death))
  }

  /** Removes accepted lines from the file, at the end of a flush. */
  settle(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#staleBytes > 0 || this.#isSuspect) await this.#rewrite()
    })
  }

  /** Waits for writes in progress, and closes the file. */
  close(): Promise<void> {
    return this.#inTurn(() => this.#closeFile())
  }

  async #load(): Promise<void> {
    const bytes = readFile(this.#options.disk, OUTBOX_FILE)
    if (bytes === undefined) return
    const end = wholeLines(bytes)
    if (end < bytes.length) {
      this.#options.log.warn('the last line of the telemetry outbox was torn by a crash and is dropped')
      this.#staleBytes += bytes.length - end
    }
    for (const text of bytes.subarray(0, end).toString('utf8').split('\n')) {
      if (text !== '') this.#push(`${text}\n`, Buffer.byteLength(text) + 1)
    }
    // Otherwise the next line would be appended to a torn one.
    if (this.#staleBytes > 0) await this.#rewrite()
  }

  async #appendByCutting(text: string, bytes: number): Promise<void> {
    const room = this.#bytesMax * (1 - CUT_SHARE) - bytes
    let dropped = 0
    while (this.#bytes > room) {
      this.#shift(this.#lines[0].sequence)
      dropped++
    }
    this.#options.log.error(
      `TELEMETRY_OUTBOX_TRUNCATED: the oldest ${dropped} telemetry records were dropped`,
    )
    const said = `${JSON.stringify(this.#options.truncated(dropped))}\n`
    this.#push(said, Buffer.byteLength(said))
    this.#push(text, bytes)
    await this.#rewrite()
  }

  #push(text: string, bytes: number): void {
    this.#lines.push({ sequence: ++this.#sequence, text, bytes })
    this.#bytes += bytes
  }

  #shift(sequence: number): void {
    const line = this.#lines[0]
    if (line?.sequence !== sequence) return
    this.#lines.shift()
    this.#bytes -= line.bytes
    this.#staleBytes += line.bytes
  }

  async #rewrite(): Promise<void> {
    const { disk } = this.#options
    this.#isSuspect = true
    await this.#closeFile()
    if (this.isEmpty) {
      removeIfThere(disk, OUTBOX_FILE)
      disk.syncFolder()
    } else {
      const text = this.#lines.map(line => line.text).join('')
      await replaceFile(disk, OUTBOX_FILE, Buffer.from(text), 'private')
    }
    this.#isSuspect = false
    this.#staleBytes = 0
  }

  async #writeDead(line: string, death: Death): Promise<void> {
    const record = readRecord(line)
    const dead = typeof record === 'string' ? { line: line.trimEnd(), ...death } : { ...record, ...death }
    const file = await LineFile.open(this.#options.disk, DEAD_FILE, 'private')
    try {
      file.cut(wholeLines(file.read()))
      await file.append(`${JSON.stringify(dead)}\n`)
    } finally {
      await file.close()
    }
  }

  async #closeFile(): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.close()
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work, work)
    // The next write waits for this one, and starts even if it fails.
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
