export interface PauseOptions {
  /** Ends the pause early. An aborted pause resolves too, so the caller checks the signal afterwards. */
  readonly signal?: AbortSignal | undefined
  /** Lets the process exit during the pause. */
  readonly unref?: boolean
}

/** The longest time that `setTimeout` supports. It fires at once for a longer one. */
export const TIMER_MAX_MS: number = 2 ** 31 - 1

/** Resolves after `ms` milliseconds, or as soon as the signal aborts. */
export function pause(ms: number, { signal, unref = false }: PauseOptions = {}): Promise<void> {
  return new Promise(resolve => {
    const end = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    let timer: NodeJS.Timeout
    const wait = (restMs: number): void => {
      const laterMs = restMs - TIMER_MAX_MS
      timer = laterMs > 0 ? setTimeout(wait, TIMER_MAX_MS, laterMs) : setTimeout(end, restMs)
      if (unref) timer.unref()
    }
    wait(ms)
    signal?.addEventListener('abort', end)
    if (signal?.aborted === true) end()
  })
}
