import { AnnalsError } from '../core/errors.ts'
import { onAbort } from '../core/on-abort.ts'

/** Resolves with the work. Rejects with the signal's reason as soon as it aborts, even if the work goes on. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let unlisten = (): void => {}
  const aborted = new Promise<never>((_, reject) => {
    unlisten = onAbort(signal, () => reject(signal.reason))
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    unlisten()
  }
}

/** Runs work until it ends, the signal aborts or the time is up. Work that ignores its signal is not waited for. */
export async function withTimeLimit<T>(
  what: string,
  signal: AbortSignal,
  timeoutMs: number | undefined,
  work: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  signal.throwIfAborted()
  const limit = new AbortController()
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          limit.abort(new AnnalsError('TIMEOUT', `${what} took longer than ${timeoutMs} ms`, { timeoutMs }))
        }, timeoutMs)
  const either = AbortSignal.any([signal, limit.signal])
  try {
    return await unlessAborted((async () => work(either))(), either)
  } finally {
    clearTimeout(timer)
  }
}
