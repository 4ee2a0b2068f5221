import type { Disk } from '../disk/disk.ts'
import { readFile, removeIfThere, replaceFile } from '../disk/durable-file.ts'
import { LineFile, wholeLines } from '../disk/line-file.ts'
import { readRecord, type TelemetryRecord } from './model.ts'

/**
 * Records that the service has not accepted yet, oldest first, in
 * `telemetry_outbox.jsonl` of the run's folder; those that it never will, with
 * its answer, in `telemetry_dead.jsonl`.
 *
 * A line is in the file from when it is appended until some time after it was
 * accepted: the file is rewritten when half of it is of no more use, and at
 * the end of a flush. A crash in between sends lines again, which the service
 * knows to be duplicates. The lines are in memory too, as there are at most
 * 10 MB of them.
 */

export const OUTBOX_FILE = 'telemetry_outbox.jsonl'
export const DEAD_FILE = 'telemetry_dead.jsonl'
const OUTBOX_BYTES_MAX = 10_000_000
/** What is cut off at once when it is full: rewriting 10 MB for every record more would be a way to fail a run. */
const CUT_SHARE = 0.1
const REWRITE_BYTES_MIN = 64 * 1024

export interface TelemetryLog {
  warn(message: string): void
  error(message: string): void
}

export interface OutboxOptions {
  /** The run's folder. */
  readonly disk: Disk
  readonly log: TelemetryLog
  /** The record that tells of the oldest ones that had to go. */
  readonly truncated: (dropped: number) => TelemetryRecord
  readonly bytesMax?: number
}

/** Why a record was given up. */
export interface Death {
  readonly reason: string
  readonly status?: number
  /** What the service said. */
  readonly answer?: unknown
  readonly died_at: string
}

interface Line {
  readonly sequence: number
  readonly text: string
  readonly bytes: number
}

export class Outbox {
  readonly #options: OutboxOptions
  readonly #bytesMax: number
  #lines: Line[] = []
  #bytes = 0
  #sequence = 0
  /** Of lines in the file that are of no more use. */
  #staleBytes = 0
  /** Open while lines are appended. */
  #file: LineFile | undefined
  /** A write has failed: what the file holds is not known until it is written anew. */
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

  /** Durable when this resolves. */
  append(record: TelemetryRecord): Promise<void> {
    return this.#inTurn(async () => {
      const text = `${JSON.stringify(record)}\n`
      const bytes = Buffer.byteLength(text)
      if (bytes > this.#bytesMax * (1 - CUT_SHARE)) {
        this.#options.log.error(
          `a telemetry record of ${bytes} bytes is larger than the outbox may be: given up`,
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

  /** The oldest, and the number under which it is accepted or buried. */
  peek(): { readonly sequence: number; readonly text: string } | undefined {
    return this.#lines[0]
  }

  /** The service has it. A line that was cut off meanwhile is gone already. */
  accept(sequence: number): Promise<void> {
    return this.#inTurn(async () => {
      this.#shift(sequence)
      if (this.#staleBytes >= REWRITE_BYTES_MIN && this.#staleBytes >= this.#bytes) await this.#rewrite()
    })
  }

  /** The service will never take it: first it is among the dead, then it leaves the outbox. */
  bury(sequence: number, death: Death): Promise<void> {
    return this.#inTurn(async () => {
      const line = this.#lines[0]
      if (line?.sequence !== sequence) return
      await this.#writeDead(line.text, death)
      this.#shift(sequence)
    })
  }

  /** The same for one that was never in here. */
  buryRecord(record: TelemetryRecord, death: Death): Promise<void> {
    return this.#inTurn(() => this.#writeDead(JSON.stringify(record), death))
  }

  /** After a flush: what was accepted leaves the file. */
  settle(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#staleBytes > 0 || this.#isSuspect) await this.#rewrite()
    })
  }

  /** Waits for what is under way. Nothing is lost if nobody calls it, but a file stays open. */
  close(): Promise<void> {
    return this.#inTurn(() => this.#closeFile())
  }

  async #load(): Promise<void> {
    const bytes = readFile(this.#options.disk, OUTBOX_FILE)
    if (bytes === undefined) return
    const end = wholeLines(bytes)
    if (end < bytes.length) {
      this.#options.log.warn('the last line of the telemetry outbox was cut off by a crash: it is given up')
      this.#staleBytes += bytes.length - end
    }
    for (const text of bytes.subarray(0, end).toString('utf8').split('\n')) {
      if (text !== '') this.#push(`${text}\n`, Buffer.byteLength(text) + 1)
    }
    // What comes next must not become the end of half a line.
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
      `TELEMETRY_OUTBOX_TRUNCATED: the oldest ${dropped} telemetry records are given up`,
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
    // Whoever comes next waits for this one, but its failure is not theirs.
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
