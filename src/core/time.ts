import { AnnalsError } from './errors.ts'

/** A strict reader and writer of RFC 3339. `Date.parse` also accepts 30 February, dates without a time, and more. */

const RFC3339 = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:Z|([+-])(\d{2}):(\d{2}))$/

export interface ParseOptions {
  /** `utc` (the default) accepts only `Z` and `+00:00`; `any` accepts every numeric offset. */
  readonly offset?: 'utc' | 'any'
}

/**
 * Returns milliseconds since 1970, or undefined if the text is not an RFC 3339 time. `T` and `Z` must be upper case, the date
 * must exist, and seconds end at 59. Fractions are cut off after the millisecond.
 */
export function parseRfc3339(text: string, options: ParseOptions = {}): number | undefined {
  const match = RFC3339.exec(text)
  if (match === null) return undefined
  const year = Number(match[1])
  const month = Number(match[2])
  const day = Number(match[3])
  const hour = Number(match[4])
  const minute = Number(match[5])
  const second = Number(match[6])
  if (month < 1 || month > 12 || day < 1 || day > daysInMonth(year, month)) return undefined
  if (hour > 23 || minute > 59 || second > 59) return undefined

  let offsetMinutes = 0
  const sign: string | undefined = match[8]
  if (sign !== undefined) {
    const hours = Number(match[9])
    const minutes = Number(match[10])
    if (hours > 23 || minutes > 59) return undefined
    offsetMinutes = (hours * 60 + minutes) * (sign === '-' ? -1 : 1)
    // `-00:00` means that the local offset is unknown, so it does not count as UTC.
    if (options.offset !== 'any' && (offsetMinutes !== 0 || sign === '-')) return undefined
  }

  const fraction: string | undefined = match[7]
  const milliseconds = fraction === undefined ? 0 : Number(fraction.slice(0, 3).padEnd(3, '0'))
  const minutesOfDay = hour * 60 + minute - offsetMinutes
  return daysSince1970(year, month, day) * 86_400_000 + minutesOfDay * 60_000 + second * 1000 + milliseconds
}

/** Whether the text is an RFC 3339 time in UTC. */
export function isRfc3339(text: string): boolean {
  return isPlainTime(text) || parseRfc3339(text) !== undefined
}

/**
 * Whether the text looks like `2026-01-28T07:45:00.123Z`, as most times do. This is faster than parsing. False for the days 29
 * to 31, which only some months have.
 */
function isPlainTime(text: unknown): text is string {
  if (typeof text !== 'string' || text.length !== 24) return false
  const month = twoDigits(text, 5)
  const day = twoDigits(text, 8)
  return (
    twoDigits(text, 0) >= 0 &&
    twoDigits(text, 2) >= 0 &&
    text.charCodeAt(4) === HYPHEN &&
    month >= 1 &&
    month <= 12 &&
    text.charCodeAt(7) === HYPHEN &&
    day >= 1 &&
    day <= 28 &&
    text.charCodeAt(10) === CAPITAL_T &&
    isBelow(twoDigits(text, 11), 24) &&
    text.charCodeAt(13) === COLON &&
    isBelow(twoDigits(text, 14), 60) &&
    text.charCodeAt(16) === COLON &&
    isBelow(twoDigits(text, 17), 60) &&
    text.charCodeAt(19) === FULL_STOP &&
    twoDigits(text, 20) >= 0 &&
    twoDigits(text, 21) >= 0 &&
    text.charCodeAt(23) === CAPITAL_Z
  )
}

const HYPHEN = 45
const FULL_STOP = 46
const COLON = 58
const CAPITAL_T = 84
const CAPITAL_Z = 90
const DIGIT_0 = 48

/** The number of two digits; -1 if there is another char. */
function twoDigits(text: string, at: number): number {
  const tens = text.charCodeAt(at) - DIGIT_0
  const ones = text.charCodeAt(at + 1) - DIGIT_0
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : -1
}

function isBelow(value: number, end: number): boolean {
  return value >= 0 && value < end
}

const FIRST_MS = daysSince1970(0, 1, 1) * 86_400_000
const LAST_MS = daysSince1970(10_000, 1, 1) * 86_400_000 - 1

/** The time in UTC, with `Z` and milliseconds. The RFC has the years 0000 to 9999 only. */
export function formatRfc3339(ms: number): string {
  if (!Number.isInteger(ms) || ms < FIRST_MS || ms > LAST_MS) {
    throw new AnnalsError(
      'INVALID_ARGUMENT',
      `${ms} is not a time in the years 0000 to 9999, in milliseconds`,
      {
        ms,
      },
    )
  }
  return new Date(ms).toISOString()
}

/** Formats times and remembers the last one: commits that follow each other often share a millisecond, and then the text. */
export class TimeFormatter {
  #ms = Number.NaN
  #text = ''

  format(ms: number): string {
    if (ms !== this.#ms) {
      this.#text = formatRfc3339(ms)
      this.#ms = ms
    }
    return this.#text
  }
}

function isLeapYear(year: number): boolean {
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0)
}

const DAYS_IN_MONTH: readonly number[] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

function daysInMonth(year: number, month: number): number {
  return month === 2 && isLeapYear(year) ? 29 : DAYS_IN_MONTH[month - 1]
}

/** Computed here because `Date.UTC` reads the years 0 to 99 as 1900 to 1999. */
function daysSince1970(year: number, month: number, day: number): number {
  // Years are counted from March, so that a leap day is the last day of its year.
  const y = month <= 2 ? year - 1 : year
  const leapDays = Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400)
  const dayOfYear = Math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
  // There are 719,468 days from 1 March 0000 to 1 January 1970.
  return y * 365 + leapDays + dayOfYear - 719_468
}
