import { randomUUID } from 'node:crypto'
import { AnnalsError } from '../core/errors.ts'
import { parseLargeJson } from './large-json.ts'

/** The deepest nesting that a value may have. */
const DEPTH_MAX = 64
/** Only such texts can contain a number that JavaScript rounds. */
const SUSPECT = /\d{16}|\d[eE]/
/** Matches the strings, which are kept, and the numbers in valid JSON. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/**
 * Replaces a number that JavaScript cannot represent, so that only the field with that number is refused. It is random, so no
 * sender can write it.
 */
const LOST = `lost number ${randomUUID()}`
export const LOST_NUMBER = 'has a number that would be rounded or is too large; send it as text'

/** Throws a 400 for invalid JSON. */
export function parseTelemetryJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    return SUSPECT.test(text) ? JSON.parse(text.replace(TOKENS, kept)) : value
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new AnnalsError('INVALID_ARGUMENT', 'the body is not JSON', { name: 'body' })
  }
}

/** The keys of a record are listed several times, which cannot be interrupted. No record needs more. */
const MEMBERS_MAX = 10_000

/** The same for a long body, parsed in slices. */
export function parseLargeTelemetry(bytes: Uint8Array): Promise<unknown> {
  return parseLargeJson(bytes, { membersMax: MEMBERS_MAX, mend: text => text.replace(TOKENS, kept) })
}

function kept(token: string): string {
  if (token.startsWith('"') || !SUSPECT.test(token)) return token
  const value = Number(token)
  if (!Number.isFinite(value)) return `"${LOST}"`
  // A number written as JavaScript writes it reads back the same, even if the value is not exact.
  const isKept = !/^-?\d+$/.test(token) || `${value}` === token || BigInt(token) === BigInt(value)
  return isKept ? token : `"${LOST}"`
}

/** Why a parsed value cannot be returned as it was sent; undefined if it can. */
export function jsonProblem(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string') return textProblem(value)
  if (typeof value !== 'object' || value === null) return undefined
  if (depth === DEPTH_MAX) return `is nested deeper than ${DEPTH_MAX}`
  for (const [key, member] of Object.entries(value)) {
    const problem = textProblem(key) ?? jsonProblem(member, depth + 1)
    if (problem !== undefined) return problem
  }
  return undefined
}

function textProblem(text: string): string | undefined {
  if (text === LOST) return LOST_NUMBER
  return text.isWellFormed() ? undefined : 'has a lone surrogate'
}

/** Whether this stands for a number that could not be represented. */
export function isLost(value: unknown): boolean {
  return value === LOST
}
