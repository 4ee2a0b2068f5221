import { expect } from 'vitest'
import type { StepStatus } from '../../index.ts'
import { probe, RUN, RUN_EVENTS, STEP_EVENTS } from './events.ts'
import { type LedgerSuite, tell } from './suite.ts'

/** The events that bring a run into each status. `nothing` is a run without events. Unknown events don't change that. */
const RUN_PATHS: Readonly<Record<string, readonly string[]>> = {
  nothing: [],
  'unknown events': ['RunSubmitted', 'StepPlanned fetch'],
  PENDING: ['RunQueued'],
  RUNNING: ['RunStarted'],
  PAUSED: ['RunStarted', 'RunPaused'],
  COMPLETED: ['RunStarted', 'RunCompleted'],
  FAILED: ['RunStarted', 'RunFailed'],
  CANCELLED: ['RunStarted', 'RunCancelled'],
}

/** LD4: the status that each valid event leads to, by the status before. All other transitions are invalid. */
const RUN_TABLE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  RunQueued: { nothing: 'PENDING' },
  RunStarted: { nothing: 'RUNNING', PENDING: 'RUNNING' },
  RunPaused: { RUNNING: 'PAUSED' },
  RunResumed: { PAUSED: 'RUNNING' },
  RunCompleted: { RUNNING: 'COMPLETED' },
  RunFailed: { PENDING: 'FAILED', RUNNING: 'FAILED', PAUSED: 'FAILED' },
  RunCancelled: { PENDING: 'CANCELLED', RUNNING: 'CANCELLED', PAUSED: 'CANCELLED' },
}

const STEP_PATHS: Readonly<Record<StepStatus, readonly string[]>> = {
  PENDING: [],
  RUNNING: ['StepStarted fetch'],
  SUCCESS: ['StepStarted fetch', 'StepCompleted fetch'],
  FAILED: ['StepStarted fetch', 'StepFailed fetch'],
  SKIPPED: ['StepSkipped fetch'],
}

/** The events that bring a running run into each status. They follow the events of the step. */
const RUN_ENDS: Readonly<Record<string, readonly string[]>> = {
  RUNNING: [],
  PAUSED: ['RunPaused'],
  COMPLETED: ['RunCompleted'],
  FAILED: ['RunFailed'],
  CANCELLED: ['RunCancelled'],
}

/**
 * LD5 for the current attempt of a step: the status after the event. Only starting and skipping depend on the status of
 * the run.
 */
function stepAfter(eventType: string, step: string, run: string): StepStatus | 'invalid' {
  if (eventType === 'StepStarted') return step === 'PENDING' && run === 'RUNNING' ? 'RUNNING' : 'invalid'
  if (eventType === 'StepSkipped') {
    return step === 'PENDING' && (run === 'RUNNING' || run === 'PAUSED') ? 'SKIPPED' : 'invalid'
  }
  if (step !== 'RUNNING') return 'invalid'
  return eventType === 'StepCompleted' ? 'SUCCESS' : 'FAILED'
}

/** LD5 for the next attempt of a step, which can begin only after the current one has failed. */
function nextAttemptAfter(eventType: string, step: string, run: string): StepStatus | 'invalid' {
  return step === 'FAILED' ? stepAfter(eventType, 'PENDING', run) : 'invalid'
}

const RUN_ROWS = RUN_EVENTS.flatMap(eventType =>
  Object.keys(RUN_PATHS).map(from => {
    const known = from === 'unknown events' ? 'nothing' : from
    return [eventType, from, RUN_TABLE[eventType][known] ?? 'invalid'] as const
  }),
)

const STEP_ROWS = STEP_EVENTS.flatMap(eventType =>
  Object.keys(STEP_PATHS).flatMap(step =>
    Object.keys(RUN_ENDS).map(run => [eventType, step, run, stepAfter(eventType, step, run)] as const),
  ),
)

const NEXT_ROWS = STEP_EVENTS.flatMap(eventType =>
  Object.keys(STEP_PATHS).flatMap(step =>
    Object.keys(RUN_ENDS).map(run => [eventType, step, run, nextAttemptAfter(eventType, step, run)] as const),
  ),
)

/** L27, L28, LD4, LD5: every event in every status. */
export function testTransitions(suite: LedgerSuite): void {
  suite.each('LD4, L27: %s after %s is %s', RUN_ROWS, async (ledger, [eventType, from, expected]) => {
    const before = (await tell(ledger, RUN_PATHS[from])).length
    await ledger.appendEvent(probe(eventType))
    const isValid = expected !== 'invalid'
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({
      status: isValid ? expected : from === from.toUpperCase() ? from : 'PENDING',
      lastEventSeq: before + 1,
      consistency: isValid ? 'CONSISTENT' : 'INCONSISTENT',
      invalidEvents: isValid ? 0 : 1,
    })
    expect(await ledger.alerts({ runId: RUN })).toHaveLength(isValid ? 0 : 1)
  })

  suite.each(
    'LD5, L28: %s of a step that is %s, in a run that is %s, is %s',
    STEP_ROWS,
    async (ledger, [eventType, step, run, expected]) => {
      await tell(ledger, ['RunStarted', ...STEP_PATHS[step as StepStatus], ...RUN_ENDS[run]])
      await ledger.appendEvent(probe(eventType, 'fetch'))
      const isValid = expected !== 'invalid'
      const after = isValid ? expected : step
      const snapshot = await ledger.projectSnapshot(RUN)
      expect(snapshot).toMatchObject({ status: run, invalidEvents: isValid ? 0 : 1 })
      expect(snapshot.steps.map(({ stepId, status, attempts }) => ({ stepId, status, attempts }))).toEqual(
        after === 'PENDING' ? [] : [{ stepId: 'fetch', status: after, attempts: [] }],
      )
    },
  )

  suite.each(
    'LD5: %s of the attempt after one that is %s, in a run that is %s, is %s',
    NEXT_ROWS,
    async (ledger, [eventType, step, run, expected]) => {
      await tell(ledger, ['RunStarted', ...STEP_PATHS[step as StepStatus], ...RUN_ENDS[run]])
      await ledger.appendEvent(probe(eventType, 'fetch', 2))
      const { steps, invalidEvents, status } = await ledger.projectSnapshot(RUN)
      expect(status).toBe(run)
      expect(invalidEvents).toBe(expected === 'invalid' ? 1 : 0)
      const states = steps.map(now => [now.logicalAttemptId, now.status, now.attempts.map(a => a.status)])
      if (expected !== 'invalid') expect(states).toEqual([[2, expected, ['FAILED']]])
      else expect(states).toEqual(step === 'PENDING' ? [] : [[1, step, []]])
    },
  )

  suite.each(
    'LD4, LD5: %s as the first event of a run is invalid, and the run is PENDING',
    STEP_EVENTS.map(type => [type] as const),
    async (ledger, [eventType]) => {
      await ledger.appendEvent(probe(eventType, 'fetch'))
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'PENDING',
        steps: [],
        lastEventSeq: 1,
        invalidEvents: 1,
      })
      await tell(ledger, ['RunStarted', 'StepStarted fetch'])
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'RUNNING',
        steps: [{ stepId: 'fetch', status: 'RUNNING' }],
        invalidEvents: 1,
      })
    },
  )

  suite.each(
    'L16, LD4: unknown first events, projected %s, change no state, so RunQueued still opens the run',
    [['after each event'], ['once, at the end']],
    async (ledger, [when]) => {
      for (const text of [
        'RunSubmitted',
        'Noted',
        'StepPlanned fetch',
        'RunQueued',
        'Noted2',
        'RunStarted',
      ]) {
        await tell(ledger, [text])
        if (when === 'after each event') await ledger.projectSnapshot(RUN)
      }
      const snapshot = await ledger.projectSnapshot(RUN)
      expect(snapshot).toMatchObject({ status: 'RUNNING', consistency: 'CONSISTENT', lastEventSeq: 6 })
      expect(await ledger.alerts({ runId: RUN })).toEqual([])
      expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 6 })
    },
  )

  suite.holds('LD5: failed attempts stay in the history, each with its times and error', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted fetch'])
    await tell(ledger, ['StepFailed fetch'], { payload: { error: { code: 'E1' } }, engineAttemptId: 4 })
    await tell(ledger, ['StepStarted fetch 2'])
    await tell(ledger, ['StepFailed fetch 2'], { payload: { error: 'again' } })
    const records = await tell(ledger, ['StepStarted fetch 3', 'StepCompleted fetch 3'])
    const at = (runSeq: number): string => records[runSeq - 1].persistedAt
    expect((await ledger.projectSnapshot(RUN)).steps).toEqual([
      {
        stepId: 'fetch',
        status: 'SUCCESS',
        logicalAttemptId: 3,
        engineAttemptId: 1,
        startedAt: at(6),
        completedAt: at(7),
        attempts: [
          {
            status: 'FAILED',
            logicalAttemptId: 1,
            engineAttemptId: 4,
            startedAt: at(2),
            completedAt: at(3),
            error: { code: 'E1' },
          },
          {
            status: 'FAILED',
            logicalAttemptId: 2,
            engineAttemptId: 1,
            startedAt: at(4),
            completedAt: at(5),
            error: 'again',
          },
        ],
      },
    ])
  })

  suite.holds('LD5: skipping an attempt is invalid', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a 2', 'StepStarted b', 'StepFailed b', 'StepStarted b 3'])
    const { steps, invalidEvents } = await ledger.projectSnapshot(RUN)
    expect(invalidEvents).toBe(2)
    expect(steps).toMatchObject([{ stepId: 'b', status: 'FAILED', logicalAttemptId: 1 }])
  })

  suite.holds('LD5: an event of an earlier attempt is invalid', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a', 'StepFailed a', 'StepStarted a 2', 'StepCompleted a'])
    const { steps, invalidEvents } = await ledger.projectSnapshot(RUN)
    expect(invalidEvents).toBe(1)
    expect(steps).toMatchObject([
      { status: 'RUNNING', logicalAttemptId: 2, attempts: [{ status: 'FAILED' }] },
    ])
  })
}
