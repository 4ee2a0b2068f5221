import { decodedLength, decodePart, fromBase64, PART_CHARS, toBase64 } from './base64.ts'
import { AnnalsError } from './errors.ts'
import { isSliceOver, nextSlice } from './slices.ts'
import type { Value } from './value.ts'

/**
 * Values as JSON on the wire. A leaf that JSON can't hold is a string that begins with U+0000, as in stored values (`value.ts`
 * has the table). Runs in browsers too.
 */

const INT64_MIN = -(2n ** 63n)
const INT64_MAX = 2n ** 63n - 1n
const DEPTH_MAX = 64
/** The most containers that a message has around a value. */
const RECORD_DEPTH = 8

/** Turns a value into JSON for `JSON.stringify`. */
export function toJson(value: unknown): unknown {
  return encoded(value, 0)
}

/** Turns the JSON of `toJson` back into the value. Throws `INVALID_ARGUMENT` if no value has this JSON. */
export function fromJson<T = Value>(json: unknown): T {
  return decoded(json, 0) as T
}

/**
 * Does the same as `fromJson` for a value of any size, in slices. It changes its argument, which must come from `JSON.parse`,
 * into the value, so that memory holds it once.
 */
export async function fromLargeJson(json: unknown): Promise<Value> {
  const around: { readonly container: Record<string, unknown>; readonly keys: Keys; next: number }[] = []
  // A container around the value, because the value itself may be a leaf to replace.
  const root = { value: json }
  around.push({ container: root, keys: ['value'], next: 0 })
  for (let looks = 0; around.length > 0; looks++) {
    if (looks % STEPS_A_LOOK === 0 && isSliceOver()) await nextSlice()
    const top = around[around.length - 1]
    if (top.next === lengthOf(top.keys)) {
      if (top.container !== root) Object.freeze(top.container)
      around.pop()
      continue
    }
    const key = typeof top.keys === 'number' ? top.next++ : top.keys[top.next++]
    const item = top.container[key]
    if (typeof item === 'object' && item !== null) {
      if (around.length - 1 > DEPTH_MAX + RECORD_DEPTH) throw tooDeep()
      const keys = Array.isArray(item) ? item.length : Object.keys(item)
      around.push({ container: item as Record<string, unknown>, keys, next: 0 })
    } else if (typeof item === 'string' && item.length > PART_CHARS && item.startsWith('\0b')) {
      top.container[key] = await largeBytesIn(item)
    } else {
      const leaf = decoded(item, 0)
      if (leaf !== item) top.container[key] = leaf
    }
  }
  return root.value as Value
}

/** The keys of an object, or the length of an array. */
type Keys = readonly string[] | number

function lengthOf(keys: Keys): number {
  return typeof keys === 'number' ? keys : keys.length
}

const STEPS_A_LOOK = 64

async function largeBytesIn(text: string): Promise<Uint8Array> {
  const base64 = text.slice(2)
  const length = decodedLength(base64)
  const bytes = new Uint8Array(length ?? 0)
  for (let at = 0; length !== undefined && at < base64.length; at += PART_CHARS) {
    if (isSliceOver()) await nextSlice()
    if (!decodePart(base64, at, bytes)) throw meaningless()
  }
  if (length === undefined) throw meaningless()
  return bytes
}

function encoded(value: unknown, depth: number): unknown {
  switch (typeof value) {
    case 'string':
      return value.charCodeAt(0) === 0 ? `\0s${value}` : value
    case 'number':
      if (Number.isFinite(value)) return Object.is(value, -0) ? '\0z' : value
      return Number.isNaN(value) ? '\0n' : value > 0 ? '\0p' : '\0m'
    case 'bigint':
      if (value < INT64_MIN || value > INT64_MAX) throw refused('a bigint out of range')
      return `\0i${value}`
    case 'boolean':
      return value
    case 'object':
      if (value === null) return null
      if (depth > DEPTH_MAX + RECORD_DEPTH) throw tooDeep()
      if (value instanceof Uint8Array) return `\0b${toBase64(value)}`
      return Array.isArray(value) ? encodedArray(value, depth) : encodedObject(value, depth)
    default:
      throw refused(
        value === undefined
          ? "undefined can't be stored: use null, or leave the key out"
          : `a ${typeof value} can't be stored`,
      )
  }
}

function encodedArray(values: readonly unknown[], depth: number): readonly unknown[] {
  // Unlike `map`, `Array.from` does not skip holes.
  return Array.from(values, value => encoded(value, depth + 1))
}

function encodedObject(value: object, depth: number): object {
  const prototype: unknown = Object.getPrototypeOf(value)
  // Plain objects of another realm are allowed, instances of classes are not.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    throw refused("an instance of a class can't be stored: store a plain object, an array or a Uint8Array")
  const copy: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(value))
    copy[key] = encoded((value as Record<string, unknown>)[key], depth + 1)
  return copy
}

function decoded(json: unknown, depth: number): Value {
  switch (typeof json) {
    case 'string':
      if (!json.isWellFormed()) throw refused('a string with a lone surrogate')
      return json.charCodeAt(0) === 0 ? leafOf(json) : json
    case 'number':
      if (!Number.isFinite(json)) throw refused(`the number ${json}`)
      return json
    case 'boolean':
      return json
    case 'object': {
      if (json === null) return null
      if (depth > DEPTH_MAX + RECORD_DEPTH) throw tooDeep()
      if (Array.isArray(json)) return Object.freeze(json.map(item => decoded(item, depth + 1)))
      const copy: Record<string, Value> = {}
      for (const [key, item] of Object.entries(json)) {
        // Assigning `__proto__` would call a setter.
        Object.defineProperty(copy, key, {
          value: decoded(item, depth + 1),
          enumerable: true,
          configurable: true,
          writable: true,
        })
      }
      return Object.freeze(copy)
    }
    default:
      throw refused(`a ${typeof json} is not JSON`)
  }
}

const NUMBERS: Readonly<Record<string, number>> = {
  '\0n': Number.NaN,
  '\0p': Number.POSITIVE_INFINITY,
  '\0m': Number.NEGATIVE_INFINITY,
  '\0z': -0,
}
const DECIMAL = /^(0|-?[1-9][0-9]{0,18})$/

function leafOf(text: string): Value {
  const rest = text.slice(2)
  switch (text[1]) {
    case 's':
      if (rest.charCodeAt(0) === 0) return rest
      break
    case 'i': {
      const number = DECIMAL.test(rest) ? BigInt(rest) : undefined
      if (number !== undefined && number >= INT64_MIN && number <= INT64_MAX) return number
      break
    }
    case 'b': {
      const bytes = fromBase64(rest)
      if (bytes !== undefined) return bytes
      break
    }
    default:
      if (Object.hasOwn(NUMBERS, text)) return NUMBERS[text]
  }
  throw meaningless()
}

function tooDeep(): AnnalsError {
  return refused(`more than ${DEPTH_MAX} nested containers`)
}

function meaningless(): AnnalsError {
  return refused('a string that begins with U+0000 and stands for nothing')
}

function refused(reason: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `invalid value: ${reason}`, { name: 'value', reason })
}
