import { pause } from '../../core/pause.ts'
import { backoffMs } from '../../core/retry.ts'
import { unlessAborted } from '../time-limit.ts'
import type { Failure } from './failure.ts'

/** How failed requests are retried. */
export interface LlmRetryOptions {
  /** The most tries, 1 to 5; 5 by default. */
  readonly tries?: number
  /** The wait before the second try; 500 by default. It doubles with each further try. */
  readonly firstMs?: number
  /** The longest wait between tries; 8,000 by default. */
  readonly maxMs?: number
  /** The longest `Retry-After` that is waited for; 60,000 by default. */
  readonly retryAfterMaxMs?: number
  /** Waits; a timer by default. */
  readonly sleep?: (ms: number) => Promise<void>
  /** A number from 0 to 1, for the random part of a wait; `Math.random` by default. */
  readonly random?: () => number
}

export const TRIES_MAX = 5

export type Tried<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly failure: Failure }

/** A failed try, as the evidence records it. */
export interface FailedTry {
  readonly error_class: string
  readonly error_summary: string
  readonly waited_ms?: number
}

export interface TriesResult<T> {
  readonly tried: Tried<T>
  readonly attempts: number
  readonly failed: readonly FailedTry[]
}

/** Tries until one succeeds, its failure is final, the tries are used up, or the signal aborts. */
export async function withTries<T>(
  attempt: () => Promise<Tried<T>>,
  options: LlmRetryOptions,
  signal: AbortSignal | undefined,
): Promise<TriesResult<T>> {
  const { tries = TRIES_MAX, retryAfterMaxMs = 60_000 } = options
  const failed: FailedTry[] = []
  for (let attempts = 1; ; attempts++) {
    const tried = await attempt()
    if (tried.ok) return { tried, attempts, failed }
    const { errorClass, summary, retryable, retryAfterMs } = tried.failure
    const said = { error_class: errorClass, error_summary: summary }
    const waitMs = pauseMs(attempts, retryAfterMs, options)
    if (!retryable || attempts >= tries || (retryAfterMs ?? 0) > retryAfterMaxMs) {
      return { tried, attempts, failed: [...failed, said] }
    }
    failed.push({ ...said, waited_ms: waitMs })
    if (!(await slept(waitMs, options, signal))) {
      const failure: Failure = {
        errorClass: 'ABORTED',
        summary: `cancelled while waiting for the next try, after: ${summary}`,
        retryable: false,
      }
      return { tried: { ok: false, failure }, attempts, failed }
    }
  }
}

function pauseMs(attempts: number, retryAfterMs: number | undefined, options: LlmRetryOptions): number {
  const { firstMs = 500, maxMs = 8_000, random = Math.random } = options
  if (retryAfterMs !== undefined) return retryAfterMs
  return Math.round(backoffMs(attempts - 1, { firstMs, maxMs, jitter: 0.5, random }))
}

/** Waits, and returns false if the signal aborted the wait. */
async function slept(
  ms: number,
  { sleep }: LlmRetryOptions,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (signal?.aborted) return false
  const waiting = sleep?.(ms) ?? pause(ms, { signal })
  try {
    await (signal === undefined ? waiting : unlessAborted(waiting, signal))
  } catch (error) {
    if (signal?.aborted !== true) throw error
  }
  return signal?.aborted !== true
}
