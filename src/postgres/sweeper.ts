import { AnnalsError } from '../core/errors.ts'

/** Removed in one call: some milliseconds of the server's time. */
const ENTRIES_MAX = 1_000
/** Between two calls while there is more. */
const PAUSE_MS = 200

/**
 * Whoever is open removes entries that have expired, now and then, a bit at a
 * time, and beside everything else. Of several processes that do so at once one
 * works and the others find nothing to do.
 *
 * waiting → sweeping → waiting (little was left) or sweeping again soon (more is left) …
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

  /** It shall not keep a process from ending. */
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

  /** Nothing is wrong for anybody who uses the store: what was not swept now will be next time. */
  #report(error: unknown): void {
    if (this.#isClosed || (error instanceof AnnalsError && error.code === 'CLOSED')) return
    const text = String(error)
    if (text !== this.#warned) {
      process.emitWarning(`expired entries will be removed later: ${text}`, { type: 'AnnalsWarning' })
    }
    this.#warned = text
  }
}
