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
  // Anywhere in the upper half: many who failed together shall not come back together.
  return Math.round(Math.min(maxMs, firstMs * 2 ** (attempts - 1)) * (0.5 + random() / 2))
}

/** False if it was called off. */
async function slept(
  ms: number,
  options: LlmRetryOptions,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (signal?.aborted) return false
  let timer: NodeJS.Timeout | undefined
  const pause =
    options.sleep?.(ms) ??
    new Promise<void>(resolve => {
      timer = setTimeout(resolve, ms)
    })
  if (signal === undefined) {
    await pause
    return true
  }
  let onAbort = (): void => undefined
  const aborted = new Promise<void>(resolve => {
    onAbort = resolve
    signal.addEventListener('abort', onAbort, { once: true })
    // Called off since the first look: then there is no event to wait for.
    if (signal.aborted) resolve()
  })
  try {
    await Promise.race([pause, aborted])
    return !signal.aborted
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  }
}
