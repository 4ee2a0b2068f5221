import type { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { type Disk, type DiskFile, diskFailure, unconfirmed, writeAll } from './disk.ts'
import { folderOf, readFile, unlessMissing } from './durable-file.ts'

interface Line {
  /** Without its LF. */
  readonly text: string
  resolve(): void
  reject(error: unknown): void
}

/**
 * A file of lines that grows at its end. A line is appended in two steps: its
 * text is written and synced, then its LF. So an LF is on the device only
 * after the whole line before it. Bytes after the last LF belong to a line that
 * was never acknowledged, whichever of their sectors a power cut has left. An
 * LF shares its write and its sync with the text of the next line, if one waits,
 * so n lines at once take n + 1 syncs.
 *
 * After a failure nothing more is written: another sync would succeed and prove
 * nothing.
 */
export class LineFile {
  readonly #disk: Disk
  readonly #name: string
  readonly #file: DiskFile
  #size: number
  readonly #waiting: Line[] = []
  /** Its text is on the device, its LF is not. */
  #unended: Line | undefined
  #flushing: Promise<void> | undefined
  #failure: AnnalsError | undefined

  private constructor(disk: Disk, name: string, file: DiskFile) {
    this.#disk = disk
    this.#name = name
    this.#file = file
    this.#size = file.size()
  }

  /** Makes the file if there is none. What it holds is durable when this resolves. */
  static async open(disk: Disk, name: string, access?: 'private'): Promise<LineFile> {
    const file = openOrCreate(disk, name, access)
    try {
      // The process that wrote the last lines may have died before it synced them, and readers have seen them since.
      await file.syncLater()
      disk.syncFolder(folderOf(name))
      return new LineFile(disk, name, file)
    } catch (error) {
      file.close()
      throw error
    }
  }

  /** All bytes, those behind the last LF too. */
  read(): Buffer {
    return readFile(this.#disk, this.#name) ?? Buffer.alloc(0)
  }

  /** Cuts off a line without its LF, before anything is appended. Durable with the next line: until then it is torn again. */
  cut(bytes: number): void {
    if (bytes === this.#size) return
    this.#file.truncate(bytes)
    this.#size = bytes
  }

  /** Durable once it resolves. Lines come in the order of the calls; after a failure every call fails. */
  append(line: string): Promise<void> {
    invariant(line.indexOf('\n') === line.length - 1, 'a line has one LF, at its end')
    if (this.#failure !== undefined) return Promise.reject(this.#failure)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text: line.slice(0, -1), resolve, reject })
      this.#flushing ??= this.#flush()
    })
  }

  /** Waits for the lines that were appended. */
  async close(): Promise<void> {
    await this.#flushing
    this.#file.close()
  }

  async #flush(): Promise<void> {
    // Never rejects: each failure goes to those who wait for it.
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
      // The failure that counts is that of the write. A torn line is left, which the next process cuts off.
    }
  }
}

/** How many bytes the lines with their LF have. */
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
