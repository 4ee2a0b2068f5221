import { simulateSlices } from '../../src/core/slices.ts'
import { Random } from '../../src/testing/random.ts'

/** The chance that a slice has ended when the work checks. It is high enough that most programs pause somewhere. */
const OVER_CHANCE = 0.05

/** Runs a simulation in which the seed decides where long work pauses. */
export function inSeededSlices<T>(seed: number, simulation: () => Promise<T>): Promise<T> {
  const random = new Random(seed)
  return simulateSlices(() => random.chance(OVER_CHANCE), simulation)
}
