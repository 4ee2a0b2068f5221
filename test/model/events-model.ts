import { toBuffer } from '../../src/core/bytes.ts'
import { bodyHash, linkHash, ZERO_HASH } from '../../src/core/hash.ts'
import { encodeCanonical } from '../../src/core/value.ts'
import type {
  AppendBatchOptions,
  AppendEventOptions,
  ChainReport,
  Event,
  IterateOptions,
  NewEvent,
  ReadByTypeOptions,
  Value,
} from '../../src/index.ts'
import {
  checkWritable,
  Refusal,
  readPoint,
  readRange,
  type ScopeState,
  type Stamp,
  type View,
  wrote,
} from './scope-model.ts'

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
  append(view: View, type: string, payload: Value, options: AppendEventOptions = {}): Receipt {
    checkWritable(view)
    const { idempotencyKey, expectedLength } = options
    const known = idempotencyKey === undefined ? undefined : keyed(view, idempotencyKey)
    // The length is read even if the key is known, and both reads are validated.
    const length = expectedLength === undefined ? undefined : eventsModel.length(view)
    if (known !== undefined) return { sequence: known.sequence, hash: known.hash }
    if (length !== expectedLength) throw new Refusal('VERSION_MISMATCH')
    const receipt = append(view, { type, payload })
    if (idempotencyKey !== undefined) {
      view.scope.eventKeys.set(idempotencyKey, receipt.sequence)
      wrote(view, `event key ${idempotencyKey}`)
    }
    return receipt
  },

  appendBatch(view: View, events: readonly NewEvent[], options: AppendBatchOptions = {}): Receipt[] {
    checkWritable(view)
    const { expectedLength } = options
    if (expectedLength !== undefined && eventsModel.length(view) !== expectedLength) {
      throw new Refusal('VERSION_MISMATCH')
    }
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

  iterate(view: View, options: IterateOptions = {}): Event[] {
    const { from = 0, to = Number.MAX_SAFE_INTEGER, reverse = false, types } = options
    if (to <= from) return []
    const found = eventsModel
      .readRange(view, from, to)
      .filter(({ type }) => types === undefined || types.includes(type))
    return reverse ? found.reverse() : found
  },

  tail: (view: View, options: { from?: number } = {}): Event[] => eventsModel.iterate(view, options),

  readByType(view: View, type: string, { after = -1, limit }: ReadByTypeOptions = {}): Event[] {
    const all = view.scope.events.filter(event => event.sequence > after && event.type === type)
    if (limit === undefined || all.length < limit) {
      eventsModel.iterate(view, { from: after + 1 })
      return all.map(shown)
    }
    // It stops at the last event that it needs, but reads whole pages.
    look(view)
    readRange(view, scope => stamps(scope, after + 1, all[limit - 1].sequence + 1))
    readRange(view, scope => stamps(scope, after + 1, Number.MAX_SAFE_INTEGER), false)
    return all.slice(0, limit).map(shown)
  },

  verifyChain(view: View): ChainReport {
    return { isValid: true, length: eventsModel.iterate(view).length }
  },
}

/** The event with this key. In a transaction the lookup is a read, and an own event is read with its place in the log. */
function keyed(view: View, key: string): EventRecord | undefined {
  const id = `event key ${key}`
  if (view.tracker?.written.has(id) === true) look(view)
  readPoint(view, id, ({ eventKeys, events }) => events[eventKeys.get(key) ?? -1]?.stamp ?? -1)
  const sequence = view.scope.eventKeys.get(key)
  return sequence === undefined ? undefined : view.scope.events[sequence]
}

/** Whether the append returns the receipt of an event that was committed before, which is no ticket. */
export function isKnown(
  { scope }: View,
  { name, args }: { readonly name: string; readonly args: readonly unknown[] },
): boolean {
  const { idempotencyKey } = ((name === 'append' ? args[2] : undefined) ?? {}) as AppendEventOptions
  return idempotencyKey !== undefined && scope.eventKeys.has(idempotencyKey)
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
