import { AnnalsError } from '../core/errors.ts'

/** A pseudo-random generator. Its seed determines all numbers, so a failure can be reproduced. */
export class Random {
  readonly seed: number
  #state: number

  constructor(seed: number) {
    this.seed = seed >>> 0
    this.#state = this.seed
  }

  /** A number from 0 up to, not including, 1. An arrow function, so that it can be passed without its object. */
  readonly next: () => number = () => {
    // mulberry32: 32 bits of state, passes the usual statistical tests, and is four lines.
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

  /** A random byte string. */
  bytes(length: number): string {
    let bytes = ''
    for (let i = 0; i < length; i++) bytes += String.fromCharCode(this.below(256))
    return bytes
  }

  /** A new generator that is seeded from this one. Draws from it don't shift the sequence of this one. */
  fork(): Random {
    return new Random(this.below(0x1_0000_0000))
  }
}

/** The seed of this test run: the value of `ANNALS_SEED`, which reproduces a failure, or a random number. */
export function seedOfRun(): number {
  const given = process.env['ANNALS_SEED']
  if (given === undefined || given === '') return Math.floor(Math.random() * 0x1_0000_0000)
  const seed = Number(given)
  if (Number.isInteger(seed) && seed >= 0 && seed < 0x1_0000_0000) return seed
  throw new AnnalsError('INVALID_ARGUMENT', 'ANNALS_SEED is not a whole number below 2^32', { value: given })
}
