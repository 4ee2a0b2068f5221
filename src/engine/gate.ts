/**
 * Everybody's way to the storage. Normally open; closed while one transaction,
 * which others kept getting ahead of, is let through alone. Not for long: what
 * a user's function does in there may take any time, and the others must not
 * wait for that.
 *
 * open → closed (by one; the next waits for its turn) → open, when that one is
 * through or its time is up.
 */
export class Gate {
  readonly #timer: (ms: number, fire: () => void) => () => void
  #closed: Promise<void> | undefined

  constructor(timer: (ms: number, fire: () => void) => () => void) {
    this.#timer = timer
  }

  /** Resolves when it is open again; undefined if it is. */
  get closed(): Promise<void> | undefined {
    return this.#closed
  }

  /** Closes it for at most so long; returns what opens it. */
  async close(forMs: number): Promise<() => void> {
    while (this.#closed !== undefined) await this.#closed
    let settle = (): void => {}
    this.#closed = new Promise(resolve => {
      settle = resolve
    })
    const mine = this.#closed
    const open = (): void => {
      cancelTimer()
      if (this.#closed === mine) this.#closed = undefined
      settle()
    }
    const cancelTimer = this.#timer(forMs, open)
    return open
  }
}
