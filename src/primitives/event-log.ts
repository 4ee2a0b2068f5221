import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkLimit, checkOrder, checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { mapInSlices } from '../core/slices.ts'
import type { Storable } from '../core/storable.ts'
import { checkText } from '../core/text.ts'
import { type ChainReport, headOf } from '../engine/chain.ts'
import type { Database } from '../engine/database.ts'
import { Follower } from '../engine/follower.ts'
import { dedupeTag, HEAD_KEY, headTag, type Scope, TAGS } from '../engine/keys.ts'
import { parseDedupe, parseHead } from '../engine/log.ts'
import type { Session } from '../engine/session.ts'
import { type StoppableOptions, stoppable } from '../engine/stoppable.ts'
import type { Append, Entry, Place } from '../engine/storage.ts'
import { boundForm } from './bound.ts'
import {
  type AnyEvents,
  appendOf,
  checkType,
  type Event,
  type EventOf,
  type EventType,
  type GivenPayload,
  readEvent,
  readEvents,
  verifyEvents,
} from './event.ts'
import { eventsIn, followEvents, type IterateOptions, spanOf, type TailOptions } from './event-reading.ts'
import { type EventReceipt, receiptOf } from './event-receipt.ts'

const TAG = TAGS.event
const IDEMPOTENCY_KEY_BYTES_MAX = 1024

/** An event for `appendBatch`, before it has a place in the log. */
export type NewEvent<E = AnyEvents> = {
  [K in EventType<E>]: {
    /** The event's kind, such as `tool_call`: 1 to 256 bytes of UTF-8. */
    readonly type: K
    /** The event's content. */
    readonly payload: E[K]
  }
}[EventType<E>]

/** The events that `appendBatch` takes. `T` has the types of their payloads, which can be anything storable if `E` is open. */
export type GivenEvents<E, T extends readonly unknown[]> = string extends keyof E
  ? { readonly [I in keyof T]: { readonly type: string; readonly payload: T[I] & Storable<T[I]> } }
  : readonly NewEvent<E>[]

/** Options of `appendBatch`. */
export interface AppendBatchOptions {
  /** Refuses the append with `VERSION_MISMATCH`, with the actual length in `details`, unless the log has this length. */
  readonly expectedLength?: number
}

/** Options of `append`. */
export interface AppendEventOptions extends AppendBatchOptions {
  /**
   * Makes the append idempotent: 1 to 1,024 bytes of UTF-8. If the log has an event with this key, nothing is appended and the
   * receipt of that event is returned, whatever `expectedLength` is. Keys are forgotten when the run is deleted.
   */
  readonly idempotencyKey?: string
}

/** Options of `readByType`. */
export interface ReadByTypeOptions {
  /** Returns only events with a greater sequence. */
  readonly after?: number
  /** The most events to return, a positive integer. All by default. */
  readonly limit?: number
}

/**
 * A log of events for each scope. It is append-only, totally ordered and hash-chained: `verifyChain` finds every event that was
 * changed, removed or moved. `S` holds the parameters that come before the others: a scope, or nothing if the scope is bound.
 * `E` has the type of the payload for each type of event.
 */
export interface EventsCalls<S extends readonly unknown[], E = AnyEvents> {
  /**
   * Appends an event. Without `expectedLength`, concurrent appends never conflict. In a transaction the event gets its place at
   * the commit, and reading the receipt before that can cause a conflict. A payload of more than 128 KiB is encoded in slices, so
   * do not change it before the promise settles.
   * @example
   * const { sequence, hash } = await db.events.append(run, 'tool_call', { tool: 'search', query: 'b-trees' })
   * sequence // → 0
   * hash.length // → 64
   * const once = { expectedLength: 1, idempotencyKey: 'answer-1' }
   * const first = await db.events.append(run, 'answer', 42, once)
   * const again = await db.events.append(run, 'answer', 42, once)
   * again // → first
   */
  append<K extends EventType<E>, T>(
    ...args: [...S, type: K, payload: GivenPayload<E, K, T>, options?: AppendEventOptions]
  ): Promise<EventReceipt>

  /**
   * Appends several events in one commit, one after the other. More than 256 events or 128 KiB are encoded in slices, so do
   * not change such a list before the promise settles.
   * @example
   * const receipts = await db.events.appendBatch(run, [
   *   { type: 'tool_call', payload: { tool: 'search' } },
   *   { type: 'tool_result', payload: ['a', 'b'] },
   * ])
   * receipts.map(({ sequence }) => sequence) // → [0, 1]
   */
  appendBatch<T extends readonly unknown[]>(
    ...args: [...S, events: GivenEvents<E, T>, options?: AppendBatchOptions]
  ): Promise<readonly EventReceipt[]>

  /**
   * Returns the event with this sequence, or undefined if there is none.
   * @example
   * await db.events.append(run, 'note', 'hello')
   * const event = await db.events.read(run, 0)
   * event.payload // → 'hello'
   * await db.events.read(run, 1) // → undefined
   */
  read(...args: [...S, sequence: number]): Promise<EventOf<E> | undefined>

  /**
   * Returns the events from `start` (inclusive) to `end` (exclusive), which may be `Infinity`.
   * @example
   * for (const payload of ['a', 'b', 'c']) await db.events.append(run, 'note', payload)
   * const events = await db.events.readRange(run, 1, 3)
   * events.map(({ payload }) => payload) // → ['b', 'c']
   */
  readRange(...args: [...S, start: number, end: number]): Promise<readonly EventOf<E>[]>

  /**
   * Returns the newest event, or undefined if the log is empty.
   * @example
   * await db.events.head(run) // → undefined
   * await db.events.append(run, 'note', 1)
   * const { payload } = await db.events.head(run)
   * payload // → 1
   */
  head(...args: S): Promise<EventOf<E> | undefined>

  /**
   * Returns the number of events.
   * @example
   * await db.events.append(run, 'note', 1)
   * await db.events.length(run) // → 1
   */
  length(...args: S): Promise<number>

  /**
   * Iterates over the events in order, or backwards, reading them page by page. It delivers every event that existed when it
   * began. Throws `EVENT_CHAIN_BROKEN` if the run is deleted meanwhile.
   * @example
   * for (const payload of [1, 2, 3]) await db.events.append(run, 'note', payload)
   * let sum = 0
   * for await (const event of db.events.iterate(run, { from: 1 })) sum += event.payload
   * sum // → 5
   * const last = db.events.iterate(run, { to: 2, reverse: true, types: ['note'] })
   * const { value } = await last.next()
   * value.payload // → 2
   */
  iterate<K extends EventType<E> = EventType<E>>(
    ...args: [...S, options?: IterateOptions<K>]
  ): AsyncGenerator<EventOf<E, K>, void, void>

  /**
   * Returns the events of one type, in order. It reads the log from `after` until it has found `limit` of them.
   * @example
   * await db.events.append(run, 'question', 1)
   * await db.events.append(run, 'answer', 2)
   * const [answer] = await db.events.readByType(run, 'answer', { after: 0, limit: 1 })
   * answer.sequence // → 1
   */
  readByType<K extends EventType<E>>(
    ...args: [...S, type: K, options?: ReadByTypeOptions]
  ): Promise<readonly EventOf<E, K>[]>

  /**
   * Recomputes every hash, and reports the first event that does not match.
   * @example
   * await db.events.append(run, 'note', 'hello')
   * await db.events.verifyChain(run) // → { isValid: true, length: 1 }
   */
  verifyChain(...args: [...S, options?: StoppableOptions]): Promise<ChainReport>

  /**
   * Returns the same calls, with a type for the payload of each event type.
   * @example
   * // In TypeScript: const log = db.events.of<{ asked: Question; answered: { text: string } }>()
   * const log = db.events.of()
   * await log.append(run, 'answered', { text: 'yes' })
   * const [{ payload }] = await log.readByType(run, 'answered')
   * payload.text // → 'yes'
   */
  of<T extends object>(): EventsCalls<S, T>
}

/** The calls of `EventsCalls`, and those that no transaction has. */
export interface LiveEventsCalls<S extends readonly unknown[], E = AnyEvents> extends EventsCalls<S, E> {
  /**
   * Iterates over all events in order, and then over new ones as they are appended. Each event is delivered once. A slow
   * reader delays nobody and costs no memory, because events are read when it asks for them. It ends when the signal
   * aborts or `return` is called, even while it waits. Throws `EVENT_CHAIN_BROKEN` if the run is deleted meanwhile.
   * @example
   * await db.events.append(run, 'note', 'before')
   * const stop = new AbortController()
   * setTimeout(() => db.events.append(run, 'note', 'live'), 5)
   * const seen = []
   * for await (const event of db.events.tail(run, { signal: stop.signal })) {
   *   if (seen.push(event.payload) === 2) stop.abort()
   * }
   * seen // → ['before', 'live']
   */
  tail(...args: [...S, options?: TailOptions]): AsyncGenerator<EventOf<E>, void, void>

  /** Returns the same calls, with a type for the payload of each event type. */
  of<T extends object>(): LiveEventsCalls<S, T>
}

/** The event logs of all scopes. Each call is its own transaction. */
export type Events<E = AnyEvents> = LiveEventsCalls<[scope: Scope], E>
/** The event log of one scope. Each call is its own transaction. */
export type LiveEvents<E = AnyEvents> = LiveEventsCalls<[], E>
/** The event log of one scope in a transaction, whose reads see its own appends. */
export type ScopedEvents<E = AnyEvents> = EventsCalls<[], E>

/** Implements `EventsCalls`. `S` is a scope, or undefined if `scopeOf` knows it. */
export class EventLog<S> implements EventsCalls<[scope: S]> {
  readonly #session: Session
  protected readonly scopeOf: (scope: S) => ByteString

  constructor(session: Session, scopeOf: (scope: S) => ByteString) {
    this.#session = session
    this.scopeOf = scopeOf
  }

  async append(
    scope: S,
    type: string,
    payload: unknown,
    options: AppendEventOptions = {},
  ): Promise<EventReceipt> {
    checkOptions('append', options, ['expectedLength', 'idempotencyKey'])
    const { idempotencyKey, expectedLength } = options
    const given = appendOf(this.scopeOf(scope), type, payload)
    const append = given instanceof Promise ? await given : given
    if (idempotencyKey !== undefined) return this.#appendOnce(append, idempotencyKey, expectedLength)
    if (expectedLength !== undefined) return (await this.#appendAt(append.scope, [append], expectedLength))[0]
    const { appended } = await this.#session.write([append])
    return receiptOf(appended[0])
  }

  async appendBatch(
    scope: S,
    events: readonly { readonly type: string; readonly payload: unknown }[],
    options: AppendBatchOptions = {},
  ): Promise<readonly EventReceipt[]> {
    const bytes = this.scopeOf(scope)
    if (!Array.isArray(events)) throw invalidArgument('events', 'must be an array of { type, payload }')
    checkOptions('appendBatch', options, ['expectedLength'])
    const encode = (event: {
      readonly type: string
      readonly payload: unknown
    }): Append | Promise<Append> => {
      checkOptions('an event', event, ['type', 'payload'])
      return appendOf(bytes, event.type, event.payload)
    }
    // A copy, because the caller may change the list. Holes become undefined.
    const encoded = mapInSlices(Array.from(events), encode, (_, { body }) => body.length)
    const appends = encoded instanceof Promise ? await encoded : encoded
    const { expectedLength } = options
    // Also without events, so that a caller that may not write gets the error.
    if (expectedLength !== undefined || appends.length === 0) {
      return Object.freeze(await this.#appendAt(bytes, appends, expectedLength))
    }
    const { appended } = await this.#session.write(appends)
    return Object.freeze(await mapInSlices(appended, receiptOf))
  }

  async read(scope: S, sequence: number): Promise<Event | undefined> {
    const entry = await this.#session.get(this.scopeOf(scope), TAG, u64(checkWhole('sequence', sequence)))
    return entry === undefined ? undefined : readEvent(entry)
  }

  async readRange(scope: S, start: number, end: number): Promise<readonly Event[]> {
    const from = u64(checkWhole('start', start))
    const to = end === Number.POSITIVE_INFINITY ? undefined : u64(checkWhole('end', end))
    checkOrder(start, end)
    const found = await this.#session.scan({ scope: this.scopeOf(scope), tag: TAG, from, to })
    return Object.freeze(await readEvents(found))
  }

  async head(scope: S): Promise<Event | undefined> {
    const range = { scope: this.scopeOf(scope), tag: TAG, reverse: true, limit: 1 }
    const [entry] = await this.#session.scan(range)
    return entry === undefined ? undefined : readEvent(entry)
  }

  async length(scope: S): Promise<number> {
    return (await headOf(this.#session, { scope: this.scopeOf(scope), tag: TAG })).length
  }

  async *iterate<K extends string>(
    scope: S,
    options: IterateOptions<K> = {},
  ): AsyncGenerator<EventOf<AnyEvents, K>, void, void> {
    yield* eventsIn(this.#session, this.scopeOf(scope), spanOf(options)) as AsyncGenerator<
      EventOf<AnyEvents, K>,
      void,
      void
    >
  }

  async readByType<K extends string>(
    scope: S,
    type: K,
    options: ReadByTypeOptions = {},
  ): Promise<readonly EventOf<AnyEvents, K>[]> {
    const bytes = this.scopeOf(scope)
    checkOptions('readByType', options, ['after', 'limit'])
    const { after } = options
    const limit = checkLimit(options.limit)
    const from = after === undefined ? 0 : checkWhole('after', after) + 1
    const types = [checkType(type)]
    return this.#session.view(async reader => {
      const events: EventOf<AnyEvents, K>[] = []
      for await (const event of eventsIn(reader, bytes, { from, types })) {
        events.push(event as EventOf<AnyEvents, K>)
        if (events.length === limit) break
      }
      return Object.freeze(events)
    })
  }

  async verifyChain(scope: S, options: StoppableOptions = {}): Promise<ChainReport> {
    const bytes = this.scopeOf(scope)
    return this.#session.view(async reader => verifyEvents(stoppable(reader, 'verifyChain', options), bytes))
  }

  of<T extends object>(): EventsCalls<[scope: S], T> {
    return this as EventsCalls<[scope: S], Record<string, unknown>> as EventsCalls<[scope: S], T>
  }

  /** Appends unless the log knows the key. Without `expectedLength` it does not depend on the log's end. */
  async #appendOnce(append: Append, key: string, expectedLength: number | undefined): Promise<EventReceipt> {
    const dedupe = { key: checkText('idempotencyKey', key, { bytesMax: IDEMPOTENCY_KEY_BYTES_MAX }) }
    const first: Place = { scope: append.scope, tag: dedupeTag(TAG), key: dedupe.key }
    const reads = expectedLength === undefined ? [first] : [first, headPlace(append.scope)]
    if (expectedLength !== undefined) checkWhole('expectedLength', expectedLength)
    const { result: known, appended } = await this.#session.update(
      reads,
      ([found, head]) => {
        if (found !== undefined) return { operations: [], result: found }
        checkLength(head, expectedLength)
        return { operations: [{ ...append, dedupe }], result: undefined }
      },
      { appends: expectedLength === undefined },
    )
    return receiptOf(known === undefined ? appended[0] : parseDedupe(known))
  }

  async #appendAt(
    scope: ByteString,
    appends: readonly Append[],
    expectedLength: number | undefined,
  ): Promise<EventReceipt[]> {
    if (expectedLength !== undefined) checkWhole('expectedLength', expectedLength)
    const { appended } = await this.#session.update(
      expectedLength === undefined ? [] : [headPlace(scope)],
      ([head]) => {
        checkLength(head, expectedLength)
        return { operations: appends, result: undefined }
      },
    )
    return mapInSlices(appended, receiptOf)
  }
}

/** Implements `LiveEventsCalls`. */
export class LiveEventLog<S> extends EventLog<S> implements LiveEventsCalls<[scope: S]> {
  readonly #database: Database

  constructor(database: Database, scopeOf: (scope: S) => ByteString) {
    super(database, scopeOf)
    this.#database = database
  }

  tail(scope: S, options: TailOptions = {}): AsyncGenerator<Event, void, void> {
    const [database, scopeOf] = [this.#database, this.scopeOf]
    return new Follower(async function* (endWith) {
      yield* followEvents(database, scopeOf(scope), options, endWith)
    })
  }

  override of<T extends object>(): LiveEventsCalls<[scope: S], T> {
    return this as LiveEventsCalls<[scope: S], Record<string, unknown>> as LiveEventsCalls<[scope: S], T>
  }
}

const scoped = boundForm<ScopedEvents>(EventLog)
const live = boundForm<LiveEvents>(LiveEventLog)

/** The event log of one scope in a transaction. */
export function scopedEvents(session: Session, scope: ByteString): ScopedEvents {
  return scoped(new EventLog(session, () => scope))
}

/** The event log of one scope. */
export function liveEvents(database: Database, scope: ByteString): LiveEvents {
  return live(new LiveEventLog(database, () => scope))
}

function headPlace(scope: ByteString): Place {
  return { scope, tag: headTag(TAG), key: HEAD_KEY }
}

function checkLength(head: Entry | undefined, expected: number | undefined): void {
  const { length: actual } = parseHead(head)
  if (expected === undefined || expected === actual) return
  const message = `the log has ${actual} events, not ${expected}`
  throw new AnnalsError('VERSION_MISMATCH', message, { expected, actual })
}
