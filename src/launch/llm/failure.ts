import { AnnalsError } from '../../core/errors.ts'
import { retryAfterMs } from '../../telemetry/retry-after.ts'

type ErrorClass =
  | 'TIMEOUT'
  | 'NETWORK'
  | 'RATE_LIMITED'
  | 'SERVER_ERROR'
  | 'BAD_REQUEST'
  | 'UNAUTHORIZED'
  | 'NOT_FOUND'
  | 'HTTP_ERROR'
  | 'MALFORMED_ANSWER'
  | 'STREAM_ERROR'
  | 'REPLAY_MISS'
  | 'ABORTED'

/** Why a try failed. It is an expected outcome, so it is not an exception. Its summary has no secrets. */
export interface Failure {
  readonly errorClass: ErrorClass
  readonly summary: string
  /** Whether the same request may succeed later. It says nothing about whether it will be retried. */
  readonly retryable: boolean
  readonly retryAfterMs?: number
  /** The response, for a caller of `fetch`. */
  readonly answer?: RawAnswer
  /** The error to throw. A replay miss has more details than a summary. */
  readonly error?: AnnalsError
}

export interface RawAnswer {
  readonly status: number
  readonly headers: readonly (readonly [string, string])[]
  readonly text: string
}

/** ND9: the statuses after which a retry may succeed. 408 is a time-out of the server. */
const RETRYABLE_STATUS: Readonly<Record<number, ErrorClass>> = {
  408: 'TIMEOUT',
  429: 'RATE_LIMITED',
  500: 'SERVER_ERROR',
  502: 'SERVER_ERROR',
  503: 'SERVER_ERROR',
  504: 'SERVER_ERROR',
}

const FINAL_STATUS: Readonly<Record<number, ErrorClass>> = {
  400: 'BAD_REQUEST',
  401: 'UNAUTHORIZED',
  403: 'UNAUTHORIZED',
  404: 'NOT_FOUND',
  422: 'BAD_REQUEST',
}

export function statusFailure(answer: RawAnswer, said: string | undefined, now: number): Failure {
  const { status } = answer
  const transient = RETRYABLE_STATUS[status]
  const wait = transient === undefined ? undefined : retryAfter(new Map(answer.headers), now)
  return {
    errorClass: transient ?? FINAL_STATUS[status] ?? (status >= 500 ? 'SERVER_ERROR' : 'HTTP_ERROR'),
    summary: said === undefined ? `HTTP ${status}` : `HTTP ${status}: ${clip(said)}`,
    retryable: transient !== undefined,
    ...(wait === undefined ? {} : { retryAfterMs: wait }),
    answer,
  }
}

/** `Retry-After` in milliseconds. Some providers have a header `retry-after-ms`. */
function retryAfter(headers: ReadonlyMap<string, string>, now: number): number | undefined {
  const ms = headers.get('retry-after-ms')
  if (ms !== undefined && /^\d{1,9}(\.\d+)?$/.test(ms)) return Number(ms)
  return retryAfterMs(headers.get('retry-after'), now)
}

const SUMMARY_CHARS_MAX = 500

export function clip(text: string, charsMax: number = SUMMARY_CHARS_MAX): string {
  const well = text.toWellFormed()
  return well.length <= charsMax ? well : `${well.slice(0, charsMax).toWellFormed()}…`
}

/** The error that a caller of `chat` gets. */
export function callError(callId: string, failure: Failure, attempts: number): AnnalsError {
  if (failure.error !== undefined) return failure.error
  const { errorClass, summary, retryable, answer } = failure
  const tries = attempts === 1 ? '' : ` after ${attempts} tries`
  return new AnnalsError('LLM_CALL_FAILED', `the call ${callId} failed${tries}: ${summary}`, {
    callId,
    errorClass,
    retryable,
    attempts,
    ...(answer === undefined ? {} : { status: answer.status }),
  })
}
