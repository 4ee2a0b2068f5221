import type { ByteString } from '../core/bytes.ts'
import type { Envelope } from './envelope.ts'
import type { AppendResult, RunEventWrite } from './run-events.ts'
import { writtenIn } from './stored.ts'

/** A duplicate that was answered before. */
interface Repeat {
  readonly envelope: Envelope
  /** How many fields the event has. */
  readonly fields: number
  /** A copy, because the caller may change its own. */
  readonly payload: RunEventWrite['payload']
  /** The hash of the record that the event was compared with, and the outcome. */
  readonly hash: ByteString
  readonly isDivergent: boolean
  readonly answer: AppendResult
}

/** Bounds the events' texts. With their copies they take about three times as much memory. */
const BYTES_MAX = 10 * 1024 * 1024
/** Larger events are not kept: one of them would push out many others. */
const EVENT_BYTES_MAX = 16 * 1024

/**
 * A cache of the last duplicates. A producer that gets no answer sends the same event until it does, and most of the cost of
 * a duplicate is checking and encoding it. An event that equals a cached one was checked before, so its envelope is used again.
 */
export class RepeatedEvents {
  readonly #byKey = new Map<string, Repeat>()
  #bytes = 0

  /** Returns the envelope of an equal event, if one is cached. */
  find(event: unknown): Envelope | undefined {
    if (this.#byKey.size === 0) return undefined
    try {
      const given = event as RunEventWrite
      const repeat = this.#byKey.get(given?.idempotencyKey)
      return repeat !== undefined && isSameEvent(given, repeat) ? repeat.envelope : undefined
    } catch {
      // A getter of the event throws. The check of the envelope reports that properly.
      return undefined
    }
  }

  /** Returns how an equal event was answered; undefined if it was not compared with the record that has this hash. */
  answered(
    { idempotencyKey, bytes }: Envelope,
    hash: ByteString,
  ): Pick<Repeat, 'answer' | 'isDivergent'> | undefined {
    const repeat = this.#byKey.get(idempotencyKey)
    return repeat?.hash === hash && repeat.envelope.bytes === bytes ? repeat : undefined
  }

  /** Caches a duplicate that was compared with its record, and its answer. */
  add(envelope: Envelope, hash: ByteString, isDivergent: boolean, answer: AppendResult): void {
    const { idempotencyKey, bytes } = envelope
    const known = this.#byKey.get(idempotencyKey)
    // Several senders of one event may alternate, with other ids or times. The first one stays, lest each push out the other.
    if (bytes.length > EVENT_BYTES_MAX || known?.hash === hash) return
    this.#bytes += bytes.length - (known?.envelope.bytes.length ?? 0)
    if (this.#bytes > BYTES_MAX) {
      this.#byKey.clear()
      this.#bytes = bytes.length
    }
    const event = writtenIn(bytes)
    const fields = Object.keys(event).length
    this.#byKey.set(idempotencyKey, { envelope, fields, payload: event.payload, hash, isDivergent, answer })
  }
}

function isSameEvent(given: RunEventWrite, { envelope, fields, payload }: Repeat): boolean {
  // The copy has no hidden fields. Otherwise an unknown field could take the place of a hidden one in the count.
  const event = { ...given }
  return (
    event.idempotencyKey === envelope.idempotencyKey &&
    event.eventId === envelope.eventId &&
    event.eventType === envelope.eventType &&
    event.emittedAt === envelope.emittedAt &&
    event.runId === envelope.runId &&
    event.tenantId === envelope.tenantId &&
    event.projectId === envelope.projectId &&
    event.environmentId === envelope.environmentId &&
    event.planId === envelope.planId &&
    event.planVersion === envelope.planVersion &&
    event.engineAttemptId === envelope.engineAttemptId &&
    event.logicalAttemptId === envelope.logicalAttemptId &&
    event.stepId === envelope.stepId &&
    Object.keys(event).length === fields &&
    Object.getPrototypeOf(given) === Object.prototype &&
    isSameJson(event.payload, payload)
  )
}

/** Whether `value` equals `known`, which is JSON, and has nothing that JSON can't have. */
function isSameJson(value: unknown, known: unknown): boolean {
  if (typeof known !== 'object' || known === null) return value === known
  if (typeof value !== 'object' || value === null) return false
  const isList = Array.isArray(known)
  if (isList && !(Array.isArray(value) && value.length === known.length)) return false
  if (Object.getPrototypeOf(value) !== (isList ? Array.prototype : Object.prototype)) return false
  const names = Object.keys(known)
  // Hidden properties and symbols are refused too. An array has the hidden property `length`.
  if (Reflect.ownKeys(value).length !== names.length + (isList ? 1 : 0)) return false
  if (Object.keys(value).length !== names.length) return false
  for (const name of names) {
    const key = name as keyof typeof known
    if (!isSameJson(value[key], known[key])) return false
  }
  return true
}
