import { AnnalsError, type ErrorCode } from '../core/errors.ts'

/** What the server says when it refuses a statement; the transaction is then rolled back for certain. */
interface ServerError extends Error {
  readonly code: string
  readonly severity: string
}

/** By SQLSTATE, or by its class. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  AN001: 'INVALID_ARGUMENT',
  AN002: 'INVALID_OPERATION',
  '25006': 'READ_ONLY',
  '53100': 'DISK_FULL',
  '42501': 'INVALID_OPERATION',
  '42883': 'INVALID_OPERATION',
  '42P01': 'INVALID_OPERATION',
  '57014': 'TIMEOUT',
  '55P03': 'TIMEOUT',
}

/** Of a connection that will not come, however often it is tried: wrong password, no such database or role. */
const HOPELESS: readonly string[] = ['28000', '28P01', '3D000', '3F000', '42501']

export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error
}

/** The server's own words that a statement failed. FATAL ends the connection, maybe after the commit. */
export function isRefusal(error: unknown): boolean {
  return isServerError(error) && error.severity === 'ERROR'
}

/** A lock that somebody else holds was not to be had in time. Nothing was done. */
export function isHeldUp(error: unknown): boolean {
  return isServerError(error) && error.code === '55P03'
}

/** A call before it was refused, so it would have overtaken that one. Nothing was done. */
export function isOutOfTurn(error: unknown): boolean {
  return isServerError(error) && error.code === 'AN003'
}

export function isHopeless(error: unknown): boolean {
  return isServerError(error) && HOPELESS.includes(error.code)
}

/** What a caller is told of whatever `pg` has thrown. */
export function failure(error: unknown): AnnalsError {
  if (error instanceof AnnalsError) return error
  if (isServerError(error) && error.severity === 'ERROR') {
    const code = CODES[error.code] ?? 'IO_ERROR'
    return new AnnalsError(code, `PostgreSQL: ${error.message}`, { sqlState: error.code }, error)
  }
  return new AnnalsError('IO_ERROR', `the connection to PostgreSQL was lost: ${messageOf(error)}`, {}, error)
}

export function messageOf(error: unknown): string {
  // Several addresses of one host, all of them refused.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}
