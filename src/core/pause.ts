/** Resolves after a while, or as soon as the signal aborts, which is no failure here: whoever pauses looks at it afterwards. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const end = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal?.addEventListener('abort', end)
    if (signal?.aborted === true) end()
  })
}
