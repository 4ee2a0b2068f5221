import { AnnalsError } from '../../src/core/errors.ts'

/** The AnnalsError that a call throws. Any other outcome fails the test. */
export function failureOf(work: () => unknown): AnnalsError {
  try {
    work()
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('nothing was refused')
}
