import { appendFileSync, closeSync, fsyncSync, openSync, readFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { AnnalsError } from '../core/errors.ts'
import type { EventLog } from './log.ts'
import { EVENTS_FILE, isThere, syncFolder, TORN_FILE } from './run-folder.ts'

/** The lines as they are on disk; none if there is no file. */
export async function readLogFile(folder: string): Promise<Buffer> {
  const path = join(folder, EVENTS_FILE)
  return isThere(path) ? readFileSync(path) : Buffer.alloc(0)
}

const PIECE_BYTES = 64 * 1024

/** The first line, whatever the length of the rest; undefined if there is none, or not all of it. */
export async function firstLineOfFile(folder: string): Promise<string | undefined> {
  const path = join(folder, EVENTS_FILE)
  if (!isThere(path)) return undefined
  const file = await open(path, 'r')
  try {
    const pieces: Buffer[] = []
    for (let at = 0; ; at += PIECE_BYTES) {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(PIECE_BYTES), 0, PIECE_BYTES, at)
      const end = buffer.subarray(0, bytesRead).indexOf(0x0a)
      pieces.push(buffer.subarray(0, end < 0 ? bytesRead : end))
      if (end >= 0) return Buffer.concat(pieces).toString('utf8')
      if (bytesRead < PIECE_BYTES) return undefined
    }
  } finally {
    await file.close()
  }
}

interface Waiting {
  readonly line: string
  resolve(): void
  reject(error: unknown): void
}

/**
 * `events.ndjson`. Whoever appends waits; one write and one sync serve all that
 * wait at that time. A write that fails is cut off again; after that, and after
 * a sync that fails, nothing more is written: another sync would succeed and
 * prove nothing.
 */
export class FileLog implements EventLog {
  readonly #folder: string
  readonly #file: FileHandle
  #size: number
  #waiting: Waiting[] = []
  #flushing: Promise<void> | undefined
  #failure: AnnalsError | undefined

  private constructor(folder: string, file: FileHandle, size: number) {
    this.#folder = folder
    this.#file = file
    this.#size = size
  }

  /** Makes the file if there is none. Its folder must be locked. */
  static async open(folder: string): Promise<FileLog> {
    const path = join(folder, EVENTS_FILE)
    const isNew = !isThere(path)
    const file = await open(path, isNew ? 'wx+' : 'r+')
    // The process that wrote the last lines may have died before it synced them, and readers have seen them since.
    await file.datasync()
    syncFolder(folder)
    return new FileLog(folder, file, (await file.stat()).size)
  }

  read(): Promise<Buffer> {
    return readLogFile(this.#folder)
  }

  async cut(bytes: number): Promise<void> {
    const torn = (await this.read()).subarray(bytes)
    if (torn.length === 0) return
    const aside = join(this.#folder, TORN_FILE)
    appendFileSync(aside, torn)
    syncFile(aside)
    syncFolder(this.#folder)
    await this.#file.truncate(bytes)
    await this.#file.datasync()
    this.#size = bytes
  }

  append(line: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ line, resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  async close(): Promise<void> {
    await this.#flushing
    await this.#file.close()
  }

  async #flush(): Promise<void> {
    // Never rejects: each failure goes to those who wait for it.
    while (this.#waiting.length > 0) {
      const batch = this.#waiting
      this.#waiting = []
      try {
        if (this.#failure !== undefined) throw this.#failure
        await this.#write(Buffer.from(batch.map(({ line }) => line).join('')))
        for (const { resolve } of batch) resolve()
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#flushing = undefined
  }

  async #write(bytes: Buffer): Promise<void> {
    try {
      for (let done = 0; done < bytes.length; ) {
        done += (await this.#file.write(bytes, done, bytes.length - done, this.#size + done)).bytesWritten
      }
    } catch (error) {
      this.#failure = failure(error, "can't write to the event log")
      // If that fails too, a torn line is left, and whoever opens the log next cuts it off.
      await this.#file.truncate(this.#size).catch(() => undefined)
      throw this.#failure
    }
    try {
      await this.#file.datasync()
    } catch (error) {
      const message = `the disk did not confirm the event log (${String(error)}); open the run again to see what is there`
      this.#failure = new AnnalsError('OUTCOME_UNKNOWN', message, {}, error)
      throw this.#failure
    }
    this.#size += bytes.length
  }
}

function syncFile(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

function failure(error: unknown, what: string): AnnalsError {
  const { code } = error as NodeJS.ErrnoException
  const isFull = code === 'ENOSPC' || code === 'EDQUOT'
  return new AnnalsError(isFull ? 'DISK_FULL' : 'IO_ERROR', `${what}: ${String(error)}`, {}, error)
}
