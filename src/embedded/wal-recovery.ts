import { type Disk, viewOf } from '../disk/disk.ts'
import type { TornTail } from '../engine/capabilities.ts'
import { corrupt, fileId, fileName, HEADER_BYTES, readHeader } from './format.ts'
import { RecoveredTail } from './recovered-tail.ts'
import { END_BYTES, FRAME_ALIGN, type Frame, frameAt, readFrame } from './wal-frame.ts'
import { cutSegment, nextOf, SEGMENT_START } from './wal-segment.ts'

export interface Replayed {
  /** Of the last commit found. */
  readonly version: number
  readonly time: number
  /** Of the last frame. */
  readonly crc: number
  /** How many segments the log has, and the number of the last one. */
  readonly segments: number
  readonly lastSegment: number
  /** The first number that no segment has. */
  readonly nextSegment: number
  readonly tailBytes: number
  readonly tail: RecoveredTail
  readonly torn: TornTail | undefined
  /** Bytes behind a segment's end that should be zero and are not. No commit was there: the log goes on elsewhere. */
  readonly stray: readonly { readonly file: string; readonly offset: number }[]
}

/** Of a store that is not created yet. */
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

/** What is read, or searched, before a pause. */
const PIECE_BYTES = 1024 * 1024

interface SegmentBytes {
  readonly id: number
  readonly name: string
  readonly bytes: Buffer
  readonly view: DataView
}

interface Damage {
  readonly segment: SegmentBytes
  readonly offset: number
}

/** What the log has to go on from. */
interface LogEnd {
  version: number
  time: number
  crc: number
}

export interface LogStart {
  readonly storeId: string
  readonly segment: number
  readonly version: number
  readonly time: number
  readonly crc: number
  readonly readOnly: boolean
}

/**
 * Reads the log from `segment` on, where it has to go on from `version`. A segment that is missing, or of another store,
 * is corruption. So is an end that is not whole, if something behind it proves that it once was durable; otherwise it is
 * cut off. Doing this twice changes nothing. It can pause at each `yield`, because a log may be long.
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

/** The segments in their order: the first one, and each one that the one before it names. */
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
      throw corrupt(name, HEADER_BYTES - 8, `it follows segment ${header.previous}, not ${previous}`)
    }
    if (segment.bytes.length < SEGMENT_START) throw corrupt(name, segment.bytes.length, 'it ends early')
    chain.push(segment)
    const next = nextOf(segment.bytes, id)
    // A power cut may tear a link that is being written. The segment that it was to name is empty then.
    if (next === undefined) stray.push({ file: name, offset: HEADER_BYTES })
    previous = id
    id = next ?? 0
  }
  yield* refuseUnnamed(disk, [...rest], chain.at(-1) as SegmentBytes)
  return chain
}

/** A segment that none names was about to be used, and is empty. If it holds commits, then the link to it is lost. */
function* refuseUnnamed(disk: Disk, ids: readonly number[], last: SegmentBytes): Generator<void, void, void> {
  for (const id of ids) {
    const segment = yield* readSegment(disk, id, true)
    for (let offset = SEGMENT_START; offset < segment.bytes.length; offset += FRAME_ALIGN) {
      if (offset % PIECE_BYTES === 0) yield
      if (frameAt(segment.bytes, segment.view, offset, id) === undefined) continue
      throw corrupt(last.name, HEADER_BYTES, `${segment.name} holds commits, and no segment leads to it`)
    }
  }
}

/** Whether the next commit stands in a later segment: then nothing is missing before it. */
function goesOn(later: readonly SegmentBytes[], end: LogEnd): boolean {
  for (const { bytes, view, id } of later) {
    const frame = frameAt(bytes, view, SEGMENT_START, id)
    if (frame !== undefined) return follows(frame, end)
  }
  return false
}

/** No gap, and no frame of another log. */
function follows(frame: Frame, end: LogEnd): boolean {
  return frame.firstVersion === end.version + 1 && frame.previousCrc === end.crc
}

function* readSegment(disk: Disk, id: number, readOnly: boolean): Generator<void, SegmentBytes, void> {
  const name = fileName('W', id)
  const file = disk.open(name, readOnly ? 'read' : 'write')
  try {
    // What a killed process wrote may be in the system's memory only. Nobody may build on it before it is on disk.
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

/** Visits frames, and moves the end on; answers where the segment stops making sense, undefined if it ends well. */
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

/** A sound frame behind the damage that says this version was durable makes the damage corruption. */
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
        throw corrupt(damage.segment.name, damage.offset, `commit ${version} was durable and can't be read`)
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

/** Later segments first: as long as the damage is there, they don't count. They stay, since the one before names them. */
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

/** Where the zeros at the end begin. */
function contentEnd(bytes: Buffer): number {
  const zeros = Buffer.alloc(4096)
  let end = bytes.length
  while (end >= zeros.length && zeros.equals(bytes.subarray(end - zeros.length, end))) end -= zeros.length
  while (end > 0 && bytes[end - 1] === 0) end--
  return end
}
