import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { AnnalsError, deletedWhileRead } from '../core/errors.ts'
import type { Scope } from '../engine/keys.ts'
import type { AlertItem } from '../ledger/alert-subscriptions.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { RunEventRecord } from '../ledger/run-events.ts'
import { serve } from './endpoint.ts'
import type { HubItem, Position } from './event-hub.ts'
import { runIdOf } from './path-ids.ts'
import { headerOf } from './request-header.ts'
import { cursor, flag, text, whole } from './schemas.ts'
import type { ServerEnv } from './server-env.ts'
import type { Services } from './services.ts'

const EVENTS = z
  .string()
  .openapi({ description: 'Server-sent events: `id` is the position, `data` the event.' })
const CURSOR = /^[0-9a-f]{24}$/

/** Routes for event streams, which clients resume with `Last-Event-ID`. */
export function serveStreams(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serveAlertStream(app, services)
  serve(
    app,
    {
      method: 'get',
      path: '/v1/runs/{runId}/stream',
      id: 'subscribe',
      summary:
        'Streams the events of a run, then new ones as they arrive. The id of each is its `runSeq` and `eventId`.',
      query: {
        afterSeq: whole.optional().openapi({ description: 'Only events after this number, exclusive.' }),
      },
      headers: { 'Last-Event-ID': text.optional() },
      refusals: ['EVENT_CHAIN_BROKEN'],
      answers: { 200: ['Server-sent events.', EVENTS, 'text/event-stream'] },
    },
    async ({ c, run, query }) => {
      const reader = new RunReader(
        c.get('db').ledger,
        run,
        placeIn(headerOf(c, 'last-event-id'), query.afterSeq),
      )
      // Before the stream starts, so that an invalid id is an error response.
      await reader.check()
      return services.streams.open(c, {
        name: `run\0${typeof run === 'string' ? run : `\0${run}`}`,
        position: reader.position,
        source: (after, signal) => reader.follow(after as number, signal),
        read: (after, limit) => reader.read(after as number, limit),
      })
    },
  )
  serve(
    app,
    {
      method: 'get',
      path: '/v1/stream',
      id: 'subscribeAll',
      summary:
        'Streams the events of all runs in the order in which they were stored, then new ones as they arrive.',
      query: {
        cursor: cursor.optional(),
        tail: flag.optional().openapi({ description: 'Without a cursor: only events from now on.' }),
      },
      headers: { 'Last-Event-ID': text.optional() },
      answers: { 200: ['Server-sent events.', EVENTS, 'text/event-stream'] },
    },
    async ({ c, query }) => {
      const { ledger } = c.get('db')
      const given = headerOf(c, 'last-event-id') ?? query.cursor
      if (given !== undefined && !CURSOR.test(given)) throw notGiven('cursor')
      const position = given ?? (query.tail === true ? await ledger.lastCursor() : undefined) ?? ''
      return services.streams.open(c, {
        name: 'all',
        position,
        async *source(after, signal) {
          const items = ledger.subscribeAll({ signal, ...behind(after) })
          for await (const item of items) yield itemOf(item.record, item.cursor, item.cursor)
        },
        read: async (after, limit) =>
          (await ledger.fetchAll({ limit, ...behind(after) })).map(item =>
            itemOf(item.record, item.cursor, item.cursor),
          ),
      })
    },
  )
}

const ALERTS = z
  .string()
  .openapi({ description: 'Server-sent events: `id` is the cursor, `data` the alert.' })

/** The stream of alerts. */
function serveAlertStream(app: OpenAPIHono<ServerEnv>, services: Services): void {
  serve(
    app,
    {
      method: 'get',
      path: '/v1/alerts/stream',
      id: 'subscribeAlerts',
      summary:
        'Streams the alerts of all runs in the order in which they were raised, then new ones as they arrive.',
      query: {
        cursor: cursor.optional(),
        tail: flag.optional().openapi({ description: 'Without a cursor: only events from now on.' }),
      },
      headers: { 'Last-Event-ID': text.optional() },
      answers: { 200: ['Server-sent events.', ALERTS, 'text/event-stream'] },
    },
    async ({ c, query }) => {
      const { ledger } = c.get('db')
      const given = headerOf(c, 'last-event-id') ?? query.cursor
      const start = given ?? (query.tail === true ? await ledger.lastAlertCursor() : undefined)
      // Before the stream starts, so that an invalid cursor is an error response.
      await ledger.raisedAlerts(start, 1)
      return services.streams.open(c, {
        name: 'alerts',
        position: Number(start ?? 0),
        async *source(after, signal) {
          for await (const item of ledger.subscribeAlerts({ cursor: String(after), signal }))
            yield itemOfAlert(item)
        },
        read: async (after, limit) => (await ledger.raisedAlerts(String(after), limit)).map(itemOfAlert),
      })
    },
  )
}

function itemOfAlert({ alert, cursor: id }: AlertItem): HubItem {
  return { position: Number(id), text: `id: ${id}\ndata: ${JSON.stringify(alert)}\n\n` }
}

function behind(after: Position): { readonly cursor?: string } {
  return after === '' ? {} : { cursor: after as string }
}

function itemOf(record: RunEventRecord, position: Position, id: string): HubItem {
  return { position, text: `id: ${id}\ndata: ${JSON.stringify(record)}\n\n` }
}

/** The position of a client in a run: a number, and the id of that event if it is known. */
interface Place {
  readonly seq: number
  readonly eventId: string | undefined
}

/**
 * Reads one run for one stream. A run may be deleted and another one created with its id, so each read includes the last event
 * that the client has, and compares its event id.
 */
class RunReader {
  readonly #ledger: Ledger
  readonly #run: Scope
  #last: Place

  constructor(ledger: Ledger, run: Scope, last: Place) {
    this.#ledger = ledger
    this.#run = run
    this.#last = last
  }

  get position(): number {
    return this.#last.seq
  }

  /** Throws if the run cannot be read, or is not the run that the client knows. */
  async check(): Promise<void> {
    await this.#fetch(this.position, 1)
  }

  async read(after: number, limit: number): Promise<readonly HubItem[]> {
    const records = await this.#fetch(after, limit)
    const last = records[records.length - 1]
    if (last !== undefined) this.#last = { seq: last.runSeq, eventId: last.eventId }
    return records.map(itemOfRun)
  }

  async *follow(after: number, signal: AbortSignal): AsyncGenerator<HubItem, void, void> {
    const { seq, eventId } = this.#last
    // Starts at the last event that was read, so that the ledger notices another run with this id.
    const afterSeq = Math.max(0, after - 1)
    for await (const record of this.#ledger.subscribe({ runId: this.#run, afterSeq, signal })) {
      if (record.runSeq === seq && eventId !== undefined && record.eventId !== eventId)
        throw deletedWhileRead(runIdOf(this.#run))
      yield itemOfRun(record)
    }
  }

  async #fetch(after: number, limit: number): Promise<readonly RunEventRecord[]> {
    const { seq, eventId } = this.#last
    const isKnown = eventId !== undefined && seq === after
    const options = isKnown ? { afterSeq: after - 1, limit: limit + 1 } : { afterSeq: after, limit }
    const found = await this.#ledger.fetchEvents(this.#run, options)
    if (!isKnown) return found
    if (found[0]?.eventId !== eventId) throw deletedWhileRead(runIdOf(this.#run))
    return found.slice(1)
  }
}

function itemOfRun(record: RunEventRecord): HubItem {
  return itemOf(record, record.runSeq, `${record.runSeq}:${record.eventId}`)
}

/** `7:<event id>`, as the stream sends it, or only a number. */
const PLACE = /^(\d{1,15})(?::([0-9a-fA-F-]{36}))?$/

function placeIn(header: string | undefined, afterSeq: number | undefined): Place {
  if (header === undefined) return { seq: afterSeq ?? 0, eventId: undefined }
  const [, seq, eventId] = PLACE.exec(header) ?? []
  if (seq === undefined) throw notGiven('Last-Event-ID')
  return { seq: Number(seq), eventId }
}

function notGiven(name: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} does not come from this stream`, { name })
}
