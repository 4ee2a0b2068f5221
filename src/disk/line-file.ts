import type { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { type Disk, type DiskFile, diskFailure, unconfirmed, writeAll } from './disk.ts'
import { folderOf, readFile, unlessMissing } from './durable-file.ts'

interface Line {
  /** The text without its LF. */
  readonly text: string
  resolve(): void
  reject(error: unknown): void
}

/**
 * An append-only file of lines. A line is appended in two steps: its text is written and synced, then its LF. So an LF is
 * durable only after its whole line. Bytes after the last LF belong to a line that was never acknowledged, whichever
 * sectors of it a power cut has left. An LF shares its write and sync with the text of the next line, if one is
 * waiting, so n concurrent lines take n + 1 syncs.
 *
 * After a failure nothing more is written, because another sync could succeed without writing the lost data.
 */
export class LineFile {
  readonly #disk: Disk
  readonly #name: string
  readonly #file: DiskFile
  #size: number
  readonly #waiting: Line[] = []
  /** The line whose text is durable and whose LF is not written yet. */
  #unended: Line | undefined
  #flushing: Promise<void> | undefined
  #failure: AnnalsError | undefined

  private constructor(disk: Disk, name: string, file: DiskFile) {
    this.#disk = disk
    this.#name = name
    this.#file = file
    this.#size = file.size()
  }

  /** Opens the file, and creates it if it does not exist. Its content is durable when this resolves. */
  static async open(disk: Disk, name: string, access?: 'private'): Promise<LineFile> {
    const file = openOrCreate(disk, name, access)
    try {
      // The process that wrote the last lines may have crashed before it synced them, and others may have read them.
      await file.syncLater()
      disk.syncFolder(folderOf(name))
      return new LineFile(disk, name, file)
    } catch (error) {
      file.close()
      throw error
    }
  }

  /** All bytes, including those after the last LF. */
  read(): Buffer {
    return readFile(this.#disk, this.#name) ?? Buffer.alloc(0)
  }

  /** Truncates the file to remove an incomplete line, before the first append. Durable with the next line. */
  cut(bytes: number): void {
    if (bytes === this.#size) return
    this.#file.truncate(bytes)
    this.#size = bytes
  }

  /** Appends a line in the order of calls. It is durable when this resolves. After a failure every call fails. */
  append(line: string): Promise<void> {
    invariant(line.indexOf('\n') === line.length - 1, 'a line has one LF, at its end')
    if (this.#failure !== undefined) return Promise.reject(this.#failure)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text: line.slice(0, -1), resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  /** Waits for pending lines, then closes the file. */
  async close(): Promise<void> {
    await this.#flushing
    this.#file.close()
  }

  async #flush(): Promise<void> {
    // This never rejects. Each failure goes to the callers of `append`.
    for (;;) {
      const [ended, begun] = [this.#unended, this.#waiting.shift()]
      if (ended === undefined && begun === undefined) break
      try {
        if (this.#failure !== undefined) throw this.#failure
        await this.#write(`${ended === undefined ? '' : '\n'}${begun?.text ?? ''}`)
        this.#unended = begun
        ended?.resolve()
      } catch (error) {
        this.#unended = undefined
        ended?.reject(error)
        begun?.reject(error)
      }
    }
    this.#flushing = undefined
  }

  async #write(text: string): Promise<void> {
    const bytes = Buffer.from(text)
    try {
      writeAll(this.#file, bytes, this.#size)
    } catch (error) {
      this.#failure = diskFailure(error, `cannot write to ${this.#name}`)
      this.#cutBack()
      throw this.#failure
    }
    try {
      await this.#file.syncLater()
    } catch (error) {
      this.#failure = unconfirmed(error)
      throw this.#failure
    }
    this.#size += bytes.length
  }

  #cutBack(): void {
    try {
      this.#file.truncate(this.#size)
    } catch {
      // The caller gets the error of the write. The next process cuts off the incomplete line.
    }
  }
}

/** The size of the complete lines. */
export function wholeLines(bytes: Buffer): number {
  return bytes.lastIndexOf(0x0a) + 1
}

function openOrCreate(disk: Disk, name: string, access?: 'private'): DiskFile {
  try {
    return disk.open(name, 'write')
  } catch (error) {
    unlessMissing(error)
    return disk.open(name, 'create', access)
  }
}
