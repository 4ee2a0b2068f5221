import { invariant } from '../core/invariant.ts'

/** A clock that stands still until it is told otherwise. */
export class SimulatedClock {
  #now: number

  /** The default start is an arbitrary day of 2025. */
  constructor(now = 1_750_000_000_000) {
    this.#now = now
  }

  /** An arrow, so that it can be handed on as it is. */
  readonly now: () => number = () => this.#now

  /** Time passes. */
  advance(ms: number): void {
    invariant(ms >= 0, 'time passes forwards; to set a clock back, use jump')
    this.#now += ms
  }

  /** Somebody sets the clock: forwards or back. */
  jump(ms: number): void {
    this.#now += ms
  }
}
