import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { ledgerCrashProgram, newLedgerCrashReport } from '../ledger/crash-images.ts'

const IMAGES = 100_000

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

test('a hundred thousand crashes of a program that writes to the ledger: each event is stored and projected once', async () => {
  const seed = seedOfRun()
  console.log(`ledger crash campaign: ANNALS_SEED=${seed}`)
  const random = new Random(seed)
  const report = newLedgerCrashReport()
  while (report.images < IMAGES) {
    const durability = report.programs % 4 === 3 ? 'relaxed' : 'durable'
    await ledgerCrashProgram(random.below(2 ** 32), report, 1, durability, random.chance(0.5))
  }
  console.log(report)
  expect(report.images).toBeGreaterThanOrEqual(IMAGES)
})
