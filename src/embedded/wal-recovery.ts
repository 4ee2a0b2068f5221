import { AnnalsError } from '../core/errors.ts'
import { type Disk, viewOf } from '../disk/disk.ts'
import { checkHeader, corrupt, fileId, fileName, HEADER_BYTES } from './format.ts'
import { RecoveredTail } from './recovered-tail.ts'
import { cutSegment } from './wal.ts'
import { END_BYTES, FRAME_ALIGN, type Frame, frameAt, readFrame } from './wal-frame.ts'

/** The end of the log was not whole: a write that never finished, or was never synced. It was cut off. */
export interface TornTail {
  readonly file: string
  readonly offset: number
  readonly bytes: number
}

export interface Replayed {
  /** Of the last commit found. */
  readonly version: number
  readonly time: number
  /** Of the last frame. */
  readonly crc: number
  /** The first unused segment number. */
  readonly nextSegment: number
  readonly tailBytes: number
  readonly tail: RecoveredTail
  readonly torn: TornTail | undefined
  /** Bytes behind a segment's end that should be zero and are not. No commit was there: the log goes on elsewhere. */
  readonly stray: readonly { readonly file: string; readonly offset: number }[]
}

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

/**
 * Reads the log from `segment` on, where it has to go on from `version`. What is
 * not whole at its end is cut off, unless something behind it proves that it once
 * was durable: then that is corruption. Doing this twice changes nothing.
 */
export function replay(
  disk: Disk,
  from: {
    readonly segment: number
    readonly version: number
    readonly time: number
    readonly crc: number
    readonly readOnly: boolean
  },
): Replayed {
  const ids = disk
    .list()
    .map(name => fileId('W', name))
    .filter((id): id is number => id !== undefined && id >= from.segment)
    .sort((a, b) => a - b)
  const segments = ids.map(id => readSegment(disk, id, from.readOnly))
  const end: LogEnd = { version: from.version, time: from.time, crc: from.crc }
  let tailBytes = 0
  const tail = new RecoveredTail()
  let damage: Damage | undefined
  const stray: { file: string; offset: number }[] = []
  for (const [index, segment] of segments.entries()) {
    tail.segment(segment.bytes, segment.view)
    const offset = readFrames(segment, end, frame => {
      end.time = readFrame(frame, segment.bytes, segment.view, tail)
      tailBytes += frame.length
    })
    if (offset === undefined) continue
    if (!goesOn(segments.slice(index + 1), end)) {
      damage = { segment, offset }
      break
    }
    stray.push({ file: segment.name, offset })
  }
  const nextSegment = Math.max(from.segment, (ids.at(-1) ?? 0) + 1)
  if (damage === undefined) return { ...end, nextSegment, tailBytes, tail, stray, torn: undefined }
  refuseIfDurable(segments, damage, end.version + 1)
  const torn = tornTail(segments, damage)
  if (!from.readOnly) cut(disk, segments, damage)
  return { ...end, nextSegment, tailBytes, tail, stray, torn }
}

/** Whether the next commit stands in a later segment: then nothing is missing before it. */
function goesOn(later: readonly SegmentBytes[], end: LogEnd): boolean {
  for (const { bytes, view, id } of later) {
    const frame = frameAt(bytes, view, HEADER_BYTES, id)
    if (frame !== undefined) return follows(frame, end)
  }
  return false
}

/** No gap, and no frame of another log. */
function follows(frame: Frame, end: LogEnd): boolean {
  return frame.firstVersion === end.version + 1 && frame.previousCrc === end.crc
}

function readSegment(disk: Disk, id: number, readOnly: boolean): SegmentBytes {
  const name = fileName('W', id)
  const file = disk.open(name, readOnly ? 'read' : 'write')
  try {
    // What a killed process wrote may be in the system's memory only. Nobody may build on it before it is on disk.
    if (!readOnly) file.sync()
    const buffer = Buffer.allocUnsafeSlow(file.size())
    const bytes = buffer.subarray(0, file.read(buffer, 0))
    return { id, name, bytes, view: viewOf(bytes) }
  } finally {
    file.close()
  }
}

/** Visits frames, and moves the end on; answers where the segment stops making sense, undefined if it ends well. */
function readFrames(
  { id, bytes, view }: SegmentBytes,
  end: LogEnd,
  visit: (frame: Frame) => void,
): number | undefined {
  try {
    checkHeader('W', id, bytes)
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'CORRUPT') return 0
    throw error
  }
  let offset = HEADER_BYTES
  for (;;) {
    const frame = frameAt(bytes, view, offset, id)
    if (frame === undefined) break
    if (!follows(frame, end)) return offset
    visit(frame)
    end.version = frame.lastVersion
    end.crc = frame.crc
    offset += frame.length
  }
  return bytes.length - offset >= END_BYTES && isZero(bytes, offset) ? undefined : offset
}

/** A sound frame behind the damage that says this version was durable makes the damage corruption. */
function refuseIfDurable(segments: readonly SegmentBytes[], damage: Damage, version: number): void {
  const first = segments.indexOf(damage.segment)
  for (const segment of segments.slice(first)) {
    const start = segment === damage.segment ? Math.max(HEADER_BYTES, damage.offset) : HEADER_BYTES
    for (let offset = start; offset < segment.bytes.length; offset += FRAME_ALIGN) {
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
    else if (each.id > segment.id) bytes += Math.max(0, contentEnd(each.bytes) - HEADER_BYTES)
  }
  return { file: segment.name, offset, bytes: Math.max(0, bytes) }
}

/** Later segments first: as long as the damage is there, they don't count. */
function cut(disk: Disk, segments: readonly SegmentBytes[], { segment, offset }: Damage): void {
  for (const later of segments) if (later.id > segment.id) disk.remove(later.name)
  disk.syncFolder()
  if (offset < HEADER_BYTES) {
    disk.remove(segment.name)
    disk.syncFolder()
    return
  }
  const file = disk.open(segment.name, 'write')
  try {
    cutSegment(file, offset)
  } finally {
    file.close()
  }
}

function isZero(bytes: Buffer, from: number): boolean {
  return contentEnd(bytes) <= from
}

/** Where the zeros at the end begin. */
function contentEnd(bytes: Buffer): number {
  const zeros = Buffer.alloc(4096)
  let end = bytes.length
  while (end >= zeros.length && zeros.equals(bytes.subarray(end - zeros.length, end))) end -= zeros.length
  while (end > 0 && bytes[end - 1] === 0) end--
  return end
}
