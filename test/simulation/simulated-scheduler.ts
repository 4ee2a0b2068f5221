import { hasWaitingSlices } from '../../src/core/slices.ts'
import { Random } from '../../src/testing/random.ts'
import type { SimulatedClock } from '../../src/testing/simulated-clock.ts'

interface Timer {
  readonly at: number
  readonly order: number
  readonly fire: () => void
}

/**
 * Decides by a seed which of the tasks at hand runs next. The same seed gives
 * the same interleaving, as long as the tasks wait for nothing but this
 * scheduler. Time passes when there is nothing else to do: then the clock moves
 * on to the next timer. With `stepMs` it passes with each step as well, so that
 * who sleeps comes back while others are busy.
 *
 * It has what a `Database` asks of its timing: `random`, `sleep`, `timer`, `now`.
 */
export class SimulatedScheduler {
  readonly #random: Random
  readonly #clock: SimulatedClock
  readonly #tasks: (() => void)[] = []
  readonly #timers = new Set<Timer>()
  readonly #stepMs: number
  #timersMade = 0
  /** What has passed of the clock's next millisecond. */
  #partMs = 0
  /** How many tasks have run. */
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

  /** Runs `task` in one of the coming steps. */
  later(task: () => void): void {
    this.#tasks.push(task)
  }

  /** Lets others go first. */
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

  /** Runs until no task and no timer is left, and returns how many tasks have run in all. */
  async run(): Promise<number> {
    // What was called before this is still on its way to its first `later`.
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

  /** Timers that are due become tasks, and so wait for their turn. */
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
    // Order doesn't matter, so filling the gap with the last one is enough.
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

/** Resolves once all promises that could go on have done so. A task in slices is one step: when it pauses is not by the seed. */
async function settled(): Promise<void> {
  do {
    await new Promise(resolve => setImmediate(resolve))
  } while (hasWaitingSlices())
}
