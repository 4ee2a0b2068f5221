/**
 * Everything that can go wrong has one class and a typed code. An expected
 * outcome is a return value; a mistake of ours is an `invariant`.
 */
export type ErrorCode =
  | 'INVALID_ARGUMENT'
  | 'INVALID_ENVELOPE'
  | 'INVALID_OPERATION'
  | 'INVALID_TRANSITION'
  | 'IDEMPOTENCY_KEY_MISMATCH'
  | 'RUN_SCOPE_MISMATCH'
  | 'RUN_NOT_FOUND'
  | 'RUN_EXISTS'
  | 'CELL_EXISTS'
  | 'CELL_NOT_FOUND'
  | 'MACHINE_NOT_FOUND'
  | 'VERSION_MISMATCH'
  | 'TRACE_EXISTS'
  | 'TRACE_NOT_FOUND'
  | 'CONFLICT'
  | 'TIMEOUT'
  | 'LOCKED'
  | 'CORRUPT'
  | 'DISK_FULL'
  | 'IO_ERROR'
  | 'OUTCOME_UNKNOWN'
  | 'READ_ONLY'
  | 'CLOSED'
  | 'FORMAT_TOO_NEW'
  | 'FORMAT_TOO_OLD'
  | 'WRITER_FENCED'
  | 'EVENT_CHAIN_BROKEN'
  | 'ILLEGAL_STATE'
  | 'LLM_CALL_FAILED'
  | 'LLM_REPLAY_MISS'
  | 'LAUNCH_UNKNOWN'
  | 'UNAUTHENTICATED'
  | 'FORBIDDEN'
  | 'NOT_FOUND'
  | 'METHOD_NOT_ALLOWED'
  | 'TOO_LARGE'
  | 'UNSUPPORTED_MEDIA_TYPE'
  | 'RATE_LIMITED'
  | 'UNAVAILABLE'
  | 'INTERNAL'

export type ErrorDetails = Readonly<Record<string, unknown>>

export class AnnalsError extends Error {
  override readonly name: string = 'AnnalsError'
  readonly code: ErrorCode
  readonly details: ErrorDetails

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    this.details = Object.freeze({ ...details })
  }
}

/** The error for an argument that can't be used. `why` completes a sentence that starts with the argument's name. */
export function invalidArgument(name: string, why: string, value?: unknown): AnnalsError {
  const details = value === undefined ? { name } : { name, value }
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, details)
}

/** Ends a reading of a run that is gone, or that another run with its id has replaced. */
export function deletedWhileRead(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} was deleted while it was read`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { runId })
}
