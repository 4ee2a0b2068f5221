import { type Disk, type DiskFile, isFull, syncOrFail, unconfirmed, writeAll } from '../disk/disk.ts'
import { fileId, fileName, HEADER_BYTES, header } from './format.ts'
import { crcOf, END_BYTES } from './wal-frame.ts'

export interface WalOptions {
  /** The number of the first segment to write. */
  readonly segment: number
  /** Of the last frame there is; 0 if there is none. */
  readonly crc: number
  /** A segment is on the device before anything is written to it. */
  readonly durable: boolean
  /** How many zeros to lay out ahead in each segment; 0 for none. */
  readonly prepareBytes: number
}

export interface Rotation {
  readonly segment: number
  /** Of the last frame before it. */
  readonly crc: number
  /** Written since the rotation before. */
  readonly bytes: number
  readonly finish: () => Promise<void>
}

interface Segment {
  readonly id: number
  readonly file: DiskFile
  /** Its zeros are there, and where syncs count also on the device: a sync within them need not touch the file system's metadata. */
  readonly prepared: boolean
}

const ZEROS = Buffer.alloc(256 * 1024)
/** A segment is prepared ahead once this much was written, or a part of one: a short visit should cost nothing. */
const PREPARE_AFTER_BYTES = 64 * 1024
const PREPARE_AFTER_PART = 0.25

/**
 * The segments of the write-ahead log, as their writer sees them. A segment is
 * created by the first write after an opening or a rotation. Meanwhile the
 * next one is prepared: created, filled with zeros and, where commits are
 * durable, synced in the background, so that a commit's sync has nothing but its
 * own bytes to write (a quarter faster, measured), and its write no pages to add
 * to the file (a third).
 */
export class Wal {
  /** Written since the last rotation for a checkpoint: what a recovery would have to read. */
  tailBytes = 0
  /** Of the last frame: the next one refers to it. */
  lastCrc: number
  readonly #disk: Disk
  readonly #prepareBytes: number
  readonly #prepareAfter: number
  readonly #durable: boolean
  #next: number
  #current: Segment | undefined
  #position = HEADER_BYTES
  #preparing: { readonly id: number; readonly done: Promise<void> } | undefined
  #ahead: Segment | undefined
  #closed = false
  /** There was no room to prepare a segment. */
  #isShort = false

  constructor(disk: Disk, options: WalOptions) {
    this.#disk = disk
    this.#next = options.segment
    this.lastCrc = options.crc
    this.#prepareBytes = options.prepareBytes
    const part = options.prepareBytes * PREPARE_AFTER_PART
    // Unless somebody waits for syncs, the next one is early enough.
    this.#prepareAfter = options.durable ? Math.min(PREPARE_AFTER_BYTES, part) : part
    this.#durable = options.durable
  }

  /** The segment that the next frame will go to. */
  segment(): number {
    const current = this.#current
    if (current !== undefined && this.#isKept(current)) return current.id
    return this.#ahead?.id ?? this.#next
  }

  /** Writes a frame made for `segment()`, with its end; complete or thrown. */
  write(frame: Buffer): void {
    const segment = this.#open()
    try {
      writeAll(segment.file, frame, this.#position)
    } catch (error) {
      if (!isFull(error) || !this.#removeAhead()) throw error
      this.write(frame)
      return
    }
    this.#position += frame.length - END_BYTES
    this.tailBytes += frame.length - END_BYTES
    this.lastCrc = crcOf(frame)
    if (this.#position > this.#prepareAfter) this.#prepare()
  }

  sync(): void {
    this.#current?.file.sync()
  }

  async syncLater(): Promise<void> {
    await this.#current?.file.syncLater()
  }

  /** After a write that failed: the bytes that got through must not come back as a commit. Throws if that can't be had. */
  cutBack(): void {
    if (this.#current === undefined) return
    cutSegment(this.#current.file, this.#position)
  }

  /**
   * What comes now goes to a new segment; answers the lowest number that it can have, and how to sync and close the one
   * that ends here.
   */
  rotate(): Rotation {
    const old = this.#current
    const bytes = this.tailBytes
    this.#current = undefined
    this.#position = HEADER_BYTES
    this.tailBytes = 0
    this.#isShort = false
    const finish = async (): Promise<void> => {
      try {
        if (old !== undefined) await syncOrFail(old.file)
        // The older manifest may need it one day, so it has to be there by name, too.
        if (!this.#durable) this.#disk.syncFolder()
      } finally {
        old?.file.close()
      }
    }
    // One that is being prepared may still be ready before the next frame, unless it was overtaken.
    const preparing = this.#preparing?.id === this.#next - 1 ? this.#preparing.id : undefined
    return { segment: preparing ?? this.segment(), crc: this.lastCrc, bytes, finish }
  }

  /** Removes the segments below `segment`. */
  async removeBelow(segment: number): Promise<void> {
    for (const name of this.#disk.list()) {
      const id = fileId('W', name)
      if (id !== undefined && id < segment) await this.#disk.removeLater(name)
    }
  }

  /** For who finds none: what is prepared holds some. Answers whether there was any to give. */
  async giveRoom(): Promise<boolean> {
    await this.#preparing?.done
    return this.#removeAhead()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.giveRoom()
    this.#current?.file.close()
    this.#current = undefined
  }

  /** Till the next checkpoint has made room, nothing is prepared again. Answers whether there was one. */
  #removeAhead(): boolean {
    if (this.#ahead === undefined) return false
    const { id, file } = this.#ahead
    this.#ahead = undefined
    this.#isShort = true
    file.close()
    // It holds nothing. If it stays, the next opening reads it and goes on behind it.
    ignoreFailure(() => this.#disk.remove(fileName('W', id)))
    return true
  }

  #open(): Segment {
    const current = this.#current
    if (current !== undefined && this.#isKept(current)) return current
    if (current !== undefined) current.file.close()
    this.#current = this.#ahead ?? this.#create(this.#next++)
    this.#ahead = undefined
    this.#position = HEADER_BYTES
    return this.#current
  }

  /** One that was not prepared ends as soon as another is; unless nobody has synced it, which its rotation will. */
  #isKept({ prepared }: Segment): boolean {
    return prepared || !this.#durable || this.#ahead === undefined
  }

  #create(id: number): Segment {
    const name = fileName('W', id)
    const file = this.#disk.open(name, 'create')
    try {
      writeAll(file, segmentStart(id), 0)
      if (this.#durable) {
        syncNow(file)
        this.#disk.syncFolder()
      }
    } catch (error) {
      file.close()
      // Nothing refers to it: the next one gets another number.
      ignoreFailure(() => this.#disk.remove(name))
      throw error
    }
    return { id, file, prepared: false }
  }

  #prepare(): void {
    if (
      this.#prepareBytes === 0 ||
      this.#preparing !== undefined ||
      this.#ahead !== undefined ||
      this.#isShort ||
      this.#closed
    )
      return
    const id = this.#next++
    const done = this.#fill(id).then(segment => {
      this.#preparing = undefined
      this.#isShort ||= segment === undefined
      // Overtaken: a frame could not wait and took the next number, so this one would come out of order.
      if (segment !== undefined && this.#next !== id + 1) {
        segment.file.close()
        // If this fails, the next checkpoint removes it.
        ignoreFailure(() => this.#disk.remove(fileName('W', id)))
      } else this.#ahead = segment
    })
    this.#preparing = { id, done }
  }

  /** Preparing is a favour: where it fails (a full disk, say), the segment is made when it is needed, and fails there. */
  async #fill(id: number): Promise<Segment | undefined> {
    const name = fileName('W', id)
    let file: DiskFile | undefined
    try {
      file = this.#disk.open(name, 'create')
      writeAll(file, segmentStart(id), 0)
      // The folder may be synced at any time: a name without a header on the device is reported as a log that was cut.
      if (!this.#durable) await file.syncLater()
      for (let at = HEADER_BYTES; at < this.#prepareBytes && !this.#closed; at += ZEROS.length) {
        const piece = ZEROS.subarray(0, this.#prepareBytes - at)
        if ((await file.writeLater(piece, at)) < piece.length) throw new Error('the disk is full')
      }
      if (this.#durable) {
        await file.syncLater()
        this.#disk.syncFolder()
      }
      return { id, file, prepared: true }
    } catch {
      file?.close()
      // It may hold the last free bytes of a full disk. If even this fails, the next checkpoint removes it.
      ignoreFailure(() => this.#disk.remove(name))
      return undefined
    }
  }
}

function segmentStart(id: number): Buffer {
  return Buffer.concat([header('W', id), Buffer.alloc(END_BYTES)])
}

/** Ends a segment at `position` for good. */
export function cutSegment(file: DiskFile, position: number): void {
  let size = position
  try {
    // Over what is there, so that it takes no room.
    writeAll(file, Buffer.alloc(END_BYTES), position)
    size += END_BYTES
  } catch (error) {
    // On a full disk there may be none. Then the next opening will find that the log was cut, and nothing missing.
    if (!isFull(error)) throw error
  }
  file.truncate(size)
  file.sync()
}

function syncNow(file: DiskFile): void {
  try {
    file.sync()
  } catch (error) {
    throw unconfirmed(error)
  }
}

function ignoreFailure(action: () => void): void {
  try {
    action()
  } catch {
    // The caller said why this may fail.
  }
}
