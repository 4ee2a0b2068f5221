import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import {
  type Annals,
  createProducer,
  type OpenOptions,
  open,
  type RunEventRecord,
  type RunEventWrite,
} from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent } from './run-event.ts'

const RUN = 'run-1'
const PURGE = { purgeLedger: true, reason: 'asked to forget' } as const
const random = new Random(7)

const event = (eventType: string, fields: Partial<RunEventWrite> = {}): RunEventWrite =>
  newEvent(random, { runId: RUN, eventType, ...fields })

const opened: Annals[] = []
const folders: string[] = []

async function openOne(options: OpenOptions = { memory: true }): Promise<Annals> {
  const db = await open(options)
  opened.push(db)
  return db
}

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-edges-'))
  folders.push(folder)
  return folder
}

afterEach(async () => {
  for (const db of opened.splice(0)) await db.close()
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

const codeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: { code: unknown }) => error.code,
  )

describe('leases', () => {
  test('LD16: a worker of a purged run can’t write into a later run with the same id', async () => {
    const { ledger, runs } = await openOne()
    const late = await ledger.acquireLease(RUN, { owner: 'a', ttlMs: 60_000 })
    await ledger.appendEvent(event('RunStarted'), late)
    await runs.delete(RUN, PURGE)
    const { epoch } = await ledger.acquireLease(RUN, { owner: 'b', ttlMs: 60_000 })
    expect(epoch).toBeGreaterThan(late.epoch)
    expect(await codeOf(ledger.appendEvent(event('RunStarted'), late))).toBe('WRITER_FENCED')
    expect(await ledger.appendEvent(event('RunStarted'), { epoch })).toMatchObject({ runSeq: 1 })
  })

  test('LD16: epochs keep growing after the store is copied or reopened', async () => {
    const path = newFolder()
    const first = await open({ path })
    await first.ledger.acquireLease(RUN, { owner: 'a', ttlMs: 60_000 })
    await first.ledger.appendEvent(event('RunStarted'), { epoch: 1 })
    await first.runs.delete(RUN, PURGE)
    const copy = await openOne()
    await first.copyTo(copy)
    await first.close()
    const again = await openOne({ path })
    for (const { ledger } of [copy, again]) {
      expect(await ledger.acquireLease(RUN, { owner: 'b', ttlMs: 60_000 })).toEqual({ epoch: 2 })
    }
  })
})

test('lagMs is positive while records wait for the projector', async () => {
  const db = await openOne()
  await db.ledger.appendEvent(event('RunStarted'))
  while (db.ledger.stats().projector.projected < 1) await new Promise(setImmediate)
  await db.ledger.appendEvent(event('StepStarted', { stepId: 'a' }))
  const since = Date.now()
  let looks = 0
  for (;;) {
    const { projected, lagMs } = db.ledger.stats().projector
    if (projected === 2) break
    if (Date.now() - since > 5) {
      looks++
      expect(lagMs).toBeGreaterThan(0)
    }
    await new Promise(setImmediate)
  }
  expect(looks).toBeGreaterThan(0)
  while (db.ledger.stats().projector.lagMs > 0) await new Promise(setImmediate)
})

describe('closing', () => {
  test.each([{ memory: true }, { memory: true, ledger: { validateTransitions: true } }])(
    'waits for earlier appends that create runs: %j',
    async options => {
      const db = await open(options)
      const appends = [
        db.ledger.appendEvent(event('RunStarted')),
        db.ledger.appendEvents([
          event('RunStarted', { runId: 'run-2' }),
          event('RunStarted', { runId: 'run-3' }),
        ]),
      ]
      const closed = db.close()
      expect(await appends[0]).toMatchObject({ runSeq: 1, persisted: true })
      expect(await appends[1]).toMatchObject([{ runSeq: 1 }, { runSeq: 1 }])
      await closed
      expect(await codeOf(db.ledger.appendEvent(event('RunPaused')))).toBe('CLOSED')
    },
  )
})

describe('the bounds of an audit', () => {
  async function audited(db: Annals, from: string | number, to: string | number): Promise<RunEventRecord[]> {
    const found: RunEventRecord[] = []
    for await (const record of db.ledger.audit({ from, to })) found.push(record)
    return found
  }

  test('LD17: may be finer than a millisecond, have an offset, or be infinite', async () => {
    const db = await openOne()
    const { persistedAt } = await db.ledger.appendEvent(event('RunStarted'))
    const ms = Date.parse(persistedAt)
    const finer = `${persistedAt.slice(0, -1)}5Z`
    // Half a millisecond after the record: as `from` it excludes the record, as `to` it includes it.
    expect(await audited(db, finer, ms + 1_000)).toHaveLength(0)
    expect(await audited(db, ms - 1_000, finer)).toHaveLength(1)
    const east = `${new Date(ms + 2 * 3_600_000).toISOString().slice(0, -1)}+02:00`
    expect(await audited(db, east, ms + 1)).toHaveLength(1)
    expect(await audited(db, ms - 1, east)).toHaveLength(0)
    expect(await audited(db, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY)).toHaveLength(1)
    expect(await audited(db, 0, Number.POSITIVE_INFINITY)).toHaveLength(1)
    expect(await codeOf(audited(db, Number.NaN, 1))).toBe('INVALID_ARGUMENT')
    expect(await codeOf(audited(db, Number.POSITIVE_INFINITY, 1))).toBe('INVALID_ARGUMENT')
  })
})

describe('a subscriber that has read all records', () => {
  test.each([0, 1, 3])('LD17: fails when the run is purged and a later run has %d events', async events => {
    const db = await openOne()
    await db.ledger.appendEvents([event('RunStarted'), event('RunPaused')])
    const subscription = db.ledger.subscribe({ runId: RUN, afterSeq: 2 })
    const next = codeOf(subscription.next())
    // Lets the subscriber begin to wait.
    for (let i = 0; i < 5; i++) await new Promise(setImmediate)
    await db.runs.delete(RUN, PURGE)
    const later = [event('RunStarted'), event('RunPaused'), event('RunResumed')].slice(0, events)
    if (later.length > 0) await db.ledger.appendEvents(later)
    expect(await next).toBe('EVENT_CHAIN_BROKEN')
  })
})

describe('the producer', () => {
  const producerOf = ({ ledger }: Annals): ReturnType<typeof createProducer> =>
    createProducer({
      store: ledger,
      registry: ledger.registry,
      runId: RUN,
      tenantId: 'acme',
      projectId: 'shop',
      environmentId: 'prod',
      planId: 'plan',
      planVersion: '1',
    })

  test('L14: stores the payload as it was at the call', async () => {
    const db = await openOne()
    const producer = producerOf(db)
    const payload = { list: [1] }
    const error = { tries: [1] }
    const sent = [
      producer.runStarted(payload),
      producer.stepStarted('a'),
      producer.stepFailed('a', error, payload),
      producer.emit('Noted', { payload }),
    ]
    payload.list.push(2)
    error.tries.push(2)
    await Promise.all(sent)
    const records = await db.ledger.fetchEvents(RUN)
    expect(records.map(record => record.payload)).toEqual([
      { list: [1] },
      undefined,
      { list: [1], error: { tries: [1] } },
      { list: [1] },
    ])
  })

  test('L14: refuses an invalid payload, and sends the next event', async () => {
    const db = await openOne()
    const producer = producerOf(db)
    expect(await codeOf(producer.runStarted({ at: () => 0 }))).toBe('INVALID_ENVELOPE')
    expect(await producer.runStarted()).toMatchObject({ runSeq: 1 })
  })

  test('LD1: emit refuses known event types, because the producer numbers these itself', async () => {
    const db = await openOne()
    const producer = producerOf(db)
    await producer.runStarted()
    for (const eventType of ['RunPaused', 'RunResumed', 'StepStarted', 'RunCompleted']) {
      expect(await codeOf(producer.emit(eventType, { stepId: 'a' }))).toBe('INVALID_ARGUMENT')
    }
    await producer.pause()
    await producer.resume()
    await producer.emit('Noted')
    await producer.pause()
    expect((await db.ledger.fetchEvents(RUN)).map(record => record.logicalAttemptId)).toEqual([1, 1, 1, 1, 2])
  })
})

describe('a repeated rejection', () => {
  test('L26, LD2: has the index and event id of the present call, not of the first', async () => {
    const { ledger } = await openOne({ memory: true, ledger: { validateTransitions: true } })
    await ledger.appendEvent(event('RunStarted'))
    const wrong = event('RunResumed')
    const detailsOf = (work: Promise<unknown>): Promise<unknown> =>
      work.then(
        () => undefined,
        (error: { details: unknown }) => error.details,
      )
    const other = event('RunStarted', { runId: 'run-2' })
    const first = await detailsOf(ledger.appendEvents([wrong, other]))
    expect(first).toMatchObject({ index: 0, eventId: wrong.eventId })
    expect(await detailsOf(ledger.appendEvents([other, wrong]))).toEqual({ ...(first as object), index: 1 })
    const { index: _, ...alone } = first as { index: number }
    expect(await detailsOf(ledger.appendEvent(wrong))).toEqual(alone)
    const resent = { ...wrong, eventId: event('RunStarted').eventId }
    expect(await detailsOf(ledger.appendEvent(resent))).toEqual({ ...alone, eventId: resent.eventId })
  })

  test('LD8: contains no event id of another tenant', async () => {
    const { ledger } = await openOne({ memory: true, ledger: { validateTransitions: true } })
    const mine = event('RunResumed')
    expect(await codeOf(ledger.appendEvent(mine))).toBe('INVALID_TRANSITION')
    const theirs = event('RunResumed', { tenantId: 'somebody-else' })
    const refusal = await ledger.appendEvent(theirs).catch((error: unknown) => error)
    expect(JSON.stringify((refusal as { details: unknown }).details)).not.toContain(mine.eventId)
  })
})

test('L29, L30: a read-only store lists the alerts of records that are not projected yet', async () => {
  const path = newFolder()
  const db = await open({ path })
  await db.ledger.appendEvents([event('RunStarted'), event('RunResumed')])
  await db.ledger.projectSnapshot(RUN)
  await db.ledger.appendEvents([event('RunQueued'), event('RunResumed', { runId: 'run-2' })])
  // Closed before the projector has reached the last records.
  await db.close()
  const reader = await openOne({ path, readOnly: true })
  const stored = await reader.ledger.alerts()
  expect(stored.map(({ runId, runSeq }) => [runId, runSeq]).sort()).toEqual([
    [RUN, 2],
    [RUN, 3],
    ['run-2', 1],
  ])
  expect(await reader.ledger.alerts({ runId: RUN })).toHaveLength(2)
  expect(await reader.ledger.alerts({ runId: 'run-2' })).toHaveLength(1)
  const [first, second] = await reader.ledger.alerts({ runId: RUN })
  await reader.close()
  const writer = await openOne({ path })
  await writer.ledger.projectSnapshot(RUN)
  expect(await writer.ledger.alerts({ runId: RUN })).toEqual([first, second])
})
