import { expect, test } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { launchCampaign } from '../campaigns/launch-campaign.ts'
import { crashOutbox } from '../campaigns/outbox-campaign.ts'
import { crashRegistry } from '../campaigns/registry-campaign.ts'
import { huntLaunchMutants } from '../crash/launch-mutant-hunts.ts'
import { LAUNCH_MUTANTS } from '../crash/launch-mutants.ts'

const LAUNCH_IMAGES = 100_000
const PROGRAMS = 200
const HUNT_SECONDS = 120

test('N2, N5, N8: launches that crash at any disk call reach the same end', async () => {
  const seed = seedOfRun()
  console.log(`launch campaign: ANNALS_SEED=${seed}`)
  const { images, launches } = await launchCampaign({ seed, images: LAUNCH_IMAGES })
  console.log(`launch campaign: ${images} images of ${launches} launches`)
})

test('N11, L22: neither the outbox nor the file registry loses an acknowledged record', async () => {
  const seed = seedOfRun()
  console.log(`outbox and registry campaigns: ANNALS_SEED=${seed}`)
  const random = new Random(seed)
  for (let n = 0; n < PROGRAMS; n++) {
    await crashOutbox(random.below(0x1_0000_0000))
    await crashRegistry(random.below(0x1_0000_0000))
  }
})

test(`each of ${LAUNCH_MUTANTS.length} planted bugs is caught by random programs, whatever the seed`, async () => {
  const seed = seedOfRun()
  console.log(`hunt for planted bugs: ANNALS_SEED=${seed}`)
  const { table, hunted, caught, survivors } = await huntLaunchMutants({
    seed,
    seconds: HUNT_SECONDS,
    blindly: true,
  })
  console.log(`${table}\nscore: ${caught} of ${hunted}`)
  expect(survivors).toEqual([])
})
