import { expect } from 'vitest'
import { type Namespace, namespace } from '../../index.ts'
import { gather, outcomes, refused, take, times } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

const THERE = placed('research', 'critic')
const ELSEWHERE = placed('research', 'other')
const HERE = placed('default', 'default')

function placed(app: string, agent: string, run = RUN): Namespace {
  return namespace({ tenant: 'default', app, agent, run })
}

/** P27: the ledger finds a run in any namespace, and stores its records there. */
export function testNamespaces(suite: LedgerSuite): void {
  suite.holds(
    'P27: events of a run that was created in a namespace are stored there, and found by id and namespace',
    async (ledger, { runs }) => {
      const created = await runs.create({ runId: THERE, tags: ['t'] })
      const records = await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a', 'RunCompleted'])
      expect(records.map(({ runSeq }) => runSeq)).toEqual([1, 2, 3, 4])
      for (const run of [RUN, THERE]) {
        expect(await ledger.fetchEvents(run)).toEqual(records)
        expect(await ledger.projectSnapshot(run)).toMatchObject({ runId: RUN, status: 'COMPLETED' })
        expect(await ledger.getSnapshot(run)).toMatchObject({ lastEventSeq: 4 })
        expect(await ledger.verifyRun(run)).toEqual({ isValid: true, events: 4 })
        expect(await take(ledger.subscribe({ runId: run, afterSeq: 2 }), 2)).toEqual(records.slice(2))
      }
      expect(await runs.get(THERE)).toEqual({
        ...created,
        status: 'Completed',
        completedAt: expect.any(Number),
        updatedAt: expect.any(Number),
      })
      expect(await runs.query({})).toHaveLength(1)
      for (const run of [ELSEWHERE, HERE]) {
        expect(await ledger.fetchEvents(run)).toEqual([])
        expect(await ledger.getSnapshot(run)).toBeNull()
        await refused(ledger.projectSnapshot(run), 'RUN_NOT_FOUND')
        await refused(ledger.verifyRun(run), 'RUN_NOT_FOUND')
        expect(await ledger.alerts({ runId: run })).toEqual([])
      }
      const audited = await gather(ledger.audit({ from: 0, to: Number.POSITIVE_INFINITY }))
      expect(audited).toEqual(records)
      const listed = await take(ledger.subscribeAll(), 4)
      expect(listed.map(({ record }) => record)).toEqual(records)
    },
    ['runs'],
  )

  suite.holds(
    'P27: the first event of an unknown run creates it in the app and agent default',
    async (ledger, { runs }) => {
      await tell(ledger, ['RunStarted'])
      expect(await runs.get(HERE)).toMatchObject({ runId: RUN })
      expect(await runs.get(RUN)).not.toHaveProperty('app')
      await refused(runs.create({ runId: THERE }), 'RUN_EXISTS')
    },
    ['runs'],
  )

  suite.holds(
    'P27: one batch may contain events of known and new runs in several apps',
    async (ledger, { runs }) => {
      await runs.create({ runId: placed('a', 'x', 'r1') })
      await runs.create({ runId: placed('b', 'x', 'r2') })
      const events = times(9, i =>
        newEvent({ runId: `r${(i % 3) + 1}`, eventType: 'StepStarted', stepId: `s${i}` }),
      )
      const results = await ledger.appendEvents(events)
      expect(results.map(({ runSeq }) => runSeq)).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3])
      for (const [i, run] of [placed('a', 'x', 'r1'), placed('b', 'x', 'r2'), 'r3'].entries()) {
        const found = await ledger.fetchEvents(run)
        expect(found.map(({ eventId }) => eventId)).toEqual(
          events.filter((_, at) => at % 3 === i).map(({ eventId }) => eventId),
        )
        expect(await ledger.verifyRun(run)).toEqual({ isValid: true, events: 3 })
      }
      // Sending the batch again stores nothing, and returns the same results.
      const again = await ledger.appendEvents(events)
      expect(again.map(({ eventId, runSeq }) => [eventId, runSeq])).toEqual(
        results.map(({ eventId, runSeq }) => [eventId, runSeq]),
      )
      expect(again.every(({ idempotent }) => idempotent)).toBe(true)
    },
    ['runs'],
  )

  suite.holds(
    'P27: a run that is deleted and created in another namespace is written and read there',
    async (ledger, { runs }) => {
      const lives = [THERE, ELSEWHERE, HERE, THERE] as const
      for (const [life, run] of lives.entries()) {
        await runs.create({ runId: run })
        const texts = times(life + 1, i => `StepStarted s${i}`)
        const records = await tell(ledger, texts)
        expect(records).toHaveLength(life + 1)
        expect(await ledger.fetchEvents(run)).toEqual(records)
        for (const other of lives) if (other !== run) expect(await ledger.fetchEvents(other)).toEqual([])
        // A duplicate is recognized until the run is deleted, and is a new event after that.
        const event = said('RunStarted')
        expect(await ledger.appendEvent(event)).toMatchObject({ idempotent: false, runSeq: life + 2 })
        for (const _ of times(3, i => i)) {
          expect(await ledger.appendEvent(event)).toMatchObject({ idempotent: true, runSeq: life + 2 })
        }
        expect(await ledger.projectSnapshot(RUN)).toMatchObject({ lastEventSeq: life + 2, status: 'RUNNING' })
        await refused(runs.delete(RUN), 'INVALID_OPERATION')
        await runs.delete(RUN, { purgeLedger: true, reason: 'next' })
        expect(await ledger.fetchEvents(RUN)).toEqual([])
        expect(await ledger.getSnapshot(RUN)).toBeNull()
      }
      expect(await gather(ledger.audit({ from: 0, to: Number.POSITIVE_INFINITY }))).toEqual([])
    },
    ['runs'],
  )

  suite.holds(
    'P27: an invalid transition raises an alert for a run in any namespace',
    async (ledger, { runs }) => {
      await runs.create({ runId: THERE })
      await tell(ledger, ['RunCompleted', 'RunStarted', 'RunResumed'])
      await ledger.projectSnapshot(RUN)
      const all = await ledger.alerts()
      expect(all).toHaveLength(2)
      for (const runId of [RUN, THERE]) expect(await ledger.alerts({ runId })).toEqual(all)
    },
    ['runs'],
  )

  suite.holds(
    'P27: transitions of a run in a namespace are validated by its own state',
    async (ledger, { runs }) => {
      await runs.create({ runId: THERE })
      await refused(ledger.appendEvent(said('RunResumed')), 'INVALID_TRANSITION')
      await tell(ledger, ['RunStarted', 'StepStarted a'])
      await refused(ledger.appendEvent(said('RunQueued')), 'INVALID_TRANSITION')
      expect(await ledger.fetchEvents(THERE)).toHaveLength(2)
    },
    ['runs', 'layerTwo'],
  )

  suite.holds(
    'P27, LD16: a lease holds for its run in any namespace',
    async (ledger, { runs }) => {
      await runs.create({ runId: THERE })
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'one', ttlMs: 60_000 })
      await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      await ledger.appendEvent(said('RunStarted'), { epoch })
      const later = await ledger.acquireLease(THERE, { owner: 'two', ttlMs: 60_000 })
      expect(later.epoch).toBe(epoch + 1)
      await refused(ledger.appendEvent(said('RunPaused'), { epoch }), 'WRITER_FENCED')
      await ledger.appendEvent(said('RunPaused'), later)
      for (const run of [ELSEWHERE, HERE]) {
        await refused(ledger.acquireLease(run, { owner: 'three', ttlMs: 60_000 }), 'RUN_NOT_FOUND')
      }
      expect(await ledger.fetchEvents(THERE)).toHaveLength(2)
    },
    ['runs'],
  )

  suite.holds(
    'P27, LD16: a lease taken before its run was created in a namespace fences writers there',
    async (ledger, { runs }) => {
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'early', ttlMs: 60_000 })
      await runs.create({ runId: THERE })
      await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      expect(await ledger.appendEvent(said('RunStarted'), { epoch })).toMatchObject({ runSeq: 1 })
      expect(await ledger.fetchEvents(THERE)).toHaveLength(1)
    },
    ['runs'],
  )

  suite.holds(
    'P27, L22: a claimed event id stays the same when its run is created in a namespace',
    async (ledger, { runs, registry }) => {
      const first = said('RunStarted')
      const claimed = await registry.claim(RUN, first.idempotencyKey, first.eventId)
      expect(claimed).toBe(first.eventId)
      await runs.create({ runId: THERE })
      const again = said('RunStarted')
      expect(await registry.claim(RUN, first.idempotencyKey, again.eventId)).toBe(first.eventId)
      await ledger.appendEvent(first)
      expect(await registry.claim(RUN, first.idempotencyKey, again.eventId)).toBe(first.eventId)
      await registry.adopt(RUN, first.idempotencyKey, again.eventId)
      expect(await registry.claim(RUN, first.idempotencyKey, first.eventId)).toBe(again.eventId)
    },
    ['runs', 'registry'],
  )

  suite.holds(
    'P27: a subscriber gets the records of a run that is created later, in any namespace',
    async (ledger, { runs }) => {
      const lives = ledger.subscribe({ runId: RUN })
      const first = lives.next()
      await runs.create({ runId: 'another' })
      await runs.create({ runId: ELSEWHERE })
      await runs.delete(RUN)
      await runs.create({ runId: THERE })
      await ledger.appendEvent(said('RunStarted'))
      expect((await first).value).toMatchObject({ eventType: 'RunStarted', runSeq: 1 })
      const second = lives.next()
      await ledger.appendEvent(said('RunCompleted'))
      expect((await second).value).toMatchObject({ eventType: 'RunCompleted', runSeq: 2 })
      await lives.return()
    },
    ['runs'],
  )

  suite.holds(
    'P27: a run that is created in a namespace during its first events has all of them in one scope',
    async (ledger, { runs }) => {
      for (const turn of times(4, i => `run-${i}`)) {
        const there = placed('research', 'critic', turn)
        const events = times(6, i => newEvent({ runId: turn, eventType: 'StepStarted', stepId: `s${i}` }))
        const created = outcomes([runs.create({ runId: there })])
        await Promise.all(events.map(event => ledger.appendEvent(event)))
        const { won } = await created
        const run = await runs.get(turn)
        expect(run?.app).toBe(won.length === 1 ? 'research' : undefined)
        expect(await ledger.fetchEvents(turn)).toHaveLength(6)
        expect(await ledger.fetchEvents(there)).toHaveLength(won.length === 1 ? 6 : 0)
        expect(await ledger.verifyRun(turn)).toEqual({ isValid: true, events: 6 })
      }
    },
    ['runs'],
  )

  suite.holds(
    'P27, P13: after reopening, a run in a namespace is found and can be continued',
    async (ledger, given) => {
      await given.runs.create({ runId: THERE })
      const records = await tell(ledger, ['RunStarted', 'RunPaused'])
      const again = await given.reopen()
      expect(await again.ledger.fetchEvents(RUN)).toEqual(records)
      expect(await again.ledger.projectSnapshot(THERE)).toMatchObject({ status: 'PAUSED' })
      expect(await again.ledger.appendEvent(said('RunStarted'))).toMatchObject({
        idempotent: true,
        runSeq: 1,
      })
      expect(await again.ledger.appendEvent(said('RunResumed'))).toMatchObject({ runSeq: 3 })
      expect(await again.ledger.verifyRun(THERE)).toEqual({ isValid: true, events: 3 })
    },
    ['runs', 'reopen'],
  )
}
