import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/index.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'
import { duplicateStorm, type StormReport } from './duplicate-storm.ts'

/** Failure matrix: "duplicate append, any timing: one record, the same answer" (L4, L5, L6, L8, LD11). */
const KEYS = 1_000
const RUNS = 50
const DUPLICATES = rounds(100_000, 1_000_000)
const IN_FOLDER = rounds(30_000, 100_000)
const EMPTY_STORES = rounds(4, 10)

const root = mkdtempSync(join(tmpdir(), 'annals-duplicates-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

async function checkRecords(db: Annals, { answers }: StormReport): Promise<void> {
  let records = 0
  for (let run = 0; run < RUNS; run++) {
    const runId = `run-${run}`
    const found = await db.ledger.fetchEvents(runId)
    records += found.length
    expect(found.map(({ runSeq }) => runSeq)).toEqual(found.map((_, i) => i + 1))
    for (const { idempotencyKey, eventId, runSeq, persistedAt } of found) {
      expect(answers.get(idempotencyKey)).toMatchObject({ eventId, runSeq, persistedAt })
    }
    expect(await db.ledger.verifyRun(runId)).toEqual({ isValid: true, events: found.length })
  }
  expect(records).toBe(KEYS)
}

function tell(seed: number, { duplicates, batches, batchesWithTwins, ms }: StormReport): void {
  console.log(
    `ANNALS_SEED=${seed}: ${duplicates} duplicates of ${KEYS} keys in ${ms} ms, ` +
      `${batches} batches, ${batchesWithTwins} of them with the same event twice`,
  )
}

describe('failure matrix, duplicate append', () => {
  test(`${DUPLICATES} duplicates of a thousand events give a thousand records, and one answer for each event`, async () => {
    const seed = seedOfRun()
    const db = await open({ memory: true })
    const storm = { appends: DUPLICATES + KEYS, keys: KEYS, runs: RUNS, workers: 200, batches: 0 }
    const report = await duplicateStorm(db, new Random(seed), storm)
    tell(seed, report)
    expect(report.persisted).toBe(KEYS)
    expect(report.duplicates).toBeGreaterThanOrEqual(DUPLICATES)
    await checkRecords(db, report)
    const { appended, duplicates, divergentDuplicates } = db.stats().ledger
    expect({ appended, duplicates }).toEqual({ appended: KEYS, duplicates: report.duplicates })
    expect(divergentDuplicates).toBeGreaterThan(0)
    await db.close()
  })

  test('the same holds in a folder for concurrent single appends and batches with duplicates inside', async () => {
    const seed = seedOfRun()
    const path = join(root, 'batches')
    const db = await open({ path, durability: 'relaxed' })
    const storm = { appends: IN_FOLDER, keys: KEYS, runs: RUNS, workers: 32, batches: 0.3 }
    const report = await duplicateStorm(db, new Random(seed), storm)
    tell(seed, report)
    expect(report.persisted).toBe(KEYS)
    expect(report.batchesWithTwins).toBeGreaterThan(IN_FOLDER / 100)
    await checkRecords(db, report)
    await db.close()
    const again = await open({ path })
    await checkRecords(again, report)
    await again.close()
  })

  test('concurrent batches with the same new keys get the same answers', async () => {
    const seed = seedOfRun()
    console.log(`ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    for (let round = 0; round < EMPTY_STORES; round++) {
      const db = await open({ memory: true })
      // The store is empty. The first append with a key stores it, whether in a batch or alone.
      const storm = { appends: 1_000 + random.below(500), keys: KEYS, runs: RUNS, workers: 16, batches: 0.9 }
      const report = await duplicateStorm(db, random.fork(), storm)
      expect(report.persisted).toBe(KEYS)
      await checkRecords(db, report)
      await db.close()
    }
  })
})
