import type { ByteString } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'

/**
 * PostgreSQL's binary format. Parameters are composite records and arrays of
 * them, encoded here: as text, bytes would be twice as long and four times as
 * slow to parse. Answers come as one record in the same format, converted to
 * bytes by the server (`record_send`): `pg` decodes every result as UTF-8, which would
 * destroy a binary one.
 */
export interface Codec<T> {
  /** The id of the type. 0 for a composite type: its id differs between schemas, and the server does not check it. */
  readonly oid: number
  readonly isNullable?: boolean
  write(writer: Writer, value: T): void
  read(buffer: Buffer, start: number, end: number): T
}

export interface RecordCodec<T> extends Codec<T> {
  /** The fields in their order. */
  readonly fields: { readonly [K in keyof T]: Codec<T[K]> }
}

const FIRST_BYTES = 64 * 1024
/** The writer gives up its buffer after a longer parameter, so that a rare large commit does not occupy memory forever. */
const REUSED_BYTES_MAX = 1024 * 1024
/** Below this length a loop copies a string faster than a native call. */
const SHORT_CHARS = 24

/** A buffer that grows. It is used for one parameter after the other. */
class Writer {
  #buffer = Buffer.allocUnsafe(FIRST_BYTES)
  #view = viewOf(this.#buffer)
  #at = 0

  int8(value: number): void {
    const at = this.#grow(1)
    this.#view.setUint8(at, value)
  }

  int16(value: number): void {
    const at = this.#grow(2)
    this.#view.setInt16(at, value)
  }

  int32(value: number): void {
    const at = this.#grow(4)
    this.#view.setInt32(at, value)
  }

  int64(value: bigint): void {
    const at = this.#grow(8)
    this.#view.setBigInt64(at, value)
  }

  bytes(value: ByteString): void {
    const start = this.#grow(value.length)
    if (value.length > SHORT_CHARS) this.#buffer.latin1Write(value, start, value.length)
    else for (let i = 0; i < value.length; i++) this.#buffer[start + i] = value.charCodeAt(i)
  }

  /** Leaves room for a length, which `endPart` fills in. */
  beginPart(): number {
    return this.#grow(4) + 4
  }

  endPart(start: number): void {
    this.#view.setInt32(start - 4, this.#at - start)
  }

  /** Returns what was written, and empties the writer. */
  take(): Buffer {
    const written = this.#buffer.subarray(0, this.#at)
    const taken = this.#at > REUSED_BYTES_MAX ? written : Buffer.from(written)
    this.clear()
    return taken
  }

  /** Discards what was written. */
  clear(): void {
    if (this.#at > REUSED_BYTES_MAX) {
      this.#buffer = Buffer.allocUnsafe(FIRST_BYTES)
      this.#view = viewOf(this.#buffer)
    }
    this.#at = 0
  }

  /** Returns the position of so many new bytes. It may replace the view, so call it before using the view. */
  #grow(bytes: number): number {
    const start = this.#at
    this.#at += bytes
    if (this.#at > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(2 * this.#at)
      this.#buffer.copy(larger)
      this.#buffer = larger
      this.#view = viewOf(larger)
    }
    return start
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Buffer): DataView {
  return new DataView(buffer, byteOffset, byteLength)
}

const OID = { bool: 16, bytea: 17, int8: 20, int2: 21, int4: 23, int4Array: 1007 } as const

export const bool: Codec<boolean> = {
  oid: OID.bool,
  write: (writer, value) => writer.int8(value ? 1 : 0),
  read: (buffer, start) => buffer[start] === 1,
}

export const int2: Codec<number> = {
  oid: OID.int2,
  write: (writer, value) => writer.int16(value),
  read: (buffer, start) => buffer.readInt16BE(start),
}

export const int4: Codec<number> = {
  oid: OID.int4,
  write: (writer, value) => writer.int32(value),
  read: (buffer, start) => buffer.readInt32BE(start),
}

const INT4_VALUES = 0x1_0000_0000

/** A 64-bit integer that is safe as a number. */
export const int8: Codec<number> = {
  oid: OID.int8,
  write(writer, value) {
    writer.int32(Math.floor(value / INT4_VALUES))
    writer.int32(value >>> 0)
  },
  read: (buffer, start) => buffer.readInt32BE(start) * INT4_VALUES + buffer.readUInt32BE(start + 4),
}

/** Any 64-bit integer. */
export const bigInt8: Codec<bigint> = {
  oid: OID.int8,
  write: (writer, value) => writer.int64(value),
  read: (buffer, start) => buffer.readBigInt64BE(start),
}

export const bytea: Codec<ByteString> = {
  oid: OID.bytea,
  write: (writer, value) => writer.bytes(value),
  read: (buffer, start, end) => buffer.latin1Slice(start, end),
}

/** A field that may be NULL, which is `undefined` here. */
export function nullable<T>(codec: Codec<T>): Codec<T | undefined> {
  return { ...codec, isNullable: true } as Codec<T | undefined>
}

const NULL_BYTES = -1

/** A composite type with these fields, in this order. */
export function record<T extends object>(fields: RecordCodec<T>['fields']): RecordCodec<T> {
  const columns: readonly (readonly [string, Codec<unknown>])[] = Object.entries(fields)
  return {
    oid: 0,
    fields,
    write(writer, value) {
      writer.int32(columns.length)
      for (const [name, codec] of columns) {
        const item = (value as Readonly<Record<string, unknown>>)[name]
        writer.int32(codec.oid)
        if (item === undefined) {
          writer.int32(NULL_BYTES)
          continue
        }
        const start = writer.beginPart()
        codec.write(writer, item)
        writer.endPart(start)
      }
    },
    read(buffer, start) {
      const value: Record<string, unknown> = {}
      let at = start + 4
      for (const [name, codec] of columns) {
        const bytes = buffer.readInt32BE(at + 4)
        at += 8
        invariant(bytes !== NULL_BYTES || codec.isNullable === true, `the server sent no ${name}`)
        if (bytes === NULL_BYTES) value[name] = undefined
        else {
          value[name] = codec.read(buffer, at, at + bytes)
          at += bytes
        }
      }
      return value as T
    },
  }
}

/** An empty array has no dimension, and so only the first three numbers of the header. */
const EMPTY_ARRAY_BYTES = 12
const ARRAY_HEADER_BYTES = 20

/** An array of one dimension, without NULLs. `oid` is the id of the array type, 0 for arrays of a composite type. */
export function arrayOf<T>(item: Codec<T>, oid = 0): Codec<readonly T[]> {
  return {
    oid,
    write(writer, items) {
      writer.int32(items.length === 0 ? 0 : 1)
      writer.int32(0)
      writer.int32(item.oid)
      if (items.length === 0) return
      writer.int32(items.length)
      writer.int32(1)
      for (const each of items) {
        const start = writer.beginPart()
        item.write(writer, each)
        writer.endPart(start)
      }
    },
    read(buffer, start) {
      if (buffer.readInt32BE(start) === 0) return []
      const items = new Array<T>(buffer.readInt32BE(start + EMPTY_ARRAY_BYTES))
      let at = start + ARRAY_HEADER_BYTES
      for (let i = 0; i < items.length; i++) {
        const end = at + 4 + buffer.readInt32BE(at)
        items[i] = item.read(buffer, at + 4, end)
        at = end
      }
      return items
    },
  }
}

export const int4Array: Codec<readonly number[]> = arrayOf(int4, OID.int4Array)

const writer = new Writer()

/** A parameter for `pg`, which sends buffers as binary. */
export function encoded<T>(codec: Codec<T>, value: T): Buffer {
  try {
    codec.write(writer, value)
    return writer.take()
  } catch (error) {
    // All stores share the writer, so the bytes before the error would begin the next parameter of any of them.
    writer.clear()
    throw error
  }
}

/** The value in an answer of the server. */
export function decoded<T>(codec: Codec<T>, bytes: ByteString): T {
  return codec.read(Buffer.from(bytes, 'latin1'), 0, bytes.length)
}

const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  [OID.bool]: text => text === 't',
  // The server writes bytes as `\x` and hex digits.
  [OID.bytea]: text => Buffer.from(text.slice(2), 'hex').latin1Slice(),
  [OID.int8]: Number,
  [OID.int2]: Number,
  [OID.int4]: Number,
}

/** How `pg` reads columns: bytes as byte strings, 64-bit integers as numbers (all of ours are safe). */
export const RESULT_TYPES: { getTypeParser(oid: number): (text: string) => unknown } = {
  getTypeParser: oid => PARSERS[oid] ?? String,
}
