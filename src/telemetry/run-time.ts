import { formatRfc3339, parseRfc3339 } from '../core/time.ts'

/** The first time that a run can have. Times are RFC 3339 with any offset, from year 0000 to 9999 in UTC. */
export const FIRST_MS: number = parseRfc3339('0000-01-01T00:00:00Z') as number
const LAST_MS = parseRfc3339('9999-12-31T23:59:59.999Z') as number

/** A time in milliseconds since 1970; undefined if it is invalid. */
export function parseTime(text: string): number | undefined {
  const ms = parseRfc3339(text, { offset: 'any' })
  return ms === undefined || ms < FIRST_MS || ms > LAST_MS ? undefined : ms
}

/** A time in UTC with milliseconds; undefined if it is invalid. */
export function normalTime(text: string): string | undefined {
  const ms = parseTime(text)
  return ms === undefined ? undefined : formatRfc3339(ms)
}
