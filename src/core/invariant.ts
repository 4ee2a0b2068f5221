import { AnnalsError } from './errors.ts'

/** States what must hold if our own code is right; a failure is a bug of Annals, never of its user. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AnnalsError('ILLEGAL_STATE', `invariant broken: ${message}`)
}
