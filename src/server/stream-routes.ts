import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError } from '../core/errors.ts'
import type { RunEventRecord } from '../ledger/run-events.ts'
import { serve } from './endpoint.ts'
import type { HubItem, Position } from './event-hub.ts'
import { cursor, text, whole } from './schemas.ts'
import type { ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const EVENTS = z
  .string()
  .openapi({ description: 'Each event has its place as `id` and the record as `data`.' })
const CURSOR = /^[0-9a-f]{24}$/

/** Records as they come, as server-sent events that can be taken up again with `Last-Event-ID`. */
export function serveStreams(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/stream',
      id: 'subscribe',
      summary: 'The records of a run, then new ones as they come. An event’s id is its `runSeq`.',
      role: 'reader',
      query: { afterSeq: whole.optional() },
      headers: { 'Last-Event-ID': text.optional() },
      answers: { 200: ['Server-sent events.', EVENTS, 'text/event-stream'] },
    },
    async ({ c, ids: { runId }, query }) => {
      const { ledger } = c.get('db')
      const position = seqIn(c.req.header('Last-Event-ID')) ?? query.afterSeq ?? 0
      // Before the stream begins, so that what is wrong with the id is said at once.
      await ledger.fetchEvents(runId, { afterSeq: position, limit: 1 })
      return services.streams.open(c, {
        name: `run\0${runId}`,
        position,
        async *source(after, signal) {
          // From the last one that was read: by it the ledger sees whether this is still the same run.
          const afterSeq = Math.max(0, (after as number) - 1)
          for await (const record of ledger.subscribe({ runId, afterSeq, signal })) {
            yield itemOf(record, record.runSeq)
          }
        },
        read: async (after, limit) =>
          (await ledger.fetchEvents(runId, { afterSeq: after as number, limit })).map(record =>
            itemOf(record, record.runSeq),
          ),
      })
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/stream',
      id: 'subscribeAll',
      summary: 'The records of all runs in the order in which they were stored, then new ones as they come.',
      role: 'reader',
      query: { cursor: cursor.optional() },
      headers: { 'Last-Event-ID': text.optional() },
      answers: { 200: ['Server-sent events.', EVENTS, 'text/event-stream'] },
    },
    ({ c, query }) => {
      const { ledger } = c.get('db')
      const position = c.req.header('Last-Event-ID') ?? query.cursor ?? ''
      if (position !== '' && !CURSOR.test(position)) throw notGiven('cursor')
      return services.streams.open(c, {
        name: 'all',
        position,
        async *source(after, signal) {
          const items = ledger.subscribeAll({ signal, ...behind(after) })
          for await (const item of items) yield itemOf(item.record, item.cursor)
        },
        read: async (after, limit) =>
          (await ledger.fetchAll({ limit, ...behind(after) })).map(item => itemOf(item.record, item.cursor)),
      })
    },
  )
}

function behind(after: Position): { readonly cursor?: string } {
  return after === '' ? {} : { cursor: after as string }
}

function itemOf(record: RunEventRecord, position: Position): HubItem {
  return { position, text: `id: ${position}\ndata: ${JSON.stringify(record)}\n\n` }
}

function seqIn(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (/^\d{1,15}$/.test(header)) return Number(header)
  throw notGiven('Last-Event-ID')
}

function notGiven(name: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} is none that the stream has given`, { name })
}
