import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { openNodeDisk } from '../src/disk/node-disk.ts'
import { type EmbeddedOptions, openEmbedded } from '../src/embedded/open.ts'
import { Database } from '../src/engine/database.ts'
import { seedOfRun } from '../src/testing/random.ts'
import { checkHistory } from './isolation/cycle-checker.ts'
import { runListAppend } from './isolation/list-append-workload.ts'
import { rounds } from './rounds.ts'

const folders: string[] = []
function newDisk(): EmbeddedOptions['disk'] {
  const folder = mkdtempSync(join(tmpdir(), 'annals-isolation-'))
  folders.push(folder)
  return openNodeDisk(folder)
}
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/** Real engines, so that histories include real concurrency, flushes and checkpoints. */
const ENGINES: Readonly<Record<string, { transactions: number; open: () => EmbeddedOptions }>> = {
  'in memory': { transactions: rounds(4_000, 100_000), open: () => ({}) },
  'on disk, relaxed, with checkpoints and next to no cache': {
    transactions: rounds(6_000, 100_000),
    open: () => ({ disk: newDisk(), durability: 'relaxed', walBytes: 100_000, cacheBytes: 20_000 }),
  },
  'on disk, durable': {
    transactions: rounds(2_000, 40_000),
    open: () => ({ disk: newDisk(), walBytes: 200_000 }),
  },
}

describe('P12: concurrent transactions are strictly serializable', () => {
  const seed = seedOfRun()
  for (const [name, { transactions, open }] of Object.entries(ENGINES)) {
    test(`${name}: no anomaly (ANNALS_SEED=${seed})`, async () => {
      const storage = await openEmbedded(open())
      const records = await runListAppend(new Database(storage), { seed, transactions, clients: 16 })
      await storage.verify()
      await storage.close()
      const { anomalies, ...report } = checkHistory(records)
      console.log(`cycle checker, ${name}: ${JSON.stringify({ seed, ...report })}`)
      expect(anomalies.slice(0, 3)).toEqual([])
      expect(report.committed).toBeGreaterThan(transactions / 2)
      // A history without conflicts proves nothing.
      expect(report.aborted).toBeGreaterThan(transactions / 20)
    })
  }
})
