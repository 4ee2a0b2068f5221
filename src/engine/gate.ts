/**
 * The gate that every write passes on its way to the storage. It is closed while
 * a transaction that had many conflicts runs alone. A time limit opens it again,
 * because the user's function in that transaction may take any time.
 *
 * open → closed (by one transaction; the next one waits for its turn)
 * closed → open (the transaction is done, or its time limit has passed)
 */
export class Gate {
  readonly #timer: (ms: number, fire: () => void) => () => void
  #closed: Promise<void> | undefined

  constructor(timer: (ms: number, fire: () => void) => () => void) {
    this.#timer = timer
  }

  /** A promise that resolves when the gate opens; undefined if it is open. */
  get closed(): Promise<void> | undefined {
    return this.#closed
  }

  /** Closes the gate for at most `forMs`. Returns the function that opens it. */
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
