import { z } from '@hono/zod-openapi'
import { ledgerSchema } from '../ledger/formats.ts'
import { type RunStatus, STATUSES } from '../primitives/run.ts'
import { ROLES, type Role } from './tokens.ts'

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

export const role: z.ZodType<Role> = z.enum(ROLES)
export const runStatus: z.ZodType<RunStatus> = z.enum(STATUSES)

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

/** A payload of the ledger, which `ledger/formats.ts` defines. It is only documented here: the ledger checks it. */
function ofLedger(name: string, format: Parameters<typeof ledgerSchema>[0]): Schema {
  return named(name, z.looseObject({}).openapi(ledgerSchema(format) as Parameters<Schema['openapi']>[0]))
}

export const runEvent: Schema = ofLedger('RunEvent', 'run-event')
export const runEventBatch: z.ZodType<readonly unknown[]> = z
  .array(runEvent)
  .max(10_000)
  .openapi('RunEventBatch')
export const runEventRecord: Schema = ofLedger('RunEventRecord', 'run-event-record')
export const appendResult: Schema = ofLedger('AppendResult', 'append-result')
export const snapshot: Schema = ofLedger('RunSnapshot', 'run-snapshot')
export const alert: Schema = ofLedger('LedgerAlert', 'alert')

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
