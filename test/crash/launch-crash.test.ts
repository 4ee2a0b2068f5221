import { describe, expect, test } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { crashLaunch, launchCampaign, newLaunchReport } from '../campaigns/launch-campaign.ts'
import { ENDING_LAUNCH, TINY_LAUNCH } from '../campaigns/launch-world.ts'
import { crashOutbox } from '../campaigns/outbox-campaign.ts'
import { crashRegistry } from '../campaigns/registry-campaign.ts'

/**
 * Launches, the telemetry outbox and the file registry on the simulated disk. The process is killed, and the power is
 * cut, before and after every disk call that changes something.
 */
const RANDOM_IMAGES = 120
const REGISTRIES = 2

/** What a launch does to its disk. A campaign that no longer reaches one of these calls proves less than it claims. */
const REACHED = [
  'makeFolder run',
  'syncFolder run',
  'create events.ndjson',
  'write events.ndjson',
  'syncLater events.ndjson',
  'truncate events.ndjson',
  'rename events.ndjson.torn',
  'write snapshot.json',
  'syncLater snapshot.json',
  'rename snapshot.json',
  'makeFolder artifacts',
  'write artifacts',
  'syncLater artifacts',
  'rename artifacts',
  'syncFolder artifacts',
]

describe('process killed or power cut at every disk call', () => {
  test('N2, N5, N8: a small launch recovers at every disk call, from every image that a power cut can leave', {
    timeout: 600_000,
  }, async () => {
    const report = await crashLaunch(1, newLaunchReport(1), TINY_LAUNCH)
    // Not every launch is forced to start over.
    const { calls, forced: _, ...counts } = report
    console.log('crashed launch:', counts, calls)
    expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([])
    expect(REACHED.filter(call => calls[call] === undefined)).toEqual([])
  })

  test('N10: the next flush completes the telemetry of a launch that crashed at any disk call of its end', {
    timeout: 600_000,
  }, async () => {
    const { calls, images, ended } = await crashLaunch(1, newLaunchReport(1), ENDING_LAUNCH)
    console.log(`ending launch: ${images} images, ${ended} of a run that had ended`, calls)
    expect(ended).toBeGreaterThan(0)
    const reached = ['rename telemetry_told.json', 'remove telemetry_told.json']
    expect(reached.filter(call => calls[call] === undefined)).toEqual([])
  })

  test('N2, N5, N8, ND9: random launches with model calls, gates, fixes and concurrent workers recover', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`launch campaign: ANNALS_SEED=${seed}`)
    const { images, launches, calls } = await launchCampaign({ seed, images: RANDOM_IMAGES })
    console.log(`launch campaign: ${images} images of ${launches} launches`, calls)
    expect(images).toBeGreaterThanOrEqual(RANDOM_IMAGES)
  })

  test('N11: records waiting for the telemetry service survive, in order', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`outbox campaign: ANNALS_SEED=${seed}, ${await crashOutbox(seed)} images`)
  })

  test('L22: the file registry returns a claimed event id again after a crash', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`registry campaign: ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    let images = 0
    for (let n = 0; n < REGISTRIES; n++) images += await crashRegistry(random.below(0x1_0000_0000))
    console.log(`registry campaign: ${images} images`)
    expect(images).toBeGreaterThan(REGISTRIES * 200)
  })
})
