import { newId } from '../../src/core/id.ts'
import type { RunEventWrite } from '../../src/index.ts'
import { newEvent as anyEvent } from '../../src/testing/ledger-suite/events.ts'
import type { Random } from '../../src/testing/random.ts'

export const PLAN = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'nightly',
  planVersion: '3',
} as const

type Given = Pick<RunEventWrite, 'runId' | 'eventType'> & Partial<RunEventWrite>

/** Makes an event with its key. Its id comes from the seeded generator. */
export function newEvent(random: Random, given: Given): RunEventWrite {
  const eventId = newId(count => Buffer.from(random.bytes(count), 'latin1'))
  return anyEvent({ ...PLAN, eventId, ...given })
}
