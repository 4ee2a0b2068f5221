/**
 * Limits how many workers run at once, in total and for each kind. While the
 * slots are closed (the run is paused or stopping), none is given out, and
 * those that are taken stay taken. Waiting workers are served in order; a
 * worker whose kind has reached its limit does not hold up the others.
 */
export class Slots {
  readonly #total: number
  readonly #limits: ReadonlyMap<string, number>
  readonly #taken = new Map<string, number>()
  #count = 0
  #isClosed = false
  #waiting: Waiter[] = []
  #quiet: (() => void)[] = []

  constructor(total: number, limits: ReadonlyMap<string, number>) {
    this.#total = total
    this.#limits = limits
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Resolves with a function that releases the slot. Rejects with the signal's reason. */
  take(kind: string, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason)
        return
      }
      const onAbort = (): void => {
        this.#waiting = this.#waiting.filter(other => other !== waiter)
        reject(signal.reason)
      }
      const waiter: Waiter = {
        kind,
        serve: () => {
          signal.removeEventListener('abort', onAbort)
          resolve(this.#release(kind))
        },
      }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiting.push(waiter)
      this.#serve()
    })
  }

  /** Resolves as soon as the slots are open. */
  async opened(signal: AbortSignal): Promise<void> {
    while (this.#isClosed) (await this.take(DOOR, signal))()
    signal.throwIfAborted()
  }

  close(): void {
    this.#isClosed = true
  }

  open(): void {
    this.#isClosed = false
    this.#serve()
  }

  /** Resolves when no slot is taken. */
  quiet(): Promise<void> {
    if (this.#count === 0) return Promise.resolve()
    return new Promise(resolve => this.#quiet.push(resolve))
  }

  #serve(): void {
    if (this.#isClosed) return
    const later: Waiter[] = []
    for (const waiter of this.#waiting) {
      if (this.#isFree(waiter.kind)) {
        this.#add(waiter.kind, 1)
        waiter.serve()
      } else later.push(waiter)
    }
    this.#waiting = later
  }

  #isFree(kind: string): boolean {
    if (kind === DOOR) return true
    const limit = this.#limits.get(kind) ?? this.#total
    return this.#count < this.#total && (this.#taken.get(kind) ?? 0) < limit
  }

  #add(kind: string, change: 1 | -1): void {
    if (kind === DOOR) return
    this.#count += change
    this.#taken.set(kind, (this.#taken.get(kind) ?? 0) + change)
  }

  #release(kind: string): () => void {
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#add(kind, -1)
      if (this.#count === 0) for (const resolve of this.#quiet.splice(0)) resolve()
      this.#serve()
    }
  }
}

/** The kind of a waiter that takes no slot and only waits for the slots to open. */
const DOOR = ''

interface Waiter {
  readonly kind: string
  serve(): void
}
