import { randomUUID } from 'node:crypto'
import { deriveIdempotencyKey, type RunEventWrite } from '../../index.ts'

/** The run that most tests write to. */
export const RUN = 'run-1'

/** The fields that all events of a run share. */
export const PLAN = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'plan',
  planVersion: '1',
} as const

export const RUN_EVENTS = [
  'RunQueued',
  'RunStarted',
  'RunPaused',
  'RunResumed',
  'RunCompleted',
  'RunFailed',
  'RunCancelled',
] as const
export const STEP_EVENTS = ['StepStarted', 'StepCompleted', 'StepFailed', 'StepSkipped'] as const

/** A valid event with these fields, and with the matching idempotency key unless one is given. */
export function newEvent(fields: Partial<RunEventWrite> = {}): RunEventWrite {
  const event = {
    eventId: randomUUID(),
    eventType: 'RunStarted',
    emittedAt: '2025-06-15T15:06:40.000Z',
    runId: RUN,
    ...PLAN,
    engineAttemptId: 1,
    logicalAttemptId: 1,
    ...fields,
  }
  return { idempotencyKey: deriveIdempotencyKey(event), ...event }
}

/** An event with a plan version of its own, so that it is not a duplicate of an event from `newEvent` or `said`. */
export function probe(eventType: string, stepId?: string, logicalAttemptId = 1): RunEventWrite {
  const step = stepId === undefined ? {} : { stepId }
  return newEvent({ eventType, logicalAttemptId, planVersion: 'probe', ...step })
}

/** The event that a short text describes: `RunStarted`, `StepStarted fetch`, or `StepStarted fetch 2` for attempt 2. */
export function said(text: string, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  const [eventType, stepId, attempt] = text.split(' ')
  return newEvent({
    eventType,
    ...(stepId === undefined ? {} : { stepId }),
    logicalAttemptId: Number(attempt ?? 1),
    ...fields,
  })
}
