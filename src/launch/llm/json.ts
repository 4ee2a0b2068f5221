import { canonicalJson } from '../../core/canonical-json.ts'
import { sha256Hex } from '../../core/hash.ts'

/** A JSON object. */
export type JsonObject = { readonly [name: string]: unknown }

export function isPlainObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** SHA-256 in hex over RFC 8785 canonical JSON. Refuses values that it can't represent. */
export function hashJson(value: unknown): string {
  return sha256Hex(canonicalJson(value))
}

/** The parsed text; undefined if it is not JSON. */
export function parseJsonText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/** Whether a value has more levels. `JSON.parse` accepts any depth, but recursive functions do not. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return levels === 0 || Object.values(value).some(member => isDeeperThan(member, levels - 1))
}

/** The most levels of a request or an answer. With the fields around it, it is within the limit of canonical JSON. */
export const DEPTH_OF_PARTS_MAX = 60

/** Replaces lone surrogates by U+FFFD, because an answer can't be refused and must have a hash. */
export function wellFormed(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed()
  if (Array.isArray(value)) return value.map(wellFormed)
  if (!isPlainObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name.toWellFormed(), wellFormed(member)]),
  )
}
