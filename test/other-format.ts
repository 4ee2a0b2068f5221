import { crc32 } from 'node:zlib'

/** The bytes of a store's file, as if written by a release with another format. */
export function inFormat(format: number, bytes: Uint8Array): Buffer {
  const changed = Buffer.from(bytes)
  changed[7] = format
  changed.writeUInt32LE(crc32(changed.subarray(0, 12)), 12)
  return changed
}
