import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError, type ErrorCode } from '../core/errors.ts'
import { withoutUndefined } from '../core/options.ts'
import type { AuditQuery } from '../ledger/audit.ts'
import type { LedgerAlert, RunEventWrite } from '../ledger/run-events.ts'
import type { FeedItem } from '../ledger/subscriptions.ts'
import { longPage, serve } from './endpoint.ts'
import { behindNamed, cursorOf, inChunks, pageOfEach, partsOf } from './paging.ts'
import { runIdOf } from './path-ids.ts'
import { json, largeJson } from './reply.ts'
import {
  alert,
  appendResult,
  cursor,
  flag,
  limitUpTo,
  MIB,
  pageOf,
  runEvent,
  runEventBatch,
  runEventRecord,
  snapshot,
  text,
  whole,
} from './schemas.ts'
import type { ServerEnv } from './server-env.ts'

const LIMIT_MAX = 10_000
const LIMIT_DEFAULT = 1_000
/** A payload of 1 MiB and seven texts of 4 KiB. JSON may escape each byte as six. */
const EVENT_BYTES_MAX = 6 * MIB + 256 * 1024
const BATCH_BYTES_MAX = 8 * MIB
const RECORDS_AT_ONCE = 64
const APPEND_REFUSALS: readonly ErrorCode[] = [
  'INVALID_ENVELOPE',
  'IDEMPOTENCY_KEY_MISMATCH',
  'RUN_SCOPE_MISMATCH',
  'WRITER_FENCED',
  'INVALID_TRANSITION',
]

/** Routes of the ledger: appending and reading run events, snapshots and alerts. */
export function serveEvents(app: OpenAPIHono<ServerEnv>): void {
  serveAppends(app)
  serveReads(app)
  serveStates(app)
}

function serveAppends(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'post',
      path: '/v1/events',
      id: 'appendEvent',
      summary: 'Appends a run event. Sending the same event again returns the stored record.',
      query: { epoch: whole.optional() },
      body: runEvent,
      isCheckedBelow: true,
      bytesMax: EVENT_BYTES_MAX,
      refusals: APPEND_REFUSALS,
      answers: { 200: ['The position of the event.', appendResult] },
    },
    async ({ c, query: { epoch }, body }) =>
      json(await c.get('db').ledger.appendEvent(body as RunEventWrite, epoch === undefined ? {} : { epoch })),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/events/batch',
      id: 'appendEvents',
      summary: 'Appends several run events, of one or several runs, in order: all or none.',
      query: { epoch: whole.optional() },
      body: runEventBatch,
      isCheckedBelow: true,
      bytesMax: BATCH_BYTES_MAX,
      refusals: APPEND_REFUSALS,
      answers: { 200: ['The position of each event.', z.object({ results: z.array(appendResult) })] },
    },
    async ({ c, query: { epoch }, body }) => {
      const { ledger } = c.get('db')
      const results = await ledger.appendEvents(body as RunEventWrite[], epoch === undefined ? {} : { epoch })
      return largeJson({ results }, 'plain')
    },
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/lease',
      id: 'acquireLease',
      summary:
        "Makes the caller the run's only writer. Appends with an older epoch are refused with `WRITER_FENCED`.",
      body: z.strictObject({
        owner: z.string(),
        ttlMs: z.number().optional(),
        ifFree: z.boolean().optional(),
        epoch: z.number().optional(),
      }),
      refusals: ['WRITER_FENCED', 'RUN_NOT_FOUND'],
      answers: { 200: ['The epoch to write under.', z.object({ epoch: z.number().int() })] },
    },
    async ({ c, run, body }) => json(await c.get('db').ledger.acquireLease(run, withoutUndefined(body))),
  )
  serve(
    app,
    {
      method: 'delete',
      path: '/v1/runs/{runId}/lease',
      id: 'releaseLease',
      summary: 'Releases a lease, so that others can acquire it at once.',
      query: { epoch: whole },
      refusals: ['WRITER_FENCED', 'RUN_NOT_FOUND'],
      answers: { 200: ['The lease is released.', z.object({})] },
    },
    async ({ c, run, query }) => {
      await c.get('db').ledger.releaseLease(run, query.epoch)
      return json({})
    },
  )
  const registration = z.strictObject({ idempotencyKey: z.string(), eventId: z.string() })
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/event-ids/claim',
      id: 'claimEventId',
      summary:
        'Returns the event id registered for this idempotency key. If there is none, registers the given id.',
      body: registration,
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The id.', z.object({ eventId: z.string() })] },
    },
    async ({ c, run, body: { idempotencyKey, eventId } }) =>
      json({ eventId: await c.get('db').ledger.registry.claim(run, idempotencyKey, eventId) }),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/event-ids/adopt',
      id: 'adoptEventId',
      summary: 'Registers the event id under which the ledger stored the event.',
      body: registration,
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The id.', z.object({ eventId: z.string() })] },
    },
    async ({ c, run, body: { idempotencyKey, eventId } }) => {
      await c.get('db').ledger.registry.adopt(run, idempotencyKey, eventId)
      return json({ eventId })
    },
  )
}

function serveReads(app: OpenAPIHono<ServerEnv>): void {
  const limit = limitUpTo(LIMIT_MAX, LIMIT_DEFAULT)
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/events',
      id: 'fetchEvents',
      load: longPage,
      summary: 'The events of a run in order. The list is empty if the run is not in the ledger.',
      query: {
        afterSeq: whole.optional().openapi({ description: 'Only events after this number, exclusive.' }),
        limit,
      },
      answers: {
        200: [
          'A page of events; `next` is the `afterSeq` of the next page.',
          pageOf('events', runEventRecord, z.number().int()),
        ],
      },
    },
    async ({ c, run, query: { afterSeq = 0, limit: most } }) => {
      const { ledger } = c.get('db')
      // Reads only one record more than a short page shows, because each may be large.
      const records =
        most < RECORDS_AT_ONCE
          ? inChunks(
              afterSeq,
              most + 1,
              (after, limit) => ledger.fetchEvents(run, { afterSeq: after, limit }),
              ({ runSeq }) => runSeq,
            )
          : ledger.iterateEvents(run, { afterSeq })
      return pageOfEach('events', records, { limit: most, signal: c.req.raw.signal }, ({ runSeq }) => runSeq)
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/events',
      id: 'fetchAllEvents',
      load: longPage,
      summary: 'The events of all runs, in the order in which they were stored.',
      query: { cursor: cursor.optional(), limit },
      answers: {
        200: [
          'A page of events; `next` is the `cursor` of the next page.',
          pageOf('items', z.object({ record: runEventRecord, cursor: z.string() })),
        ],
      },
    },
    async ({ c, query: { cursor: start, limit: most } }) => {
      const { ledger } = c.get('db')
      const items = inChunks<FeedItem, string | undefined>(
        start,
        Math.min(RECORDS_AT_ONCE, most + 1),
        (after, limit) => ledger.fetchAll(withoutUndefined({ cursor: after, limit })),
        item => item.cursor,
      )
      return pageOfEach('items', items, { limit: most, signal: c.req.raw.signal }, item => item.cursor)
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/audit',
      id: 'audit',
      load: 'heavy',
      summary: 'The events that were stored within a period, ordered by `persistedAt`, run and `runSeq`.',
      query: {
        from: text.openapi({
          description: 'Start of the period, inclusive: RFC 3339 in UTC, or milliseconds since 1970.',
        }),
        to: text.openapi({ description: 'End of the period, exclusive.' }),
        tenantId: text.optional(),
        projectId: text.optional(),
        environmentId: text.optional(),
        runId: text.optional(),
        eventType: text.optional(),
        cursor: cursor.optional(),
        limit,
      },
      answers: {
        200: ['A page of events; `next` is the `cursor` of the next page.', pageOf('events', runEventRecord)],
      },
    },
    async ({ c, query: { from, to, cursor, limit: most, ...filters } }) => {
      const window = { ...filters, from: timeOf(from), to: timeOf(to), after: positionOf(cursor) }
      return pageOfEach(
        'events',
        c.get('db').ledger.audit(withoutUndefined(window) as AuditQuery),
        { limit: most, signal: c.req.raw.signal },
        ({ persistedAt, runId, runSeq }) => cursorOf(persistedAt, runId, runSeq),
      )
    },
  )
}

function serveStates(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/snapshot',
      id: 'getSnapshot',
      load: ({ fresh, atSeq }) => (fresh === true || atSeq !== undefined ? 'heavy' : 'light'),
      summary:
        "The run's state: the stored snapshot, which may lag a moment behind; with `fresh`, up to the last event; with `atSeq`, as of that event.",
      query: {
        fresh: flag.optional(),
        atSeq: whole.optional().openapi({ description: 'As of the event with this number, inclusive.' }),
      },
      refusals: ['RUN_NOT_FOUND'],
      answers: { 200: ['The snapshot.', snapshot] },
    },
    async ({ c, run, query: { fresh = false, atSeq } }) => {
      const { ledger } = c.get('db')
      if (atSeq !== undefined) return largeJson(await ledger.replaySnapshot(run, { atSeq }), 'plain')
      const found = fresh ? await ledger.projectSnapshot(run) : await ledger.getSnapshot(run)
      if (found !== null) return largeJson(found, 'plain')
      const runId = runIdOf(run)
      throw new AnnalsError('RUN_NOT_FOUND', `run ${JSON.stringify(runId)} is not in the ledger`, { runId })
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/verification',
      id: 'verifyRun',
      load: 'heavy',
      summary:
        'Recomputes the hash chain, the keys and the state of a run, and returns the first event that differs.',
      refusals: ['RUN_NOT_FOUND'],
      answers: {
        200: [
          'The result of the verification.',
          z.object({
            isValid: z.boolean(),
            events: z.number().int(),
            firstInvalid: z.number().int().optional(),
            error: z.string().optional(),
          }),
        ],
      },
    },
    async ({ c, run }) => json(await c.get('db').ledger.verifyRun(run, { signal: c.req.raw.signal })),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/alerts',
      id: 'alerts',
      load: 'heavy',
      summary: 'The events that no transition allowed: of one run in order, or of all runs by time.',
      query: { runId: text.optional(), limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT), after: cursor.optional() },
      answers: { 200: ['A page of alerts.', pageOf('alerts', alert)] },
    },
    async ({ c, query: { runId, limit, after } }) => {
      const nameOf = (one: LedgerAlert): string => cursorOf(one.runId, one.eventId)
      const alerts = behindNamed(c.get('db').ledger.iterateAlerts(runId), nameOf, after)
      return pageOfEach('alerts', alerts, { limit, signal: c.req.raw.signal }, nameOf)
    },
  )
}

function timeOf(given: string): string | number {
  return /^-?\d{1,16}$/.test(given) ? Number(given) : given
}

function positionOf(cursor: string | undefined): AuditQuery['after'] {
  if (cursor === undefined) return undefined
  const [persistedAt, runId, runSeq] = partsOf(cursor, ['string', 'string', 'number'])
  return { persistedAt, runId, runSeq }
}
