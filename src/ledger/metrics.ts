/** The ledger's counters since the database was opened. */
export interface LedgerStats {
  /** Records that were written. */
  readonly appended: number
  /** Appends that were answered with an existing record. */
  readonly duplicates: number
  /** Duplicates whose payload or event id differs from that of the record. */
  readonly divergentDuplicates: number
  /** Appends that were refused with `INVALID_TRANSITION`. 0 unless transitions are validated. */
  readonly rejected: number
  /** Appends that were refused with `WRITER_FENCED`. */
  readonly fenced: number
  /** Alerts that the projector has raised. */
  readonly alerts: number
  /** The state of the projector. */
  readonly projector: ProjectorStats
  /** How long successful appends took, from the call to the answer. */
  readonly appendLatency: LatencyStats
}

/** The state of the background projector. */
export interface ProjectorStats {
  /** Records that were reduced into stored state, each counted once. */
  readonly projected: number
  /** The age of the oldest record that is not projected yet, in milliseconds; 0 if there is none. */
  readonly lagMs: number
  /** The last failure, as long as the projector has not succeeded again. */
  readonly error?: string
}

/** A cumulative histogram of latencies. */
export interface LatencyStats {
  /** The number of calls. */
  readonly count: number
  /** The sum of their durations in milliseconds. */
  readonly sumMs: number
  /** For each bound, the number of calls that took at most `leMs` milliseconds. */
  readonly buckets: readonly { readonly leMs: number; readonly count: number }[]
}

const BOUNDS_MS: readonly number[] = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1_000, 10_000]

class Latency {
  #count = 0
  #sumMs = 0
  /** For each bound, the number of calls above the bound before and at most this one. */
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

/** The counters that the parts of a ledger share. */
export class LedgerMetrics {
  appended = 0
  duplicates = 0
  divergentDuplicates = 0
  rejected = 0
  fenced = 0
  alerts = 0
  projected = 0
  /** The time of the oldest record that is not projected yet. */
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
