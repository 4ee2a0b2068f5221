import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFlag, checkOptions, checkSignal } from '../core/options.ts'
import { BYTES_A_LOOK, isSliceOver, nextSlice } from '../core/slices.ts'
import { Changes } from '../engine/changes.ts'
import type { Database } from '../engine/database.ts'
import { TAGS } from '../engine/keys.ts'
import { BODY_AT, linksOf } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Reader } from '../engine/storage.ts'
import { checkType, contentOf, type Event, readEvent } from './event.ts'

const TAG = TAGS.event

/** Options of `iterate`. */
export interface IterateOptions<K extends string = string> {
  /** The first sequence; 0 by default. */
  readonly from?: number
  /** The sequence to stop before; the end of the log by default. */
  readonly to?: number
  /** Delivers the same events backwards, the newest first. */
  readonly reverse?: boolean
  /** The types to deliver; all by default. Events of other types are skipped without decoding their payloads. */
  readonly types?: readonly K[]
}

/** Options of `tail`. */
export interface TailOptions {
  /** The first sequence to deliver; 0 by default. */
  readonly from?: number
  /** Ends the iteration without an error when it aborts. */
  readonly signal?: AbortSignal
}

/** The part of a log to read. */
interface Span {
  readonly from: number
  readonly to?: number | undefined
  readonly reverse?: boolean | undefined
  readonly types?: readonly ByteString[] | undefined
}

/** Checks the options of `iterate`. */
export function spanOf(options: IterateOptions): Span {
  checkOptions('iterate', options, ['from', 'to', 'reverse', 'types'])
  const { from = 0, to, reverse, types } = options
  checkFlag('reverse', reverse)
  if (types !== undefined && !Array.isArray(types)) {
    throw new AnnalsError('INVALID_ARGUMENT', 'types must be an array of event types', { name: 'types' })
  }
  return {
    from: checkWhole('from', from),
    to: checkEnd('to', to),
    reverse,
    types: types === undefined ? undefined : Array.from(types, checkType),
  }
}

/** Checks the exclusive end of a range of sequences. Returns undefined for the end of the log. */
function checkEnd(name: string, end: number | undefined): number | undefined {
  return end === undefined || end === Number.POSITIVE_INFINITY ? undefined : checkWhole(name, end)
}

/** How far an iteration has come, for the next one that goes on behind it. */
interface Cursor {
  last: Entry | undefined
}

/** The events between two looks at the clock. */
const EVENTS_A_LOOK = 8

/**
 * Events page by page, each checked to be a neighbour of the one before. In the end it checks that the newest one still exists,
 * or backwards that the oldest one was reached. Then no event is missing. A snapshot would do the same, but a slow reader would
 * hold it for long.
 */
export async function* eventsIn(
  reader: Reader,
  scope: ByteString,
  { from, to, reverse = false, types }: Span,
  cursor: Cursor = { last: undefined },
): AsyncGenerator<Event, void, void> {
  const range = { scope, tag: TAG, from: u64(from), to: to === undefined ? undefined : u64(to), reverse }
  let events = 0
  for await (const page of pages(reader, range)) {
    for (const entry of page) {
      // A consumer that awaits only this iteration would otherwise never let the event loop turn.
      const isLookDue = ++events % EVENTS_A_LOOK === 0 || entry.value.length > BYTES_A_LOOK
      if (isLookDue && isSliceOver()) await nextSlice()
      const { last } = cursor
      if (last !== undefined) checkNeighbours(reverse ? entry : last, reverse ? last : entry)
      cursor.last = entry
      if (types !== undefined && !types.includes(contentOf(entry.value, BODY_AT).type)) continue
      const event = readEvent(entry)
      yield event instanceof Promise ? await event : event
    }
  }
  const { last } = cursor
  if (last === undefined) return
  const sequence = fromU64(last.key)
  if (reverse) {
    if (sequence !== from) throw broken(sequence - 1)
    return
  }
  const still = await reader.get(scope, TAG, last.key)
  if (still === undefined || linksOf(still).hash !== linksOf(last).hash) throw broken(sequence + 1)
}

/** Throws unless one event follows the other. Otherwise the run was deleted and created again during the reading. */
function checkNeighbours(before: Entry, after: Entry): void {
  if (linksOf(after).prevHash !== linksOf(before).hash) throw broken(fromU64(after.key))
}

function broken(sequence: number): AnnalsError {
  const message = `event ${sequence} does not follow the events read before: the run was deleted meanwhile`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence })
}

/** Iterates over all events, and then over new ones. */
export async function* followEvents(
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
    const cursor = { last: next === 0 ? undefined : await database.get(scope, TAG, u64(next - 1)) }
    while (!isEnded()) {
      const seen = changes.count
      for await (const event of eventsIn(database, scope, { from: next }, cursor)) {
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
