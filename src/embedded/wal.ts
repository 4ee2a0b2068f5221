import { type Disk, type DiskFile, isFull, syncOrFail, unconfirmed, writeAll } from '../disk/disk.ts'
import { fileId, fileName } from './format.ts'
import { crcOf, END_BYTES } from './wal-frame.ts'
import { cutSegment, linkTo, SEGMENT_START, segmentStart } from './wal-segment.ts'

/** The state of the log when its writer starts, and the writer's settings. */
export interface WalOptions {
  readonly storeId: string
  /** The last segment of the log. It gets frames only if the log is empty. */
  readonly segment: number
  /** The number for the next new segment. */
  readonly nextSegment: number
  /** The checksum of the last frame; 0 if there is none. */
  readonly crc: number
  /** Whether commits are synced before they are acknowledged. */
  readonly durable: boolean
  /** How many zeros to write in advance to each segment; 0 for none. */
  readonly prepareBytes: number
}

/** The result of `Wal.rotate`. */
export interface Rotation {
  /** The number of the new segment. */
  readonly segment: number
  /** The checksum of the last frame before it. */
  readonly crc: number
  /** The bytes that were written since the rotation before. */
  readonly bytes: number
  /** Syncs and closes the old segment. */
  readonly finish: () => Promise<void>
}

interface Segment {
  readonly id: number
  readonly file: DiskFile
  /** Whether the zeros are written and synced. Then syncs don't have to update the file's metadata. */
  prepared: boolean
}

/** The next segment, which exists and is empty, and the state of the link to it. */
interface Ahead {
  readonly segment: Segment
  link: 'missing' | 'written' | 'durable'
}

const ZEROS = Buffer.alloc(256 * 1024)
/** The next segment is prepared after this many bytes, or this part of a segment. So short sessions cost nothing. */
const PREPARE_AFTER_BYTES = 64 * 1024
const PREPARE_AFTER_PART = 0.25
/** More bytes than a file's last block can have free, so that a full disk is noticed. */
const PROBE_BYTES = 4_096

/**
 * Writes the segments of the write-ahead log. While one segment is in use, the next one is prepared in the background:
 * created, filled with zeros, synced and linked. Then a commit's sync writes only the commit's bytes, which is a quarter
 * faster, and its write adds no pages to the file, which is a third faster.
 *
 * A segment is used only after the link to it is durable. If commits are durable, the next commit's sync also makes the link
 * durable. A separate sync could consume an error that the commit's sync would have reported.
 */
export class Wal {
  /** The bytes written since the last checkpoint's rotation, which a recovery would have to read. */
  tailBytes = 0
  /** The checksum of the last frame, to which the next one refers. */
  lastCrc: number
  readonly #disk: Disk
  readonly #storeId: string
  readonly #prepareBytes: number
  readonly #prepareAfter: number
  readonly #durable: boolean
  /** The number of the current segment. */
  #id: number
  #next: number
  /** Opened with the first write. */
  #current: Segment | undefined
  #position = SEGMENT_START
  #making: Promise<void> | undefined
  #ahead: Ahead | undefined
  #closed = false
  /** Preparing is off until the next rotation, to save disk space. */
  #isShort = false
  /** The error of a failed sync in the background. Nothing is written after it. */
  #failure: unknown

  constructor(disk: Disk, options: WalOptions) {
    this.#disk = disk
    this.#storeId = options.storeId
    this.#id = options.segment
    this.#next = options.nextSegment
    this.lastCrc = options.crc
    this.#prepareBytes = options.prepareBytes
    const part = options.prepareBytes * PREPARE_AFTER_PART
    // Relaxed commits don't wait for syncs, so they don't need the next segment as early.
    this.#prepareAfter = options.durable ? Math.min(PREPARE_AFTER_BYTES, part) : part
    this.#durable = options.durable
  }

  /** The number of the segment for the next frame. */
  segment(): number {
    return this.#movesOn() ? (this.#ahead as Ahead).segment.id : this.#id
  }

  /** Throws if the folder was removed, moved or replaced. */
  checkFolder(): void {
    this.#disk.check()
  }

  /** Writes a frame for `segment()`, with the zeros after it. Throws if it can't be written completely. */
  write(frame: Buffer): void {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#movesOn()) this.#moveOn()?.close()
    this.#put(frame)
    this.#position += frame.length - END_BYTES
    this.tailBytes += frame.length - END_BYTES
    this.lastCrc = crcOf(frame)
    if (this.#position > this.#prepareAfter) this.#prepare()
  }

  /** Throws if a frame can't be written now. Tries it with zeros, which the next frame overwrites. */
  probe(): void {
    if (this.#failure !== undefined) throw this.#failure
    if (!this.#closed) this.#put(ZEROS.subarray(0, PROBE_BYTES))
  }

  /** Makes all written frames durable. */
  sync(): void {
    const linked = this.#linkWritten()
    this.#current?.file.sync()
    if (linked !== undefined) linked.link = 'durable'
  }

  /** `sync`, off the main thread. */
  async syncLater(): Promise<void> {
    const linked = this.#linkWritten()
    await this.#current?.file.syncLater()
    if (linked !== undefined) linked.link = 'durable'
  }

  /** Cuts off a frame whose write failed. Otherwise recovery could find it as a commit. Throws if the cut fails too. */
  cutBack(): void {
    if (this.#current === undefined) return
    cutSegment(this.#current.file, this.#position)
  }

  /** Resolves when there is a segment to rotate to. A commit may use it before that, so check `isReady` then. */
  async makeReady(): Promise<void> {
    while (this.#making !== undefined) await this.#making
    if (this.#failure !== undefined) throw this.#failure
    if (this.#ahead === undefined) await this.#makeAhead(0)
    else await this.#link(this.#ahead)
  }

  get isReady(): boolean {
    return this.#ahead !== undefined && this.#ahead.link !== 'missing'
  }

  /**
   * Continues the log in the segment that `makeReady` has made. The caller must call `finish` of the result, which syncs and
   * closes the old segment.
   */
  rotate(): Rotation {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#ahead?.link === 'written') this.#syncLink()
    const bytes = this.tailBytes
    const old = this.#moveOn()
    this.tailBytes = 0
    this.#isShort = false
    const finish = async (): Promise<void> => {
      try {
        if (old !== undefined) await syncOrFail(old)
      } finally {
        old?.close()
      }
    }
    return { segment: this.#id, crc: this.lastCrc, bytes, finish }
  }

  /** Removes the segments below `segment`. */
  async removeBelow(segment: number): Promise<void> {
    for (const name of this.#disk.list()) {
      const id = fileId('W', name)
      if (id !== undefined && id < segment) await this.#disk.removeLater(name)
    }
  }

  /** Frees the disk space of zeros in the current and the next segment. Returns whether there was any. */
  async giveRoom(): Promise<boolean> {
    while (this.#making !== undefined) await this.#making
    const current = this.#current !== undefined && this.#shorten(this.#current, this.#position)
    return this.#shortenAhead() || current
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.giveRoom()
    this.#ahead?.segment.file.close()
    this.#ahead = undefined
    this.#current?.file.close()
    this.#current = undefined
  }

  /** Whether to leave an unprepared segment for a prepared one. Relaxed commits stay, because they don't wait for syncs. */
  #movesOn(): boolean {
    const ahead = this.#ahead
    return (
      ahead !== undefined &&
      this.#durable &&
      ahead.segment.prepared &&
      ahead.link === 'durable' &&
      this.#current?.prepared !== true
    )
  }

  /** Makes the next segment the current one. Returns the file of the old one, if it is open. */
  #moveOn(): DiskFile | undefined {
    const old = this.#current?.file
    const { segment } = this.#ahead as Ahead
    this.#ahead = undefined
    this.#current = segment
    this.#id = segment.id
    this.#position = SEGMENT_START
    return old
  }

  #put(bytes: Buffer): void {
    const { file } = this.#open()
    try {
      writeAll(file, bytes, this.#position)
    } catch (error) {
      if (!isFull(error) || !this.#shortenAhead()) throw error
      writeAll(file, bytes, this.#position)
    }
  }

  #open(): Segment {
    this.#current ??= {
      id: this.#id,
      file: this.#disk.open(fileName('W', this.#id), 'write'),
      prepared: false,
    }
    return this.#current
  }

  /** Frees the zeros of the next segment. The segment itself stays, because the current one names it. */
  #shortenAhead(): boolean {
    return this.#ahead !== undefined && this.#shorten(this.#ahead.segment, SEGMENT_START)
  }

  /** Cuts off the zeros after `position`. Nothing is prepared again before the next rotation. */
  #shorten(segment: Segment, position: number): boolean {
    if (!segment.prepared) return false
    segment.prepared = false
    this.#isShort = true
    // If this fails, the zeros stay, which is harmless.
    ignoreFailure(() => segment.file.truncate(position + END_BYTES))
    return true
  }

  /** Prepares the next segment. A failure is not reported, because the segment is then made when needed, and fails there. */
  #prepare(): void {
    const isBusy = this.#making !== undefined || this.#ahead !== undefined
    if (isBusy || this.#prepareBytes === 0 || this.#isShort || this.#closed) return
    this.#makeAhead(this.#prepareBytes).catch(() => {
      this.#isShort = true
    })
  }

  /** Makes the next segment with this many zeros, and links it. Only one is made at a time. */
  #makeAhead(bytes: number): Promise<void> {
    const made = this.#create(bytes).then(segment => {
      this.#ahead = { segment, link: 'missing' }
      return this.#link(this.#ahead)
    })
    const end = (): void => {
      this.#making = undefined
    }
    this.#making = made.then(end, end)
    return made
  }

  /** Creates a segment. The file and its directory entry are durable when this resolves. */
  async #create(bytes: number): Promise<Segment> {
    const id = this.#next++
    const name = fileName('W', id)
    const file = this.#disk.open(name, 'create')
    try {
      writeAll(file, segmentStart(id, this.#storeId, this.#id), 0)
      for (let at = SEGMENT_START; at < bytes; at += ZEROS.length) {
        if (this.#closed) throw new Error('the log is closed')
        const piece = ZEROS.subarray(0, bytes - at)
        if ((await file.writeLater(piece, at)) < piece.length) throw new Error('the disk is full')
      }
      await syncOrFail(file)
      this.#disk.syncFolder()
      return { id, file, prepared: bytes > 0 }
    } catch (error) {
      file.close()
      // The file may use the last free bytes of the disk. If it can't be removed now, a later checkpoint removes it.
      ignoreFailure(() => this.#disk.remove(name))
      throw error
    }
  }

  /** Writes the link from the current segment to the next one. Relaxed logs also sync it here. */
  async #link(ahead: Ahead): Promise<void> {
    if (ahead.link === 'missing') {
      const { bytes, at } = linkTo(ahead.segment.id, this.#id)
      writeAll(this.#open().file, bytes, at)
      ahead.link = 'written'
    }
    if (ahead.link === 'durable' || this.#durable) return
    try {
      await syncOrFail(this.#open().file)
      ahead.link = 'durable'
    } catch (error) {
      this.#failure = error
      throw error
    }
  }

  /** The next segment, if a sync that begins now makes the link to it durable. */
  #linkWritten(): Ahead | undefined {
    return this.#ahead?.link === 'written' ? this.#ahead : undefined
  }

  #syncLink(): void {
    try {
      this.sync()
    } catch (error) {
      this.#failure = unconfirmed(error)
      throw this.#failure
    }
  }
}

function ignoreFailure(action: () => void): void {
  try {
    action()
  } catch {
    // Each caller says why a failure is harmless.
  }
}
