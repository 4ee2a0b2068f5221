import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { huntMutants } from '../crash/mutant-hunts.ts'
import { MUTANTS } from '../crash/mutants.ts'

const HUNT_SECONDS = 120

test(`each of ${MUTANTS.length} planted bugs is caught by random programs, whatever the seed`, async () => {
  const seed = seedOfRun()
  console.log(`hunt for planted bugs: ANNALS_SEED=${seed}`)
  const { table, caught, survivors } = await huntMutants({ seed, seconds: HUNT_SECONDS, blindly: true })
  console.log(`${table}\nscore: ${caught} of ${MUTANTS.length}`)
  expect(survivors).toEqual([])
})
