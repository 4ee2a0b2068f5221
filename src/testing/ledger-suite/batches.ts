import { expect } from 'vitest'
import { bad, refused, times } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import { eventually, type LedgerSuite } from './suite.ts'

/** LD17: a batch appends several events in one call. */
export function testBatches(suite: LedgerSuite): void {
  suite.holds(
    'LD17: appendEvents stores events of several runs, and keeps the order within each run',
    async ledger => {
      const events = times(9, i => newEvent({ runId: `run-${i % 3}`, eventType: `Noted${i}` }))
      const results = await ledger.appendEvents(events)
      expect(results.map(({ runSeq }) => runSeq)).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3])
      expect(results.map(({ eventId }) => eventId)).toEqual(events.map(({ eventId }) => eventId))
      expect((await ledger.fetchEvents('run-1')).map(({ eventType }) => eventType)).toEqual([
        'Noted1',
        'Noted4',
        'Noted7',
      ])
    },
  )

  suite.holds(
    'LD17, L4, L5: duplicates within a batch, and of stored events, are resolved in order',
    async ledger => {
      const there = newEvent()
      const first = await ledger.appendEvent(there)
      const [a, b] = [said('RunPaused'), said('RunPaused')]
      const results = await ledger.appendEvents([a, there, b, said('RunResumed'), a])
      expect(results).toMatchObject([
        { eventId: a.eventId, runSeq: 2, persisted: true, idempotent: false },
        { ...first, persisted: false, idempotent: true },
        { eventId: a.eventId, runSeq: 2, persisted: false, idempotent: true },
        { runSeq: 3, persisted: true },
        { eventId: a.eventId, runSeq: 2, persisted: false, idempotent: true },
      ])
      expect(await ledger.fetchEvents(RUN)).toHaveLength(3)
    },
  )

  suite.holds(
    'LD17: one invalid event rejects its whole batch, and the error names its index',
    async ledger => {
      const good = times(3, i => newEvent({ eventType: `Noted${i}` }))
      for (const [fault, code] of [
        [bad<ReturnType<typeof newEvent>>({ ...newEvent(), runSeq: 1 }), 'INVALID_ENVELOPE'],
        [{ ...newEvent(), idempotencyKey: 'x' }, 'IDEMPOTENCY_KEY_MISMATCH'],
        [bad<ReturnType<typeof newEvent>>(null), 'INVALID_ENVELOPE'],
        [bad<ReturnType<typeof newEvent>>(undefined), 'INVALID_ENVELOPE'],
      ] as const) {
        const { details } = await refused(ledger.appendEvents([...good, fault]), code)
        expect(details).toMatchObject({ index: 3 })
      }
      await refused(ledger.appendEvents([...good, newEvent({ tenantId: 'other' })]), 'RUN_SCOPE_MISMATCH')
      expect(await ledger.fetchEvents(RUN)).toEqual([])
    },
  )

  suite.holds(
    'LD17: an empty batch does nothing, a batch of 10,000 is accepted, and one of 10,001 is refused',
    async ledger => {
      expect(await ledger.appendEvents([])).toEqual([])
      const events = times(10_001, i => newEvent({ eventType: 'Noted', logicalAttemptId: i + 1 }))
      await refused(ledger.appendEvents(events), 'INVALID_ARGUMENT')
      expect(await ledger.fetchEvents(RUN)).toEqual([])
      const results = await ledger.appendEvents(events.slice(0, 10_000))
      expect(results.map(({ runSeq }) => runSeq)).toEqual(times(10_000, i => i + 1))
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ lastEventSeq: 10_000 })
      await refused(ledger.appendEvents(bad('x')), 'INVALID_ARGUMENT')
      await refused(ledger.appendEvents(bad(null)), 'INVALID_ARGUMENT')
    },
  )

  suite.holds('LD17: a reader sees all of a batch or none of it', async ledger => {
    const batches = times(20, b =>
      ledger.appendEvents(times(10, i => newEvent({ eventType: 'Noted', logicalAttemptId: b * 10 + i + 1 }))),
    )
    const done = Promise.all(batches)
    await eventually(
      async () => {
        const { length } = await ledger.fetchEvents(RUN)
        expect(length % 10).toBe(0)
        return length
      },
      length => length === 200,
    )
    await done
  })
}
