import { describe, expect, test } from 'vitest'
import { Annals } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { type AnnalsError, createProducer, type Producer, type RunEventRecord } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { newEvent, PLAN } from './run-event.ts'

/** The rows "fsync fails" and "disk full" of the failure matrix, for run events: appends are refused, and reads still work. */
const RUN = 'run-1'

async function openOn(disk: SimulatedDisk): Promise<Annals> {
  const options = { disk: disk.handle(), warn: () => undefined, walBytes: 20_000, prepareBytes: 0 }
  const storage = await openEmbedded(options)
  return new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
}

function producerOf({ ledger }: Annals): Producer {
  const retry = { sleep: () => Promise.resolve(), retries: 2 }
  return createProducer({
    ...PLAN,
    store: ledger,
    registry: ledger.registry,
    runId: RUN,
    replay: true,
    retry,
  })
}

async function readAll(db: Annals): Promise<readonly RunEventRecord[]> {
  const { ledger } = db
  const records = await ledger.fetchEvents(RUN)
  const audited: RunEventRecord[] = []
  for await (const record of ledger.audit({ from: 0, to: '2100-01-01T00:00:00Z' })) audited.push(record)
  expect(audited).toEqual(records)
  expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: records.length })
  const snapshot = await ledger.projectSnapshot(RUN)
  expect(snapshot.lastEventSeq).toBe(records.length)
  expect(await ledger.replaySnapshot(RUN)).toEqual(snapshot)
  expect((await ledger.getSnapshot(RUN))?.runId).toBe(RUN)
  return records
}

describe('failure matrix, fsync fails, in the ledger', () => {
  test('the append fails with OUTCOME_UNKNOWN, reads still work, and after reopening the event is stored once', async () => {
    const disk = new SimulatedDisk()
    const db = await openOn(disk)
    await producerOf(db).runStarted()
    const event = newEvent(new Random(1), { runId: RUN, eventType: 'StepStarted', stepId: 'fetch' })
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'sync' || kind === 'syncLater' })
    await expect(db.ledger.appendEvent(event)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await expect(db.ledger.appendEvent(event)).rejects.toMatchObject({ code: 'READ_ONLY' })
    expect(await readAll(db)).toHaveLength(1)
    await db.close().catch(() => undefined)

    const again = await openOn(disk.afterProcessCrash())
    const { runSeq } = await again.ledger.appendEvent(event)
    expect(runSeq).toBe(2)
    expect(await readAll(again)).toHaveLength(2)
    await again.close()
  })
})

describe('failure matrix, disk full, in the ledger', () => {
  test('appends fail with DISK_FULL, reads still work, and appends succeed once there is space again', async () => {
    const disk = new SimulatedDisk()
    const db = await openOn(disk)
    const work = async (): Promise<void> => {
      const run = producerOf(db)
      await run.runStarted()
      for (let n = 0; n < 40; n++) {
        await run.stepStarted(`step-${n}`, { text: 'x'.repeat(500) })
        await run.stepCompleted(`step-${n}`)
      }
      await run.runCompleted()
    }
    disk.capacityBytes = 30_000
    const full = (await work().then(
      () => undefined,
      (error: unknown) => error,
    )) as AnnalsError
    expect(full.code).toBe('DISK_FULL')
    // A commit that is refused at the same time must not fail a read.
    let isRead = false
    const refused = (async () => {
      while (!isRead)
        await expect(db.kv.put('other', 'k', 'x'.repeat(40_000))).rejects.toThrow('disk is full')
    })()
    const before = await readAll(db).finally(() => {
      isRead = true
    })
    await refused
    expect(before.length).toBeGreaterThan(4)
    expect(before.length).toBeLessThan(82)
    disk.capacityBytes = Number.POSITIVE_INFINITY
    await work()
    const after = await readAll(db)
    expect(after).toHaveLength(82)
    expect(after.slice(0, before.length)).toEqual(before)
    await db.close()
  })
})
