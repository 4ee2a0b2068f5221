import { crc32 } from 'node:zlib'
import { type DiskFile, isFull, writeAll } from '../disk/disk.ts'
import { HEADER_BYTES, header } from './format.ts'
import { END_BYTES } from './wal-frame.ts'

/**
 * A segment of the log has the header of every file, which names the previous segment, then a link to the next segment,
 * then frames.
 *
 *  40  next    u32, the number of the next segment
 *  44  crc     u32, of that number and the segment's own number; `next` and `crc` are 0 while there is no next segment
 *  48  frames
 *
 * The manifest names the first segment, and each segment names the next one. A segment and its directory entry are durable
 * before a link names it, and the link is durable before the segment gets its first frame. So a named segment that is
 * missing was lost, and a segment without a link never contained a commit.
 */
export const SEGMENT_START: number = HEADER_BYTES + 8
const NEXT_AT = HEADER_BYTES

/** The bytes of an empty segment. */
export function segmentStart(id: number, storeId: string, previous: number): Buffer {
  return Buffer.concat([
    header('W', id, { storeId, previous }),
    Buffer.alloc(SEGMENT_START - HEADER_BYTES + END_BYTES),
  ])
}

/** The link from segment `id` to segment `next`, and its offset. */
export function linkTo(next: number, id: number): { readonly bytes: Buffer; readonly at: number } {
  const bytes = Buffer.alloc(8)
  bytes.writeUInt32LE(next, 0)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 4), id), 4)
  return { bytes, at: NEXT_AT }
}

/** The number of the segment after `id`; 0 if there is none, undefined if the link is invalid. */
export function nextOf(bytes: Buffer, id: number): number | undefined {
  if (bytes.length < SEGMENT_START) return undefined
  const link = bytes.subarray(NEXT_AT, SEGMENT_START)
  const next = link.readUInt32LE(0)
  if (next === 0 && link.readUInt32LE(4) === 0) return 0
  return next > id && link.equals(linkTo(next, id).bytes) ? next : undefined
}

/** Truncates a segment after `position`, and syncs it. */
export function cutSegment(file: DiskFile, position: number): void {
  let size = position
  try {
    // This overwrites existing bytes before the file is truncated, so it usually needs no room.
    writeAll(file, Buffer.alloc(END_BYTES), position)
    size += END_BYTES
  } catch (error) {
    // On a full disk there may be no room for the zeros. Then the next opening reports a torn tail without lost commits.
    if (!isFull(error)) throw error
  }
  file.truncate(size)
  file.sync()
}
