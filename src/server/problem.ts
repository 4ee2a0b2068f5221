import { AnnalsError, type ErrorCode } from '../core/errors.ts'

/** The body of an error response: a problem document (RFC 9457). */
export interface Problem {
  /** `urn:annals:problem:` and the code. */
  readonly type: string
  /** The code in words. */
  readonly title: string
  /** The HTTP status. */
  readonly status: number
  /** What went wrong, for people. */
  readonly detail: string
  /** What went wrong, for programs. */
  readonly code: ErrorCode
  /** Under which the server's log has more. */
  readonly requestId: string
  /** The `details` of the error, without paths of the server and long values. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** The HTTP status of each code. */
const STATUS: Readonly<Record<ErrorCode, number>> = {
  INVALID_ARGUMENT: 400,
  INVALID_ENVELOPE: 422,
  INVALID_OPERATION: 409,
  INVALID_TRANSITION: 409,
  IDEMPOTENCY_KEY_MISMATCH: 422,
  RUN_SCOPE_MISMATCH: 409,
  RUN_NOT_FOUND: 404,
  RUN_EXISTS: 409,
  CELL_EXISTS: 409,
  CELL_NOT_FOUND: 404,
  MACHINE_NOT_FOUND: 404,
  VERSION_MISMATCH: 412,
  TRACE_EXISTS: 409,
  TRACE_NOT_FOUND: 404,
  CONFLICT: 409,
  TIMEOUT: 503,
  LOCKED: 409,
  CORRUPT: 500,
  DISK_FULL: 507,
  IO_ERROR: 503,
  OUTCOME_UNKNOWN: 500,
  READ_ONLY: 409,
  CLOSED: 503,
  FORMAT_TOO_NEW: 500,
  FORMAT_TOO_OLD: 500,
  WRITER_FENCED: 409,
  EVENT_CHAIN_BROKEN: 409,
  ILLEGAL_STATE: 409,
  LLM_CALL_FAILED: 502,
  LLM_REPLAY_MISS: 409,
  LAUNCH_UNKNOWN: 409,
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  TOO_LARGE: 413,
  UNSUPPORTED_MEDIA_TYPE: 415,
  RATE_LIMITED: 429,
  UNAVAILABLE: 503,
  INTERNAL: 500,
}

export function statusOf(code: ErrorCode): number {
  return STATUS[code] ?? 500
}

/** Server errors whose message is safe to send. Messages of other codes may contain a path or SQL. */
const TOLD: readonly ErrorCode[] = ['UNAVAILABLE', 'CLOSED', 'TIMEOUT', 'DISK_FULL']

/** The problem document for an error, without stack, paths and SQL. */
export function problemOf(error: unknown, requestId: string): Problem {
  if (!(error instanceof AnnalsError)) return internal('INTERNAL', 500, requestId)
  const { code } = error
  const status = statusOf(code)
  if (status >= 500 && !TOLD.includes(code)) return internal(code, status, requestId)
  const { details, hidden } = publicDetails(error.details)
  return {
    ...headingOf(code, status),
    detail: hidden.reduce((text, secret) => text.replaceAll(secret, '…'), error.message),
    code,
    requestId,
    ...(Object.keys(details).length > 0 ? { details } : {}),
  }
}

export function isServersFault(error: unknown): boolean {
  return !(error instanceof AnnalsError) || statusOf(error.code) >= 500
}

function internal(code: ErrorCode, status: number, requestId: string): Problem {
  const detail = `internal error; the log of the server has details under request ${requestId}`
  return { ...headingOf(code, status), detail, code, requestId }
}

function headingOf(code: ErrorCode, status: number): Pick<Problem, 'type' | 'title' | 'status'> {
  return { type: `urn:annals:problem:${code}`, title: code.toLowerCase().replaceAll('_', ' '), status }
}

/** Details that hold paths of the server. */
const PLACES: readonly string[] = ['file', 'folder', 'path', 'runsFolder']
const DETAIL_CHARS_MAX = 1_024

function publicDetails(all: Readonly<Record<string, unknown>>): {
  readonly details: Record<string, unknown>
  readonly hidden: readonly string[]
} {
  const details: Record<string, unknown> = {}
  const hidden: string[] = []
  for (const [name, value] of Object.entries(all)) {
    // A path into a value begins with a dollar sign and is no secret.
    if (PLACES.includes(name) && !(typeof value === 'string' && value.startsWith('$'))) {
      if (typeof value === 'string' && value !== '') hidden.push(value)
    } else if (isShort(value)) details[name] = value
  }
  return { details, hidden }
}

/** Leaves out long values and values that JSON cannot represent. */
function isShort(value: unknown): boolean {
  switch (typeof value) {
    case 'string':
      return value.length <= DETAIL_CHARS_MAX
    case 'number':
      return Number.isFinite(value)
    case 'boolean':
      return true
    default:
      return value === null || (Array.isArray(value) && value.length <= 64 && value.every(isShort))
  }
}
