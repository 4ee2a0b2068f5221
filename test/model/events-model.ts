import { toBuffer } from '../../src/core/bytes.ts'
import { bodyHash, linkHash, ZERO_HASH } from '../../src/core/hash.ts'
import { encodeCanonical } from '../../src/core/value.ts'
import type { ChainReport, Event, NewEvent, Value } from '../../src/index.ts'
import { checkWritable, readPoint, readRange, type ScopeState, type Stamp, type View } from './scope-model.ts'

export interface EventRecord extends Event {
  readonly stamp: Stamp
  /** The hash as a byte string, as the chain needs it. */
  readonly link: string
}

export interface Receipt {
  readonly sequence: number
  readonly hash: string
}

/** The event log. Its appends return receipts at once, also in a transaction. */
export const eventsModel = {
  append: (view: View, type: string, payload: Value): Receipt => append(view, { type, payload }),

  appendBatch(view: View, events: readonly NewEvent[]): Receipt[] {
    checkWritable(view)
    return events.map(event => append(view, event))
  },

  read(view: View, sequence: number): Event | undefined {
    look(view)
    readPoint(view, `event ${sequence}`, ({ events }) => events[sequence]?.stamp ?? -1)
    const record = view.scope.events[sequence]
    return record === undefined ? undefined : shown(record)
  },

  readRange(view: View, start: number, end: number): Event[] {
    look(view)
    readRange(view, scope => stamps(scope, start, end))
    return view.scope.events.slice(start, end).map(shown)
  },

  head(view: View): Event | undefined {
    look(view)
    readHead(view)
    const last = view.scope.events.at(-1)
    return last === undefined ? undefined : shown(last)
  },

  length(view: View): number {
    look(view)
    // If the transaction has appended, `look` has already read the head.
    if ((view.tracker?.appends ?? 0) === 0) readHead(view)
    return view.scope.events.length
  },

  iterate: (view: View, { from = 0 }: { from?: number } = {}): Event[] =>
    eventsModel.readRange(view, from, Number.MAX_SAFE_INTEGER),

  tail: (view: View, options: { from?: number } = {}): Event[] => eventsModel.iterate(view, options),

  readByType: (view: View, type: string): Event[] =>
    eventsModel.iterate(view).filter(event => event.type === type),

  verifyChain(view: View): ChainReport {
    return { isValid: true, length: eventsModel.iterate(view).length }
  },
}

function append(view: View, { type, payload }: NewEvent): Receipt {
  checkWritable(view)
  const { scope, stamp, time, tracker, parts } = view
  if (tracker !== undefined) tracker.appends++
  const before = scope.events.at(-1)?.link ?? ZERO_HASH
  const sequence = scope.events.length
  // If the transaction reads its own append before it commits, the event has the time of the call.
  const timestamp = stamp === 0 ? view.now : time
  const link = linkHash(before, sequence, timestamp, bodyHash(parts, type, encodeCanonical(payload)))
  const [prevHash, hash] = [before, link].map(bytes => toBuffer(bytes).toString('hex'))
  scope.events.push({ sequence, type, payload: sorted(payload), timestamp, prevHash, hash, stamp, link })
  return { sequence, hash }
}

/** Reading an append of the transaction itself fixes its place in the log, so the transaction depends on the head. */
export function look(view: View): void {
  const { tracker } = view
  if (tracker === undefined || tracker.appends === 0) return
  tracker.linked = true
  readHead(view)
}

function readHead(view: View): void {
  readRange(view, ({ events }) => `${events.length}@${events.at(-1)?.stamp ?? -1}`)
}

function stamps({ events }: ScopeState, start: number, end: number): string {
  return events
    .slice(start, end)
    .map(({ stamp }) => stamp)
    .join()
}

function shown({ sequence, type, payload, timestamp, prevHash, hash }: EventRecord): Event {
  return { sequence, type, payload, timestamp, prevHash, hash }
}

/** A payload with the members of its objects sorted by name. It is hashed, so its order is lost (P29). */
function sorted(payload: Value): Value {
  if (typeof payload !== 'object' || payload === null || payload instanceof Uint8Array) return payload
  if (Array.isArray(payload)) return payload.map(sorted)
  const names = Object.keys(payload).sort()
  const members = payload as Readonly<Record<string, Value>>
  return Object.fromEntries(names.map(name => [name, sorted(members[name])]))
}
