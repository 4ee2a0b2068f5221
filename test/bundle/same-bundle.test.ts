import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Annals, openOn } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { open } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent } from '../ledger/run-event.ts'
import { bytesOf } from './bundles.ts'
import { testSameBundle } from './same-bundle.ts'

describe('a bundle of the same run', () => {
  testSameBundle(12, async clock => {
    const storage = await openEmbedded({ clock })
    const db = await openOn(storage)
    return { db, close: () => db.close() }
  })

  test('is the same bytes where the stored state is damaged, because it is made from the records', async () => {
    const storage = await openEmbedded()
    const handle = (): Annals =>
      new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
    const random = new Random(3)
    const db = handle()
    for (const eventType of ['RunStarted', 'RunPaused'])
      await db.ledger.appendEvent(newEvent(random, { runId: 'run-1', eventType }))
    await db.ledger.projectSnapshot('run-1')
    const before = await bytesOf(db.exportRun('run-1'))
    const place = { scope: 'default:default:default:run-1', tag: TAGS.projection, key: 'r' }
    for (const value of ['{}', 'x', '{"lastEventSeq":1,"status":"RUNNING","steps":7}']) {
      await storage.commit({ operations: [{ op: 'put', ...place, value }] })
      expect((await bytesOf(handle().exportRun('run-1'))).toString()).toBe(before.toString())
    }
    await db.close()
  })

  test('is the same bytes from a read-only store, which projects nothing', async () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-bundle-'))
    try {
      const random = new Random(2)
      const writer = await open({ path })
      for (const eventType of ['RunStarted', 'RunPaused', 'RunResumed', 'RunCompleted', 'Noted'])
        await writer.ledger.appendEvent(newEvent(random, { runId: 'run-1', eventType }))
      await writer.close()
      const reader = await open({ path, readOnly: true })
      const read = await bytesOf(reader.exportRun('run-1'))
      expect(JSON.parse(read.toString().split('\n', 1)[0])).toMatchObject({ run: { status: 'Completed' } })
      expect(await bytesOf(reader.exportRun('run-1'))).toEqual(read)
      await reader.close()
      const again = await open({ path })
      expect((await bytesOf(again.exportRun('run-1'))).toString()).toBe(read.toString())
      await again.ledger.projectSnapshot('run-1')
      expect((await bytesOf(again.exportRun('run-1'))).toString()).toBe(read.toString())
      await again.close()
    } finally {
      rmSync(path, { recursive: true, force: true })
    }
  })
})
