import { AnnalsError, type ErrorCode } from './errors.ts'
import { pause } from './pause.ts'

/** How long to wait before each retry. */
export interface Backoff {
  /** The wait before the first retry. Every further wait is twice as long. */
  readonly firstMs: number
  /** The longest wait. */
  readonly maxMs: number
  /** The share of the wait that is random, 0 to 1. Callers that failed together then do not retry together. */
  readonly jitter?: number
  /** A number from 0 to 1, for the jitter; `Math.random` by default. */
  readonly random?: () => number
}

/** The milliseconds to wait before a retry; `retry` is 0 for the first one. */
export function backoffMs(
  retry: number,
  { firstMs, maxMs, jitter = 0, random = Math.random }: Backoff,
): number {
  const ms = Math.min(maxMs, firstMs * 2 ** retry)
  return jitter === 0 ? ms : ms * (1 - jitter + jitter * random())
}

/** How failed calls are retried: how often, and after which waits. */
export interface RetryOptions {
  /** The most retries after the first attempt; 8 by default. */
  readonly retries?: number
  /** The wait before the first retry; 20 ms by default. Every further wait is twice as long. */
  readonly firstMs?: number
  /** The longest wait; 5 s by default. */
  readonly maxMs?: number
  /** Waits; a timer by default. */
  readonly sleep?: (ms: number) => Promise<void>
  /** A number from 0 to 1, for the random half of each wait; `Math.random` by default. */
  readonly random?: () => number
  /** Whether a retry may succeed after this error. */
  readonly isTransient?: (error: unknown) => boolean
}

/** `OUTCOME_UNKNOWN` is among them because appends are idempotent: sending one again does no harm. */
const TRANSIENT_CODES: readonly ErrorCode[] = ['CONFLICT', 'TIMEOUT', 'OUTCOME_UNKNOWN', 'IO_ERROR']
const TRANSIENT_SYSTEM_CODES: readonly string[] = [
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
  'UND_ERR_SOCKET',
  'UND_ERR_CONNECT_TIMEOUT',
]

function isTransientByCode(error: unknown): boolean {
  if (error instanceof AnnalsError) return TRANSIENT_CODES.includes(error.code)
  if (!(error instanceof Error)) return false
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  return (typeof code === 'string' && TRANSIENT_SYSTEM_CODES.includes(code)) || isTransientByCode(cause)
}

/** Calls `work` until it succeeds. Throws its error if that is not transient, or after the last retry. */
export async function retried<T>(work: () => Promise<T>, options: RetryOptions = {}): Promise<T> {
  const { retries = 8, firstMs = 20, maxMs = 5_000, random = Math.random, sleep = pause } = options
  const { isTransient = isTransientByCode } = options
  for (let retry = 0; ; retry++) {
    try {
      return await work()
    } catch (error) {
      if (retry >= retries || !isTransient(error)) throw error
      await sleep(backoffMs(retry, { firstMs, maxMs, jitter: 0.5, random }))
    }
  }
}
