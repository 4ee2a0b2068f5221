import { describe, expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { crashCampaign, crashProgram, newReport } from '../campaigns/crash-campaign.ts'
import { CRASH_SEEDS } from './regression-seeds.ts'

/** `npm run test:soak` checks five million. */
const IMAGES = 40_000

describe('process killed or power cut at any operation, also during recovery, checkpoint, rotation', () => {
  const known = newReport(0)
  test.each(CRASH_SEEDS)('regression: the program with seed %i, which found that %s', async seed => {
    await crashProgram(seed, known)
  })

  test('every acknowledged transaction survives, one in flight is atomic, and recovering twice changes nothing', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`crash campaign: ANNALS_SEED=${seed}`)
    const start = performance.now()
    const report = await crashCampaign({ seed, images: IMAGES - known.images })
    const seconds = (performance.now() - start) / 1000
    const { calls, ...counts } = report
    console.log(`crash campaign: ${Math.round(report.images / seconds)} images/s`, counts, calls)
    console.log(`${known.images} images of known programs, ${report.images} of random ones`)
    expect(known.images + report.images).toBeGreaterThanOrEqual(IMAGES)
    // Every counter must be above zero. Otherwise the campaign tests less than it claims. Few programs reach some of them,
    // so the regression programs count too.
    const names = Object.keys(counts) as (keyof typeof counts)[]
    expect(names.filter(name => counts[name] + known[name] === 0)).toEqual([])
    const reached = [
      'create wal',
      'writeLater wal',
      'truncate wal',
      'remove wal',
      'create data',
      'remove data',
    ]
    const callsOf = (call: string): number => (calls[call] ?? 0) + (known.calls[call] ?? 0)
    expect(reached.filter(call => callsOf(call) === 0)).toEqual([])
  })
})
