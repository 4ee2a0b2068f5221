import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { huntMutants, huntNothing } from './mutant-hunts.ts'

/**
 * A test of the tests: bugs planted into a copy of the built engine, each of which the campaigns must find. If one
 * survives, a campaign is too weak. Each hunt begins with a program that is known to find its bug, which makes it
 * short; the long campaign (`npm run test:soak`) hunts without knowing.
 */
const HUNT_SECONDS = 20
const SOUND_SECONDS = 5
// Always the same, so that the score is.
const SEED = 20_260_701

test('the engine without a planted bug passes', { timeout: 60_000 }, async () => {
  const built = fileURLToPath(new URL('../../dist/embedded', import.meta.url))
  expect(existsSync(built), 'the engine is built').toBe(true)
  expect((await huntNothing(SOUND_SECONDS)).failure).toBeUndefined()
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
