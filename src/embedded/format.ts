import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'

/**
 * What every file begins with: 16 bytes whose layout never changes, so that
 * any version can refuse the files of a newer one by name.
 *
 *   0  'ANNALS'   6 bytes
 *   6  kind       1 byte: 'W' write-ahead log, 'D' data, 'M' manifest
 *   7  format     1 byte
 *   8  id         u32, the number in the file's name
 *  12  crc        u32, of the 12 bytes before
 */
export const FORMAT = 1
export const HEADER_BYTES = 16

export type FileKind = 'W' | 'D' | 'M'

const NAMES: Readonly<Record<FileKind, string>> = { W: 'wal', D: 'data', M: 'manifest' }

export function fileName(kind: FileKind, id: number): string {
  return kind === 'M' ? `manifest-${id}` : `${NAMES[kind]}-${String(id).padStart(8, '0')}`
}

/** The number of a file of this kind, or undefined if the name is of something else. */
export function fileId(kind: FileKind, name: string): number | undefined {
  if (!name.startsWith(NAMES[kind])) return undefined
  const id = Number(name.slice(NAMES[kind].length + 1))
  return id >= 0 && fileName(kind, id) === name ? id : undefined
}

export function header(kind: FileKind, id: number, format: number = FORMAT): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES)
  bytes.write(`ANNALS${kind}`, 'latin1')
  bytes[7] = format
  bytes.writeUInt32LE(id, 8)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 12)), 12)
  return bytes
}

/** Refuses a file that is not what its name says. */
export function checkHeader(kind: FileKind, id: number, bytes: Buffer): void {
  const file = fileName(kind, id)
  const sound =
    bytes.length >= HEADER_BYTES &&
    bytes.latin1Slice(0, 7) === `ANNALS${kind}` &&
    bytes.readUInt32LE(12) === crc32(bytes.subarray(0, 12))
  if (!sound) throw corrupt(file, 0, 'its header is damaged')
  const format = bytes[7]
  if (format > FORMAT) {
    throw new AnnalsError(
      'FORMAT_TOO_NEW',
      `${file} has format ${format}; this version of annals reads up to ${FORMAT}: upgrade annals`,
      { file, format, supported: FORMAT },
    )
  }
  if (bytes.readUInt32LE(8) !== id) throw corrupt(file, 8, 'it is another file than its name says')
}

export function corrupt(file: string, offset: number, why: string): AnnalsError {
  return new AnnalsError('CORRUPT', `${file} is damaged at byte ${offset}: ${why}`, { file, offset, why })
}
