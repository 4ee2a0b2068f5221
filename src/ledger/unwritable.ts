import { AnnalsError, type ErrorCode } from '../core/errors.ts'

const UNWRITABLE: readonly ErrorCode[] = ['READ_ONLY', 'DISK_FULL', 'OUTCOME_UNKNOWN', 'IO_ERROR']

/** Returns false for the error of a store that is not writable, and throws others. Such a store can still be read. */
export function falseIfUnwritable(error: unknown): false {
  if (error instanceof AnnalsError && UNWRITABLE.includes(error.code)) return false
  throw error
}
