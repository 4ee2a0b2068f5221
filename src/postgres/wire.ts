import type { ByteString } from '../core/bytes.ts'

/**
 * PostgreSQL's formats. Arrays are sent in binary, as one buffer each, which
 * `pg` passes on as it is; as text, bytes would be twice as long.
 */

const OID = { bool: 16, bytea: 17, int8: 20, int2: 21, int4: 23 } as const
const ARRAY_OIDS = { bool: 1000, bytea: 1001, int8: 1016, int4: 1007 } as const
const HEADER_BYTES = 20

function array(oid: number, count: number, bodyBytes: number): Buffer {
  if (count === 0) return emptyArray(oid)
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + bodyBytes)
  buffer.writeInt32BE(1, 0)
  buffer.writeInt32BE(1, 4)
  buffer.writeInt32BE(oid, 8)
  buffer.writeInt32BE(count, 12)
  buffer.writeInt32BE(1, 16)
  return buffer
}

/** Most arrays of most calls are empty. */
const EMPTY_ARRAYS = new Map<number, Buffer>()

function emptyArray(oid: number): Buffer {
  let empty = EMPTY_ARRAYS.get(oid)
  if (empty === undefined) {
    empty = Buffer.alloc(12)
    empty.writeInt32BE(oid, 8)
    EMPTY_ARRAYS.set(oid, empty)
  }
  return empty
}

export function byteaArray(items: readonly (ByteString | undefined)[]): Buffer {
  let bytes = 0
  for (const item of items) bytes += 4 + (item?.length ?? 0)
  const buffer = array(OID.bytea, items.length, bytes)
  let at = HEADER_BYTES
  for (const item of items) {
    at = buffer.writeInt32BE(item === undefined ? -1 : item.length, at)
    if (item !== undefined) at += buffer.latin1Write(item, at, item.length)
  }
  return buffer
}

function fixedArray<T>(
  oid: number,
  width: number,
  items: readonly (T | undefined)[],
  write: (buffer: Buffer, item: T, at: number) => void,
): Buffer {
  let bytes = 0
  for (const item of items) bytes += item === undefined ? 4 : 4 + width
  const buffer = array(oid, items.length, bytes)
  let at = HEADER_BYTES
  for (const item of items) {
    at = buffer.writeInt32BE(item === undefined ? -1 : width, at)
    if (item === undefined) continue
    write(buffer, item, at)
    at += width
  }
  return buffer
}

export function int4Array(items: readonly (number | undefined)[]): Buffer {
  return fixedArray(OID.int4, 4, items, (buffer, item, at) => buffer.writeInt32BE(item, at))
}

export function int2Array(items: readonly number[]): Buffer {
  return fixedArray(OID.int2, 2, items, (buffer, item, at) => buffer.writeInt16BE(item, at))
}

export function int8Array(items: readonly (number | bigint | undefined)[]): Buffer {
  return fixedArray(OID.int8, 8, items, writeInt8)
}

export function boolArray(items: readonly boolean[]): Buffer {
  return fixedArray(OID.bool, 1, items, (buffer, item, at) => buffer.writeUInt8(item ? 1 : 0, at))
}

function writeInt8(buffer: Buffer, item: number | bigint, at: number): void {
  if (typeof item === 'bigint') {
    buffer.writeBigInt64BE(item, at)
    return
  }
  buffer.writeInt32BE(Math.floor(item / 0x1_0000_0000), at)
  buffer.writeUInt32BE(item >>> 0, at + 4)
}

/** `\\x` and hex digits, as the server writes bytes. */
function readBytes(text: string): ByteString {
  return Buffer.from(text.slice(2), 'hex').latin1Slice()
}

/** `{1,2,NULL}`; for items that hold neither a comma nor a quote of their own. */
function readArray<T>(text: string, read: (item: string) => T): (T | undefined)[] {
  if (text === '{}') return []
  return text
    .slice(1, -1)
    .split(',')
    .map(item => (item === 'NULL' ? undefined : read(item)))
}

/** An item of an array is in quotes, with its backslash doubled. */
function readQuotedBytes(item: string): ByteString {
  return Buffer.from(item.slice(4, -1), 'hex').latin1Slice()
}

const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  [OID.bool]: text => text === 't',
  [OID.bytea]: readBytes,
  [OID.int8]: Number,
  [OID.int2]: Number,
  [OID.int4]: Number,
  [ARRAY_OIDS.bool]: text => readArray(text, item => item === 't'),
  [ARRAY_OIDS.bytea]: text => readArray(text, readQuotedBytes),
  [ARRAY_OIDS.int8]: text => readArray(text, Number),
  [ARRAY_OIDS.int4]: text => readArray(text, Number),
}

/**
 * How `pg` reads results: bytes as byte strings, 64-bit integers as numbers; all of ours are safe ones. As text, because
 * `pg` takes whatever comes for UTF-8, and binary results would not survive that.
 */
export const RESULT_TYPES: { getTypeParser(oid: number): (text: string) => unknown } = {
  getTypeParser: oid => PARSERS[oid] ?? String,
}
