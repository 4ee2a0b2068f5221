import { expect } from 'vitest'
import { times } from '../annals-suite/suite.ts'
import { newEvent, probe, RUN } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** L29, L30: what no transition allows is said aloud, once. */
export function testAlerts(suite: LedgerSuite): void {
  suite.holds('L30: an alert of a run event says everything that is asked for', async ledger => {
    await tell(ledger, ['RunStarted'])
    const event = probe('RunResumed')
    const { runSeq, persistedAt } = await ledger.appendEvent(event)
    await ledger.projectSnapshot(RUN)
    expect(await ledger.alerts({ runId: RUN })).toEqual([
      {
        code: 'INVALID_TRANSITION',
        runId: RUN,
        tenantId: 'acme',
        projectId: 'shop',
        environmentId: 'test',
        eventId: event.eventId,
        eventType: 'RunResumed',
        runSeq,
        persistedAt,
        priorState: 'RUNNING',
        attemptedState: 'RUNNING',
        reason: expect.stringMatching(/\S/),
      },
    ])
  })

  suite.holds('L30: an alert of a step event has the step, and the step’s states', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a'])
    await ledger.appendEvent(probe('StepFailed', 'a'))
    await ledger.appendEvent(probe('StepCompleted', 'b'))
    await ledger.projectSnapshot(RUN)
    expect(await ledger.alerts({ runId: RUN })).toMatchObject([
      { stepId: 'a', priorState: 'SUCCESS', attemptedState: 'FAILED', runSeq: 4 },
      { stepId: 'b', priorState: 'PENDING', attemptedState: 'SUCCESS', runSeq: 5 },
    ])
  })

  suite.holds('L30: one alert per event, however often it is sent and projected', async ledger => {
    const event = probe('RunCompleted')
    for (let i = 0; i < 3; i++) {
      await ledger.appendEvent(event)
      await Promise.all(times(5, () => ledger.projectSnapshot(RUN)))
    }
    expect(await ledger.alerts({ runId: RUN })).toHaveLength(1)
    expect(await ledger.alerts()).toHaveLength(1)
  })

  suite.holds(
    'L30: two events with one id in a run are one alert; in two runs they are two',
    async ledger => {
      const { eventId } = newEvent()
      for (const eventType of ['RunPaused', 'RunResumed'])
        await ledger.appendEvent(newEvent({ eventType, eventId }))
      await ledger.appendEvent(newEvent({ runId: 'run-2', eventType: 'RunPaused', eventId }))
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ invalidEvents: 2 })
      await ledger.projectSnapshot('run-2')
      expect(await ledger.alerts({ runId: RUN })).toHaveLength(1)
      expect(await ledger.alerts()).toHaveLength(2)
    },
  )

  suite.holds(
    'L30: alerts stay what they are when the ledger is opened again',
    async (ledger, given) => {
      await tell(ledger, ['RunPaused', 'RunStarted', 'StepCompleted a'])
      await ledger.projectSnapshot(RUN)
      const before = await ledger.alerts()
      expect(before).toHaveLength(2)
      const again = await given.reopen()
      await again.ledger.projectSnapshot(RUN)
      await tell(again.ledger, ['RunPaused'])
      await again.ledger.projectSnapshot(RUN)
      expect(await again.ledger.alerts()).toEqual(before)
      expect(await again.ledger.alerts({ runId: RUN })).toEqual(before)
    },
    ['reopen'],
  )

  suite.holds(
    'L30: alerts of a run come in its order, those of all runs by time',
    async (ledger, { clock }) => {
      for (const runId of ['b', 'a', 'b', 'c']) {
        clock.advance(10)
        const eventType = (await ledger.fetchEvents(runId)).length === 0 ? 'RunPaused' : 'RunResumed'
        await ledger.appendEvent(newEvent({ runId, eventType }))
      }
      for (const runId of ['a', 'b', 'c']) await ledger.projectSnapshot(runId)
      expect((await ledger.alerts()).map(({ runId }) => runId)).toEqual(['b', 'a', 'b', 'c'])
      expect((await ledger.alerts({ runId: 'b' })).map(({ runSeq }) => runSeq)).toEqual([1, 2])
    },
    ['clock'],
  )

  suite.holds('L29: an alert comes by itself, without anybody asking for the run', async ledger => {
    await ledger.appendEvent(probe('RunCompleted'))
    const [alert] = await eventually(
      () => ledger.alerts(),
      alerts => alerts.length > 0,
    )
    expect(alert).toMatchObject({ runId: RUN, priorState: 'PENDING', attemptedState: 'COMPLETED' })
  })
}
