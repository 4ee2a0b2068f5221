import { randomUUID } from 'node:crypto'
import { AnnalsError } from '../core/errors.ts'
import { parseLargeJson } from './large-json.ts'

/** Containers within containers that a value may have. */
const DEPTH_MAX = 64
/** Only such texts can have a number that JavaScript has not. */
const SUSPECT = /\d{16}|\d[eE]/
/** In JSON that is known to be some: strings, which stay, and numbers. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/**
 * Stands where a number was that JavaScript can't hold: whichever field it is in is refused, and no other. Nobody can
 * write it, as nobody knows it.
 */
const LOST = `lost number ${randomUUID()}`
export const LOST_NUMBER = 'has a number that would be rounded, or is too large: send it as text'

/** `400` for what is no JSON at all. */
export function parseTelemetryJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    return SUSPECT.test(text) ? JSON.parse(text.replace(TOKENS, kept)) : value
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new AnnalsError('INVALID_ARGUMENT', 'the body is not JSON', { name: 'body' })
  }
}

/** The fields of a record are listed several times, in one go each; no record needs more. */
const MEMBERS_MAX = 10_000

/** The same for a long body, in slices. */
export function parseLargeTelemetry(bytes: Uint8Array): Promise<unknown> {
  return parseLargeJson(bytes, { membersMax: MEMBERS_MAX, mend: text => text.replace(TOKENS, kept) })
}

function kept(token: string): string {
  if (token.startsWith('"') || !SUSPECT.test(token)) return token
  const value = Number(token)
  if (!Number.isFinite(value)) return `"${LOST}"`
  // Written as JavaScript writes it, it comes back the same, also if it is not exactly that number.
  const isKept = !/^-?\d+$/.test(token) || `${value}` === token || BigInt(token) === BigInt(value)
  return isKept ? token : `"${LOST}"`
}

/** Why this, which was read from JSON, can't be given back as it came; undefined if it can. */
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

/** Whether a number was lost here. */
export function isLost(value: unknown): boolean {
  return value === LOST
}
