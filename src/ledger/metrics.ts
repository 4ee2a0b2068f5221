/** What a ledger counts, since it was opened; read them whenever you like. */
export interface LedgerStats {
  /** Records written. */
  readonly appended: number
  /** Appends that were known already. */
  readonly duplicates: number
  /** Of these, those with another payload or event id than the record has. */
  readonly divergentDuplicates: number
  /** Refused because no transition allows them; only where transitions are validated. */
  readonly rejected: number
  /** Refused because another writer has taken over. */
  readonly fenced: number
  /** Invalid transitions that the projector has found. */
  readonly alerts: number
  readonly projector: ProjectorStats
  /** How long appends took, from the call to the answer. */
  readonly appendLatency: LatencyStats
}

export interface ProjectorStats {
  /** Records that were reduced into stored state; each once. */
  readonly projected: number
  /** Milliseconds from the oldest record that is not projected yet until now; 0 if there is none. */
  readonly lagMs: number
  /** What it failed with last, if it is still failing. */
  readonly error?: string
}

export interface LatencyStats {
  readonly count: number
  readonly sumMs: number
  /** How many took at most so many milliseconds. */
  readonly buckets: readonly { readonly leMs: number; readonly count: number }[]
}

const BOUNDS_MS: readonly number[] = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1_000, 10_000]

class Latency {
  #count = 0
  #sumMs = 0
  /** How many took more than the bound before and at most this one. */
  readonly #within: number[] = BOUNDS_MS.map(() => 0)

  add(ms: number): void {
    this.#count++
    this.#sumMs += ms
    let index = 0
    while (index < BOUNDS_MS.length && ms > BOUNDS_MS[index]) index++
    if (index < BOUNDS_MS.length) this.#within[index]++
  }

  stats(): LatencyStats {
    let count = 0
    const buckets = BOUNDS_MS.map((leMs, i) => {
      count += this.#within[i]
      return Object.freeze({ leMs, count })
    })
    return Object.freeze({ count: this.#count, sumMs: this.#sumMs, buckets: Object.freeze(buckets) })
  }
}

/** The counters themselves; the parts of a ledger share one. */
export class LedgerMetrics {
  appended = 0
  duplicates = 0
  divergentDuplicates = 0
  rejected = 0
  fenced = 0
  alerts = 0
  projected = 0
  /** The time of the oldest record that waits to be projected. */
  waitingSince: number | undefined
  projectorError: string | undefined
  readonly latency: Latency = new Latency()

  stats(now: number): LedgerStats {
    const { appended, duplicates, divergentDuplicates, rejected, fenced, alerts, projected } = this
    const lagMs = this.waitingSince === undefined ? 0 : Math.max(0, now - this.waitingSince)
    const error = this.projectorError
    return Object.freeze({
      appended,
      duplicates,
      divergentDuplicates,
      rejected,
      fenced,
      alerts,
      projector: Object.freeze({ projected, lagMs, ...(error === undefined ? {} : { error }) }),
      appendLatency: this.latency.stats(),
    })
  }
}
