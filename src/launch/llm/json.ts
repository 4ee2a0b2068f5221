import { canonicalJson } from '../../core/canonical-json.ts'
import { sha256Hex } from '../../core/hash.ts'

export type JsonObject = { readonly [name: string]: unknown }

export function isPlainObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** SHA-256 over RFC 8785 canonical JSON, in hex. Refuses what JSON can't hold, lone surrogates, and more than 64 levels. */
export function hashJson(value: unknown): string {
  return sha256Hex(canonicalJson(value))
}

/** `undefined` where the text is no JSON: what others send is an expected outcome. */
export function parseJsonText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/** `JSON.parse` takes any depth; what walks its result does not. Looks no deeper than it must. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return levels === 0 || Object.values(value).some(member => isDeeperThan(member, levels - 1))
}

/** Of a request or an answer. Together with what is around it, it still is within what canonical JSON takes. */
export const DEPTH_OF_PARTS_MAX = 60

/** Lone surrogates become U+FFFD: what a model sends can't be refused, and must have a hash. */
export function wellFormed(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed()
  if (Array.isArray(value)) return value.map(wellFormed)
  if (!isPlainObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name.toWellFormed(), wellFormed(member)]),
  )
}
