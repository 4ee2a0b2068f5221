import { AnnalsError } from './errors.ts'

/** A whole number, not negative: a sequence, a version, a count. `name` says in the error which one it was. */
export function checkWhole(name: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  return refuse(name, 'must be a whole number, 0 or more', value)
}

/** How many at most; undefined for all. */
export function checkLimit(limit: unknown): number | undefined {
  if (limit === undefined || (Number.isSafeInteger(limit) && (limit as number) > 0)) {
    return limit as number | undefined
  }
  return refuse('limit', 'must be a positive integer', limit)
}

/** Milliseconds since 1970, as a bound: what is before 1970 is 0, as nothing is older. */
export function checkTime(name: string, value: unknown): number {
  if (Number.isSafeInteger(value)) return Math.max(0, value as number)
  return refuse(name, 'must be a whole number of milliseconds since 1970', value)
}

/** The same as an end, which may be `Infinity`: undefined then. */
export function checkEndTime(name: string, value: unknown): number | undefined {
  return value === Number.POSITIVE_INFINITY ? undefined : checkTime(name, value)
}

/** A half-open range must not end before it starts. */
export function checkOrder(start: number, end: number): void {
  if (end >= start) return
  throw new AnnalsError('INVALID_ARGUMENT', `the end, ${end}, is before the start, ${start}`, { start, end })
}

function refuse(name: string, why: string, value: unknown): never {
  throw new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name, value })
}
