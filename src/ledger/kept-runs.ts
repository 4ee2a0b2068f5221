import type { ByteString } from '../core/bytes.ts'
import type { RunProjection } from './run-projection.ts'

/** By their steps; a run counts as one more. */
const STEPS_MAX = 100_000

/** Runs that the projector keeps in memory between two looks at the feed. What goes can be had from the store and the log again. */
export class KeptRuns {
  readonly #runs = new Map<ByteString, RunProjection>()
  readonly #stepsMax: number
  #look = 0

  constructor(stepsMax: number = STEPS_MAX) {
    this.#stepsMax = stepsMax
  }

  /** The feed is looked at once more. */
  beginLook(): void {
    this.#look++
  }

  get(scope: ByteString): RunProjection | undefined {
    return this.#runs.get(scope)
  }

  /** It is wanted in this look. */
  use(scope: ByteString): RunProjection | undefined {
    const run = this.#runs.get(scope)
    if (run !== undefined) run.usedAt = this.#look
    return run
  }

  keep(run: RunProjection): void {
    run.usedAt = this.#look
    this.#runs.set(run.scope, run)
  }

  delete(scope: ByteString): void {
    this.#runs.delete(scope)
  }

  /**
   * Those go that were used longest ago. Of those of the last two looks the same stay: where runs come round and round and
   * not all have room, else each would go just before its turn.
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
