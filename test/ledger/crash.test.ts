import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { ledgerCrashProgram, newLedgerCrashReport } from './crash-images.ts'

/** Fake timers, so that the program decides when the projector's pause ends. */
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

describe('failure matrix, process killed or power cut, in the ledger', () => {
  test('after a crash at any moment, running the program again stores each event once, with the right derived data', async () => {
    const seed = seedOfRun()
    console.log(`ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    const report = newLedgerCrashReport()
    const since = performance.now()
    // One program crashes at every disk call, the others at a share of them.
    await ledgerCrashProgram(random.below(2 ** 32), report, 1, 'durable', false)
    expect(report.images).toBeGreaterThan(300)
    while (report.images < 600) {
      const durability = report.programs % 2 === 0 ? 'durable' : 'relaxed'
      await ledgerCrashProgram(random.below(2 ** 32), report, 0.1, durability, report.programs % 3 !== 0)
    }
    console.log(report, `${Math.round(performance.now() - since)} ms`)
    for (const [phase, images] of Object.entries(report.phases)) expect(images, phase).toBeGreaterThan(20)
    expect(report.powerCuts).toBeGreaterThan(50)
    expect(report.processCrashes).toBeGreaterThan(50)
  }, 180_000)
})
