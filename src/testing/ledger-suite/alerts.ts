import { expect } from 'vitest'
import { gather, refused, take, times } from '../annals-suite/suite.ts'
import { newEvent, probe, RUN } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** L29, L30: an invalid transition raises exactly one alert. */
export function testAlerts(suite: LedgerSuite): void {
  suite.holds('L30: an alert of a run event has every required field', async ledger => {
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

  suite.holds('L30: an alert of a step event names the step and its states', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a'])
    await ledger.appendEvent(probe('StepFailed', 'a'))
    await ledger.appendEvent(probe('StepCompleted', 'b'))
    await ledger.projectSnapshot(RUN)
    expect(await ledger.alerts({ runId: RUN })).toMatchObject([
      { stepId: 'a', priorState: 'SUCCESS', attemptedState: 'FAILED', runSeq: 4 },
      { stepId: 'b', priorState: 'PENDING', attemptedState: 'SUCCESS', runSeq: 5 },
    ])
  })

  suite.holds('L30: an event raises one alert, however often it is sent and projected', async ledger => {
    const event = probe('RunCompleted')
    for (let i = 0; i < 3; i++) {
      await ledger.appendEvent(event)
      await Promise.all(times(5, () => ledger.projectSnapshot(RUN)))
    }
    expect(await ledger.alerts({ runId: RUN })).toHaveLength(1)
    expect(await ledger.alerts()).toHaveLength(1)
  })

  suite.holds(
    'L30: two events with the same id raise one alert in one run, and two alerts in two runs',
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
    'L30: alerts are the same after reopening',
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
    'L30: alerts of one run are in record order, and alerts of all runs are in time order',
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

  suite.holds('L29: an alert is raised in the background, without a read of the run', async ledger => {
    await ledger.appendEvent(probe('RunCompleted'))
    const [alert] = await eventually(
      () => ledger.alerts(),
      alerts => alerts.length > 0,
    )
    expect(alert).toMatchObject({ runId: RUN, priorState: 'PENDING', attemptedState: 'COMPLETED' })
  })

  suite.holds(
    'L30, LD17: subscribeAlerts delivers existing alerts, then new ones, each once',
    async ledger => {
      const follower = ledger.subscribeAlerts()
      for (const eventType of ['RunPaused', 'RunResumed']) await ledger.appendEvent(probe(eventType))
      await ledger.projectSnapshot(RUN)
      const first = await take(follower, 2)
      expect(first.map(({ alert }) => alert)).toEqual(await ledger.alerts())
      const next = follower.next()
      await ledger.appendEvent(probe('RunCompleted'))
      expect((await next).value).toMatchObject({ alert: { eventType: 'RunCompleted', runSeq: 3 } })
      await follower.return()
      const stop = new AbortController()
      stop.abort()
      expect(await gather(ledger.subscribeAlerts({ signal: stop.signal }))).toEqual([])
    },
  )

  suite.holds(
    'LD17: a subscriber with a cursor gets exactly the alerts raised since then, even for older records',
    async ledger => {
      await ledger.appendEvents([
        newEvent({ runId: 'old', eventType: 'RunPaused' }),
        newEvent({ runId: 'new', eventType: 'RunPaused' }),
      ])
      // The background projection may raise the alert of either run first.
      await ledger.projectSnapshot('new')
      const [one, two] = await take(ledger.subscribeAlerts(), 2)
      expect(new Set([one.alert.runId, two.alert.runId])).toEqual(new Set(['old', 'new']))
      expect(await take(ledger.subscribeAlerts({ cursor: one.cursor }), 1)).toEqual([two])
      await ledger.appendEvent(newEvent({ runId: 'old', eventType: 'RunResumed' }))
      const [three] = await take(ledger.subscribeAlerts({ cursor: two.cursor }), 1)
      expect(three.alert).toMatchObject({ runId: 'old', runSeq: 2 })
    },
  )

  suite.holds('L30: subscribers get one alert for an event id that occurs twice in a run', async ledger => {
    const { eventId } = newEvent()
    for (const eventType of ['RunPaused', 'RunResumed']) {
      await ledger.appendEvent(newEvent({ eventType, eventId }))
      await ledger.projectSnapshot(RUN)
    }
    const upper = newEvent({ eventType: 'RunCompleted', eventId: eventId.toUpperCase() })
    await ledger.appendEvents([upper, newEvent({ eventType: 'StepFailed', stepId: 'a' })])
    const items = await take(ledger.subscribeAlerts(), 2)
    expect(items.map(({ alert }) => alert.runSeq)).toEqual([1, 4])
    expect(items.map(({ cursor }) => cursor)).toEqual(['1', '2'])
    expect(await ledger.alerts({ runId: RUN })).toEqual(items.map(({ alert }) => alert))
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 4 })
  })

  suite.holds('LD17: an alert cursor that was never issued is refused', async ledger => {
    await ledger.appendEvent(probe('RunPaused'))
    await ledger.projectSnapshot(RUN)
    for (const cursor of ['2', 'x', '-1', '1.5', '1e3']) {
      await refused(take(ledger.subscribeAlerts({ cursor }), 1), 'INVALID_ARGUMENT', cursor)
    }
  })

  suite.holds(
    'LD17: an alert cursor is valid after reopening',
    async (ledger, given) => {
      await ledger.appendEvents([probe('RunPaused'), probe('RunResumed')])
      await ledger.projectSnapshot(RUN)
      const [first] = await take(ledger.subscribeAlerts(), 1)
      const { ledger: again } = await given.reopen()
      await again.appendEvent(probe('RunCompleted'))
      const items = await take(again.subscribeAlerts({ cursor: first.cursor }), 2)
      expect(items.map(({ alert }) => alert.eventType)).toEqual(['RunResumed', 'RunCompleted'])
    },
    ['reopen'],
  )

  suite.holds(
    'LD17: alerts of a purged run are no longer delivered, but later alerts of other runs are',
    async (ledger, { runs }) => {
      await ledger.appendEvent(probe('RunPaused'))
      await ledger.projectSnapshot(RUN)
      await runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
      await ledger.appendEvent(newEvent({ runId: 'run-2', eventType: 'RunPaused' }))
      const [item] = await take(ledger.subscribeAlerts(), 1)
      expect(item).toMatchObject({ alert: { runId: 'run-2' }, cursor: '2' })
    },
    ['runs'],
  )

  suite.holds(
    'L29, LD17: onAlert is called once for each alert, without a read of the run',
    async (ledger, { heard }) => {
      await ledger.appendEvents(times(30, i => newEvent({ runId: `run-${i % 3}`, eventType: `RunPaused` })))
      const alerts = [...(await heard.reach(3))]
      await Promise.all(times(3, i => ledger.projectSnapshot(`run-${i}`)))
      expect(await ledger.alerts()).toEqual(expect.arrayContaining(alerts))
      await ledger.appendEvent(newEvent({ runId: 'last', eventType: 'RunPaused' }))
      expect((await heard.reach(4)).map(({ runId }) => runId).sort()).toEqual([
        'last',
        'run-0',
        'run-1',
        'run-2',
      ])
    },
    ['onAlert'],
  )

  suite.holds(
    'LD17: an onAlert that throws affects no append, and is called again for the next alert',
    async (ledger, { heard }) => {
      heard.failure = new Error('planted in onAlert')
      await ledger.appendEvent(probe('RunPaused'))
      await heard.reach(1)
      await ledger.appendEvents([probe('RunResumed'), probe('RunStarted')])
      await heard.reach(2)
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'RUNNING', invalidEvents: 2 })
      expect(await ledger.alerts()).toEqual(heard.alerts)
    },
    ['onAlert'],
  )

  suite.holds(
    'LD17: after a restart onAlert is called once for each new alert, including alerts for older records',
    async (ledger, given) => {
      const { heard } = given
      await ledger.appendEvent(probe('RunPaused'))
      await heard.reach(1)
      await ledger.appendEvent(newEvent({ runId: 'late', eventType: 'RunPaused' }))
      // The ledger may or may not project this event before it is closed.
      const { ledger: again } = await given.reopen()
      await again.projectSnapshot('late')
      await again.appendEvent(newEvent({ runId: 'last', eventType: 'RunPaused' }))
      await heard.reach(heard.alerts.some(({ runId }) => runId === 'late') ? 3 : 2)
      const ids = heard.alerts.map(({ eventId }) => eventId)
      expect(new Set(ids).size).toBe(ids.length)
      expect((await again.alerts()).map(({ runId }) => runId)).toEqual([RUN, 'late', 'last'])
    },
    ['onAlert', 'reopen'],
  )

  suite.holds(
    'LD17: close waits until a slow onAlert has been called for every raised alert',
    async (ledger, given) => {
      const { heard } = given
      heard.delay = () => new Promise(resolve => setTimeout(resolve, 5))
      const runs = times(20, i => `run-${i}`)
      await ledger.appendEvents(runs.map(runId => newEvent({ runId, eventType: 'RunPaused' })))
      for (const runId of runs) await ledger.projectSnapshot(runId)
      const raised = await ledger.alerts()
      expect(raised).toHaveLength(20)
      await given.reopen()
      expect(heard.alerts.map(({ runId }) => runId).toSorted()).toEqual(runs.toSorted())
    },
    ['onAlert', 'reopen'],
  )

  suite.holds(
    'LD17: any value that onAlert throws becomes a warning that names the event, and later alerts are delivered',
    async (ledger, { heard }) => {
      const warnings: string[] = []
      const note = ({ message }: Error): void => void warnings.push(message)
      process.on('warning', note)
      try {
        for (const [i, failure] of [Symbol('planted'), Object.create(null), null, 7].entries()) {
          heard.failure = failure
          await ledger.appendEvent(newEvent({ runId: `run-${i}`, eventType: 'RunPaused' }))
          await heard.reach(i + 1)
        }
        // Tests of other ledgers may emit warnings in this process too, so look only for the own event ids.
        await eventually(
          async () => heard.alerts.filter(({ eventId }) => !warnings.some(text => text.includes(eventId))),
          missing => missing.length === 0,
        )
      } finally {
        process.off('warning', note)
      }
      expect(warnings.filter(text => !text.startsWith('onAlert failed for event'))).toEqual([])
    },
    ['onAlert'],
  )
}
