import { AnnalsError } from '../core/errors.ts'

/** The most entries of one call, which takes the server some milliseconds. */
const ENTRIES_MAX = 1_000
/** The wait between two calls while there are more expired entries. */
const PAUSE_MS = 200

/**
 * Removes expired entries in the background, a limited number at a time. Several
 * processes may sweep at once: each skips the rows that another one is removing.
 *
 * waiting → sweeping → waiting (nothing is left), or sweeping again soon (more is left)
 */
export class Sweeper {
  readonly #sweep: (entriesMax: number) => Promise<number>
  readonly #intervalMs: number
  #timer: NodeJS.Timeout | undefined
  #isClosed = false
  #warned: string | undefined

  constructor(sweep: (entriesMax: number) => Promise<number>, intervalMs: number) {
    this.#sweep = sweep
    this.#intervalMs = intervalMs
    this.#wait(intervalMs)
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }

  /** The timer does not keep the process alive. */
  #wait(ms: number): void {
    if (!this.#isClosed) this.#timer = setTimeout(() => void this.#run(), ms).unref()
  }

  async #run(): Promise<void> {
    let swept = 0
    try {
      swept = await this.#sweep(ENTRIES_MAX)
      this.#warned = undefined
    } catch (error) {
      this.#report(error)
    }
    this.#wait(swept === ENTRIES_MAX ? PAUSE_MS : this.#intervalMs)
  }

  /** Warns once about each error. Users of the store are not affected, and the next sweep tries again. */
  #report(error: unknown): void {
    if (this.#isClosed || (error instanceof AnnalsError && error.code === 'CLOSED')) return
    const text = String(error)
    if (text !== this.#warned) {
      process.emitWarning(`expired entries could not be removed and will be tried again: ${text}`, {
        type: 'AnnalsWarning',
      })
    }
    this.#warned = text
  }
}
