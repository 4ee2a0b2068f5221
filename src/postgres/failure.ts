import { AnnalsError, type ErrorCode } from '../core/errors.ts'

/** An error that the server reports for a statement. */
interface ServerError extends Error {
  readonly code: string
  readonly severity: string
}

/** Annals error codes by SQLSTATE. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  AN001: 'INVALID_ARGUMENT',
  AN002: 'INVALID_OPERATION',
  '25006': 'READ_ONLY',
  '53100': 'DISK_FULL',
  '42501': 'INVALID_OPERATION',
  '42704': 'INVALID_OPERATION',
  '42883': 'INVALID_OPERATION',
  '42P01': 'INVALID_OPERATION',
  '57014': 'TIMEOUT',
  '55P03': 'TIMEOUT',
}

/** Errors of connecting that no retry can mend: wrong password, no such role or database, no permission. */
const HOPELESS: readonly string[] = ['28000', '28P01', '3D000', '3F000', '42501']

/** System errors of connecting to an address at which there is no server. */
const NOWHERE: readonly unknown[] = ['ECONNREFUSED', 'ENOTFOUND']

export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error
}

/**
 * Whether the server has refused the statement and rolled its transaction back. After a FATAL error, which ends the session, the
 * transaction may be committed.
 */
export function isRefusal(error: unknown): boolean {
  return isServerError(error) && error.severity === 'ERROR'
}

/** Whether a lock was not free in time. The statement has changed nothing. */
export function isHeldUp(error: unknown): boolean {
  return isServerError(error) && error.code === '55P03'
}

/** Whether the server ended the session because its transaction was idle for too long. The transaction has changed nothing. */
export function isIdleTooLong(error: unknown): boolean {
  return isServerError(error) && error.code === '25P03'
}

/** Whether the call was refused because an earlier call of the session was. The call has changed nothing. */
export function isOutOfTurn(error: unknown): boolean {
  return isServerError(error) && error.code === 'AN003'
}

/** Whether connecting again would fail in the same way. */
export function isHopeless(error: unknown): boolean {
  return isServerError(error) && HOPELESS.includes(error.code)
}

/** Whether there is no server at the address, or no such host. */
export function isNowhere(error: unknown): boolean {
  return error instanceof Error && NOWHERE.includes((error as NodeJS.ErrnoException).code)
}

/** Converts an error of `pg` to the error that the caller gets. */
export function failure(error: unknown): AnnalsError {
  if (error instanceof AnnalsError) return error
  if (isServerError(error) && error.severity === 'ERROR') {
    const code = CODES[error.code] ?? 'IO_ERROR'
    return new AnnalsError(code, `PostgreSQL: ${error.message}`, { sqlState: error.code }, error)
  }
  return new AnnalsError('IO_ERROR', `the connection to PostgreSQL was lost: ${messageOf(error)}`, {}, error)
}

export function messageOf(error: unknown): string {
  // The host has several addresses, and all of them refused the connection.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}
