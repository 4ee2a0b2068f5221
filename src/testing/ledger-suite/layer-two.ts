import { expect } from 'vitest'
import { refused, times } from '../annals-suite/suite.ts'
import { newEvent, probe, RUN, said } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

/** L26, LD2: with `validateTransitions`, the append of an invalid transition is rejected. */
export function testLayerTwo(suite: LedgerSuite): void {
  suite.holds('LD2: without validateTransitions an invalid transition is stored', async ledger => {
    expect(await ledger.appendEvent(probe('RunResumed'))).toMatchObject({ persisted: true, runSeq: 1 })
  })

  suite.holds(
    'L26: an invalid transition is refused, and nothing is written',
    async ledger => {
      await refused(ledger.appendEvent(probe('RunResumed')), 'INVALID_TRANSITION')
      expect(await ledger.fetchEvents(RUN)).toEqual([])
      expect(await ledger.getSnapshot(RUN)).toBeNull()
      await tell(ledger, ['RunStarted', 'StepStarted a'])
      const { details } = await refused(ledger.appendEvent(probe('StepSkipped', 'a')), 'INVALID_TRANSITION')
      expect(details).toMatchObject({
        eventType: 'StepSkipped',
        stepId: 'a',
        priorState: 'RUNNING',
        attemptedState: 'SKIPPED',
      })
      expect(await ledger.fetchEvents(RUN)).toHaveLength(2)
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ consistency: 'CONSISTENT' })
      expect(await ledger.alerts()).toEqual([])
    },
    ['layerTwo'],
  )

  suite.holds(
    'L26, LD2: a retry of a rejected event is rejected again, even if it is valid by then',
    async ledger => {
      const event = said('RunPaused')
      const first = await refused(ledger.appendEvent(event), 'INVALID_TRANSITION')
      await tell(ledger, ['RunStarted'])
      for (const retry of [event, { ...event, payload: { again: true } }]) {
        const { details, message } = await refused(ledger.appendEvent(retry), 'INVALID_TRANSITION')
        expect({ details, message }).toEqual({ details: first.details, message: first.message })
      }
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
      const next = newEvent({ eventType: 'RunPaused', logicalAttemptId: 2 })
      expect(await ledger.appendEvent(next)).toMatchObject({ runSeq: 2, persisted: true })
    },
    ['layerTwo'],
  )

  suite.holds(
    'LD2: a rejection is remembered after reopening',
    async (ledger, given) => {
      const event = said('RunPaused')
      const first = await refused(ledger.appendEvent(event), 'INVALID_TRANSITION')
      const { ledger: again } = await given.reopen()
      await tell(again, ['RunStarted'])
      const { details } = await refused(again.appendEvent(event), 'INVALID_TRANSITION')
      expect(details).toEqual(first.details)
    },
    ['layerTwo', 'reopen'],
  )

  suite.holds(
    'L26: valid events, unknown ones and duplicates pass',
    async ledger => {
      const texts = [
        'RunQueued',
        'Noted',
        'RunStarted',
        'StepStarted a',
        'StepFailed a',
        'StepStarted a 2',
        'RunPaused',
      ]
      const records = await tell(ledger, [
        ...texts,
        'StepCompleted a 2',
        'RunResumed',
        'RunCompleted',
        'Noted2',
      ])
      expect(records).toHaveLength(11)
      expect(await ledger.appendEvent(said('RunStarted'))).toMatchObject({ idempotent: true, runSeq: 3 })
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'COMPLETED', invalidEvents: 0 })
    },
    ['layerTwo'],
  )

  suite.holds(
    'L16, L26: unknown first events do not change which transitions are valid',
    async ledger => {
      await ledger.appendEvents([said('RunSubmitted'), said('StepPlanned a')])
      await refused(ledger.appendEvent(said('RunCancelled')), 'INVALID_TRANSITION')
      await refused(ledger.appendEvent(said('StepStarted a')), 'INVALID_TRANSITION')
      await tell(ledger, ['Noted', 'RunQueued', 'RunStarted'])
      await refused(ledger.appendEvent(probe('RunQueued')), 'INVALID_TRANSITION')
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'RUNNING', invalidEvents: 0 })
    },
    ['layerTwo'],
  )

  suite.holds(
    'L26: exactly one of several concurrent events that exclude each other is stored',
    async ledger => {
      await tell(ledger, ['RunStarted'])
      const ends = ['RunCompleted', 'RunFailed', 'RunCancelled'].map(type => ledger.appendEvent(probe(type)))
      const settled = await Promise.allSettled(ends)
      expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ lastEventSeq: 2, consistency: 'CONSISTENT' })
    },
    ['layerTwo'],
  )

  suite.holds(
    'L26: a batch is validated in order, and one invalid event rejects all of it',
    async ledger => {
      await ledger.appendEvents(['RunStarted', 'StepStarted a', 'StepCompleted a'].map(text => said(text)))
      const batch = [said('StepStarted b'), said('StepStarted c'), said('StepFailed a')]
      const { details } = await refused(ledger.appendEvents(batch), 'INVALID_TRANSITION')
      expect(details).toMatchObject({ index: 2, stepId: 'a', priorState: 'SUCCESS' })
      expect(await ledger.fetchEvents(RUN)).toHaveLength(3)
      expect(await ledger.appendEvents(batch.slice(0, 2))).toMatchObject([{ runSeq: 4 }, { runSeq: 5 }])
    },
    ['layerTwo'],
  )

  suite.holds(
    'LD2: an event rejected because of others in its batch may be sent alone',
    async ledger => {
      await ledger.appendEvent(said('RunStarted'))
      await refused(ledger.appendEvents([said('RunCompleted'), said('StepStarted a')]), 'INVALID_TRANSITION')
      expect(await ledger.appendEvent(said('StepStarted a'))).toMatchObject({ runSeq: 2, persisted: true })
    },
    ['layerTwo'],
  )

  suite.holds(
    'L26: concurrent events of many steps are each validated by the state of their step',
    async ledger => {
      await tell(ledger, ['RunStarted'])
      await Promise.all(times(40, i => ledger.appendEvent(said(`StepStarted s${i}`))))
      const results = await Promise.allSettled(
        times(40, i => ledger.appendEvent(probe(i % 2 === 0 ? 'StepCompleted' : 'StepStarted', `s${i}`))),
      )
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(20)
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ lastEventSeq: 61, invalidEvents: 0 })
    },
    ['layerTwo'],
  )
}
