import type { StepAttempt, StepStatus } from './run-events.ts'

export interface StepState {
  readonly stepId: string
  /** Which one it was to appear. */
  readonly position: number
  status: StepStatus
  logicalAttemptId: number
  engineAttemptId: number
  startedAt: string | undefined
  completedAt: string | undefined
  error: unknown
  attempts: readonly StepAttempt[]
}

/** So few are looked at one by one. */
const FEW = 16
/** How many the first table is for. A power of two, as are all that grow from it. */
const FIRST_COUNT = 64
const NONE = new Int32Array(0)

/**
 * Steps in the order in which they came, found by their ids. A run may have very many, and nearly each that comes is new: to find
 * that it is, a `Map` goes to some five places in memory, each far from the last, and to put it there goes to them again.
 * Here it is one: a table of numbers, half empty, in which the next free place is the answer.
 */
export class Steps {
  readonly all: StepState[] = []
  /** Of each step, its id's. */
  #hashes = NONE
  /** For each step one more than its index, at the place that its hash names or the next free one behind; 0 is free. */
  #places = NONE

  get(stepId: string): StepState | undefined {
    const { all } = this
    if (all.length <= FEW) return all.find(step => step.stepId === stepId)
    const hashes = this.#hashes
    const places = this.#places
    const hash = hashOf(stepId)
    const last = places.length - 1
    for (let at = hash & last; places[at] !== 0; at = (at + 1) & last) {
      const index = places[at] - 1
      if (hashes[index] === hash && all[index].stepId === stepId) return all[index]
    }
    return undefined
  }

  /** One whose id none has yet. */
  add(step: StepState): void {
    const index = this.all.push(step) - 1
    if (index < FEW) return
    if (index >= this.#hashes.length) this.#grow(Math.max(index * 2, FIRST_COUNT))
    else this.#place(index, hashOf(step.stepId))
  }

  #grow(count: number): void {
    const before = this.#hashes
    this.#hashes = new Int32Array(count)
    this.#places = new Int32Array(count * 2)
    for (const [index, { stepId }] of this.all.entries()) {
      this.#place(index, index < before.length ? before[index] : hashOf(stepId))
    }
  }

  #place(index: number, hash: number): void {
    this.#hashes[index] = hash
    const places = this.#places
    const last = places.length - 1
    let at = hash & last
    while (places[at] !== 0) at = (at + 1) & last
    places[at] = index + 1
  }
}

/** Another one in each process: which ids go to the same place can't be known beforehand. */
const SEED = (Math.random() * 2 ** 32) | 0

/** FNV-1a, and then mixed: the table goes by the lowest bits. */
function hashOf(text: string): number {
  let hash = SEED
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x0100_0193)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b_3c6d)
  return hash ^ (hash >>> 12)
}
