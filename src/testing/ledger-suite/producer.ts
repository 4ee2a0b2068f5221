import { expect } from 'vitest'
import { createProducer, type Producer } from '../../index.ts'
import { refused, times } from '../annals-suite/suite.ts'
import { newEvent, PLAN, RUN } from './events.ts'
import type { Given, LedgerSuite } from './suite.ts'

function producerOf({ ledger, registry }: Given): Producer {
  return createProducer({
    store: ledger,
    registry,
    runId: RUN,
    ...PLAN,
  })
}

/** L22–L25, LD1: the producer works with this ledger. The other tests of the producer are beside its source. */
export function testProducer(suite: LedgerSuite): void {
  suite.holds(
    'L24, LD1: a whole run with two pauses and a step that failed once is consistent',
    async (ledger, given) => {
      const producer = producerOf(given)
      await producer.runQueued()
      await producer.runStarted()
      await producer.stepStarted('fetch')
      await producer.stepFailed('fetch', new Error('no network'))
      await producer.pause({ reason: 'lunch' })
      await producer.resume()
      await producer.pause()
      await producer.resume()
      await producer.stepStarted('fetch')
      await producer.stepCompleted('fetch')
      await producer.stepSkipped('mail')
      await producer.emit('CostReported', { payload: { cents: 12 } })
      await producer.runCompleted({ ok: true })
      const records = await ledger.fetchEvents(RUN)
      expect(records.map(record => [record.eventType, record.logicalAttemptId])).toEqual([
        ['RunQueued', 1],
        ['RunStarted', 1],
        ['StepStarted', 1],
        ['StepFailed', 1],
        ['RunPaused', 1],
        ['RunResumed', 1],
        ['RunPaused', 2],
        ['RunResumed', 2],
        ['StepStarted', 2],
        ['StepCompleted', 2],
        ['StepSkipped', 1],
        ['CostReported', 1],
        ['RunCompleted', 1],
      ])
      expect(new Set(records.map(({ engineAttemptId }) => engineAttemptId))).toEqual(new Set([1]))
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'COMPLETED',
        consistency: 'CONSISTENT',
      })
    },
    ['registry'],
  )

  suite.holds(
    'L22, L5: two producers that send the same event store it once, under one event id',
    async (ledger, given) => {
      const results = await Promise.all(times(2, () => producerOf(given).runStarted()))
      expect(new Set(results.map(({ eventId }) => eventId)).size).toBe(1)
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
    },
    ['registry'],
  )

  suite.holds(
    'L23: a producer adopts the ledger’s event id if the registry has lost it',
    async (ledger, given) => {
      const event = newEvent()
      await ledger.appendEvent(event)
      const result = await producerOf(given).runStarted()
      expect(result).toMatchObject({ eventId: event.eventId, idempotent: true })
      const known = await given.registry.claim(RUN, event.idempotencyKey, newEvent().eventId)
      expect(known).toBe(event.eventId)
    },
    ['registry'],
  )

  suite.holds(
    'L25: a producer never sends an invalid transition',
    async (ledger, given) => {
      const producer = producerOf(given)
      await producer.runStarted()
      await producer.stepStarted('fetch')
      await producer.runCompleted()
      await refused(producer.pause(), 'INVALID_TRANSITION')
      await refused(producer.stepCompleted('fetch'), 'ILLEGAL_STATE')
      expect(await ledger.fetchEvents(RUN)).toHaveLength(3)
      expect(await ledger.alerts()).toEqual([])
    },
    ['registry'],
  )

  suite.holds(
    'L16, L25: a run can start after events of unknown types',
    async (ledger, given) => {
      await producerOf(given).emit('RunSubmitted')
      // A new producer must first read the state of the run.
      const producer = producerOf(given)
      await producer.emit('Admitted')
      await producer.runQueued()
      await producer.runStarted()
      await producer.runCompleted()
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'COMPLETED',
        consistency: 'CONSISTENT',
        lastEventSeq: 5,
      })
    },
    ['registry'],
  )

  suite.holds(
    'L22, L25: a restarted producer knows the state of the run',
    async (ledger, given) => {
      const first = producerOf(given)
      await first.runStarted()
      await first.stepStarted('fetch')
      await first.stepFailed('fetch', 'x')
      const second = producerOf(await given.reopen())
      const { runSeq } = await second.stepStarted('fetch')
      expect(runSeq).toBe(4)
      await refused(second.resume(), 'INVALID_TRANSITION')
      expect(ledger).toBeDefined()
    },
    ['registry', 'reopen'],
  )
}
