import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import { deriveIdempotencyKey, idempotencyPreimage } from '../../index.ts'
import { times } from '../annals-suite/suite.ts'
import { newEvent, RUN } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

/** L4–L6, L17–L19, LD1, LD11: an event is stored once, however often it is sent. */
export function testIdempotency(suite: LedgerSuite): void {
  suite.holds('L4, L5: a second append with the same key returns the result of the first', async ledger => {
    const event = newEvent({ payload: { n: 1 } })
    const first = await ledger.appendEvent(event)
    const again = await ledger.appendEvent(event)
    expect(again).toEqual({ ...first, idempotent: true, persisted: false })
    expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
  })

  suite.holds(
    'L4: a late duplicate returns the first result, even after other events and the end of the run',
    async ledger => {
      const event = newEvent()
      const first = await ledger.appendEvent(event)
      await tell(ledger, ['StepStarted fetch', 'StepCompleted fetch', 'RunCompleted'])
      for (let i = 0; i < 3; i++) {
        expect(await ledger.appendEvent(event)).toEqual({ ...first, idempotent: true, persisted: false })
      }
      expect(await ledger.fetchEvents(RUN)).toHaveLength(4)
    },
  )

  suite.holds('L5: 60 concurrent appends of one event store it once', async ledger => {
    const results = await Promise.all(times(60, () => ledger.appendEvent(newEvent())))
    expect(results.filter(({ persisted }) => persisted)).toHaveLength(1)
    expect(results.filter(({ idempotent }) => idempotent)).toHaveLength(59)
    const [record, ...others] = await ledger.fetchEvents(RUN)
    expect(others).toEqual([])
    const { eventId, runSeq, persistedAt } = record
    for (const result of results) expect(result).toMatchObject({ eventId, runSeq, persistedAt })
  })

  suite.holds('L6: runSeq and key are unique within a run under concurrent appends', async ledger => {
    const events = times(200, i => newEvent({ eventType: `Noted${i % 40}` }))
    const results = await Promise.all(events.map(event => ledger.appendEvent(event)))
    const records = await ledger.fetchEvents(RUN)
    expect(records).toHaveLength(40)
    expect(new Set(records.map(({ runSeq }) => runSeq)).size).toBe(40)
    expect(new Set(records.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(40)
    const bySeq = new Map(records.map(record => [record.runSeq, record]))
    for (const [i, { runSeq, eventId }] of results.entries()) {
      expect(bySeq.get(runSeq)).toMatchObject({ eventId, idempotencyKey: events[i].idempotencyKey })
    }
  })

  suite.holds('L6: the same event in two runs is two events', async ledger => {
    for (const runId of ['run-1', 'run-2']) {
      expect(await ledger.appendEvent(newEvent({ runId }))).toMatchObject({ runSeq: 1, persisted: true })
    }
  })

  suite.holds(
    'L4: duplicates are recognized after reopening',
    async (ledger, given) => {
      const event = newEvent()
      const first = await ledger.appendEvent(event)
      const { ledger: again } = await given.reopen()
      expect(await again.appendEvent(event)).toEqual({ ...first, idempotent: true, persisted: false })
      expect(await again.appendEvent(newEvent({ eventType: 'RunPaused' }))).toMatchObject({ runSeq: 2 })
    },
    ['reopen'],
  )

  suite.holds(
    'L17, L18: the key depends on the six fields in their order, and on nothing else',
    async ledger => {
      const event = newEvent({
        eventType: 'StepStarted',
        stepId: 'fetch',
        logicalAttemptId: 2,
        planVersion: ' 1 ',
      })
      expect(idempotencyPreimage(event)).toBe('run-1|fetch|2|StepStarted|plan| 1 ')
      expect(idempotencyPreimage(newEvent())).toBe('run-1|RUN|1|RunStarted|plan|1')
      expect(event.idempotencyKey).toMatch(/^[0-9a-f]{64}$/)
      expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
      for (const fields of [
        { logicalAttemptId: 3 },
        { stepId: 'Fetch' },
        { stepId: 'fetch ' },
        { planId: 'Plan' },
        { planVersion: '1' },
        { eventType: 'StepSkipped' },
      ]) {
        const { idempotencyKey: _, ...rest } = event
        const other = newEvent({ ...rest, ...fields })
        expect(await ledger.appendEvent(other), JSON.stringify(fields)).toMatchObject({ persisted: true })
      }
    },
  )

  suite.holds('L17: strings that look alike in Unicode give different keys', async ledger => {
    for (const stepId of ['\u00e9', 'e\u0301', '\u212b', '\u00c5']) {
      const event = newEvent({ eventType: 'StepStarted', stepId })
      expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
    }
  })

  suite.holds('L4, L17: step ids of every length are stored once and kept apart', async ledger => {
    const ids = [1, 127, 128, 200, 220, 240, 256, 257, 1_999, 2_000, 2_001, 4_096].map(length =>
      's'.repeat(length),
    )
    const events = [...ids, 'é'.repeat(128), `${'e'.repeat(255)}é`].map(stepId =>
      newEvent({ eventType: 'StepStarted', stepId }),
    )
    for (const [i, event] of events.entries()) {
      expect(await ledger.appendEvent(event)).toMatchObject({ idempotent: false, runSeq: i + 1 })
    }
    const again = await ledger.appendEvents(events)
    expect(again.map(({ runSeq }) => runSeq)).toEqual(events.map((_, i) => i + 1))
    expect(again.every(({ idempotent }) => idempotent)).toBe(true)
    expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: true, events: events.length })
  })

  suite.holds('L19: an event with another engineAttemptId is a duplicate', async ledger => {
    const event = newEvent()
    const other = { ...event, engineAttemptId: 9 }
    expect(deriveIdempotencyKey(other)).toBe(event.idempotencyKey)
    const first = await ledger.appendEvent(event)
    expect(await ledger.appendEvent(other)).toEqual({ ...first, idempotent: true, persisted: false })
    expect((await ledger.fetchEvents(RUN))[0].engineAttemptId).toBe(1)
  })

  suite.holds(
    'LD11: for the same key with another payload or event id the first event wins, and the divergence is counted',
    async (ledger, given) => {
      const event = newEvent({ payload: { n: 1 } })
      const first = await ledger.appendEvent(event)
      const others = [{ ...event, payload: { n: 2 } }, { ...event, eventId: randomUUID() }, newEvent()]
      for (const other of others) {
        expect(await ledger.appendEvent(other)).toEqual({ ...first, idempotent: true, persisted: false })
      }
      await ledger.appendEvent({ ...event, payload: { n: 1 } })
      expect((await ledger.fetchEvents(RUN)).map(({ payload }) => payload)).toEqual([{ n: 1 }])
      expect(await given.stats()).toMatchObject({ appended: 1, duplicates: 4, divergentDuplicates: 3 })
    },
    ['stats'],
  )

  suite.holds(
    'LD11: a different key order in the payload or a different emittedAt is not a divergence',
    async (ledger, given) => {
      const event = newEvent({ payload: { a: 1, b: { c: 1, d: 2 } } })
      await ledger.appendEvent(event)
      await ledger.appendEvent({
        ...event,
        payload: { b: { d: 2, c: 1 }, a: 1 },
        emittedAt: '2030-01-01T00:00:00Z',
      })
      expect(await given.stats()).toMatchObject({ duplicates: 1, divergentDuplicates: 0 })
    },
    ['stats'],
  )

  suite.holds(
    'L5, LD11: repeated duplicates are answered, and each divergent one is counted',
    async (ledger, given) => {
      const event = newEvent({ payload: { items: [1, { deep: 'a' }], none: null } })
      const first = await ledger.appendEvent(event)
      const again = { ...first, idempotent: true, persisted: false }
      const same = [event, event, structuredClone(event), event]
      const divergent = [
        { ...event, payload: { items: [1, { deep: 'b' }], none: null } },
        { ...event, payload: { items: [1, { deep: 'a' }, 2], none: null } },
        { ...event, payload: { items: [1, { deep: 'a' }] } },
        { ...event, payload: { items: { 0: 1, 1: { deep: 'a' } }, none: null } },
        { ...event, payload: { items: [1, { deep: 'a' }], none: null, more: 1 } },
        { ...event, eventId: randomUUID() },
      ]
      const sent = [...same, ...divergent, ...divergent, ...divergent, ...same]
      for (const each of sent) expect(await ledger.appendEvent(each)).toEqual(again)
      expect(await given.stats()).toMatchObject({
        appended: 1,
        duplicates: sent.length,
        divergentDuplicates: 3 * divergent.length,
      })
      const refused = [
        { ...event, more: 1 },
        { ...event, emittedAt: 'never' },
        { ...event, planVersion: '2' },
      ]
      for (const each of refused) await expect(ledger.appendEvent(each)).rejects.toThrow()
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
    },
    ['stats'],
  )

  suite.holds(
    'LD1: a second pause is stored, because its attempt is the number of the cycle',
    async ledger => {
      await tell(ledger, ['RunStarted', 'RunPaused', 'RunResumed'])
      const swallowed = await ledger.appendEvent(newEvent({ eventType: 'RunPaused' }))
      expect(swallowed).toMatchObject({ idempotent: true, runSeq: 2 })
      for (const [eventType, status] of [
        ['RunPaused', 'PAUSED'],
        ['RunResumed', 'RUNNING'],
      ]) {
        const event = newEvent({ eventType, logicalAttemptId: 2 })
        expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
        expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status, consistency: 'CONSISTENT' })
      }
    },
  )
}
