import { type FromName, type JsonSchema, objectSchema } from '../core/schema.ts'

/**
 * The formats of the ledger's payloads (`core/schema.ts` has the notation). The HTTP API documents them from these tables. A
 * test compares their types with the interfaces in `run-events.ts`.
 */

/** Lengths are limits in bytes, so a longer text is refused, but a shorter one may be refused too. */
const VALUES = {
  text: { type: 'string' },
  flag: { type: 'boolean' },
  number: { type: 'number' },
  count: { type: 'integer', minimum: 0 },
  ordinal: { type: 'integer', minimum: 1 },
  any: {},
  object: { type: 'object' },
  'event-id': {
    type: 'string',
    pattern: '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$',
  },
  'idempotency-key': { type: 'string', pattern: '^[0-9a-f]{64}$' },
  time: {
    type: 'string',
    maxLength: 4096,
    pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|\\+00:00)$',
  },
  name: { type: 'string', minLength: 1, maxLength: 4096, pattern: '^[^\\u0000]*$' },
  'key-part': { type: 'string', minLength: 1, maxLength: 4096, pattern: '^[^\\u0000|]*$' },
  'short-key-part': { type: 'string', minLength: 1, maxLength: 256, pattern: '^[^\\u0000|]*$' },
  'run-status': { enum: ['PENDING', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED'] },
  'step-status': { enum: ['PENDING', 'RUNNING', 'SUCCESS', 'FAILED', 'SKIPPED'] },
  consistency: { enum: ['CONSISTENT', 'INCONSISTENT'] },
  'not-begun': { const: false, description: 'Present while all events of the run have unknown types.' },
  'alert-code': { const: 'INVALID_TRANSITION' },
} as const

const RECORDS = {
  'run-event': {
    eventId: 'event-id',
    eventType: 'short-key-part',
    emittedAt: 'time',
    runId: 'short-key-part',
    tenantId: 'name',
    projectId: 'name',
    environmentId: 'name',
    planId: 'key-part',
    planVersion: 'key-part',
    engineAttemptId: 'ordinal',
    logicalAttemptId: 'ordinal',
    idempotencyKey: 'idempotency-key',
    'stepId?': 'key-part',
    'payload?': 'object',
  },
  'run-event-record': { '...': 'run-event', runSeq: 'ordinal', persistedAt: 'text' },
  'append-result': {
    eventId: 'text',
    runSeq: 'ordinal',
    persistedAt: 'text',
    idempotent: 'flag',
    persisted: 'flag',
  },
  owner: { runId: 'text', tenantId: 'text', projectId: 'text', environmentId: 'text' },
  attempt: {
    status: 'step-status',
    logicalAttemptId: 'count',
    engineAttemptId: 'count',
    'startedAt?': 'text',
    'completedAt?': 'text',
    'error?': 'any',
  },
  step: { '...': 'attempt', stepId: 'text', attempts: 'attempt[]' },
  'run-snapshot': {
    '...': 'owner',
    planId: 'text',
    planVersion: 'text',
    'begun?': 'not-begun',
    status: 'run-status',
    lastEventSeq: 'count',
    steps: 'step[]',
    'startedAt?': 'text',
    'completedAt?': 'text',
    'totalDurationMs?': 'number',
    consistency: 'consistency',
    invalidEvents: 'count',
    hash: 'text',
  },
  alert: {
    '...': 'owner',
    code: 'alert-code',
    eventId: 'text',
    eventType: 'text',
    runSeq: 'count',
    persistedAt: 'text',
    'stepId?': 'text',
    priorState: 'text',
    attemptedState: 'text',
    reason: 'text',
  },
} as const

/** The JSON Schema of a payload. */
export function ledgerSchema(name: keyof typeof RECORDS): JsonSchema {
  return objectSchema(RECORDS[name], { values: VALUES, records: RECORDS })
}

/** The static type of a payload. `formats.test.ts` compares it with the interfaces in `run-events.ts`. */
export type LedgerFormat<N extends keyof typeof RECORDS> = FromName<
  N,
  { readonly values: typeof VALUES; readonly records: typeof RECORDS }
>
