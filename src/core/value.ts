import { isUtf8 } from 'node:buffer'
import { AttachedBytes, attach, type Detached, detach } from './attached-bytes.ts'
import { type ByteString, isAscii, toUint8Array } from './bytes.ts'
import {
  attachedLeaf,
  BYTES_MAX,
  DEPTH_MAX,
  JsonForm,
  refuseAt,
  tryPart,
  writeRoot,
} from './canonical-json.ts'
import { AnnalsError } from './errors.ts'
import { type PartDecoder, readLarge } from './large-value.ts'
import { writeLarge } from './large-write.ts'
import { mapInSlices, runInSlices } from './slices.ts'

/**
 * A value that Annals can store. It is read back exactly as it was written, including NaN, ±Infinity, -0, U+0000 and the order
 * of members. Everything else (functions, dates, class instances, lone surrogates) is refused with `INVALID_ARGUMENT`.
 *
 * A value is encoded as JSON in UTF-8. A leaf that JSON can't hold becomes a string that starts with U+0000 and one letter:
 *
 * | leaf | string |
 * |---|---|
 * | bigint | U+0000 `i`, decimal digits |
 * | bytes of a stored value | U+0000 `r`, their number; the bytes stand behind the text (`attached-bytes.ts`) |
 * | bytes of an event's payload | U+0000 `b`, base64 with padding |
 * | NaN, Infinity, -Infinity, -0 | U+0000 `n`, `p`, `m`, `z` |
 * | a string that starts with U+0000 | U+0000 `s`, the string |
 *
 * Every string that starts with U+0000 gets the letter `s`, so no two different values share an encoding.
 *
 * Payloads of events are canonical (RFC 8785), because they are hashed: equal values have equal bytes. Their members come back
 * sorted by name.
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

/** @internal The form of stored values. It collects the bytes of one value, so each value needs its own. */
export function storedForm(): JsonForm {
  return new JsonForm(false, encodeLeaf, '')
}

/** @internal The form of hashed values. */
export const CANONICAL: JsonForm = new JsonForm(true, encodeLeaf, undefined)

/** Encodes a value in one step. */
export function encodeValue(value: unknown): ByteString {
  const form = storedForm()
  return checkSize(attach(writeRoot(value, form), form.attached ?? ''))
}

/** Encodes a value canonically, in one step. */
export function encodeCanonical(value: unknown): ByteString {
  return writeRoot(value, CANONICAL)
}

/** A value with a longer text, or more bytes, is encoded in slices. */
const AT_ONCE_BYTES = 128 * 1024
const AT_ONCE_LIMITS = { depthMax: DEPTH_MAX, bytesMax: AT_ONCE_BYTES }

/** Encodes a value unless its text or its bytes are longer than 128 KiB; then returns undefined. */
export function encodeAtOnce(value: unknown): ByteString | undefined {
  const form = storedForm()
  const text = tryPart(value, [], form, AT_ONCE_LIMITS)
  return text === undefined ? undefined : flattened(attach(text, form.attached ?? ''))
}

/** Reading a char makes V8 join the pieces of a string and let go of the caller's strings. No encoding begins with U+0001. */
function flattened(bytes: ByteString): ByteString {
  return bytes.charCodeAt(0) === 1 ? '' : bytes
}

/**
 * Encodes a value that a caller passed in. A short value is encoded before the call returns, so that the caller may change it
 * then. A long one is encoded in slices; a change before the promise settles may or may not be encoded.
 */
export function encodeGiven(value: unknown): ByteString | Promise<ByteString> {
  return encodeAtOnce(value) ?? runInSlices(writeLarge(value, storedForm())).then(checkSize)
}

/** Encodes a value canonically, as `encodeGiven` does it. */
export function encodeGivenCanonical(
  value: unknown,
  bytesMax: number = BYTES_MAX,
): ByteString | Promise<ByteString> {
  const text = tryPart(value, [], CANONICAL, AT_ONCE_LIMITS)
  return text === undefined ? runInSlices(writeLarge(value, CANONICAL, bytesMax)) : flattened(text)
}

/** The text and the bytes of a value may have 16 MiB each, but one of them must be short. */
const VALUE_BYTES_MAX = BYTES_MAX + 64 * 1024

function checkSize(stored: ByteString): ByteString {
  return stored.length <= VALUE_BYTES_MAX
    ? stored
    : refuseAt([], `more than ${VALUE_BYTES_MAX} bytes of text and bytes together`)
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

/** The record of fields that are encoded already, in the order of the fields. */
export function joinFields(
  fields: Readonly<Record<string, ByteString>>,
  bytesMax: number = RECORD_BYTES_MAX,
): ByteString {
  let attached = ''
  const members = Object.entries(fields).map(([name, field]) => {
    const { text, bytes } = partsOf(field)
    attached += bytes
    return `"${name}":${text}`
  })
  const record = attach(`{${members.join(',')}}`, attached)
  if (record.length > bytesMax) refuseRecord(fields, record.length, bytesMax)
  return record
}

/** The record of fields that are encoded already, sorted by name. */
export function joinSorted(fields: Readonly<Record<string, ByteString>>, bytesMax?: number): ByteString {
  return joinFields(Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1))), bytesMax)
}

/** The text and the bytes of a stored value. Throws `CORRUPT` if they can't be told apart. */
export function partsOf(stored: ByteString): Detached {
  return detach(stored) ?? corrupt('the length of its text')
}

/** Each field may be within its limit while the record is not. */
function refuseRecord(fields: Readonly<Record<string, ByteString>>, bytes: number, bytesMax: number): never {
  const [[largest], [next]] = Object.entries(fields).sort(([, a], [, b]) => b.length - a.length)
  const message = `the record would have ${bytes} bytes, and ${bytesMax} are allowed: ${largest} and ${next} are too large together`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: largest, bytes, bytesMax })
}

/** The deepest stored nesting: a value in a record in a record. */
const STORED_DEPTH_MAX = DEPTH_MAX + 2

const INT64_MIN = -(2n ** 63n)
const INT64_MAX = 2n ** 63n - 1n

/** The string that stands for a leaf that JSON can't hold. */
function encodeLeaf(leaf: number | bigint | string | Uint8Array): string | undefined {
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
 * Decodes a value of the type `T`, and freezes it deeply. Bytes can't be frozen, so each call returns new copies of them. Throws `CORRUPT` if the
 * bytes are not an encoding.
 */
export function decodeValue<T = Value>(stored: ByteString): T {
  return (stored.charCodeAt(0) === 0 ? decodeAttached(stored) : decodePart(stored, 0, NO_BYTES)) as T
}

function decodeAttached(stored: ByteString): Value {
  const { text, bytes } = partsOf(stored)
  // A `Uint8Array` alone, the most common value with bytes, needs no parsing.
  if (text === attachedLeaf(bytes.length)) return toUint8Array(bytes)
  const attached = new AttachedBytes(bytes)
  const value = complete(decodePart(text, 0, attached), attached)
  for (const _ of attached.fill());
  return value
}

/** The bytes of a value that has none. */
const NO_BYTES = new AttachedBytes('')

function complete(value: Value, attached: AttachedBytes): Value {
  return attached.isUsedUp ? value : corrupt('bytes that no leaf stands for')
}

/** Whether an encoding is so long that it is decoded in slices. */
export function isLarge(stored: ByteString): boolean {
  return stored.length > AT_ONCE_BYTES
}

/** Decodes a value of any size: a short one at once, a long one in slices. */
export function decodeStored<T = Value>(stored: ByteString): T | Promise<T> {
  return isLarge(stored) ? (runInSlices(decodeLarge(stored)) as Promise<T>) : decodeValue(stored)
}

/** @internal Decodes a value with pauses. The result is the same as that of `decodeValue`. */
export function* decodeLarge(
  stored: ByteString,
  /** The approximate size of a part that is decoded at once. Tests use very small ones. */
  partBytes?: number,
): Generator<void, Value, void> {
  const { text, bytes } = partsOf(stored)
  const attached = new AttachedBytes(bytes)
  const decoder: PartDecoder = {
    decodePart: (part, depth) => decodePart(part, depth, attached),
    decodeText: part => (part.charCodeAt(0) === 0 ? decodeLeaf(part, attached) : part),
    depthMax: STORED_DEPTH_MAX,
    refuse: corrupt,
  }
  const value = complete((yield* readLarge(text, decoder, partBytes)) as Value, attached)
  yield* attached.fill()
  return value
}

/** Decodes a part that stands within `depth` containers. */
function decodePart(bytes: ByteString, depth: number, attached: AttachedBytes): Value {
  const text = textOf(bytes)
  const value = parse(text)
  // Only control characters such as U+0000 are written with \u. Without one, no string stands for another leaf.
  if (text.includes('\\u')) return revive(value, depth, attached)
  if (typeof value === 'object' && value !== null) freeze(value, depth + 1)
  return value
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
function revive(value: Value, depth: number, attached: AttachedBytes): Value {
  if (typeof value === 'string') {
    if (value.charCodeAt(0) === 0) return decodeLeaf(value, attached)
    return value.isWellFormed() ? value : corrupt('a lone surrogate')
  }
  if (typeof value !== 'object' || value === null) return value
  if (depth === STORED_DEPTH_MAX) corrupt('nested too deep')
  // All properties, `__proto__` included, were made by JSON.parse and are own ones, so assigning calls no setter.
  const container = value as unknown as Record<string, Value>
  for (const key of Object.keys(container)) {
    if (!key.isWellFormed()) corrupt('a lone surrogate')
    container[key] = revive(container[key], depth + 1, attached)
  }
  return Object.freeze(value)
}

const DECIMAL = /^(0|-?[1-9][0-9]{0,18})$/

function decodeLeaf(text: string, attached: AttachedBytes): Value {
  const rest = text.slice(2)
  switch (text[1]) {
    case 's':
      return rest.charCodeAt(0) === 0 && rest.isWellFormed() ? rest : corrupt('a string')
    case 'i': {
      const number = DECIMAL.test(rest) ? BigInt(rest) : corrupt('a bigint')
      return number >= INT64_MIN && number <= INT64_MAX ? number : corrupt('a bigint')
    }
    case 'r':
      return (DECIMAL.test(rest) ? attached.take(Number(rest)) : undefined) ?? corrupt('the number of bytes')
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
