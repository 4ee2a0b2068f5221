import { AnnalsError } from '../core/errors.ts'

/** Numbers that look random and follow from a seed, so that a failure can be run again. */
export class Random {
  readonly seed: number
  #state: number

  constructor(seed: number) {
    this.seed = seed >>> 0
    this.#state = this.seed
  }

  /** From 0 up to, not including, 1. An arrow, so that it can be handed on as it is. */
  readonly next: () => number = () => {
    // mulberry32: 32 bits of state, passes the usual tests, four lines.
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000
  }

  /** A whole number from 0 up to, not including, `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]
  }

  /** A byte string. */
  bytes(length: number): string {
    let bytes = ''
    for (let i = 0; i < length; i++) bytes += String.fromCharCode(this.below(256))
    return bytes
  }

  /** Its own sequence, so that one part's draws don't shift another's. */
  fork(): Random {
    return new Random(this.below(0x1_0000_0000))
  }
}

/** The seed of this run: that in `ANNALS_SEED`, to run a failure again, or a new one. */
export function seedOfRun(): number {
  const given = process.env['ANNALS_SEED']
  if (given === undefined || given === '') return Math.floor(Math.random() * 0x1_0000_0000)
  const seed = Number(given)
  if (Number.isInteger(seed) && seed >= 0 && seed < 0x1_0000_0000) return seed
  throw new AnnalsError('INVALID_ARGUMENT', 'ANNALS_SEED is not a whole number below 2^32', { value: given })
}
