import { deletedWhileRead, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions, checkSignal } from '../core/options.ts'
import { Follower } from '../engine/follower.ts'
import type { Namespace, Scope } from '../engine/keys.ts'
import type { AlertItem } from '../ledger/alert-subscriptions.ts'
import type { AuditQuery } from '../ledger/audit.ts'
import type { LedgerRegistry } from '../ledger/event-id-registry.ts'
import type { LeaseOptions } from '../ledger/lease.ts'
import type {
  AppendOptions,
  FetchAllOptions,
  FetchOptions,
  IterateEventsOptions,
  SubscribeAlertsOptions,
  SubscribeAllOptions,
  SubscribeOptions,
} from '../ledger/ledger-options.ts'
import type {
  AppendResult,
  LedgerAlert,
  RunEventRecord,
  RunEventWrite,
  RunSnapshot,
  RunStateStore,
} from '../ledger/run-events.ts'
import type { FeedItem } from '../ledger/subscriptions.ts'
import type { RunVerification } from '../ledger/verification.ts'
import type { Run } from '../primitives/run.ts'
import { checkEventJson } from './event-json.ts'
import { eventsOf } from './event-source.ts'
import { all, pagesOf } from './pages.ts'
import { runPath } from './paths.ts'
import { frozen, type Transport, undefinedIf } from './transport.ts'

const LIMIT_MAX = 10_000
const LIMIT_DEFAULT = 1_000
const FILTERS = ['tenantId', 'projectId', 'environmentId', 'runId', 'eventType'] as const

/** The ledger of a server, with the methods of `db.ledger`. */
export class LedgerClient implements RunStateStore {
  /** Event ids for producers that write to this server. */
  readonly registry: LedgerRegistry
  readonly #transport: Transport

  /** @internal Use `createClient`. */
  constructor(transport: Transport) {
    this.#transport = transport
    this.registry = {
      claim: async (runId, idempotencyKey, eventId) =>
        (await this.#register(runId, 'claim', idempotencyKey, eventId)).eventId,
      adopt: async (runId, idempotencyKey, eventId) =>
        void (await this.#register(runId, 'adopt', idempotencyKey, eventId)),
    }
  }

  /** Appends an event. Sending the same event again returns the stored record, so retries are safe. */
  async appendEvent(event: RunEventWrite, options: AppendOptions = {}): Promise<AppendResult> {
    const query = epochIn(options)
    return this.#transport.json('/v1/events', { method: 'POST', query, json: checkEventJson(event) })
  }

  /** Appends several events, of one or several runs, in order: all or none. At most 8 MiB of JSON. */
  async appendEvents(
    events: readonly RunEventWrite[],
    options: AppendOptions = {},
  ): Promise<readonly AppendResult[]> {
    const query = epochIn(options)
    if (!Array.isArray(events)) throw invalidArgument('events', 'must be an array', events)
    const json = Array.from(events as readonly unknown[], checkEventJson)
    const answer = await this.#transport.json<{ results: readonly AppendResult[] }>('/v1/events/batch', {
      method: 'POST',
      query,
      json,
    })
    return answer.results
  }

  /** The events of a run in order: all, or at most `limit`. Empty if the run is not in the ledger. */
  async fetchEvents(runId: Scope, options: FetchOptions = {}): Promise<readonly RunEventRecord[]> {
    checkOptions('fetchEvents', options, ['afterSeq', 'limit'])
    const { afterSeq = 0, limit } = options
    return all(this.#recordPages(runId, afterSeq, limit === undefined ? undefined : checkLimit(limit)))
  }

  /** The events of a run in order, read page by page on demand. */
  async *iterateEvents(
    runId: Scope,
    options: IterateEventsOptions = {},
  ): AsyncGenerator<RunEventRecord, void, void> {
    checkOptions('iterateEvents', options, ['afterSeq'])
    const { afterSeq = 0 } = options
    for await (const page of this.#recordPages(runId, afterSeq, undefined)) yield* page
  }

  #recordPages(
    runId: Scope,
    afterSeq: number,
    limit: number | undefined,
  ): AsyncGenerator<readonly RunEventRecord[], void, void> {
    checkWhole('afterSeq', afterSeq)
    return pagesOf<RunEventRecord>(this.#transport, runPath(runId, 'events'), 'events', {
      limit,
      place: 'afterSeq',
      start: afterSeq,
      checkSame: (last, again) => {
        if (again?.eventId !== last.eventId) throw deletedWhileRead(last.runId)
      },
    })
  }

  /** The events of all runs, in the order in which they were stored. */
  async fetchAll(options: FetchAllOptions = {}): Promise<readonly FeedItem[]> {
    checkOptions('fetchAll', options, ['cursor', 'limit'])
    const { cursor, limit = LIMIT_DEFAULT } = options
    checkCursor(cursor)
    const pages = pagesOf<FeedItem>(this.#transport, '/v1/events', 'items', {
      limit: checkLimit(limit),
      place: 'cursor',
      start: cursor,
    })
    return all(pages)
  }

  /** The stored snapshot, which may lag a moment behind; null if the run is not in the ledger. */
  async getSnapshot(runId: Scope): Promise<RunSnapshot | null> {
    const found = this.#transport.json<RunSnapshot>(runPath(runId, 'snapshot'))
    return (await found.catch(undefinedIf('RUN_NOT_FOUND'))) ?? null
  }

  /** The snapshot up to the last event. `RUN_NOT_FOUND` if the run is not in the ledger. */
  async projectSnapshot(runId: Scope): Promise<RunSnapshot> {
    return this.#transport.json(runPath(runId, 'snapshot'), { query: { fresh: true } })
  }

  /** Replays the events up to `atSeq`, inclusive, or all events. */
  async replaySnapshot(runId: Scope, options: { readonly atSeq?: number } = {}): Promise<RunSnapshot> {
    checkOptions('replaySnapshot', options, ['atSeq'])
    const { atSeq } = options
    if (atSeq !== undefined) checkWhole('atSeq', atSeq)
    // A server replays up to a given event, so the number of the last one is read first.
    const query = { atSeq: atSeq ?? (await this.projectSnapshot(runId)).lastEventSeq }
    return this.#transport.json(runPath(runId, 'snapshot'), { query })
  }

  /** Recomputes the hash chain, the keys and the state of a run, and returns the first event that differs. */
  async verifyRun(runId: Scope): Promise<RunVerification> {
    return this.#transport.json(runPath(runId, 'verification'))
  }

  /** The events stored from `from`, inclusive, to `to`, exclusive, ordered by `persistedAt`, run and `runSeq`; read on demand. */
  async *audit(query: AuditQuery): AsyncGenerator<RunEventRecord, void, void> {
    checkOptions('audit', query, [...FILTERS, 'from', 'to', 'after'])
    for (const name of FILTERS) {
      if (query[name] !== undefined && typeof query[name] !== 'string')
        throw invalidArgument(name, 'must be a string', query[name])
    }
    const { after, from, to, ...filters } = query
    const options = {
      place: 'cursor',
      start: after === undefined ? undefined : cursorOf(after),
      query: { from: timeOf('from', from), to: timeOf('to', to), ...filters },
    }
    for await (const page of pagesOf<RunEventRecord>(this.#transport, '/v1/audit', 'events', options))
      yield* page
  }

  /** The events that no transition allowed: of one run in order, or of all runs by time. */
  async alerts(options: { readonly runId?: Scope } = {}): Promise<readonly LedgerAlert[]> {
    checkOptions('alerts', options, ['runId'])
    const { runId: run } = options
    const runId = typeof run === 'object' ? await this.#idOf(run) : run
    if (run !== undefined && runId === undefined) return Object.freeze([])
    return all(pagesOf<LedgerAlert>(this.#transport, '/v1/alerts', 'alerts', { query: { runId } }))
  }

  /**
   * The events of a run, then new ones as they arrive, each exactly once, even if the connection breaks or the server restarts.
   * Ends when the signal aborts or `return` is called.
   */
  subscribe(options: SubscribeOptions): AsyncGenerator<RunEventRecord, void, void> {
    const transport = this.#transport
    return new Follower(async function* (endWith) {
      checkOptions('subscribe', options, ['runId', 'afterSeq', 'signal'])
      const { runId, afterSeq, signal } = options
      checkSignal(signal)
      if (afterSeq !== undefined) checkWhole('afterSeq', afterSeq)
      const request = { path: runPath(runId, 'stream'), query: { afterSeq }, signal: endWith(signal) }
      for await (const { data } of eventsOf(transport, request))
        yield frozen(JSON.parse(data)) as RunEventRecord
    })
  }

  /** The same for all runs. Each event has a cursor with which a later call continues after it. */
  subscribeAll(options: SubscribeAllOptions = {}): AsyncGenerator<FeedItem, void, void> {
    const transport = this.#transport
    return new Follower(async function* (endWith) {
      checkOptions('subscribeAll', options, ['cursor', 'signal'])
      const { cursor, signal } = options
      checkSignal(signal)
      checkCursor(cursor)
      const request = { path: '/v1/stream', query: { cursor }, signal: endWith(signal) }
      for await (const { id, data } of eventsOf(transport, request)) {
        yield frozen({ record: JSON.parse(data), cursor: id }) as FeedItem
      }
    })
  }

  /** The alerts of all runs in the order in which they were raised, then new ones as they arrive, each with a cursor. */
  subscribeAlerts(options: SubscribeAlertsOptions = {}): AsyncGenerator<AlertItem, void, void> {
    const transport = this.#transport
    return new Follower(async function* (endWith) {
      checkOptions('subscribeAlerts', options, ['cursor', 'signal'])
      const { cursor, signal } = options
      checkSignal(signal)
      checkCursor(cursor)
      const request = { path: '/v1/alerts/stream', query: { cursor }, signal: endWith(signal) }
      for await (const { id, data } of eventsOf(transport, request)) {
        yield frozen({ alert: JSON.parse(data), cursor: id }) as AlertItem
      }
    })
  }

  /** Makes the caller the run's only writer. Appends with an older epoch are refused with `WRITER_FENCED`. */
  async acquireLease(runId: Scope, options: LeaseOptions): Promise<{ readonly epoch: number }> {
    checkOptions('acquireLease', options, ['owner', 'ttlMs', 'ifFree', 'epoch'])
    return this.#transport.json(runPath(runId, 'lease'), { method: 'POST', json: options })
  }

  /** Releases a lease, so that others can acquire it at once. */
  async releaseLease(runId: Scope, epoch: number): Promise<void> {
    const query = { epoch: checkWhole('epoch', epoch) }
    await this.#transport.json(runPath(runId, 'lease'), { method: 'DELETE', query })
  }

  /** The id of the run in a namespace; undefined if there is none. */
  async #idOf(run: Namespace): Promise<string | undefined> {
    return (await this.#transport.json<Run>(runPath(run)).catch(undefinedIf('RUN_NOT_FOUND')))?.runId
  }

  async #register(
    runId: Scope,
    what: 'claim' | 'adopt',
    idempotencyKey: string,
    eventId: string,
  ): Promise<{ readonly eventId: string }> {
    const path = runPath(runId, 'event-ids', what)
    return this.#transport.json(path, { method: 'POST', json: { idempotencyKey, eventId } })
  }
}

function epochIn(options: AppendOptions): { readonly epoch?: number } {
  checkOptions('an append', options, ['epoch'])
  const { epoch } = options
  return epoch === undefined ? {} : { epoch: checkWhole('epoch', epoch) }
}

function checkLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 1 && limit <= LIMIT_MAX) return limit
  throw invalidArgument('limit', `must be a whole number from 1 to ${LIMIT_MAX}`, limit)
}

function checkCursor(cursor: unknown): void {
  if (cursor === undefined || (typeof cursor === 'string' && cursor !== '')) return
  throw invalidArgument('cursor', 'does not come from the ledger', cursor)
}

function timeOf(name: string, time: unknown): string {
  if (typeof time === 'string' || typeof time === 'number') return `${time}`
  throw invalidArgument(name, 'must be an RFC 3339 time in UTC, or milliseconds since 1970', time)
}

/** The server's cursor for the position after a record. */
function cursorOf({ persistedAt, runId, runSeq }: NonNullable<AuditQuery['after']>): string {
  const bytes = new TextEncoder().encode(JSON.stringify([persistedAt, runId, runSeq]))
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')
}
