import type { Disk } from '../disk/disk.ts'
import { readFile, replaceFile, unlessMissing } from '../disk/durable-file.ts'
import { LineFile } from '../disk/line-file.ts'
import type { EventLog } from './log.ts'
import { EVENTS_FILE, TORN_FILE } from './run-folder.ts'

/** The bytes of the log file; empty if there is none. */
export function readLogFile(disk: Disk): Buffer {
  return readFile(disk, EVENTS_FILE) ?? Buffer.alloc(0)
}

/** Syncs lines that a crashed process wrote and did not sync. Does nothing if there is no file. */
export async function syncLogFile(disk: Disk): Promise<void> {
  try {
    const file = disk.open(EVENTS_FILE, 'write')
    try {
      await file.syncLater()
    } finally {
      file.close()
    }
  } catch (error) {
    unlessMissing(error)
  }
}

const PIECE_BYTES = 64 * 1024

/** The first line of the log file, read without the rest; undefined if there is no complete line. */
export function firstLineOfFile(disk: Disk): string | undefined {
  try {
    const file = disk.open(EVENTS_FILE, 'read')
    try {
      const pieces: Buffer[] = []
      for (let at = 0; ; at += PIECE_BYTES) {
        const piece = Buffer.alloc(PIECE_BYTES)
        const read = piece.subarray(0, file.read(piece, at))
        const end = read.indexOf(0x0a)
        pieces.push(end < 0 ? read : read.subarray(0, end))
        if (end >= 0) return Buffer.concat(pieces).toString('utf8')
        if (read.length < PIECE_BYTES) return undefined
      }
    } finally {
      file.close()
    }
  } catch (error) {
    return unlessMissing(error)
  }
}

/** The log in the file `events.ndjson`. */
export class FileLog implements EventLog {
  readonly #disk: Disk
  readonly #lines: LineFile

  private constructor(disk: Disk, lines: LineFile) {
    this.#disk = disk
    this.#lines = lines
  }

  /** Opens the file, and creates it if it is missing. The folder must be locked. */
  static async open(disk: Disk): Promise<FileLog> {
    return new FileLog(disk, await LineFile.open(disk, EVENTS_FILE))
  }

  async read(): Promise<Buffer> {
    return this.#lines.read()
  }

  async cut(bytes: number): Promise<void> {
    const torn = this.#lines.read().subarray(bytes)
    if (torn.length === 0) return
    const aside = readFile(this.#disk, TORN_FILE) ?? Buffer.alloc(0)
    // A process that died between the two steps has already set it aside.
    if (!aside.subarray(-torn.length).equals(torn))
      await replaceFile(this.#disk, TORN_FILE, Buffer.concat([aside, torn]))
    this.#lines.cut(bytes)
  }

  append(line: string): Promise<void> {
    return this.#lines.append(line)
  }

  close(): Promise<void> {
    return this.#lines.close()
  }
}
