/** The callbacks of each signal. One listener calls them all, because Node warns about more than ten listeners. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>()

/** Calls `call` when the signal aborts, at once if it already has. Returns a function that cancels this. */
export function onAbort(signal: AbortSignal, call: () => void): () => void {
  if (signal.aborted) {
    call()
    return () => {}
  }
  let calls = waiting.get(signal)
  if (calls === undefined) {
    const all = new Set<() => void>()
    signal.addEventListener(
      'abort',
      () => {
        for (const each of all) each()
      },
      { once: true },
    )
    waiting.set(signal, all)
    calls = all
  }
  const mine = calls
  // A new function, so that the same callback may be registered twice.
  const each = (): void => call()
  mine.add(each)
  return () => void mine.delete(each)
}
