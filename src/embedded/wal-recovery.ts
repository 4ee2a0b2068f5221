import { type Disk, viewOf } from '../disk/disk.ts'
import type { TornTail } from '../engine/capabilities.ts'
import { corrupt, fileId, fileName, HEADER_BYTES, readHeader } from './format.ts'
import { RecoveredTail } from './recovered-tail.ts'
import { END_BYTES, FRAME_ALIGN, type Frame, frameAt, readFrame } from './wal-frame.ts'
import { cutSegment, nextOf, SEGMENT_START } from './wal-segment.ts'

/** The result of reading the log. */
export interface Replayed {
  /** The version of the last commit. */
  readonly version: number
  /** The time of the last commit. */
  readonly time: number
  /** The checksum of the last frame. */
  readonly crc: number
  /** How many segments the log has. */
  readonly segments: number
  /** The number of the last segment. */
  readonly lastSegment: number
  /** The number for the next new segment. */
  readonly nextSegment: number
  /** The size of all frames. */
  readonly tailBytes: number
  readonly tail: RecoveredTail
  readonly torn: TornTail | undefined
  /** Places of unexpected bytes at a segment's end or link. No commit is lost, because the log is complete without them. */
  readonly stray: readonly { readonly file: string; readonly offset: number }[]
}

/** The result for a store that was not created yet. */
export const NO_LOG: Replayed = {
  version: 0,
  time: 0,
  crc: 0,
  segments: 0,
  lastSegment: 1,
  nextSegment: 2,
  tailBytes: 0,
  tail: new RecoveredTail(),
  torn: undefined,
  stray: [],
}

/** How many bytes are read or searched between two `yield`s. */
const PIECE_BYTES = 1024 * 1024

interface SegmentBytes {
  readonly id: number
  readonly name: string
  readonly bytes: Buffer
  readonly view: DataView
}

/** The first place of the log that is not a valid frame. */
interface Damage {
  readonly segment: SegmentBytes
  readonly offset: number
}

/** The end of the valid log so far. The next frame must continue it. */
interface LogEnd {
  version: number
  time: number
  crc: number
}

/** The part of the manifest that says where the log begins. */
export interface LogStart {
  readonly storeId: string
  readonly segment: number
  readonly version: number
  readonly time: number
  readonly crc: number
  readonly readOnly: boolean
}

/**
 * Reads the log from `segment` on. Its first commit must follow `version`. A segment that is missing or of another store
 * is corruption. A damaged end is corruption if a later frame proves that it was durable. Otherwise it is a torn tail, and
 * is cut off. Repeating this changes nothing. The caller may pause at each `yield`.
 */
export function* replay(disk: Disk, from: LogStart): Generator<void, Replayed, void> {
  const ids = disk
    .list()
    .map(name => fileId('W', name))
    .filter((id): id is number => id !== undefined && id >= from.segment)
  const stray: { file: string; offset: number }[] = []
  const segments = yield* readChain(disk, from, ids, stray)
  const end: LogEnd = { version: from.version, time: from.time, crc: from.crc }
  let tailBytes = 0
  const tail = new RecoveredTail()
  let damage: Damage | undefined
  for (const [index, segment] of segments.entries()) {
    tail.segment(segment.bytes, segment.view)
    const offset = yield* readFrames(segment, end, function* (frame) {
      end.time = yield* readFrame(frame, segment.bytes, segment.view, tail)
      tailBytes += frame.length
    })
    if (offset === undefined) continue
    if (!goesOn(segments.slice(index + 1), end)) {
      damage = { segment, offset }
      break
    }
    stray.push({ file: segment.name, offset })
  }
  const found = {
    ...end,
    segments: segments.length,
    lastSegment: (segments.at(-1) as SegmentBytes).id,
    nextSegment: Math.max(...ids) + 1,
    tailBytes,
    tail,
    stray,
  }
  if (damage === undefined) return { ...found, torn: undefined }
  yield* refuseIfDurable(segments, damage, end.version + 1)
  const torn = tornTail(segments, damage)
  if (!from.readOnly) cut(disk, segments, damage)
  return { ...found, torn }
}

/** Reads the segments in order, from the first one along the links. */
function* readChain(
  disk: Disk,
  { segment: first, storeId, readOnly }: LogStart,
  ids: readonly number[],
  stray: { file: string; offset: number }[],
): Generator<void, SegmentBytes[], void> {
  const chain: SegmentBytes[] = []
  const rest = new Set(ids)
  for (let id = first, previous: number | undefined; id !== 0; ) {
    const name = fileName('W', id)
    if (!rest.delete(id)) throw corrupt(name, 0, 'the file is missing')
    const segment = yield* readSegment(disk, id, readOnly)
    const header = readHeader('W', id, segment.bytes, storeId)
    if (previous !== undefined && header.previous !== previous) {
      throw corrupt(name, HEADER_BYTES - 8, `its predecessor is ${header.previous}, expected ${previous}`)
    }
    if (segment.bytes.length < SEGMENT_START) throw corrupt(name, segment.bytes.length, 'it is too short')
    chain.push(segment)
    const next = nextOf(segment.bytes, id)
    // A power cut can damage a link that is being written. The next segment is still empty then.
    if (next === undefined) stray.push({ file: name, offset: HEADER_BYTES })
    previous = id
    id = next ?? 0
  }
  yield* refuseUnnamed(disk, [...rest], chain.at(-1) as SegmentBytes)
  return chain
}

/** Checks that segments without a link to them are empty. If one has commits, the link was lost. */
function* refuseUnnamed(disk: Disk, ids: readonly number[], last: SegmentBytes): Generator<void, void, void> {
  for (const id of ids) {
    const segment = yield* readSegment(disk, id, true)
    for (let offset = SEGMENT_START; offset < segment.bytes.length; offset += FRAME_ALIGN) {
      if (offset % PIECE_BYTES === 0) yield
      if (frameAt(segment.bytes, segment.view, offset, id) === undefined) continue
      throw corrupt(last.name, HEADER_BYTES, `the link to ${segment.name}, which contains commits, is lost`)
    }
  }
}

/** Whether the next commit is in a later segment. Then no commit is missing. */
function goesOn(later: readonly SegmentBytes[], end: LogEnd): boolean {
  for (const { bytes, view, id } of later) {
    const frame = frameAt(bytes, view, SEGMENT_START, id)
    if (frame !== undefined) return follows(frame, end)
  }
  return false
}

/** Whether the frame directly continues the log. */
function follows(frame: Frame, end: LogEnd): boolean {
  return frame.firstVersion === end.version + 1 && frame.previousCrc === end.crc
}

function* readSegment(disk: Disk, id: number, readOnly: boolean): Generator<void, SegmentBytes, void> {
  const name = fileName('W', id)
  const file = disk.open(name, readOnly ? 'read' : 'write')
  try {
    // The writes of a killed process may be only in the page cache. They must be durable before we depend on them.
    if (!readOnly) file.sync()
    const buffer = Buffer.allocUnsafeSlow(file.size())
    let length = 0
    while (length < buffer.length) {
      const count = file.read(buffer.subarray(length, length + PIECE_BYTES), length)
      if (count === 0) break
      length += count
      yield
    }
    const bytes = buffer.subarray(0, length)
    return { id, name, bytes, view: viewOf(bytes) }
  } finally {
    file.close()
  }
}

/** Visits the segment's frames and advances `end`. Returns the offset of damage; undefined if the segment is intact. */
function* readFrames(
  { id, bytes, view }: SegmentBytes,
  end: LogEnd,
  visit: (frame: Frame) => Generator<void, void, void>,
): Generator<void, number | undefined, void> {
  let offset = SEGMENT_START
  for (;;) {
    const frame = frameAt(bytes, view, offset, id)
    if (frame === undefined) break
    if (!follows(frame, end)) return offset
    yield* visit(frame)
    end.version = frame.lastVersion
    end.crc = frame.crc
    offset += frame.length
    yield
  }
  return bytes.length - offset >= END_BYTES && (yield* isZero(bytes, offset)) ? undefined : offset
}

/** Throws `CORRUPT` if a valid frame after the damage says that this version was durable. */
function* refuseIfDurable(
  segments: readonly SegmentBytes[],
  damage: Damage,
  version: number,
): Generator<void, void, void> {
  const first = segments.indexOf(damage.segment)
  for (const segment of segments.slice(first)) {
    const start = segment === damage.segment ? damage.offset : SEGMENT_START
    for (let offset = start; offset < segment.bytes.length; offset += FRAME_ALIGN) {
      if (offset % PIECE_BYTES === 0) yield
      const frame = frameAt(segment.bytes, segment.view, offset, segment.id)
      if (frame !== undefined && frame.durableVersion >= version) {
        throw corrupt(damage.segment.name, damage.offset, `commit ${version} was durable, but can't be read`)
      }
    }
  }
}

function tornTail(segments: readonly SegmentBytes[], { segment, offset }: Damage): TornTail {
  let bytes = 0
  for (const each of segments) {
    if (each.id === segment.id) bytes += contentEnd(each.bytes) - offset
    else if (each.id > segment.id) bytes += Math.max(0, contentEnd(each.bytes) - SEGMENT_START)
  }
  return { file: segment.name, offset, bytes: Math.max(0, bytes) }
}

/**
 * Cuts off the torn tail. Later segments are emptied first, because recovery ignores them only while the damage is there.
 * They are not removed, because the links name them.
 */
function cut(disk: Disk, segments: readonly SegmentBytes[], { segment, offset }: Damage): void {
  for (const later of segments) if (later.id > segment.id) cutFile(disk, later.name, SEGMENT_START)
  cutFile(disk, segment.name, offset)
}

function cutFile(disk: Disk, name: string, offset: number): void {
  const file = disk.open(name, 'write')
  try {
    cutSegment(file, offset)
  } finally {
    file.close()
  }
}

function* isZero(bytes: Buffer, from: number): Generator<void, boolean, void> {
  for (let at = from; at < bytes.length; at += PIECE_BYTES) {
    if (contentEnd(bytes.subarray(at, at + PIECE_BYTES)) > 0) return false
    yield
  }
  return true
}

/** The length of the bytes without the zeros at their end. */
function contentEnd(bytes: Buffer): number {
  const zeros = Buffer.alloc(4096)
  let end = bytes.length
  while (end >= zeros.length && zeros.equals(bytes.subarray(end - zeros.length, end))) end -= zeros.length
  while (end > 0 && bytes[end - 1] === 0) end--
  return end
}
