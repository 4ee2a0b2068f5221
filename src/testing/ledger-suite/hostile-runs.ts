import { expect } from 'vitest'
import { newEvent, probe, RUN, RUN_EVENTS, STEP_EVENTS, said } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

/** L29, L30, LD9, LD13: a run stays readable, whatever events it has. */
export function testHostileRuns(suite: LedgerSuite): void {
  suite.holds(
    'L29, L30: a run with every kind of invalid transition stays readable, keeps its status, and has one alert for each',
    async ledger => {
      await tell(ledger, ['RunStarted', 'StepStarted done', 'StepCompleted done', 'StepStarted runs'])
      await tell(ledger, ['StepStarted failed', 'StepFailed failed', 'StepSkipped skipped', 'RunCompleted'])
      const before = await ledger.projectSnapshot(RUN)
      expect(before).toMatchObject({ status: 'COMPLETED', consistency: 'CONSISTENT' })
      const invalid = [
        ...RUN_EVENTS.map(type => probe(type)),
        ...STEP_EVENTS.flatMap(type => ['done', 'failed', 'skipped', 'new'].map(step => probe(type, step))),
        probe('StepStarted', 'runs'),
        probe('StepSkipped', 'runs'),
        ...STEP_EVENTS.map(type => probe(type, 'failed', 2)),
      ]
      for (const event of invalid) await ledger.appendEvent(event)
      const after = await ledger.projectSnapshot(RUN)
      const { hash: _, ...rest } = after
      const { hash: __, ...expected } = before
      expect(rest).toEqual({
        ...expected,
        lastEventSeq: before.lastEventSeq + invalid.length,
        consistency: 'INCONSISTENT',
        invalidEvents: invalid.length,
      })
      const alerts = await ledger.alerts({ runId: RUN })
      expect(alerts.map(({ eventId }) => eventId)).toEqual(invalid.map(({ eventId }) => eventId))
      expect(await ledger.fetchEvents(RUN)).toHaveLength(after.lastEventSeq)
      expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: after.lastEventSeq })
      expect(await ledger.getSnapshot(RUN)).toEqual(after)
    },
  )

  suite.holds('L29: valid events of an inconsistent run still change its state', async ledger => {
    await tell(ledger, [
      'RunResumed',
      'RunStarted',
      'StepCompleted a',
      'StepStarted a',
      'RunPaused',
      'RunCompleted',
    ])
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({
      status: 'PAUSED',
      consistency: 'INCONSISTENT',
      invalidEvents: 3,
      steps: [{ stepId: 'a', status: 'RUNNING' }],
    })
    const resumed = newEvent({ eventType: 'RunResumed', logicalAttemptId: 2 })
    await ledger.appendEvent(resumed)
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'RUNNING', invalidEvents: 3 })
  })

  suite.holds(
    'LD9, LD13: a snapshot shows an error of the greatest allowed depth, even one of an earlier attempt',
    async ledger => {
      let deep: unknown = 'the bottom'
      for (let i = 0; i < 63; i++) deep = i % 2 === 0 ? [deep] : { deep }
      await tell(ledger, ['RunStarted', 'StepStarted a'])
      await tell(ledger, ['StepFailed a'], { payload: { error: deep } })
      expect((await ledger.projectSnapshot(RUN)).steps[0].error).toEqual(deep)
      await tell(ledger, ['StepStarted a 2', 'StepCompleted a 2'])
      const [step] = (await ledger.projectSnapshot(RUN)).steps
      expect(step.attempts[0].error).toEqual(deep)
      expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: true })
    },
  )

  suite.holds('LD13: a snapshot shows many large errors of many attempts of one step', async ledger => {
    const error = { text: 'x'.repeat(1_000_000) }
    await tell(ledger, ['RunStarted', 'StepStarted a'])
    for (let attempt = 1; attempt <= 18; attempt++) {
      const failed = newEvent({
        eventType: 'StepFailed',
        stepId: 'a',
        logicalAttemptId: attempt,
        payload: { error },
      })
      await ledger.appendEvent(failed)
      await ledger.appendEvent(said(`StepStarted a ${attempt + 1}`))
    }
    const [step] = (await ledger.projectSnapshot(RUN)).steps
    expect(step.attempts).toHaveLength(18)
    for (const attempt of step.attempts) expect(attempt.error).toEqual(error)
    expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: true })
  })
}
