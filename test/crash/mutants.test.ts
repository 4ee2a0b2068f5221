import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { huntMutants, huntNothing, patchesOf } from './mutant-hunts.ts'
import { MUTANTS } from './mutants.ts'
import { misfits } from './planted-bugs.ts'

/**
 * Tests the campaigns: bugs are planted into copies of the built engine, and the campaigns must find each of them. If one
 * survives, a campaign is too weak. Each hunt begins with a program that is known to find its bug, which makes it short;
 * `npm run test:soak` hunts without that knowledge.
 */
const HUNT_SECONDS = 20
const SOUND_SECONDS = 5
// Fixed, so that every run has the same score.
const SEED = 20_260_701

test('the engine without a planted bug passes', { timeout: 60_000 }, async () => {
  const built = fileURLToPath(new URL('../../dist/embedded', import.meta.url))
  expect(existsSync(built), 'the engine is built').toBe(true)
  expect((await huntNothing(SOUND_SECONDS)).failure).toBeUndefined()
})

test('every planted bug fits the built code', () => {
  expect(misfits(MUTANTS.flatMap(patchesOf))).toEqual([])
})

test('each planted bug is caught', { timeout: 900_000 }, async () => {
  const { table, hunted, caught, survivors } = await huntMutants({
    seed: SEED,
    seconds: HUNT_SECONDS,
    blindly: false,
  })
  console.log(`${table}\nscore: ${caught} of ${hunted}`)
  expect(survivors).toEqual([])
})
