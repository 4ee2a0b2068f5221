import type { ByteString } from '../core/bytes.ts'
import type { Entry, Place } from '../engine/storage.ts'
import type { Envelope } from './envelope.ts'
import type { AppendResult, RunEventWrite } from './run-events.ts'
import { dedupePlace, writtenIn } from './stored.ts'

/** An event that is stored, as somebody sends it again and again, and what they are answered. */
export interface Repeat {
  readonly event: RunEventWrite
  /** What the log remembers of the stored event, and the version in which it does: another one is another run's. */
  readonly place: Place
  readonly version: number
  readonly answer: AppendResult
  readonly isDivergent: boolean
}

/** Of the events' texts; in memory they take two to three times as much. */
const BYTES_MAX = 10 * 1024 * 1024
/** Larger ones are not kept: to compare them is no less than to check them. */
const EVENT_BYTES_MAX = 16 * 1024
/** What a key takes of which nothing else is known. */
const KEY_BYTES = 64

/**
 * Who was not answered sends the same event again, until they are. What was sent twice is kept in a copy: an event that
 * reads the same as one that was checked and found in the log need not be checked and searched for, only the log be asked
 * whether it still knows it.
 */
export class Repeats {
  /** By idempotency key; undefined stands for an event that was sent again once. */
  readonly #known = new Map<string, Repeat | undefined>()
  #bytes = 0

  find(event: RunEventWrite): Repeat | undefined {
    if (this.#known.size === 0) return undefined
    const repeat = this.#known.get(event?.idempotencyKey)
    return repeat !== undefined && isSameEvent(event, repeat.event) ? repeat : undefined
  }

  /** The event was found in the log, in this entry, and so answered. */
  note(
    scope: Place['scope'],
    envelope: Envelope,
    entry: Entry,
    answer: AppendResult,
    isDivergent: boolean,
  ): void {
    const { idempotencyKey } = envelope
    const isSecond = this.#known.has(idempotencyKey)
    const bytes = isSecond ? envelope.bytes() : ''
    if (bytes.length > EVENT_BYTES_MAX) return
    this.#bytes += isSecond ? bytes.length : KEY_BYTES
    if (this.#bytes > BYTES_MAX) {
      this.#known.clear()
      this.#bytes = 0
    }
    const { key, version } = entry
    // The log's own key: the very same is found sooner than an equal one.
    const place = { ...dedupePlace(scope, envelope), key }
    const repeat = isSecond
      ? { event: eventOf(envelope, bytes), place, version, answer, isDivergent }
      : undefined
    this.#known.set(idempotencyKey, repeat)
  }

  /** The log doesn't know it any more. */
  forget({ event }: Repeat): void {
    this.#known.delete(event.idempotencyKey)
  }
}

/** With the texts as they came: one that is the very same is equal at a glance. */
function eventOf(envelope: Envelope, bytes: ByteString): RunEventWrite {
  const { eventId, eventType, runId, tenantId, projectId, environmentId, planId, planVersion } = envelope
  const { engineAttemptId, logicalAttemptId, idempotencyKey, stepId } = envelope
  const { emittedAt, payload } = writtenIn(bytes)
  return {
    eventId,
    eventType,
    emittedAt,
    runId,
    tenantId,
    projectId,
    environmentId,
    planId,
    planVersion,
    engineAttemptId,
    logicalAttemptId,
    idempotencyKey,
    ...(stepId === undefined ? {} : { stepId }),
    ...(payload === undefined ? {} : { payload }),
  }
}

function isSameEvent(event: RunEventWrite, known: RunEventWrite): boolean {
  return (
    event.eventId === known.eventId &&
    event.eventType === known.eventType &&
    event.emittedAt === known.emittedAt &&
    event.runId === known.runId &&
    event.tenantId === known.tenantId &&
    event.projectId === known.projectId &&
    event.environmentId === known.environmentId &&
    event.planId === known.planId &&
    event.planVersion === known.planVersion &&
    event.engineAttemptId === known.engineAttemptId &&
    event.logicalAttemptId === known.logicalAttemptId &&
    event.stepId === known.stepId &&
    readsLike(event.payload, known.payload) &&
    // And nothing else.
    Object.keys(event).length === Object.keys(known).length &&
    Object.getPrototypeOf(event) === Object.prototype
  )
}

/** Whether `value` reads like `known`, which is plain JSON, in every place. */
function readsLike(value: unknown, known: unknown): boolean {
  if (value === known) return true
  if (typeof value !== 'object' || value === null || typeof known !== 'object' || known === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  if (Array.isArray(known)) {
    if (prototype !== Array.prototype) return false
  } else if (prototype !== Object.prototype) return false
  let keys = 0
  for (const key in known) {
    keys++
    const name = key as keyof typeof known
    if (!readsLike(value[name], known[name])) return false
  }
  for (const _ in value) keys--
  return keys === 0
}
