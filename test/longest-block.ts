import { closeSync, openSync, readSync } from 'node:fs'

/** The result of some work and the times that it took. */
interface Held<T> {
  readonly result: T
  /** The longest block of the event loop. */
  readonly longestMs: number
  /** The time from the call until the result. */
  readonly totalMs: number
}

/**
 * Runs `work` and measures the longest block of the event loop: the time between two turns, without the time that the
 * process waited for a core. Other processes therefore don't count, but garbage collection does.
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

/** The shortest of several measurements of the longest block. A random interruption affects one of them, a long loop all. */
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

/** The time that this thread has waited for a core, from Linux; 0 on other systems. */
class WaitingTime {
  readonly #file = openIfAny('/proc/thread-self/schedstat')
  readonly #text = Buffer.alloc(128)

  /** The current time, and the time waited so far. Reads both again if the thread had to wait in between. */
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
