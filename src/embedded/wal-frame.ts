import { crc32 } from 'node:zlib'
import { type ByteString, Views } from '../core/bytes.ts'
import { viewOf } from '../disk/disk.ts'
import { type Change, dropOf, removalOf } from './change.ts'

/**
 * A frame is a batch of commits that one write adds to the log. It is valid as a whole or not at all. Numbers are
 * little-endian, and the frame is padded to 8 bytes.
 *
 *   0  magic            u32
 *   4  crc              u32, of the bytes from 8 to the frame's end
 *   8  length           u32, of the frame with its header and padding
 *  12  segment          u32, the number of the segment; reopening a log with commits begins a new one
 *  16  first version    f64, of the first commit; the other commits have the next versions
 *  24  durable version  f64, of the newest commit that was durable when the frame was written; damage to a commit
 *                       up to this version is corruption, damage to a later one is a torn tail
 *  32  commits          u32
 *  36  previous crc     u32, the crc of the frame before, possibly in an earlier segment; it reveals a gap, or a frame
 *                       of another store
 *  40  for each commit  f64 time, u32 changes, and for each change
 *        u8 flags (1 same tree as the change before, 2 removal, 4 expires, 8 drop of the whole tree, 16 own time),
 *        u16 key length, u32 value length, [u8 tag, u16 scope length, scope], [f64 expiresAt], [f64 time], key, value
 *
 * Heads of logs are not stored, because recovery derives them from the appends.
 */
const FRAME_HEADER_BYTES = 40
const CHECKED_AT = 8
export const FRAME_ALIGN = 8
/**
 * The number of zeros that every write adds after its frame. The next frame overwrites them. A log without them at its
 * end was truncated, even if it was truncated exactly between two frames.
 */
export const END_BYTES = 8
/** Longer than any valid frame, because commits have a much lower limit. */
const FRAME_BYTES_MAX = 1024 * 1024 * 1024
const MAGIC = 0x4652_4e41
/** The fixed part of a change: flags and lengths. */
const CHANGE_BYTES = 7
const SAME_TREE = 1
const REMOVAL = 2
const EXPIRES = 4
const DROP = 8
const OWN_TIME = 16
const BUFFER_KEPT_BYTES = 8 * 1024 * 1024

/** Encodes commits into a frame. The buffer is reused for the next frame. */
export class FrameWriter {
  commits = 0
  firstVersion = 0
  #buffer = Buffer.allocUnsafeSlow(64 * 1024)
  #view = viewOf(this.#buffer)
  /** Views of the whole frame, and of the part that the checksum covers. */
  #frames = new Views(this.#buffer)
  #checked = new Views(this.#buffer, CHECKED_AT)
  #used = FRAME_HEADER_BYTES
  #begunAt = 0
  #countAt = 0
  #changes = 0
  #time = 0
  #scope: ByteString = ''
  #tag = -1

  /** Begins a commit, to which the following changes belong. */
  begin(version: number, time: number): void {
    this.#close()
    if (this.commits === 0) this.firstVersion = version
    this.commits++
    this.#room(12)
    this.#begunAt = this.#used
    this.#time = time
    this.#view.setFloat64(this.#used, time, true)
    this.#countAt = this.#used + 8
    this.#used += 12
  }

  /** Removes the commit that was begun last. */
  abandon(): void {
    this.commits--
    this.#used = this.#begunAt
    this.#countAt = 0
    this.#changes = 0
    this.#tag = -1
    this.#scope = ''
  }

  /** Adds a change to the current commit. */
  change(scope: ByteString, tag: number, change: Change): void {
    const { key, value, time, expiresAt, removes } = change
    this.#room(32 + scope.length + key.length + value.length)
    const view = this.#view
    const buffer = this.#buffer
    const start = this.#used
    let flags = 0
    view.setUint16(start + 1, key.length, true)
    view.setUint32(start + 3, value.length, true)
    let o = start + CHANGE_BYTES
    if (tag === this.#tag && scope === this.#scope) flags |= SAME_TREE
    else {
      view.setUint8(o, tag)
      view.setUint16(o + 1, scope.length, true)
      buffer.latin1Write(scope, o + 3)
      o += 3 + scope.length
      this.#scope = scope
      this.#tag = tag
    }
    if (removes !== undefined) flags |= removes === 'tree' ? DROP : REMOVAL
    else if (expiresAt !== 0) {
      flags |= EXPIRES
      view.setFloat64(o, expiresAt, true)
      o += 8
    }
    if (time !== this.#time) {
      flags |= OWN_TIME
      view.setFloat64(o, time, true)
      o += 8
    }
    view.setUint8(start, flags)
    buffer.latin1Write(key, o)
    o += key.length
    buffer.latin1Write(value, o)
    this.#used = o + value.length
    this.#changes++
  }

  /** Completes the frame. Returns it with the zeros after it, valid until `reset`. */
  finish(segment: number, durableVersion: number, previousCrc: number): Buffer {
    this.#close()
    const padding = -this.#used & (FRAME_ALIGN - 1)
    this.#room(padding + END_BYTES)
    // For so few bytes a loop is faster than `fill`.
    for (let i = this.#used + padding + END_BYTES; --i >= this.#used; ) this.#buffer[i] = 0
    const length = this.#used + padding
    const view = this.#view
    view.setUint32(0, MAGIC, true)
    view.setUint32(8, length, true)
    view.setUint32(12, segment, true)
    view.setFloat64(16, this.firstVersion, true)
    view.setFloat64(24, durableVersion, true)
    view.setUint32(32, this.commits, true)
    view.setUint32(36, previousCrc, true)
    view.setUint32(4, crc32(this.#checked.upTo(length)), true)
    return this.#frames.upTo(length + END_BYTES)
  }

  /** The size of the frame so far. */
  get bytes(): number {
    return this.#used
  }

  get lastVersion(): number {
    return this.firstVersion + this.commits - 1
  }

  reset(): void {
    this.commits = 0
    this.#used = FRAME_HEADER_BYTES
    this.#countAt = 0
    this.#changes = 0
    this.#tag = -1
    this.#scope = ''
    // Otherwise one large commit would keep its buffer in memory for ever.
    if (this.#buffer.length > BUFFER_KEPT_BYTES) this.#grow(64 * 1024)
  }

  #close(): void {
    if (this.#countAt !== 0) this.#view.setUint32(this.#countAt, this.#changes, true)
    this.#changes = 0
  }

  #room(bytes: number): void {
    if (this.#used + bytes <= this.#buffer.length) return
    const before = this.#buffer
    this.#grow(Math.max(before.length * 2, this.#used + bytes))
    before.copy(this.#buffer, 0, 0, this.#used)
  }

  #grow(bytes: number): void {
    this.#buffer = Buffer.allocUnsafeSlow(bytes)
    this.#view = viewOf(this.#buffer)
    this.#frames = new Views(this.#buffer)
    this.#checked = new Views(this.#buffer, CHECKED_AT)
  }
}

/** The header of a valid frame, and its offset in the segment. */
export interface Frame {
  readonly offset: number
  readonly length: number
  readonly crc: number
  readonly previousCrc: number
  readonly firstVersion: number
  readonly lastVersion: number
  readonly durableVersion: number
}

/** The checksum of a finished frame. */
export function crcOf(frame: Buffer): number {
  return frame.readUInt32LE(4)
}

/** The frame at `offset`; undefined if there is no valid frame of this segment. */
export function frameAt(bytes: Buffer, view: DataView, offset: number, segment: number): Frame | undefined {
  if (offset + FRAME_HEADER_BYTES > bytes.length || view.getUint32(offset, true) !== MAGIC) return undefined
  const length = view.getUint32(offset + 8, true)
  if (length < FRAME_HEADER_BYTES || length > FRAME_BYTES_MAX || offset + length > bytes.length)
    return undefined
  if (view.getUint32(offset + 12, true) !== segment) return undefined
  if (view.getUint32(offset + 4, true) !== crc32(bytes.subarray(offset + CHECKED_AT, offset + length)))
    return undefined
  const firstVersion = view.getFloat64(offset + 16, true)
  return {
    offset,
    length,
    crc: view.getUint32(offset + 4, true),
    previousCrc: view.getUint32(offset + 36, true),
    firstVersion,
    lastVersion: firstVersion + view.getUint32(offset + 32, true) - 1,
    durableVersion: view.getFloat64(offset + 24, true),
  }
}

/** Receives the content of a frame in order: each commit, followed by its changes. */
export interface FrameVisitor {
  commit(version: number, time: number): void
  /** `offset` is the argument for `decodeChange`. The key is empty for a drop, and only for a drop. */
  change(scope: ByteString, tag: number, key: ByteString, offset: number): void
}

const CHANGES_A_PAUSE = 256

/** Passes a valid frame to the visitor without decoding values. Returns the time of the last commit. */
export function* readFrame(
  frame: Frame,
  bytes: Buffer,
  view: DataView,
  visitor: FrameVisitor,
): Generator<void, number, void> {
  let o = frame.offset + FRAME_HEADER_BYTES
  let scope = ''
  let tag = 0
  let time = 0
  for (let version = frame.firstVersion; version <= frame.lastVersion; version++) {
    time = view.getFloat64(o, true)
    let changes = view.getUint32(o + 8, true)
    o += 12
    visitor.commit(version, time)
    for (; changes > 0; changes--) {
      const offset = o
      const flags = view.getUint8(o)
      const keyLength = view.getUint16(o + 1, true)
      const valueLength = view.getUint32(o + 3, true)
      o += CHANGE_BYTES
      if ((flags & SAME_TREE) === 0) {
        tag = view.getUint8(o)
        const scopeLength = view.getUint16(o + 1, true)
        scope = bytes.latin1Slice(o + 3, o + 3 + scopeLength)
        o += 3 + scopeLength
      }
      if ((flags & EXPIRES) !== 0) o += 8
      if ((flags & OWN_TIME) !== 0) o += 8
      visitor.change(scope, tag, bytes.latin1Slice(o, o + keyLength), offset)
      o += keyLength + valueLength
      if (changes % CHANGES_A_PAUSE === 0) yield
    }
  }
  return time
}

/** Decodes the change at `offset`. Version and time are those of its commit. */
export function decodeChange(
  bytes: Buffer,
  view: DataView,
  offset: number,
  version: number,
  commitTime: number,
): Change {
  const flags = view.getUint8(offset)
  const keyLength = view.getUint16(offset + 1, true)
  const valueLength = view.getUint32(offset + 3, true)
  let o = offset + CHANGE_BYTES
  if ((flags & SAME_TREE) === 0) o += 3 + view.getUint16(o + 1, true)
  let expiresAt = 0
  if ((flags & EXPIRES) !== 0) {
    expiresAt = view.getFloat64(o, true)
    o += 8
  }
  let time = commitTime
  if ((flags & OWN_TIME) !== 0) {
    time = view.getFloat64(o, true)
    o += 8
  }
  const key = bytes.latin1Slice(o, o + keyLength)
  if ((flags & DROP) !== 0) return dropOf(version, time)
  if ((flags & REMOVAL) !== 0) return removalOf(key, version, time)
  const value = bytes.latin1Slice(o + keyLength, o + keyLength + valueLength)
  return { key, value, version, time, expiresAt }
}
