import { AnnalsError } from './errors.ts'

/** Asserts a condition that holds unless Annals has a bug. Callers can't cause it to fail. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AnnalsError('ILLEGAL_STATE', `invariant broken: ${message}`)
}
