import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import { withoutUndefined } from '../core/options.ts'
import { fromLargeJson } from '../core/value-json.ts'
import type { Trace } from '../primitives/trace.ts'
import type { TraceOptions, TraceTree } from '../primitives/trace-store.ts'
import { serve } from './endpoint.ts'
import { cursorOf, inChunks, pageOfEach, partsOf } from './paging.ts'
import { json, largeJson } from './reply.ts'
import {
  limitUpTo,
  logEvent,
  pageOf,
  RECORD_BYTES_MAX,
  storedTrace,
  text,
  trace,
  value,
  whole,
} from './schemas.ts'
import type { ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const LIMIT_MAX = 1_000
const LIMIT_DEFAULT = 100
const EVENTS_AT_ONCE = 16

/** Routes for traces and for a run's own log. */
export function serveTraces(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/traces',
      id: 'queryTraces',
      load: 'heavy',
      summary: 'The traces that match all filters, ordered by timestamp and id.',
      query: {
        type: text.optional(),
        tag: text.optional(),
        parentId: text.optional(),
        from: whole.optional().openapi({ description: 'Milliseconds since 1970, inclusive.' }),
        to: whole.optional().openapi({ description: 'Milliseconds since 1970, exclusive.' }),
        limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT),
        after: text.optional(),
      },
      answers: {
        200: ['A page of traces; `next` is the `after` of the next page.', pageOf('traces', storedTrace)],
      },
    },
    async ({ c, run: runId, query: { limit, after, ...filter } }) =>
      pageOfEach(
        'traces',
        c.get('db').traces.iterate(runId, withoutUndefined(filter), placeIn(after)),
        { limit, signal: c.req.raw.signal },
        ({ timestamp, id }) => cursorOf(timestamp, id),
        'values',
      ),
  )
  serve(
    app,
    {
      method: 'post',
      path: '/v1/runs/{runId}/traces',
      id: 'recordTrace',
      summary: 'Records a trace.',
      headers: { 'Idempotency-Key': text.optional() },
      body: z.strictObject({
        trace,
        id: z.string().optional(),
        parentId: z.string().optional(),
        tags: z.array(z.string()).max(1_000).optional(),
        metadata: value.optional(),
      }),
      bytesMax: RECORD_BYTES_MAX,
      refusals: ['TRACE_NOT_FOUND', 'TRACE_EXISTS'],
      answers: { 201: ['Its id.', z.object({ id: z.string() })] },
    },
    ({ c, run, body }) =>
      services.answers.once(c, [], async made => {
        const { trace: given, metadata, ...rest } = body
        const options = { ...rest, id: rest.id ?? made }
        const recorded = (await fromLargeJson(given)) as unknown as Trace
        const all = metadata === undefined ? options : { ...options, metadata: await fromLargeJson(metadata) }
        try {
          const id = await c.get('db').traces.record(run, recorded, withoutUndefined(all) as TraceOptions)
          return json({ id }, 201)
        } catch (error) {
          const isKnown = error instanceof AnnalsError && error.code === 'TRACE_EXISTS'
          // The same request has recorded it before, and its answer was lost.
          if (isKnown && rest.id === undefined) return json({ id: made }, 201)
          throw error
        }
      }),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/traces/{traceId}',
      id: 'getTrace',
      summary: 'The trace.',
      refusals: ['TRACE_NOT_FOUND'],
      answers: { 200: ['The trace.', storedTrace] },
    },
    async ({ c, run: runId, ids: { traceId } }) =>
      largeJson((await c.get('db').traces.get(runId, traceId)) ?? missing(traceId), 'value'),
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/traces/{traceId}/tree',
      id: 'getTraceTree',
      load: 'heavy',
      summary: 'The trace with all its descendants, as a tree.',
      refusals: ['TRACE_NOT_FOUND', 'INVALID_OPERATION'],
      answers: {
        200: ['`{trace, children}`; each child has the same form.', z.looseObject({ trace: storedTrace })],
      },
    },
    async ({ c, run: runId, ids: { traceId } }) => {
      const tree = (await c.get('db').traces.tree(runId, traceId)) ?? missing(traceId)
      checkDepth(tree, 0)
      return largeJson(tree, 'value')
    },
  )
  serveLog(app)
}

function serveLog(app: OpenAPIHono<ServerEnv>): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/log',
      id: 'readLog',
      summary: "The events of the run's own log (`db.events`), in order.",
      query: {
        from: whole
          .optional()
          .openapi({ description: 'Number of the first event, inclusive; the first is 0.' }),
        limit: limitUpTo(LIMIT_MAX, LIMIT_DEFAULT),
      },
      answers: {
        200: [
          'A page of events; `next` is the `from` of the next page.',
          pageOf('events', logEvent, z.number().int()),
        ],
      },
    },
    async ({ c, run: runId, query: { from = 0, limit } }) => {
      const { events } = c.get('db')
      const read = inChunks(
        from,
        Math.min(EVENTS_AT_ONCE, limit + 1),
        (start, count) => events.readRange(runId, start, start + count),
        ({ sequence }) => sequence + 1,
      )
      const { signal } = c.req.raw
      return pageOfEach('events', read, { limit, signal }, ({ sequence }) => sequence + 1, 'values')
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/log/verification',
      id: 'verifyLog',
      load: 'heavy',
      summary: "Recomputes every hash of the run's own log and returns the first event that differs.",
      answers: {
        200: [
          'The result of the verification.',
          z.looseObject({ isValid: z.boolean(), length: z.number().int() }),
        ],
      },
    },
    async ({ c, run }) => json(await c.get('db').events.verifyChain(run, { signal: c.req.raw.signal })),
  )
}

function placeIn(after: string | undefined): { readonly timestamp: number; readonly id: string } | undefined {
  if (after === undefined) return undefined
  const [timestamp, id] = partsOf(after, ['number', 'string'])
  return { timestamp, id }
}

/** Most JSON parsers refuse deeper nesting. */
const TREE_DEPTH_MAX = 500

function checkDepth({ trace: root, children }: TraceTree, depth: number): void {
  if (depth > TREE_DEPTH_MAX) {
    const message = `the tree is deeper than ${TREE_DEPTH_MAX}; query the children of its traces instead`
    throw new AnnalsError('INVALID_OPERATION', message, { traceId: root.id })
  }
  for (const child of children) checkDepth(child, depth + 1)
}

function missing(traceId: string): never {
  throw new AnnalsError('TRACE_NOT_FOUND', `there is no trace ${JSON.stringify(traceId)}`, { traceId })
}
