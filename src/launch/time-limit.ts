import { AnnalsError } from '../core/errors.ts'

/**
 * Runs work that may be called off, by the signal or because its time is up.
 * What does not listen is not waited for: its answer then comes too late.
 */
export async function withTimeLimit<T>(
  what: string,
  signal: AbortSignal,
  timeoutMs: number | undefined,
  work: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  signal.throwIfAborted()
  const own = new AbortController()
  const either = AbortSignal.any([signal, own.signal])
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          const message = `${what} took longer than ${timeoutMs} ms`
          own.abort(new AnnalsError('TIMEOUT', message, { timeoutMs }))
        }, timeoutMs)
  let onAbort: () => void = () => undefined
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(either.reason)
    either.addEventListener('abort', onAbort, { once: true })
  })
  try {
    return await Promise.race([(async () => work(either))(), aborted])
  } finally {
    clearTimeout(timer)
    either.removeEventListener('abort', onAbort)
  }
}
