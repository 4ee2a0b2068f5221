import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { ledgerCrashProgram, newLedgerCrashReport } from './crash-images.ts'

/** The projector waits a moment for more to come; here that moment is over when the program says so. */
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

describe('failure matrix, process killed or power cut, in the ledger', () => {
  test('whenever the machine dies, the program that runs again leaves each event once, and all that follows from it', async () => {
    const seed = seedOfRun()
    console.log(`ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    const report = newLedgerCrashReport()
    const since = performance.now()
    // One that dies at every disk call, and others that die here and there.
    await ledgerCrashProgram(random.below(2 ** 32), report, 1, 'durable', false)
    expect(report.images).toBeGreaterThan(300)
    while (report.images < 750) {
      const durability = report.programs % 2 === 0 ? 'durable' : 'relaxed'
      await ledgerCrashProgram(random.below(2 ** 32), report, 0.1, durability, report.programs % 3 !== 0)
    }
    console.log(report, `${Math.round(performance.now() - since)} ms`)
    for (const [phase, images] of Object.entries(report.phases)) expect(images, phase).toBeGreaterThan(20)
    expect(report.powerCuts).toBeGreaterThan(50)
    expect(report.processCrashes).toBeGreaterThan(50)
  }, 180_000)
})
