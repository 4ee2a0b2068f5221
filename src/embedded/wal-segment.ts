import { crc32 } from 'node:zlib'
import { type DiskFile, isFull, writeAll } from '../disk/disk.ts'
import { HEADER_BYTES, header } from './format.ts'
import { END_BYTES } from './wal-frame.ts'

/**
 * A segment of the log: the header of every file, which names the segment before it, then a link to the segment behind
 * it, then frames.
 *
 *  40  next    u32, the number of the segment that follows
 *  44  crc     u32, of that number and the segment's own; both are 0 as long as no segment follows
 *  48  frames
 *
 * The manifest names the first segment, and each segment the next one. A segment is on the device, by its name too,
 * before anything names it; and it is named, on the device, before it gets its first frame. So a segment that is missing
 * was lost, and one that nothing names has never held a commit.
 */
export const SEGMENT_START: number = HEADER_BYTES + 8
const NEXT_AT = HEADER_BYTES

/** The beginning of a segment that holds nothing yet. */
export function segmentStart(id: number, storeId: string, previous: number): Buffer {
  return Buffer.concat([
    header('W', id, { storeId, previous }),
    Buffer.alloc(SEGMENT_START - HEADER_BYTES + END_BYTES),
  ])
}

/** The bytes that name the successor of segment `id`, and where they go. */
export function linkTo(next: number, id: number): { readonly bytes: Buffer; readonly at: number } {
  const bytes = Buffer.alloc(8)
  bytes.writeUInt32LE(next, 0)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 4), id), 4)
  return { bytes, at: NEXT_AT }
}

/** The number of the segment that follows `id`; 0 if there is none, undefined if the link makes no sense. */
export function nextOf(bytes: Buffer, id: number): number | undefined {
  if (bytes.length < SEGMENT_START) return undefined
  const link = bytes.subarray(NEXT_AT, SEGMENT_START)
  const next = link.readUInt32LE(0)
  if (next === 0 && link.readUInt32LE(4) === 0) return 0
  return next > id && link.equals(linkTo(next, id).bytes) ? next : undefined
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
