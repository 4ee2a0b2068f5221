export interface PauseOptions {
  /** Ends the pause early. An aborted pause resolves too, so the caller checks the signal afterwards. */
  readonly signal?: AbortSignal | undefined
  /** Lets the process exit during the pause. */
  readonly unref?: boolean
}

/** Resolves after `ms` milliseconds, or as soon as the signal aborts. */
export function pause(ms: number, { signal, unref = false }: PauseOptions = {}): Promise<void> {
  return new Promise(resolve => {
    const end = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    if (unref) timer.unref()
    signal?.addEventListener('abort', end)
    if (signal?.aborted === true) end()
  })
}
