import { type ByteString, utf8 } from './bytes.ts'
import { AnnalsError, type ErrorDetails } from './errors.ts'

export interface TextLimits {
  readonly bytesMax: number
}

const ASCII_WITHOUT_NUL = /^[\x01-\x7f]+$/

/**
 * Checks a name, key or id that a caller passed in, and returns its UTF-8 bytes. `name` is the argument's name in the error.
 * Lone surrogates are invalid because they would all become the same bytes, U+0000 because it separates the parts of
 * stored keys.
 */
export function checkText(name: string, value: unknown, limits: TextLimits): ByteString {
  const { bytesMax } = limits
  if (typeof value !== 'string')
    return refuse(name, 'not a string', { type: value === null ? 'null' : typeof value })
  // A char takes at least one byte, so a long text is refused without looking at all of it.
  if (value.length > bytesMax) return refuse(name, `more than ${bytesMax} bytes`, { bytesMax })
  if (ASCII_WITHOUT_NUL.test(value)) return value
  if (value.length === 0) return refuse(name, 'empty', { bytesMax })
  if (value.includes('\0')) return refuse(name, 'contains U+0000')
  if (!value.isWellFormed()) return refuse(name, 'contains a lone surrogate')
  const bytes = utf8(value)
  if (bytes.length > bytesMax)
    return refuse(name, `more than ${bytesMax} bytes`, { bytesMax, bytes: bytes.length })
  return bytes
}

const TAG_BYTES_MAX = 256

/** Checks tags that a caller passed in, and returns them without duplicates. */
export function checkTags(tags: unknown): readonly string[] {
  if (!Array.isArray(tags)) return refuse('tags', 'not an array of strings')
  // Copied first, so that the tags that are checked are the tags that are used.
  const once = new Set<string>(tags)
  for (const tag of once) checkText('tag', tag, { bytesMax: TAG_BYTES_MAX })
  return Object.freeze([...once])
}

function refuse(name: string, reason: string, details: ErrorDetails = {}): never {
  throw new AnnalsError('INVALID_ARGUMENT', `invalid ${name}: ${reason}`, { name, reason, ...details })
}
