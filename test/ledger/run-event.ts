import { newId } from '../../src/core/id.ts'
import { deriveIdempotencyKey, type RunEventWrite } from '../../src/index.ts'
import type { Random } from '../../src/testing/random.ts'

export const PLAN = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'nightly',
  planVersion: '3',
} as const

type Given = Pick<RunEventWrite, 'runId' | 'eventType'> & Partial<RunEventWrite>

/** An event with its key; ids follow from the seed. */
export function newEvent(random: Random, given: Given): RunEventWrite {
  const event = { ...PLAN, logicalAttemptId: 1, engineAttemptId: 1, ...given }
  return {
    eventId: newId(count => Buffer.from(random.bytes(count), 'latin1')),
    emittedAt: '2025-06-15T15:06:40.000Z',
    idempotencyKey: deriveIdempotencyKey(event),
    ...event,
  }
}
