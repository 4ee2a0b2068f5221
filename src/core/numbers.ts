import { AnnalsError, invalidArgument } from './errors.ts'

/** Checks a sequence, version or count: an integer, 0 or more. `name` is the argument's name in the error. */
export function checkWhole(name: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw invalidArgument(name, 'must be a whole number, 0 or more', value)
}

/** Checks the most items that a caller wants; undefined for all. */
export function checkLimit(limit: unknown): number | undefined {
  if (limit === undefined || (Number.isSafeInteger(limit) && (limit as number) > 0)) {
    return limit as number | undefined
  }
  throw invalidArgument('limit', 'must be a positive integer', limit)
}

/** Checks a time in milliseconds since 1970. Times before 1970 become 0, because nothing stored is older. */
export function checkTime(name: string, value: unknown): number {
  if (Number.isSafeInteger(value)) return Math.max(0, value as number)
  throw invalidArgument(name, 'must be a whole number of milliseconds since 1970', value)
}

/** Checks the end of a range of times. Returns undefined for `Infinity`. */
export function checkEndTime(name: string, value: unknown): number | undefined {
  return value === Number.POSITIVE_INFINITY ? undefined : checkTime(name, value)
}

/** Checks that a half-open range does not end before it starts. */
export function checkOrder(start: number, end: number): void {
  if (end >= start) return
  throw new AnnalsError('INVALID_ARGUMENT', `the end, ${end}, is before the start, ${start}`, { start, end })
}
