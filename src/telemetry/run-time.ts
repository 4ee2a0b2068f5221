import { formatRfc3339, parseRfc3339 } from '../core/time.ts'

/** Times of runs: RFC 3339 with any offset, of the years 0000 to 9999 in UTC. */

export const FIRST_MS: number = parseRfc3339('0000-01-01T00:00:00Z') as number
const LAST_MS = parseRfc3339('9999-12-31T23:59:59.999Z') as number

/** Milliseconds since 1970; undefined for what is no such time. */
export function parseTime(text: string): number | undefined {
  const ms = parseRfc3339(text, { offset: 'any' })
  return ms === undefined || ms < FIRST_MS || ms > LAST_MS ? undefined : ms
}

/** In UTC with milliseconds. */
export function normalTime(text: string): string | undefined {
  const ms = parseTime(text)
  return ms === undefined ? undefined : formatRfc3339(ms)
}
