import { z } from '@hono/zod-openapi'

/** The schemas of requests and answers, for checking and for the OpenAPI document. */

type Schema = z.ZodType

export const MIB: number = 1024 * 1024
/** A record with values. Each value may have 16 MiB, all together 17 MiB. */
export const RECORD_BYTES_MAX: number = 17 * MIB + 64 * 1024

/** A whole number in a query. */
export const whole: z.ZodType<number, string> = z
  .string()
  .regex(/^\d{1,16}$/, 'must be a whole number')
  .transform(Number)
  .refine(Number.isSafeInteger, 'must be a whole number')
  .openapi({ type: 'integer', minimum: 0 }) as unknown as z.ZodType<number, string>

export const flag: z.ZodType<boolean, string> = z
  .enum(['true', 'false'])
  .transform(text => text === 'true')
  .openapi({ type: 'boolean' }) as unknown as z.ZodType<boolean, string>

/** A limit, inclusive. */
export function limitUpTo(max: number, byDefault: number): z.ZodType<number, string | undefined> {
  return z
    .string()
    .regex(/^\d{1,16}$/, 'must be a whole number')
    .default(`${byDefault}`)
    .transform(Number)
    .refine(limit => limit >= 1 && limit <= max, `must be from 1 to ${max}`)
    .openapi({ type: 'integer', minimum: 1, maximum: max, default: byDefault }) as unknown as z.ZodType<
    number,
    string | undefined
  >
}

/** One or several: `?tag=a&tag=b`. */
export const texts: z.ZodType<readonly string[], string | readonly string[]> = z
  .union([z.string().transform(one => [one]), z.array(z.string())])
  .openapi({ type: 'array', items: { type: 'string' } }) as unknown as z.ZodType<
  readonly string[],
  string | readonly string[]
>

export const text: z.ZodType<string> = z.string()
export const cursor: z.ZodType<string> = z.string().max(4_096)
const seq = z.number().int().min(0)
const millis = z.number().int()
const named = (name: string, schema: Schema): Schema => schema.openapi(name)

/** Any JSON. Values that JSON cannot represent are strings that begin with U+0000 and a letter. */
export const value: Schema = z.unknown().openapi({
  description:
    'A value. JSON cannot represent some values; they are strings that begin with U+0000 and a letter: i and the digits of ' +
    'a bigint, b and the base64 of bytes, n for NaN, p for Infinity, m for -Infinity, z for -0, s and a string that begins with U+0000.',
})

export const role: z.ZodType<'reader' | 'writer' | 'admin'> = z.enum(['reader', 'writer', 'admin'])
export const runStatus: z.ZodType<'Active' | 'Completed' | 'Failed' | 'Cancelled' | 'Paused' | 'Archived'> =
  z.enum(['Active', 'Completed', 'Failed', 'Cancelled', 'Paused', 'Archived'])

export const run: Schema = named(
  'Run',
  z.object({
    runId: z.string(),
    app: z.string().optional(),
    agent: z.string().optional(),
    parentRun: z.string().optional(),
    status: runStatus,
    createdAt: millis,
    updatedAt: millis,
    completedAt: millis.optional(),
    tags: z.array(z.string()),
    metadata: value,
    error: z.string().optional(),
  }),
)

/** A namespace. A part that is shared by several runs is `_shared`. */
export const scope: Schema = named(
  'Scope',
  z.object({ tenant: z.string(), app: z.string(), agent: z.string(), run: z.string() }),
)

export const tombstone: Schema = named(
  'Tombstone',
  z.object({
    runId: z.string(),
    app: z.string().optional(),
    agent: z.string().optional(),
    deletedAt: millis,
    reason: z.string().optional(),
    events: seq,
    headHash: z.string(),
  }),
)

/** Without U+0000; the limits are in bytes, of which a char takes at least one. */
const name = z
  .string()
  .min(1)
  .max(4_096)
  .regex(/^[^\0]*$/)
const withoutBar = name.regex(/^[^|]*$/)
const short = withoutBar.max(256)
const eventFields = {
  eventId: z.string().regex(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i),
  eventType: short,
  emittedAt: z
    .string()
    .max(4_096)
    .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$/),
  runId: short,
  tenantId: name,
  projectId: name,
  environmentId: name,
  planId: withoutBar,
  planVersion: withoutBar,
  engineAttemptId: z.number().int().min(1),
  logicalAttemptId: z.number().int().min(1),
  idempotencyKey: z.string().regex(/^[0-9a-f]{64}$/),
  stepId: withoutBar.optional(),
  payload: z.record(z.string(), z.unknown()).optional(),
}

/** What the ledger takes; a test holds it against the ledger's own check. */
export const runEvent: Schema = named('RunEvent', z.strictObject(eventFields))
export const runEventBatch: z.ZodType<readonly unknown[]> = named(
  'RunEventBatch',
  z.array(runEvent).max(10_000),
) as z.ZodType<readonly unknown[]>
export const runEventRecord: Schema = named(
  'RunEventRecord',
  z.object({ ...eventFields, runSeq: seq.min(1), persistedAt: z.string() }),
)
export const appendResult: Schema = named(
  'AppendResult',
  z.object({
    eventId: z.string(),
    runSeq: seq.min(1),
    persistedAt: z.string(),
    idempotent: z.boolean(),
    persisted: z.boolean(),
  }),
)

const stepStatus = z.enum(['PENDING', 'RUNNING', 'SUCCESS', 'FAILED', 'SKIPPED'])
const attempt = {
  status: stepStatus,
  logicalAttemptId: seq,
  engineAttemptId: seq,
  startedAt: z.string().optional(),
  completedAt: z.string().optional(),
  error: z.unknown().optional(),
}
export const snapshot: Schema = named(
  'RunSnapshot',
  z.object({
    runId: z.string(),
    tenantId: z.string(),
    projectId: z.string(),
    environmentId: z.string(),
    planId: z.string(),
    planVersion: z.string(),
    begun: z
      .literal(false)
      .optional()
      .openapi({ description: 'There while all events of the run are of unknown types.' }),
    status: z.enum(['PENDING', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED']),
    lastEventSeq: seq,
    steps: z.array(z.object({ stepId: z.string(), ...attempt, attempts: z.array(z.object(attempt)) })),
    startedAt: z.string().optional(),
    completedAt: z.string().optional(),
    totalDurationMs: z.number().optional(),
    consistency: z.enum(['CONSISTENT', 'INCONSISTENT']),
    invalidEvents: seq,
    hash: z.string(),
  }),
)

export const alert: Schema = named(
  'LedgerAlert',
  z.object({
    code: z.literal('INVALID_TRANSITION'),
    runId: z.string(),
    tenantId: z.string(),
    projectId: z.string(),
    environmentId: z.string(),
    eventId: z.string(),
    eventType: z.string(),
    runSeq: seq,
    persistedAt: z.string(),
    stepId: z.string().optional(),
    priorState: z.string(),
    attemptedState: z.string(),
    reason: z.string(),
  }),
)

export const logEvent: Schema = named(
  'Event',
  z.object({
    sequence: seq,
    type: z.string(),
    payload: value,
    timestamp: millis,
    prevHash: z.string(),
    hash: z.string(),
  }),
)

export const cell: Schema = named('Cell', z.object({ value, version: seq, updatedAt: millis }))
export const trace: Schema = named('Trace', z.looseObject({ type: z.string() }))
export const storedTrace: Schema = named(
  'StoredTrace',
  z.object({
    id: z.string(),
    parentId: z.string().optional(),
    trace,
    timestamp: millis,
    tags: z.array(z.string()),
    metadata: value.optional(),
  }),
)

export const tokenRecord: Schema = named(
  'Token',
  z.object({
    id: z.string(),
    name: z.string(),
    tenant: z.string(),
    role,
    createdAt: millis,
    expiresAt: millis.optional(),
  }),
)

/** A page of a list. `next` is absent on the last page. */
export function pageOf(list: string, item: Schema, next: Schema = z.string()): Schema {
  return z.object({ [list]: z.array(item), next: next.optional() })
}
