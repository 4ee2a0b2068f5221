import { AnnalsError } from '../../src/core/errors.ts'

/** What is refused, by an error of ours; anything else is a failure of the test. */
export function failureOf(work: () => unknown): AnnalsError {
  try {
    work()
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('nothing was refused')
}
