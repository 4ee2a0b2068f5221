import { type ByteString, fromBuffer, fromUtf8, utf8 } from './bytes.ts'
import { AnnalsError } from './errors.ts'
import { GIVEN_LAYOUTS, SORTED_LAYOUTS } from './key-layout.ts'

/**
 * Canonical JSON (RFC 8785): exactly one text for each JSON value. Keys are sorted by UTF-16 code units, numbers and strings are
 * written as ECMAScript writes them, and there is no white space. Stored values are written in the same way, except that their
 * keys keep the order of the object.
 *
 * Checking and writing are one pass. It reads each property exactly once, so that the checked value is the written value, and
 * is as fast as a check followed by `JSON.stringify`. It writes UTF-8 bytes, because one character beyond Latin-1 would
 * make V8 store the whole text two bytes per char.
 */

/** The deepest nesting of containers. The limit also ends cycles. */
export const DEPTH_MAX = 64

/** The longest text in UTF-8. Checked while writing, because a small graph of shared containers can have an endless text. */
export const BYTES_MAX: number = 16 * 1024 * 1024

/** Encodes a leaf that JSON can't hold, or a string that looks like such an encoding. Undefined if the leaf has none. */
export type EncodeLeaf = (leaf: number | bigint | string | Uint8Array) => string | undefined

/** How a value is written. */
export class JsonForm {
  /** Whether keys are sorted. Otherwise they keep the order of the object. */
  readonly isSorted: boolean
  /** Encodes the leaves that JSON can't hold. Without it they are refused. */
  readonly encodeLeaf: EncodeLeaf | undefined
  /** The bytes of the value so far, which stand behind its text. Undefined if `encodeLeaf` encodes bytes too. */
  attached: ByteString | undefined

  constructor(isSorted: boolean, encodeLeaf: EncodeLeaf | undefined, attached: ByteString | undefined) {
    this.isSorted = isSorted
    this.encodeLeaf = encodeLeaf
    this.attached = attached
  }
}

/** Canonical JSON without leaves of its own. */
const PLAIN_JSON = new JsonForm(true, undefined, undefined)

/** Limits of one text. A text made from many values may be deeper and longer than each of them. */
export interface JsonLimits {
  readonly depthMax: number
  readonly bytesMax: number
}

const VALUE_LIMITS: JsonLimits = { depthMax: DEPTH_MAX, bytesMax: BYTES_MAX }
/** The limits of the value that is being written. Writing is synchronous, so one variable is enough. */
let limits = VALUE_LIMITS

/** The canonical text of a JSON value. -0 is written 0, as the RFC says. */
export function canonicalJson(value: unknown, within: JsonLimits = VALUE_LIMITS): string {
  return fromUtf8(writeRoot(value, PLAIN_JSON, within))
}

/** The canonical text in UTF-8. */
export function canonicalJsonBytes(value: unknown, within: JsonLimits = VALUE_LIMITS): ByteString {
  return writeRoot(value, PLAIN_JSON, within)
}

/** The canonical text for use in a longer text. V8 has not joined its pieces yet; joining the longer text does that. */
export function canonicalJsonPart(value: unknown): ByteString {
  return writePart(value, PLAIN_JSON, VALUE_LIMITS)
}

/** The text of a value in a given form. */
export function writeRoot(value: unknown, form: JsonForm, within: JsonLimits = VALUE_LIMITS): ByteString {
  const bytes = writePart(value, form, within)
  // Reading a char makes V8 join the pieces and release the caller's strings. The comparison, which is never true, keeps V8
  // from removing the read.
  return bytes.charCodeAt(0) === 0 ? '' : bytes
}

function writePart(value: unknown, form: JsonForm, within: JsonLimits): ByteString {
  limits = within
  const bytes = write(value, 0, form)
  if (bytes.length > limits.bytesMax) tooLarge(0)
  return bytes
}

/** Thrown instead of a refusal while a part is tried. */
const TOO_LONG = new Error('the text is longer than was asked for')
let isTried = false

/**
 * @internal The text of a part of a value, found at the path `at`. Undefined if the text or the attached bytes exceed `within`;
 * then the attached bytes are of no use.
 */
export function tryPart(
  value: unknown,
  at: readonly (string | number)[],
  form: JsonForm,
  within: JsonLimits,
): ByteString | undefined {
  for (let i = 0; i < at.length; i++) path[i] = at[i]
  limits = within
  isTried = true
  tried = undefined
  try {
    const bytes = write(value, at.length, form)
    if (bytes.length > within.bytesMax) return undefined
    tried = undefined
    return bytes
  } catch (error) {
    if (error === TOO_LONG) return undefined
    throw error
  } finally {
    isTried = false
  }
}

/** The path of the writer: a key or index for each depth. Used in error messages only. */
const path: (string | number)[] = []

function write(value: unknown, depth: number, form: JsonForm): ByteString {
  switch (typeof value) {
    case 'string':
      return writeString(value, depth, form)
    case 'number':
      // Finite, and not -0.
      if (value - value === 0 && (value !== 0 || 1 / value > 0)) return `${value}`
      if (form.encodeLeaf === undefined && value === 0) return '0'
      return writeLeaf(value, depth, form)
    case 'boolean':
      return value ? 'true' : 'false'
    case 'object':
      if (value === null) return 'null'
      if (Array.isArray(value)) return writeArray(value, depth, form)
      if (ArrayBuffer.isView(value)) return writeView(value, depth, form)
      return writeObject(value, depth, form)
    case 'bigint':
      return writeLeaf(value, depth, form)
    default:
      return refuse(depth, value === undefined ? NO_UNDEFINED : `a ${typeof value} can't be stored`)
  }
}

/** Text that JSON writes without a backslash. An anchored, greedy expression runs fastest. */
const PLAIN = /^[ !#-[\]-\x7f]*$/

function writeString(text: string, depth: number, form: JsonForm): ByteString {
  if (text.length > limits.bytesMax) tooLarge(depth)
  if (PLAIN.test(text)) return `"${text}"`
  if (form.encodeLeaf !== undefined && text.charCodeAt(0) === 0) return writeLeaf(text, depth, form)
  return quote(text, depth)
}

/** @internal A piece of a string as JSON writes it between the quotes. */
export function quotePiece(text: string, at: readonly (string | number)[]): ByteString {
  if (PLAIN.test(text)) return text
  if (!text.isWellFormed()) refuseAt(at, 'a string with a lone surrogate')
  return JSON.stringify(utf8(text)).slice(1, -1)
}

function quote(text: string, depth: number): ByteString {
  if (!text.isWellFormed()) refuse(depth, 'a string with a lone surrogate')
  // JSON escapes only ASCII, so quoting the UTF-8 bytes gives the UTF-8 bytes of the quoted text.
  return JSON.stringify(utf8(text))
}

function writeLeaf(leaf: number | bigint | string | Uint8Array, depth: number, form: JsonForm): ByteString {
  const text = form.encodeLeaf?.(leaf)
  if (text !== undefined) return quote(text, depth)
  if (typeof leaf === 'number') refuse(depth, `the number ${leaf}`)
  refuse(depth, typeof leaf === 'bigint' ? 'a bigint out of range' : 'bytes')
}

function writeView(view: ArrayBufferView, depth: number, form: JsonForm): ByteString {
  if ((view as Uint8Array)[Symbol.toStringTag] !== 'Uint8Array') {
    refuse(depth, instanceReason(view))
  }
  if (view.byteLength + (form.attached?.length ?? 0) > limits.bytesMax) tooLarge(depth)
  if (form.attached === undefined) return writeLeaf(view as Uint8Array, depth, form)
  const bytes = fromBuffer(view as Uint8Array)
  form.attached += bytes
  return attachedLeaf(bytes.length)
}

/** @internal The text that stands for bytes that are attached. */
export function attachedLeaf(bytes: number): ByteString {
  return `"\\u0000r${bytes}"`
}

/** @internal Checks an array that is written piece by piece. */
export function checkArray(values: readonly unknown[], at: readonly (string | number)[]): void {
  for (let i = 0; i < at.length; i++) path[i] = at[i]
  limits = VALUE_LIMITS
  checkArrayAt(values, at.length)
  if (values.length > limits.bytesMax) tooLarge(at.length)
}

function checkArrayAt(values: readonly unknown[], depth: number): void {
  if (depth === limits.depthMax) refuse(depth, `more than ${limits.depthMax} nested containers`)
  if (Object.getPrototypeOf(values) !== Array.prototype) {
    refuse(depth, instanceReason(values))
  }
}

function writeArray(values: readonly unknown[], depth: number, form: JsonForm): ByteString {
  checkArrayAt(values, depth)
  const { length } = values
  // Every element takes at least two bytes, so an array that is too long is refused without looking at its elements.
  if (length > limits.bytesMax) tooLarge(depth)
  let bytes = '['
  for (let i = 0; i < length; i++) {
    path[depth] = i
    const value = values[i]
    if (value === undefined) {
      // A hole reads as undefined.
      refuse(depth + 1, Object.hasOwn(values, i) ? NO_UNDEFINED : 'a hole in an array')
    }
    bytes += i === 0 ? write(value, depth + 1, form) : `,${write(value, depth + 1, form)}`
    if (bytes.length > limits.bytesMax) tooLarge(depth)
  }
  // There is no hole, so if there are more keys than elements, some keys are not indexes.
  if (Object.keys(values).length !== length) refuse(depth, 'an array with keys of its own')
  if (Object.getOwnPropertySymbols(values).length !== 0) refuse(depth, 'an array with symbols as keys')
  return `${bytes}]`
}

/** @internal Checks an object and returns its keys. Called directly after the `tryPart` that found it too long. */
export function checkObject(value: object, at: readonly (string | number)[]): string[] {
  const known = tried
  tried = undefined
  if (known?.value === value) return known.keys
  for (let i = 0; i < at.length; i++) path[i] = at[i]
  limits = VALUE_LIMITS
  return checkObjectAt(value, at.length)
}

/** The keys of the object that `tryPart` tried last, if it has very many. Listing keys is slow and not done twice. */
let tried: { readonly value: object; readonly keys: string[] } | undefined
const VERY_MANY = 4096

function checkObjectAt(value: object, depth: number): string[] {
  if (depth === limits.depthMax) refuse(depth, `more than ${limits.depthMax} nested containers`)
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    refuse(depth, instanceReason(value))
  }
  if (Object.getOwnPropertySymbols(value).length !== 0) refuse(depth, 'an object with symbols as keys')
  const keys = Object.keys(value)
  if (Object.getOwnPropertyNames(value).length !== keys.length) refuse(depth, 'an object with hidden keys')
  if (isTried && keys.length > VERY_MANY) tried = { value, keys }
  return keys
}

function writeObject(value: object, depth: number, form: JsonForm): ByteString {
  const keys = checkObjectAt(value, depth)
  if (keys.length === 0) return '{}'
  const layout = (form.isSorted ? SORTED_LAYOUTS : GIVEN_LAYOUTS).of(keys, limits.bytesMax)
  if (layout === undefined) tooLarge(depth)
  if (!layout.isWellFormed) refuse(depth, 'a key with a lone surrogate')
  const { ordered, prefixes, prefixesOfText } = layout
  let bytes = ''
  // The closing quote of a string is written with the next prefix. Fewer pieces are faster to join.
  let inText: 0 | 1 = 0
  for (let i = 0; i < ordered.length; i++) {
    const key = ordered[i]
    path[depth] = key
    const property = Object.getOwnPropertyDescriptor(value, key)
    // A property is missing only if a Proxy changes meanwhile.
    if (property === undefined || property.get !== undefined || property.set !== undefined) {
      refuse(depth + 1, 'an accessor property')
    }
    const part: unknown = property.value
    if (typeof part === 'string' && part.length < limits.bytesMax && PLAIN.test(part)) {
      bytes += prefixesOfText[inText][i]
      bytes += part
      inText = 1
    } else {
      bytes += prefixes[inText][i]
      bytes += write(part, depth + 1, form)
      inText = 0
    }
    if (bytes.length > limits.bytesMax) tooLarge(depth)
  }
  return inText === 1 ? `${bytes}"}` : `${bytes}}`
}

/** @internal The reason for refusing undefined. */
export const NO_UNDEFINED = "undefined can't be stored: use null, or leave the key out"

/** The reason for refusing an instance of a class, with a value to store instead. */
function instanceReason(value: object): string {
  const name = nameOfClass(value)
  const instead =
    name === 'Date' ? 'store its toISOString()' : 'store a plain object, an array or a Uint8Array'
  return `an instance of ${name} can't be stored: ${instead}`
}

function nameOfClass(value: object): string {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === null) return 'no class'
  const property = Object.getOwnPropertyDescriptor(prototype, 'constructor')
  return typeof property?.value === 'function' ? `${property.value.name || 'a class'}` : 'a class'
}

function tooLarge(depth: number): never {
  if (isTried) throw TOO_LONG
  refuse(depth, `more than ${limits.bytesMax} bytes in its encoding`)
}

function refuse(depth: number, reason: string): never {
  return refuseAt(path.slice(0, depth), reason)
}

/** @internal Throws the error for an invalid part of a value. */
export function refuseAt(steps: readonly (string | number)[], reason: string): never {
  const at = steps.map(step).join('')
  throw new AnnalsError('INVALID_ARGUMENT', `invalid value at $${at}: ${reason}`, { path: `$${at}`, reason })
}

const IDENTIFIER = /^[A-Za-z_$][\w$]*$/

function step(key: string | number): string {
  if (typeof key === 'number') return `[${key}]`
  const short = key.length > 64 ? `${key.slice(0, 64)}…` : key
  return IDENTIFIER.test(short) ? `.${short}` : `[${JSON.stringify(short)}]`
}
