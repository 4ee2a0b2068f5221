import { AnnalsError } from './errors.ts'
import type { Value } from './value.ts'

/**
 * Values as JSON between programs: what JSON can't hold is a string that begins with U+0000, as it is where values are
 * stored (`value.ts` has the table). Runs in browsers too; there is nothing of Node in it.
 */

const INT64_MIN = -(2n ** 63n)
const INT64_MAX = 2n ** 63n - 1n
const DEPTH_MAX = 64
/** Records of ours around a value. */
const RECORD_DEPTH = 8

/** What to hand to `JSON.stringify`; the value itself where it is JSON already. */
export function toJson(value: unknown): unknown {
  return encoded(value, 0)
}

/** The value that `toJson` was given; what no value gives is `INVALID_ARGUMENT`. */
export function fromJson(json: unknown): Value {
  return decoded(json, 0)
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
      if (depth > DEPTH_MAX + RECORD_DEPTH) throw refused(`more than ${DEPTH_MAX} nested containers`)
      if (value instanceof Uint8Array) return `\0b${toBase64(value)}`
      return Array.isArray(value) ? encodedArray(value, depth) : encodedObject(value, depth)
    default:
      throw refused(value === undefined ? 'undefined is not a value' : `a ${typeof value} is not a value`)
  }
}

function encodedArray(values: readonly unknown[], depth: number): readonly unknown[] {
  // Not map, which passes over holes.
  return Array.from(values, value => encoded(value, depth + 1))
}

function encodedObject(value: object, depth: number): object {
  const prototype: unknown = Object.getPrototypeOf(value)
  // Of another realm it may be, but not of a class.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) throw refused('an instance of a class')
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
      if (depth > DEPTH_MAX + RECORD_DEPTH) throw refused(`more than ${DEPTH_MAX} nested containers`)
      if (Array.isArray(json)) return Object.freeze(json.map(item => decoded(item, depth + 1)))
      const copy: Record<string, Value> = {}
      for (const [key, item] of Object.entries(json)) {
        // By assignment `__proto__` would reach a setter.
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
  throw refused('a string that begins with U+0000 and stands for nothing')
}

/** `fromCharCode` takes its chars as arguments, of which there may be so many. */
const CHARS_AT_ONCE = 0x8000

function toBase64(bytes: Uint8Array): string {
  let binary = ''
  for (let i = 0; i < bytes.length; i += CHARS_AT_ONCE) {
    binary += String.fromCharCode(...bytes.subarray(i, i + CHARS_AT_ONCE))
  }
  return btoa(binary)
}

function fromBase64(text: string): Uint8Array | undefined {
  try {
    const bytes = Uint8Array.from(atob(text), char => char.charCodeAt(0))
    return toBase64(bytes) === text ? bytes : undefined
  } catch (error) {
    if (error instanceof Error && error.name === 'InvalidCharacterError') return undefined
    throw error
  }
}

function refused(reason: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `invalid value: ${reason}`, { name: 'value', reason })
}
