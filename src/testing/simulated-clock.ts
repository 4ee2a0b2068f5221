import { invariant } from '../core/invariant.ts'

/** A clock for tests that moves only when a test moves it. */
export class SimulatedClock {
  #now: number

  /** The default start is an arbitrary day of 2025. */
  constructor(now = 1_750_000_000_000) {
    this.#now = now
  }

  /** The current time. An arrow function, so that it can be passed without its object. */
  readonly now: () => number = () => this.#now

  /** Moves the clock forward. */
  advance(ms: number): void {
    invariant(ms >= 0, 'time passes forwards; to set a clock back, use jump')
    this.#now += ms
  }

  /** Moves the clock forward, or back if `ms` is negative. */
  jump(ms: number): void {
    this.#now += ms
  }
}
