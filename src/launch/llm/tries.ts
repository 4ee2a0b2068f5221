import { onAbort } from '../../core/on-abort.ts'
import { pause } from '../../core/pause.ts'
import { backoffMs } from '../../core/retry.ts'
import type { Failure } from './failure.ts'

export interface LlmRetryOptions {
  /** How often a request is sent, 1 to 5; 5 without it. */
  readonly tries?: number
  /** Before the second try; doubles each time. 500 ms without it. */
  readonly firstMs?: number
  readonly maxMs?: number
  /** A server that asks for a longer pause than this is not waited for. 60 s without it. */
  readonly retryAfterMaxMs?: number
  readonly sleep?: (ms: number) => Promise<void>
  readonly random?: () => number
}

export const TRIES_MAX = 5

export type Tried<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly failure: Failure }

/** One line of the evidence for each try that failed. */
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

/** Tries again while the failure may pass, there are tries left, and nobody has called it off. */
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
        summary: `called off while waiting to try again, after: ${summary}`,
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
  if (sleep === undefined) await pause(ms, { signal })
  else await unlessAborted(sleep(ms), signal)
  return signal?.aborted !== true
}

/** Resolves with the wait, or as soon as the signal aborts. */
async function unlessAborted(wait: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return wait
  let unlisten = (): void => {}
  const aborted = new Promise<void>(resolve => {
    unlisten = onAbort(signal, resolve)
  })
  try {
    await Promise.race([wait, aborted])
  } finally {
    unlisten()
  }
}
