import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'

/**
 * Every file begins with a header of 40 bytes, little-endian. The layout of the first 16 bytes never changes, so any release can
 * tell which format a file has.
 *
 *   0  'ANNALS'   6 bytes
 *   6  kind       1 byte: 'W' write-ahead log, 'D' data, 'M' manifest
 *   7  format     1 byte
 *   8  id         u32, the number in the file's name
 *  12  crc        u32, crc32 of the 12 bytes before
 *  16  store      16 bytes, the id of the file's store
 *  32  previous   u32, in a log segment the number of the previous segment, otherwise 0
 *  36  crc        u32, crc32 of the 20 bytes before
 */
export const FORMAT = 3
export const HEADER_BYTES = 40
/** The offset of the store id, and the length of the part whose layout never changes. */
export const STORE_ID_AT = 16
const STORE_ID_BYTES = 16

/** W: log segment, D: data file, M: manifest. */
export type FileKind = 'W' | 'D' | 'M'

const NAMES: Readonly<Record<FileKind, string>> = { W: 'wal', D: 'data', M: 'manifest' }

/** The name of a file, such as `wal-00000001` or `manifest-0`. */
export function fileName(kind: FileKind, id: number): string {
  return kind === 'M' ? `manifest-${id}` : `${NAMES[kind]}-${String(id).padStart(8, '0')}`
}

/** The number in a file's name, or undefined if it is not the name of such a file. */
export function fileId(kind: FileKind, name: string): number | undefined {
  if (!name.startsWith(NAMES[kind])) return undefined
  const id = Number(name.slice(NAMES[kind].length + 1))
  return id >= 0 && fileName(kind, id) === name ? id : undefined
}

/** The part of a header that is not in the file's name. */
export interface Header {
  /** The id of the file's store, in hex. */
  readonly storeId: string
  /** The number of the previous log segment; 0 for other files. */
  readonly previous: number
}

/** Encodes a header in the current format. */
export function header(kind: FileKind, id: number, { storeId, previous }: Header): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES)
  bytes.write(`ANNALS${kind}`, 'latin1')
  bytes[7] = FORMAT
  bytes.writeUInt32LE(id, 8)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 12)), 12)
  bytes.write(storeId, STORE_ID_AT, STORE_ID_BYTES, 'hex')
  bytes.writeUInt32LE(previous, 32)
  bytes.writeUInt32LE(crc32(bytes.subarray(STORE_ID_AT, 36)), 36)
  return bytes
}

/** Reads a header. Throws if the file is not what its name says, or, if `storeId` is given, belongs to another store. */
export function readHeader(kind: FileKind, id: number, bytes: Buffer, storeId?: string): Header {
  const file = fileName(kind, id)
  const sound =
    bytes.length >= STORE_ID_AT &&
    bytes.latin1Slice(0, 7) === `ANNALS${kind}` &&
    bytes.readUInt32LE(12) === crc32(bytes.subarray(0, 12))
  if (!sound) throw corrupt(file, 0, 'its header is damaged')
  checkFormat(file, bytes[7])
  if (bytes.readUInt32LE(8) !== id) throw corrupt(file, 8, 'its header has another number than its name')
  if (bytes.length < HEADER_BYTES || bytes.readUInt32LE(36) !== crc32(bytes.subarray(STORE_ID_AT, 36)))
    throw corrupt(file, STORE_ID_AT, 'its header is damaged')
  const found = bytes.toString('hex', STORE_ID_AT, STORE_ID_AT + STORE_ID_BYTES)
  if (storeId !== undefined && found !== storeId) {
    throw corrupt(file, STORE_ID_AT, `it belongs to another store, ${found}; this one is ${storeId}`)
  }
  return { storeId: found, previous: bytes.readUInt32LE(32) }
}

function checkFormat(file: string, format: number): void {
  if (format > FORMAT) {
    throw new AnnalsError(
      'FORMAT_TOO_NEW',
      `${file} has format ${format}, but this version of annals reads only format ${FORMAT}. Upgrade annals`,
      { file, format, supported: FORMAT },
    )
  }
  if (format < FORMAT) {
    throw new AnnalsError(
      'FORMAT_TOO_OLD',
      `${file} has format ${format}, but this version of annals reads only format ${FORMAT}. Export the runs with the version that wrote them (annals export), and import them here`,
      { file, format, supported: FORMAT },
    )
  }
}

/** The `CORRUPT` error for a damaged file. */
export function corrupt(file: string, offset: number, why: string): AnnalsError {
  return new AnnalsError('CORRUPT', `${file} is damaged at byte ${offset}: ${why}`, { file, offset, why })
}
