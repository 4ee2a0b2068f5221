import type { ByteString } from '../core/bytes.ts'
import type { RunProjection } from './run-projection.ts'

/** The limit of the cache in steps. Each run counts as one more step. */
const STEPS_MAX = 100_000

/** A cache of the projections in memory. A projection that is evicted is loaded from the store and the log again. */
export class KeptRuns {
  readonly #runs = new Map<ByteString, RunProjection>()
  readonly #stepsMax: number
  #look = 0

  constructor(stepsMax: number = STEPS_MAX) {
    this.#stepsMax = stepsMax
  }

  /** Begins a round of the projector. */
  beginLook(): void {
    this.#look++
  }

  /** Returns a projection without marking it as used. */
  get(scope: ByteString): RunProjection | undefined {
    return this.#runs.get(scope)
  }

  /** Returns a projection and marks it as used in this round. */
  use(scope: ByteString): RunProjection | undefined {
    const run = this.#runs.get(scope)
    if (run !== undefined) run.usedAt = this.#look
    return run
  }

  /** Adds a projection, marked as used in this round. */
  keep(run: RunProjection): void {
    run.usedAt = this.#look
    this.#runs.set(run.scope, run)
  }

  delete(scope: ByteString): void {
    this.#runs.delete(scope)
  }

  /**
   * Evicts the least recently used projections until the rest fits; one always stays. Projections of the last two rounds count
   * as equally recent. Otherwise, if runs take turns and not all fit, each would be evicted just before its turn.
   */
  forgetSome(): void {
    let steps = 0
    for (const run of this.#runs.values()) steps += weightOf(run)
    if (steps <= this.#stepsMax) return
    const ageOf = ({ usedAt }: RunProjection): number => Math.max(1, this.#look - usedAt)
    const runs = [...this.#runs.values()].sort((a, b) => ageOf(a) - ageOf(b))
    while (steps > this.#stepsMax && runs.length > 1) {
      const run = runs.pop() as RunProjection
      steps -= weightOf(run)
      this.#runs.delete(run.scope)
    }
  }
}

function weightOf({ steps }: RunProjection): number {
  return 1 + steps.length
}
