import { isUtf8 } from 'node:buffer'
import { type ByteString, isAscii } from './bytes.ts'
import { canonicalBytes, DEPTH_MAX, tryPart } from './canonical-json.ts'
import { AnnalsError } from './errors.ts'
import { type PartDecoder, readLarge } from './large-value.ts'
import { writeLarge } from './large-write.ts'
import { mapInSlices, runInSlices } from './slices.ts'

/**
 * A value that Annals can store. It is read back exactly as it was written, including NaN, ±Infinity, -0 and U+0000. Everything
 * else (functions, dates, class instances, lone surrogates) is refused with `INVALID_ARGUMENT`.
 *
 * The encoding is canonical: equal values have equal bytes. It is RFC 8785 JSON in UTF-8. A leaf that JSON can't hold becomes
 * a string that starts with U+0000 and one letter:
 *
 * | leaf | string |
 * |---|---|
 * | bigint | U+0000 `i`, decimal digits |
 * | bytes | U+0000 `b`, base64 with padding |
 * | NaN, Infinity, -Infinity, -0 | U+0000 `n`, `p`, `m`, `z` |
 * | a string that starts with U+0000 | U+0000 `s`, the string |
 *
 * Every string that starts with U+0000 gets the letter `s`, so no two different values share an encoding. A plain JSON value is
 * encoded as its canonical JSON.
 */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Value[]
  | { readonly [key: string]: Value }

/** Encodes a value, up to 16 MiB, in one step. */
export function encodeValue(value: unknown): ByteString {
  return canonicalBytes(value, encodeLeaf)
}

/** A value with a longer text is encoded in slices. */
const AT_ONCE_BYTES = 128 * 1024
const AT_ONCE_LIMITS = { depthMax: DEPTH_MAX, bytesMax: AT_ONCE_BYTES }

/** Encodes a value unless its text is longer than 128 KiB; then returns undefined. */
export function encodeAtOnce(value: unknown): ByteString | undefined {
  const bytes = tryPart(value, [], encodeLeaf, AT_ONCE_LIMITS)
  // Reading a char makes V8 join the pieces and let go of the caller's strings.
  return bytes?.charCodeAt(0) === 0 ? '' : bytes
}

/**
 * Encodes a value that a caller passed in. A short value is encoded before the call returns, so that the caller may change it
 * then. A long one is encoded in slices; a change before the promise settles may or may not be encoded.
 */
export function encodeGiven(value: unknown): ByteString | Promise<ByteString> {
  return encodeAtOnce(value) ?? runInSlices(writeLarge(value, encodeLeaf))
}

/**
 * Encodes a record with values of the caller in its fields. Each field has the limits of a value, so that a record never makes a
 * value too deep or too large. The names of fields must need no escaping.
 */
export function encodeRecord(fields: Readonly<Record<string, unknown>>): ByteString {
  return joinFields(encodeFields(fields))
}

/** The fields of a record, each encoded by itself. */
export function encodeFields(fields: Readonly<Record<string, unknown>>): Record<string, ByteString> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, encodeField(name, value, encodeValue)]),
  )
}

/** Encodes fields that a caller passed in: short ones before the call returns, long ones in slices. See `encodeGiven`. */
export function encodeGivenFields(
  fields: Readonly<Record<string, unknown>>,
): Record<string, ByteString> | Promise<Record<string, ByteString>> {
  type Field = readonly [name: string, bytes: ByteString]
  const encode = ([name, value]: readonly [string, unknown]): Field | Promise<Field> => {
    const bytes = encodeField(name, value, encodeGiven)
    if (typeof bytes === 'string') return [name, bytes]
    return bytes.then(
      encoded => [name, encoded],
      error => refuseField(name, error),
    )
  }
  const encoded = mapInSlices(Object.entries(fields), encode, (_, [, bytes]) => bytes.length)
  return encoded instanceof Promise ? encoded.then(Object.fromEntries) : Object.fromEntries(encoded)
}

function encodeField<T>(name: string, value: unknown, encode: (value: unknown) => T): T {
  try {
    return encode(value)
  } catch (error) {
    return refuseField(name, error)
  }
}

/** Throws the error again with the field's name in its path. */
function refuseField(name: string, error: unknown): never {
  if (!(error instanceof AnnalsError)) throw error
  const { path, reason } = error.details
  const whole = `$.${name}${String(path).slice(1)}`
  throw new AnnalsError(error.code, `invalid value at ${whole}: ${reason}`, { path: whole, reason })
}

/** The largest record: a value of the largest size with other fields around it. Engines store this much under one key. */
export const RECORD_BYTES_MAX: number = 17 * 1024 * 1024

/** The record of fields that are encoded already. */
export function joinFields(fields: Readonly<Record<string, ByteString>>): ByteString {
  const names = Object.keys(fields).sort()
  const record = `{${names.map(name => `"${name}":${fields[name]}`).join(',')}}`
  if (record.length > RECORD_BYTES_MAX) refuseRecord(fields, record.length)
  return record
}

/** Each field may be within its limit while the record is not. */
function refuseRecord(fields: Readonly<Record<string, ByteString>>, bytes: number): never {
  const [[largest], [next]] = Object.entries(fields).sort(([, a], [, b]) => b.length - a.length)
  const message = `the record would have ${bytes} bytes, and ${RECORD_BYTES_MAX} are allowed: ${largest} and ${next} are too large together`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: largest, bytes, bytesMax: RECORD_BYTES_MAX })
}

/** The deepest stored nesting: a value in a record in a record. */
const STORED_DEPTH_MAX = DEPTH_MAX + 2

const INT64_MIN = -(2n ** 63n)
const INT64_MAX = 2n ** 63n - 1n

/** @internal The string that stands for a leaf that JSON can't hold. */
export function encodeLeaf(leaf: number | bigint | string | Uint8Array): string | undefined {
  switch (typeof leaf) {
    case 'string':
      return `\0s${leaf}`
    case 'bigint':
      return leaf < INT64_MIN || leaf > INT64_MAX ? undefined : `\0i${leaf}`
    case 'number':
      return leaf === 0 ? '\0z' : leaf > 0 ? '\0p' : leaf < 0 ? '\0m' : '\0n'
    default:
      return `\0b${Buffer.from(leaf.buffer, leaf.byteOffset, leaf.byteLength).toString('base64')}`
  }
}

/**
 * Decodes a value of the type `T` that was encoded, and freezes it deeply. Bytes can't be frozen, so each call returns new copies of them. Throws `CORRUPT` if the
 * bytes are not an encoding. That the encoding is canonical is not checked again, because a checksum guards it.
 */
export function decodeValue<T = Value>(bytes: ByteString): T {
  return decodePart(bytes, 0) as T
}

/** Whether an encoding is so long that it is decoded in slices. */
export function isLarge(bytes: ByteString): boolean {
  return bytes.length > AT_ONCE_BYTES
}

/** Decodes a value of any size: a short one at once, a long one in slices. */
export function decodeStored<T = Value>(bytes: ByteString): T | Promise<T> {
  if (!isLarge(bytes)) return decodePart(bytes, 0) as T
  return runInSlices(readLarge(bytes, PARTS)) as Promise<T>
}

/** Decodes a part that stands within `depth` containers. */
function decodePart(bytes: ByteString, depth: number): Value {
  const text = textOf(bytes)
  const value = parse(text)
  // Only control characters such as U+0000 are written with \u. Without one, no string stands for another leaf.
  if (text.includes('\\u')) return revive(value, depth)
  if (typeof value === 'object' && value !== null) freeze(value, depth + 1)
  return value
}

/** @internal Decodes the parts of a large value. */
export const PARTS: PartDecoder = {
  decodePart,
  decodeText: text => (text.charCodeAt(0) === 0 ? decodeLeaf(text) : text),
  depthMax: STORED_DEPTH_MAX,
  refuse: corrupt,
}

/** Parses stored JSON and freezes it deeply. Throws `CORRUPT` if it is not JSON. */
export function decodeJson(bytes: ByteString): unknown {
  const value = parseJson(bytes)
  if (typeof value === 'object' && value !== null) freeze(value, 0)
  return value
}

/** Parses stored JSON without freezing it, for callers that do not hand it on. */
export function parseJson(bytes: ByteString): unknown {
  return parse(textOf(bytes))
}

function parse(text: string): Value {
  try {
    return JSON.parse(text)
  } catch (error) {
    return corrupt('not JSON', error)
  }
}

function textOf(bytes: ByteString): string {
  if (isAscii(bytes)) return bytes
  const buffer = Buffer.from(bytes, 'latin1')
  return isUtf8(buffer) ? buffer.utf8Slice() : corrupt('not UTF-8')
}

function freeze(container: object, depth: number): void {
  if (depth > STORED_DEPTH_MAX) corrupt('nested too deep')
  if (Array.isArray(container)) {
    for (let i = 0; i < container.length; i++) {
      const value: unknown = container[i]
      if (typeof value === 'object' && value !== null) freeze(value, depth + 1)
    }
  } else freezeProperties(container as Record<string, unknown>, depth)
  Object.freeze(container)
}

/** `for … in` needs no array of the values. Properties that a program put on `Object.prototype` are left alone. */
function freezeProperties(container: Record<string, unknown>, depth: number): void {
  for (const key in container) {
    const value = container[key]
    if (typeof value === 'object' && value !== null && Object.hasOwn(container, key)) freeze(value, depth + 1)
  }
}

/** Freezes a value deeply, and replaces strings that stand for other leaves by these leaves. */
function revive(value: Value, depth: number): Value {
  if (typeof value === 'string') {
    if (value.charCodeAt(0) === 0) return decodeLeaf(value)
    return value.isWellFormed() ? value : corrupt('a lone surrogate')
  }
  if (typeof value !== 'object' || value === null) return value
  if (depth === STORED_DEPTH_MAX) corrupt('nested too deep')
  // All properties, `__proto__` included, were made by JSON.parse and are own ones, so assigning calls no setter.
  const container = value as unknown as Record<string, Value>
  for (const key of Object.keys(container)) {
    if (!key.isWellFormed()) corrupt('a lone surrogate')
    container[key] = revive(container[key], depth + 1)
  }
  return Object.freeze(value)
}

const DECIMAL = /^(0|-?[1-9][0-9]{0,18})$/

function decodeLeaf(text: string): Value {
  const rest = text.slice(2)
  switch (text[1]) {
    case 's':
      return rest.charCodeAt(0) === 0 && rest.isWellFormed() ? rest : corrupt('a string')
    case 'i': {
      const number = DECIMAL.test(rest) ? BigInt(rest) : corrupt('a bigint')
      return number >= INT64_MIN && number <= INT64_MAX ? number : corrupt('a bigint')
    }
    case 'b': {
      const buffer = Buffer.from(rest, 'base64')
      // A copy, because the buffer may be a part of Node's pool, which other code writes to.
      return buffer.toString('base64') === rest ? new Uint8Array(buffer) : corrupt('bytes')
    }
    default: {
      const number = NUMBERS[text]
      return number === undefined ? corrupt('a leaf') : number
    }
  }
}

const NUMBERS: Readonly<Record<string, number>> = {
  '\0n': Number.NaN,
  '\0p': Number.POSITIVE_INFINITY,
  '\0m': Number.NEGATIVE_INFINITY,
  '\0z': -0,
}

function corrupt(what: string, cause?: unknown): never {
  throw new AnnalsError('CORRUPT', `a stored value can't be read: ${what}`, { reason: what }, cause)
}
