import { randomUUID } from 'node:crypto'
import { deriveIdempotencyKey, type RunEventWrite } from '../../index.ts'

/** The events that tests write, whatever else they are about. */

/** The run that most tests write to. */
export const RUN = 'run-1'

/** What all events of a run have in common. */
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

/** An event that fits, whatever is said of it; the key too, unless it is given. */
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

/** With a key of its own: another plan version makes it another event, and changes nothing else. */
export function probe(eventType: string, stepId?: string, logicalAttemptId = 1): RunEventWrite {
  const step = stepId === undefined ? {} : { stepId }
  return newEvent({ eventType, logicalAttemptId, planVersion: 'probe', ...step })
}

/** `RunStarted`, or `StepStarted fetch`, or `StepStarted fetch 2` with the attempt. */
export function said(text: string, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  const [eventType, stepId, attempt] = text.split(' ')
  return newEvent({
    eventType,
    ...(stepId === undefined ? {} : { stepId }),
    logicalAttemptId: Number(attempt ?? 1),
    ...fields,
  })
}
