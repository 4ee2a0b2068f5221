import { hasWaitingSlices } from '../../src/core/slices.ts'
import { Random } from '../../src/testing/random.ts'
import type { SimulatedClock } from '../../src/testing/simulated-clock.ts'

interface Timer {
  readonly at: number
  readonly order: number
  readonly fire: () => void
}

/**
 * Chooses the next task by a seed. The same seed gives the same interleaving if tasks wait for nothing but this
 * scheduler. When no task is ready, the clock advances to the next timer. With `stepMs` it also advances with each
 * step, so that sleeping tasks wake up while others are busy.
 *
 * It provides the `Timing` of a `Database`: `random`, `sleep`, `timer`, `now`.
 */
export class SimulatedScheduler {
  readonly #random: Random
  readonly #clock: SimulatedClock
  readonly #tasks: (() => void)[] = []
  readonly #timers = new Set<Timer>()
  readonly #stepMs: number
  #timersMade = 0
  /** The fraction of a millisecond by which the clock lags behind. */
  #partMs = 0
  /** The number of tasks that have run. */
  steps = 0

  constructor(seed: number, clock: SimulatedClock, options: { readonly stepMs?: number } = {}) {
    this.#random = new Random(seed)
    this.#clock = clock
    this.#stepMs = options.stepMs ?? 0
  }

  readonly random: () => number = () => this.#random.next()

  now(): number {
    return this.#clock.now()
  }

  /** Runs `task` in one of the next steps. */
  later(task: () => void): void {
    this.#tasks.push(task)
  }

  /** Lets other tasks run first. */
  turn(): Promise<void> {
    return new Promise(resolve => this.later(resolve))
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#clock.now() + ms, order: this.#timersMade++, fire }
    this.#timers.add(timer)
    return () => {
      this.#timers.delete(timer)
    }
  }

  sleep(ms: number): Promise<void> {
    return new Promise(resolve => {
      this.timer(ms, resolve)
    })
  }

  /** Runs until no task and no timer is left. Returns the number of tasks that have run in total. */
  async run(): Promise<number> {
    // Calls that were made before have not reached their first `later` yet.
    await settled()
    for (;;) {
      const task = this.#takeTask() ?? this.#takeTimer()
      if (task === undefined) return this.steps
      this.steps++
      this.#passTime()
      task()
      await settled()
    }
  }

  /** Turns timers that are due into tasks, so that they wait for their turn. */
  #passTime(): void {
    this.#partMs += this.#stepMs
    if (this.#partMs < 1) return
    this.#clock.advance(Math.floor(this.#partMs))
    this.#partMs %= 1
    for (const timer of this.#timers) {
      if (timer.at > this.#clock.now()) continue
      this.#timers.delete(timer)
      this.later(timer.fire)
    }
  }

  #takeTask(): (() => void) | undefined {
    if (this.#tasks.length === 0) return undefined
    const index = this.#random.below(this.#tasks.length)
    const task = this.#tasks[index]
    // The order of tasks does not matter, so the last one fills the gap.
    const last = this.#tasks.pop()!
    if (index < this.#tasks.length) this.#tasks[index] = last
    return task
  }

  #takeTimer(): (() => void) | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers) {
      if (next === undefined || timer.at < next.at || (timer.at === next.at && timer.order < next.order)) {
        next = timer
      }
    }
    if (next === undefined) return undefined
    this.#timers.delete(next)
    this.#clock.advance(Math.max(0, next.at - this.#clock.now()))
    return next.fire
  }
}

/**
 * Resolves when every promise that could settle has settled. A task in slices is one step, because the seed does not
 * decide where it pauses.
 */
async function settled(): Promise<void> {
  do {
    await new Promise(resolve => setImmediate(resolve))
  } while (hasWaitingSlices())
}
