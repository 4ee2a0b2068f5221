/** The code of an `AnnalsError`, by which a program tells what went wrong. Codes never change their meaning. */
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

/** Further facts about an error, by name. Which ones there are depends on the code. */
export type ErrorDetails = Readonly<Record<string, unknown>>

/** The one error class of Annals. Expected outcomes are return values, so an error is always an exception to handle. */
export class AnnalsError extends Error {
  /** Always `AnnalsError`. */
  override readonly name: string = 'AnnalsError'
  /** What went wrong. */
  readonly code: ErrorCode
  /** Facts about the failure, such as the name of an invalid argument. Frozen. */
  readonly details: ErrorDetails

  /** The details are copied. */
  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    this.details = Object.freeze({ ...details })
  }
}

/** The error for an invalid argument. `why` completes a sentence that starts with the argument's name. */
export function invalidArgument(name: string, why: string, value?: unknown): AnnalsError {
  const details = value === undefined ? { name } : { name, value }
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, details)
}

/** The error for a reader whose run was deleted, or replaced by another run with its id. */
export function deletedWhileRead(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} was deleted while it was read`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { runId })
}
