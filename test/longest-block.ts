import { closeSync, openSync, readSync } from 'node:fs'

/** What a piece of work did to the event loop. */
interface Held<T> {
  readonly result: T
  /** The longest time for which the event loop could not turn. */
  readonly longestMs: number
  /** From the call until the result was handed over. */
  readonly totalMs: number
}

/**
 * Runs `work` and measures the longest block of the event loop: the time from one turn to the next, without the time in
 * which the process was ready to run and had no core. So other processes on the machine don't count, and garbage
 * collection does.
 */
async function measureBlocks<T>(work: () => Promise<T>): Promise<Held<T>> {
  const waiting = new WaitingTime()
  try {
    await turn()
    const start = waiting.moment()
    let last = start
    let longestMs = 0
    let isOver = false
    const look = (): void => {
      const now = waiting.moment()
      longestMs = Math.max(longestMs, now.ms - last.ms - (now.waitedMs - last.waitedMs))
      last = now
    }
    const watch = async (): Promise<void> => {
      while (!isOver) {
        await turn()
        look()
      }
    }
    const watching = watch()
    const end = (): void => {
      isOver = true
    }
    const done = work()
    done.then(end, end)
    await watching
    return { result: await done, longestMs, totalMs: performance.now() - start.ms }
  } finally {
    waiting.close()
  }
}

/** The shortest of several measurements of the longest block: a stray interruption is in one of them, a long loop in all. */
export async function longestBlock(work: () => Promise<unknown>, times = 3, enoughMs = 0): Promise<number> {
  let best = Number.POSITIVE_INFINITY
  for (let i = 0; i < times && best > enoughMs; i++) {
    best = Math.min(best, (await measureBlocks(work)).longestMs)
  }
  return best
}

function turn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

/** How long this thread has waited for a core, as Linux counts it; 0 on systems that don't. */
class WaitingTime {
  readonly #file = openIfAny('/proc/thread-self/schedstat')
  readonly #text = Buffer.alloc(128)

  /** The time, and how much of it was waited so far. Read again if this thread had to wait in between. */
  moment(): { readonly ms: number; readonly waitedMs: number } {
    for (let waitedMs = this.#waitedMs(); ; ) {
      const ms = performance.now()
      const after = this.#waitedMs()
      if (after === waitedMs) return { ms, waitedMs }
      waitedMs = after
    }
  }

  #waitedMs(): number {
    if (this.#file === undefined) return 0
    const length = readSync(this.#file, this.#text, 0, this.#text.length, 0)
    return Number(this.#text.latin1Slice(0, length).split(' ')[1]) / 1e6
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file)
  }
}

function openIfAny(path: string): number | undefined {
  try {
    return openSync(path, 'r')
  } catch {
    return undefined
  }
}
