import { describe, expect, test, vi } from 'vitest'
import { Annals } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { TAGS } from '../../src/engine/keys.ts'
import type { Entry, Range } from '../../src/engine/storage.ts'
import { open, type RunEventWrite, type RunSnapshot, reduce } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent } from './run-event.ts'

const RUN = 'run-1'

/** A database that calls a hook before the next scan of records. */
class InterruptedDatabase extends Database {
  interrupt: (() => Promise<void>) | undefined

  override async scan(range: Range): Promise<readonly Entry[]> {
    const { interrupt } = this
    if (interrupt !== undefined && range.tag === TAGS.ledger) {
      this.interrupt = undefined
      await interrupt()
    }
    return super.scan(range)
  }
}

describe('a run that is deleted and created again', () => {
  test('during a projection is projected from its own first record', async () => {
    const storage = await openEmbedded()
    const database = new InterruptedDatabase(storage)
    const db = new Annals({ storage, database, guards: {} }, 'default')
    const random = new Random(1)
    const append = async (count: number): Promise<void> => {
      await db.ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunStarted' }))
      for (let n = 0; n < count; n++) {
        await db.ledger.appendEvent(
          newEvent(random, { runId: RUN, eventType: 'StepStarted', stepId: `s${n}` }),
        )
      }
    }
    await append(3)
    await db.ledger.projectSnapshot(RUN)
    await append(4)
    // The projector has reduced 4 records and is about to read the next ones.
    database.interrupt = async () => {
      await db.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
      await append(6)
    }
    const snapshot = await db.ledger.projectSnapshot(RUN)
    const records = await db.ledger.fetchEvents(RUN)
    expect(records).toHaveLength(7)
    expect(snapshot).toEqual(records.reduce<RunSnapshot | null>(reduce, null))
    expect(await db.ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 7 })
    await db.close()
  })

  test('between two pages of a reader is not mistaken for the same run', async () => {
    const db = await open({ memory: true })
    const random = new Random(1)
    const note = (text: string): Promise<unknown> =>
      db.ledger.appendEvents(
        Array.from({ length: 200 }, (_, i) => newEvent(random, { runId: RUN, eventType: `${text}${i}` })),
      )
    await note('First')
    const read: string[] = []
    const reading = (async () => {
      for await (const { eventType } of db.ledger.iterateEvents(RUN)) {
        read.push(eventType)
        if (read.length > 1) continue
        // The first page was read. The next page belongs to another run.
        await db.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
        await note('Second')
      }
    })()
    await expect(reading).rejects.toMatchObject({ code: 'EVENT_CHAIN_BROKEN', details: { runId: RUN } })
    expect(read.filter(eventType => eventType.startsWith('Second'))).toEqual([])
    expect(await db.ledger.fetchEvents(RUN)).toHaveLength(200)
    await db.close()
  })

  test('before the first run’s state was stored shows nothing of the first run', async () => {
    const db = await open({ memory: true })
    const random = new Random(2)
    const event = (eventType: string, stepId?: string): RunEventWrite =>
      newEvent(random, { runId: RUN, eventType, ...(stepId === undefined ? {} : { stepId }) })
    await db.ledger.appendEvents([event('RunStarted'), event('StepStarted', 'old'), event('RunCompleted')])
    await db.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
    // One record more than the first run had, so that the last one could be mistaken for the first run's next record.
    await db.ledger.appendEvents([
      event('RunStarted'),
      event('StepStarted', 'a'),
      event('StepStarted', 'b'),
      event('StepStarted', 'c'),
    ])
    const snapshot = await db.ledger.projectSnapshot(RUN)
    expect(snapshot).toEqual(await db.ledger.replaySnapshot(RUN))
    expect(snapshot).toMatchObject({ status: 'RUNNING', invalidEvents: 0, lastEventSeq: 4 })
    expect(await db.ledger.alerts()).toEqual([])
    expect(await db.ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 4 })
    expect((await db.runs.get(RUN))?.status).toBe('Active')
    await db.close()
  })

  test('L5: stores a cached event again, as it was at the call', async () => {
    const storage = await openEmbedded()
    const handle = (): Annals =>
      new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
    const [db, other] = [handle(), handle()]
    const payload = { said: 'before' }
    const event = newEvent(new Random(4), { runId: RUN, eventType: 'RunStarted', payload })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    await other.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
    const answer = db.ledger.appendEvent(event)
    payload.said = 'after'
    expect(await answer).toMatchObject({ runSeq: 1, persisted: true })
    expect((await db.ledger.fetchEvents(RUN)).map(record => record.payload)).toEqual([{ said: 'before' }])
    expect(db.ledger.stats()).toMatchObject({ appended: 2, duplicates: 3, divergentDuplicates: 0 })
    expect(await db.ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 1 })
    await db.close()
  })

  test.each([1, 2, 3])(
    'LD13: by another process is projected from its own records, even if it is shorter (%i records)',
    async length => {
      const storage = await openEmbedded()
      const handle = (): Annals =>
        new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
      const [db, other] = [handle(), handle()]
      const random = new Random(3)
      const event = (eventType: string): RunEventWrite => newEvent(random, { runId: RUN, eventType })
      const first = ['RunStarted', 'RunPaused', 'RunResumed', 'RunCompleted'].map(event)
      await db.ledger.appendEvents(first)
      await db.ledger.projectSnapshot(RUN)
      await other.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
      for (const again of first.slice(0, length)) {
        await other.ledger.appendEvent(again)
        if (length < 3) await other.ledger.projectSnapshot(RUN)
      }
      const snapshot = await db.ledger.projectSnapshot(RUN)
      expect(snapshot.lastEventSeq).toBe(length)
      expect(snapshot).toEqual(await db.ledger.replaySnapshot(RUN))
      await db.close()
    },
  )

  test('L30: has its alerts listed at their own time', async () => {
    let now = 1_000
    const storage = await openEmbedded({ clock: () => now++ })
    const db = new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
    const random = new Random(4)
    const alarm = async (runId: string): Promise<void> => {
      await db.ledger.appendEvent(newEvent(random, { runId, eventType: 'RunResumed' }))
      await db.ledger.projectSnapshot(runId)
    }
    await alarm(RUN)
    await alarm('other')
    await db.runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
    await alarm(RUN)
    expect((await db.ledger.alerts()).map(({ runId }) => runId)).toEqual(['other', RUN])
    await db.close()
  })
})

test.each([
  ['is ahead of its records', '"lastEventSeq":1', '"lastEventSeq":9'],
  ['has steps that are not stored', '"steps":0', '"steps":2'],
])('LD13: a stored state that %s fails with CORRUPT', async (_, part, changed) => {
  const storage = await openEmbedded()
  const handle = (): Annals => new Annals({ storage, database: new Database(storage), guards: {} }, 'default')
  const db = handle()
  const random = new Random(5)
  await db.ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunStarted' }))
  await db.ledger.projectSnapshot(RUN)
  const place = { scope: `default:default:default:${RUN}`, tag: TAGS.projection, key: 'r' }
  const value = (await storage.get(place.scope, place.tag, place.key))?.value ?? ''
  const damaged = value.replace(part, changed)
  expect(damaged).not.toBe(value)
  await storage.commit({ operations: [{ op: 'put', ...place, value: damaged }] })
  await expect(handle().ledger.projectSnapshot(RUN)).rejects.toMatchObject({ code: 'CORRUPT' })
  expect(await handle().ledger.replaySnapshot(RUN)).toMatchObject({ lastEventSeq: 1 })
  // The projector still projects other runs.
  const { ledger } = handle()
  await ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunPaused' }))
  await ledger.appendEvent(newEvent(random, { runId: 'other', eventType: 'RunStarted' }))
  await vi.waitFor(async () => {
    expect(await storage.get('default:default:default:other', TAGS.projection, 'r')).toBeDefined()
  }, 5_000)
  await db.close()
})

test('L26: a state for validating appends that is ahead of its records fails with CORRUPT', async () => {
  const storage = await openEmbedded()
  const ledger = { validateTransitions: true }
  const db = new Annals({ storage, database: new Database(storage), guards: {}, ledger }, 'default')
  const random = new Random(6)
  await db.ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunStarted' }))
  const place = { scope: `default:default:default:${RUN}`, tag: TAGS.projection, key: 'g' }
  const value = (await storage.get(place.scope, place.tag, place.key))?.value ?? ''
  const ahead = value.replace('"lastEventSeq":1', '"lastEventSeq":9')
  expect(ahead).not.toBe(value)
  await storage.commit({ operations: [{ op: 'put', ...place, value: ahead }] })
  const paused = db.ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunPaused' }))
  await expect(paused).rejects.toMatchObject({ code: 'CORRUPT', details: { runId: RUN } })
  await db.close()
})
