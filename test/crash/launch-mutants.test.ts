import { expect, test } from 'vitest'
import { huntLaunchMutants, huntNoLaunchMutant } from './launch-mutant-hunts.ts'
import { LAUNCH_MUTANTS, type LaunchHunt } from './launch-mutants.ts'
import { misfits } from './planted-bugs.ts'

/**
 * Tests the campaigns: bugs are planted into copies of the built launch layer, outbox and registry, one for each sync and
 * each rename, and some in the logic. The campaigns must catch each of them, and must pass without any. Each hunt begins
 * with a program that is known to find its bug, which makes it short; `npm run test:soak` hunts without that knowledge.
 */
const HUNT_SECONDS = 20
const SOUND_SECONDS = 1
// Fixed, so that every run has the same score.
const SEED = 20_260_701

test.each<LaunchHunt>(['tiny launch', 'ending launch', 'small launch', 'outbox', 'registry'])(
  'without a planted bug the %s campaign passes',
  { timeout: 600_000 },
  async campaign => {
    expect((await huntNoLaunchMutant(campaign, SOUND_SECONDS)).failure).toBeUndefined()
  },
)

test('every planted bug fits the built code', () => {
  expect(misfits(LAUNCH_MUTANTS.flatMap(({ patches }) => patches))).toEqual([])
})

test(`each of ${LAUNCH_MUTANTS.length} planted bugs is caught`, { timeout: 600_000 }, async () => {
  const options = { seed: SEED, seconds: HUNT_SECONDS, blindly: false }
  const { table, hunted, caught, survivors } = await huntLaunchMutants(options)
  console.log(`${table}\nscore: ${caught} of ${hunted}`)
  expect(survivors).toEqual([])
})
