import { inspect } from 'node:util'
import { type ByteString, hex, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkOrder, checkWhole } from '../core/numbers.ts'
import { checkOptions, checkSignal } from '../core/options.ts'
import { BYTES_A_LOOK, isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import type { Value } from '../core/value.ts'
import { type ChainReport, headOf } from '../engine/chain.ts'
import { Changes } from '../engine/changes.ts'
import type { Database } from '../engine/database.ts'
import { Follower } from '../engine/follower.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { BODY_AT, hashesInHex } from '../engine/log.ts'
import { Ticket } from '../engine/own-log.ts'
import { pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import { type StoppableOptions, stoppable } from '../engine/stoppable.ts'
import type { Append, Appended, Range, Reader } from '../engine/storage.ts'
import { appendOf, checkType, contentOf, type Event, readEvent, readEvents, verifyEvents } from './event.ts'

const TAG = TAGS.event

/** An event for `appendBatch`, before it has a place in the log. */
export interface NewEvent {
  /** The event's kind, such as `tool_call`: 1 to 256 bytes of UTF-8. */
  readonly type: string
  /** The event's content. */
  readonly payload: Value
}

/** The place of an appended event. */
export interface EventReceipt {
  /** The event's place in its log. The first event has sequence 0. */
  readonly sequence: number
  /** The event's hash in hex (64 digits), which covers every event before it. */
  readonly hash: string
}

/** Options of `iterate`. */
export interface IterateOptions {
  /** The first sequence to deliver; 0 by default. */
  readonly from?: number
}

/** Options of `tail`. */
export interface TailOptions extends IterateOptions {
  /** Ends the iteration without an error when it aborts. */
  readonly signal?: AbortSignal
}

/**
 * A log of events for each scope. It is append-only, totally ordered and hash-chained: `verifyChain` finds every event that was
 * changed, removed or moved.
 */
export class Events {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
  }

  /**
   * Appends an event. Concurrent appends never conflict. A payload of more than 128 KiB is encoded in slices, so do not
   * change it before the promise settles.
   * @example
   * const { sequence, hash } = await db.events.append(run, 'tool_call', { tool: 'search', query: 'b-trees' })
   * sequence // → 0
   * hash.length // → 64
   */
  async append(scope: Scope, type: string, payload: Value): Promise<EventReceipt> {
    const append = appendOf(this.#scopeOf(scope), type, payload)
    const { appended } = await this.#database.write([append instanceof Promise ? await append : append])
    return receiptOf(appended[0])
  }

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
  async appendBatch(scope: Scope, events: readonly NewEvent[]): Promise<readonly EventReceipt[]> {
    return this.#at(scope).appendBatch(events)
  }

  /**
   * Returns the event with this sequence, or undefined if there is none.
   * @example
   * await db.events.append(run, 'note', 'hello')
   * const event = await db.events.read(run, 0)
   * event.payload // → 'hello'
   * await db.events.read(run, 1) // → undefined
   */
  async read(scope: Scope, sequence: number): Promise<Event | undefined> {
    const entry = await this.#database.get(this.#scopeOf(scope), TAG, keyOf(sequence))
    return entry === undefined ? undefined : readEvent(entry)
  }

  /**
   * Returns the events from `start` (inclusive) to `end` (exclusive).
   * @example
   * for (const payload of ['a', 'b', 'c']) await db.events.append(run, 'note', payload)
   * const events = await db.events.readRange(run, 1, 3)
   * events.map(({ payload }) => payload) // → ['b', 'c']
   */
  async readRange(scope: Scope, start: number, end: number): Promise<readonly Event[]> {
    return this.#at(scope).readRange(start, end)
  }

  /**
   * Returns the newest event, or undefined if the log is empty.
   * @example
   * await db.events.head(run) // → undefined
   * await db.events.append(run, 'note', 1)
   * const { payload } = await db.events.head(run)
   * payload // → 1
   */
  async head(scope: Scope): Promise<Event | undefined> {
    return this.#at(scope).head()
  }

  /**
   * Returns the number of events.
   * @example
   * await db.events.append(run, 'note', 1)
   * await db.events.length(run) // → 1
   */
  async length(scope: Scope): Promise<number> {
    return this.#at(scope).length()
  }

  /**
   * Iterates over all events in order, reading them as they are needed. It delivers every event that existed when it began.
   * Throws `EVENT_CHAIN_BROKEN` if the run is deleted meanwhile.
   * @example
   * for (const payload of [1, 2, 3]) await db.events.append(run, 'note', payload)
   * let sum = 0
   * for await (const event of db.events.iterate(run, { from: 1 })) sum += event.payload
   * sum // → 5
   */
  async *iterate(scope: Scope, options: IterateOptions = {}): AsyncGenerator<Event, void, void> {
    yield* this.#at(scope).iterate(options)
  }

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
  tail(scope: Scope, options: TailOptions = {}): AsyncGenerator<Event, void, void> {
    const [database, scopeOf] = [this.#database, this.#scopeOf]
    return new Follower(async function* (endWith) {
      yield* followEvents(database, scopeOf(scope), options, endWith)
    })
  }

  /**
   * Returns the events of one type, in order. It reads the whole log.
   * @example
   * await db.events.append(run, 'question', 1)
   * await db.events.append(run, 'answer', 2)
   * const [answer] = await db.events.readByType(run, 'answer')
   * answer.sequence // → 1
   */
  async readByType(scope: Scope, type: string): Promise<readonly Event[]> {
    return this.#at(scope).readByType(type)
  }

  /**
   * Recomputes every hash, and reports the first event that does not match.
   * @example
   * await db.events.append(run, 'note', 'hello')
   * await db.events.verifyChain(run) // → { isValid: true, length: 1 }
   */
  async verifyChain(scope: Scope, options: StoppableOptions = {}): Promise<ChainReport> {
    return this.#at(scope).verifyChain(options)
  }

  #at(scope: Scope): LiveEvents {
    return new LiveEvents(this.#database, this.#scopeOf(scope))
  }
}

/** The event log of one scope. In a transaction, reads see the transaction's own appends. */
export class ScopedEvents {
  readonly #session: Session
  readonly #scope: ByteString

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString) {
    this.#session = session
    this.#scope = scope
  }

  /**
   * Appends an event and returns its sequence and hash. In a transaction, reading either before the commit can cause a
   * conflict.
   */
  async append(type: string, payload: Value): Promise<EventReceipt> {
    const append = appendOf(this.#scope, type, payload)
    const { appended } = await this.#session.write([append instanceof Promise ? await append : append])
    return receiptOf(appended[0])
  }

  /** Appends several events in one commit, in the given order. */
  async appendBatch(events: readonly NewEvent[]): Promise<readonly EventReceipt[]> {
    if (!Array.isArray(events)) {
      throw new AnnalsError('INVALID_ARGUMENT', 'events must be an array of { type, payload }', {
        name: 'events',
      })
    }
    // A copy, because the caller may change the list. Holes become undefined.
    const given = Array.from(events as readonly NewEvent[])
    const encode = (event: NewEvent): Append | Promise<Append> => {
      checkOptions('an event', event, ['type', 'payload'])
      return appendOf(this.#scope, event.type, event.payload)
    }
    const encoded = mapInSlices(given, encode, (_, { body }) => body.length)
    const appends = encoded instanceof Promise ? await encoded : encoded
    // Also without events, so that a caller that may not write gets the error.
    const { appended } =
      appends.length === 0
        ? await this.#session.update([], () => ({ operations: [], result: undefined }))
        : await this.#session.write(appends)
    return Object.freeze(await mapInSlices(appended, receiptOf))
  }

  /** Returns the event with this sequence, or undefined if there is none. */
  async read(sequence: number): Promise<Event | undefined> {
    const entry = await this.#session.get(this.#scope, TAG, keyOf(sequence))
    return entry === undefined ? undefined : readEvent(entry)
  }

  /** Returns the events from `start` (inclusive) to `end` (exclusive), which may be `Infinity`. */
  async readRange(start: number, end: number): Promise<readonly Event[]> {
    checkWhole('start', start)
    const to = end === Number.POSITIVE_INFINITY ? undefined : u64(checkWhole('end', end))
    checkOrder(start, end)
    const found = await this.#session.scan({ ...this.#range(start), to })
    return Object.freeze(await readEvents(found))
  }

  /** Returns the newest event, or undefined if the log is empty. */
  async head(): Promise<Event | undefined> {
    const [entry] = await this.#session.scan({ ...this.#range(0), reverse: true, limit: 1 })
    return entry === undefined ? undefined : readEvent(entry)
  }

  /** Returns the number of events. */
  async length(): Promise<number> {
    return (await headOf(this.#session, { scope: this.#scope, tag: TAG })).length
  }

  /**
   * Iterates over all events in order, reading them page by page. Throws `EVENT_CHAIN_BROKEN` if the run is deleted
   * meanwhile.
   */
  async *iterate(options: IterateOptions = {}): AsyncGenerator<Event, void, void> {
    checkOptions('iterate', options, ['from'])
    const { from = 0 } = options
    yield* eventsFrom(this.#session, this.#scope, checkWhole('from', from))
  }

  /** Returns the events of one type, in order. It reads the whole log. */
  async readByType(type: string): Promise<readonly Event[]> {
    const bytes = checkType(type)
    return this.#session.view(async reader => {
      const events: Event[] = []
      for await (const page of pages(reader, this.#range(0))) {
        for (const entry of page) {
          if (isSliceOver()) await nextSlice()
          if (contentOf(entry.value, BODY_AT).type === bytes) events.push(await readEvent(entry))
        }
      }
      return Object.freeze(events)
    })
  }

  /** Recomputes every hash, and reports the first event that does not match. */
  async verifyChain(options: StoppableOptions = {}): Promise<ChainReport> {
    return this.#session.view(async reader =>
      verifyEvents(stoppable(reader, 'verifyChain', options), this.#scope),
    )
  }

  #range(from: number): Range {
    return { scope: this.#scope, tag: TAG, from: u64(from) }
  }
}

/** The event log of one scope, outside of a transaction: it can also be followed. */
export class LiveEvents extends ScopedEvents {
  readonly #database: Database
  readonly #scope: ByteString

  /** @internal Use `run`. */
  constructor(database: Database, scope: ByteString) {
    super(database, scope)
    this.#database = database
    this.#scope = scope
  }

  /** Iterates over all events in order, and then over new ones as they are appended. See {@link Events.tail}. */
  tail(options: TailOptions = {}): AsyncGenerator<Event, void, void> {
    return new Follower(endWith => followEvents(this.#database, this.#scope, options, endWith))
  }
}

async function* followEvents(
  database: Database,
  scope: ByteString,
  options: TailOptions,
  endWith: (signal: AbortSignal | undefined) => AbortSignal,
): AsyncGenerator<Event, void, void> {
  checkOptions('tail', options, ['from', 'signal'])
  const { from = 0, signal } = options
  checkSignal(signal)
  const end = endWith(signal)
  const isEnded = (): boolean => end.aborted
  let next = checkWhole('from', from)
  // Subscribes before the first read, so that no event is missed in between.
  const changes = await Changes.of(database, { scope, tag: TAG })
  try {
    // Without it, a reader that begins at the end would not notice that the run was deleted.
    const first = next === 0 ? undefined : await database.get(scope, TAG, u64(next - 1))
    let before = first === undefined ? undefined : await readEvent(first)
    while (!isEnded()) {
      const seen = changes.count
      for await (const event of eventsFrom(database, scope, next, before)) {
        before = event
        next = event.sequence + 1
        yield event
        if (isEnded()) return
      }
      await changes.beyond(seen, end)
    }
  } finally {
    changes.end()
  }
}

function receiptOf(appended: Appended): EventReceipt {
  if (appended instanceof Ticket) return receiptToCome(appended)
  return Object.freeze({ sequence: appended.sequence, hash: hex(appended.hash) })
}

/** The receipt of an append in a transaction. The event has no place yet, so its fields are looked up when they are read. */
function receiptToCome(ticket: Ticket): EventReceipt {
  const receipt = {
    get sequence(): number {
      return ticket.sequence
    },
    get hash(): string {
      return hex(ticket.hash)
    },
  }
  // Printing the receipt must not read its fields, because reads are validated at the commit.
  const print = (): object | string =>
    ticket.isSettled ? { sequence: ticket.sequence, hash: hex(ticket.hash) } : '[an append to be committed]'
  Object.freeze(Object.defineProperty(receipt, inspect.custom, { value: print }))
  TICKETS.set(receipt, ticket)
  return receipt
}

const TICKETS = new WeakMap<object, Ticket>()

/**
 * The receipt that an append in a transaction has if nothing else is appended before the commit. Unlike reading the receipt
 * itself, it does not count as a read of the log. For a transport whose caller may never read the receipt.
 */
export function expectedReceipt(receipt: EventReceipt): EventReceipt {
  const expected = TICKETS.get(receipt)?.peek()
  return expected === undefined ? receipt : { sequence: expected.sequence, hash: hex(expected.hash) }
}

/** The events between two looks at the clock. */
const EVENTS_A_LOOK = 8

/**
 * Events page by page, each checked to follow the one before. At the end, the last one must still exist. Then all before it
 * existed too, and the reading is complete. A snapshot would do the same, but a slow reader would hold it for long.
 */
async function* eventsFrom(
  reader: Reader,
  scope: ByteString,
  from: number,
  known?: Event,
): AsyncGenerator<Event, void, void> {
  let before = known
  let events = 0
  for await (const page of pages(reader, { scope, tag: TAG, from: u64(from) })) {
    for (const entry of page) {
      // A consumer that awaits only this iteration would otherwise never let the event loop turn.
      const isLookDue = ++events % EVENTS_A_LOOK === 0 || entry.value.length > BYTES_A_LOOK
      if (isLookDue && isSliceOver()) await nextSlice()
      const event = readEvent(entry)
      before = follow(before, event instanceof Promise ? await event : event)
      yield before
    }
  }
  if (before === undefined) return
  const last = await reader.get(scope, TAG, u64(before.sequence))
  if (last === undefined || hashesInHex(last).hash !== before.hash) throw broken(before.sequence + 1)
}

/** The event, if it follows the one before. Otherwise the run was deleted and created again during the reading. */
function follow(before: Event | undefined, event: Event): Event {
  if (before === undefined || event.prevHash === before.hash) return event
  throw broken(event.sequence)
}

function broken(sequence: number): AnnalsError {
  const message = `event ${sequence} does not follow the events read before: the run was deleted meanwhile`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence })
}

function keyOf(sequence: number): ByteString {
  return u64(checkWhole('sequence', sequence))
}
