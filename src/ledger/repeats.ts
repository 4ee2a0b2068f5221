import { type ByteString, flat } from '../core/bytes.ts'
import type { Entry, TreeId } from '../engine/storage.ts'
import type { Envelope } from './envelope.ts'
import type { AppendResult, RunEventWrite } from './run-events.ts'
import { dedupePlace, writtenIn } from './stored.ts'

/**
 * An event that is stored, as somebody sends it again and again, and what they are answered. All in one object: what it
 * takes to compare two events is mostly to wait for memory.
 */
export class Repeat {
  readonly idempotencyKey: string
  /** The log's own key of the event: the very same is found sooner than an equal one. */
  readonly key: ByteString
  /** In which the log remembers the event: another one is another run's. */
  readonly version: number
  readonly scope: ByteString
  readonly tag: number
  readonly answer: AppendResult
  readonly isDivergent: boolean
  /** Of its text. */
  readonly bytes: number
  readonly #fields: number
  readonly #eventId: string
  readonly #emittedAt: string
  readonly #stepId: string | undefined
  readonly #eventType: string
  readonly #runId: string
  readonly #tenantId: string
  readonly #projectId: string
  readonly #environmentId: string
  readonly #planId: string
  readonly #planVersion: string
  readonly #engineAttemptId: number
  readonly #logicalAttemptId: number
  readonly #payload: RunEventWrite['payload']

  constructor(
    envelope: Envelope,
    text: ByteString,
    { scope, tag }: TreeId,
    { key, version }: Entry,
    answer: AppendResult,
    isDivergent: boolean,
  ) {
    // A copy of its own; what the events of a run share is kept as it came, as elsewhere: the very same is equal at a glance.
    const event = writtenIn(text)
    this.idempotencyKey = event.idempotencyKey
    this.key = key
    this.version = version
    this.scope = scope
    this.tag = tag
    this.answer = answer
    this.isDivergent = isDivergent
    this.bytes = text.length
    this.#fields = Object.keys(event).length
    this.#eventId = event.eventId
    this.#emittedAt = event.emittedAt
    this.#stepId = event.stepId
    this.#eventType = envelope.eventType
    this.#runId = envelope.runId
    this.#tenantId = envelope.tenantId
    this.#projectId = envelope.projectId
    this.#environmentId = envelope.environmentId
    this.#planId = envelope.planId
    this.#planVersion = envelope.planVersion
    this.#engineAttemptId = event.engineAttemptId
    this.#logicalAttemptId = event.logicalAttemptId
    this.#payload = event.payload
  }

  isOf(event: RunEventWrite): boolean {
    return (
      event.eventId === this.#eventId &&
      event.emittedAt === this.#emittedAt &&
      event.stepId === this.#stepId &&
      event.eventType === this.#eventType &&
      event.runId === this.#runId &&
      event.tenantId === this.#tenantId &&
      event.projectId === this.#projectId &&
      event.environmentId === this.#environmentId &&
      event.planId === this.#planId &&
      event.planVersion === this.#planVersion &&
      event.engineAttemptId === this.#engineAttemptId &&
      event.logicalAttemptId === this.#logicalAttemptId &&
      // And nothing else.
      Object.keys(event).length === this.#fields &&
      Object.getPrototypeOf(event) === Object.prototype &&
      readsLike(event.payload, this.#payload)
    )
  }

  /** What was sent: what the sender has in its hands may have changed meanwhile. */
  event(): RunEventWrite {
    return {
      eventId: this.#eventId,
      eventType: this.#eventType,
      emittedAt: this.#emittedAt,
      runId: this.#runId,
      tenantId: this.#tenantId,
      projectId: this.#projectId,
      environmentId: this.#environmentId,
      planId: this.#planId,
      planVersion: this.#planVersion,
      engineAttemptId: this.#engineAttemptId,
      logicalAttemptId: this.#logicalAttemptId,
      idempotencyKey: this.idempotencyKey,
      ...(this.#stepId === undefined ? {} : { stepId: this.#stepId }),
      ...(this.#payload === undefined ? {} : { payload: this.#payload }),
    }
  }
}

/** Of the events' texts; in memory they take two to three times as much. */
const BYTES_MAX = 10 * 1024 * 1024
/** Larger ones, and those of many parts, are not kept: to compare them is no less than to check them. */
const EVENT_BYTES_MAX = 16 * 1024
const CONTAINERS_MAX = 64
/** What an event takes that was sent again once. */
const MARK_BYTES = 192

/**
 * Who was not answered sends the same event again, until they are. An event that comes so for the third time is compared with
 * a copy of what came before: what is equal to one that was checked and found in the log need not be checked and searched
 * for, only the log be asked whether it still knows it.
 */
export class Repeats {
  /** By idempotency key. A text stands for an event that was sent again once: who sends it with another one has not repeated it. */
  readonly #known = new Map<string, Repeat | string>()
  #bytes = 0

  find(event: RunEventWrite): Repeat | undefined {
    if (this.#known.size === 0) return undefined
    try {
      const repeat = this.#known.get(event?.idempotencyKey)
      return typeof repeat === 'object' && repeat.isOf(event) ? repeat : undefined
    } catch {
      // Something in it throws when it is read: the check says what.
      return undefined
    }
  }

  /** The event was found in the log, in this entry, and so answered. */
  note(
    scope: ByteString,
    envelope: Envelope,
    entry: Entry,
    answer: AppendResult,
    isDivergent: boolean,
  ): void {
    const mark = `${envelope.emittedAt} ${envelope.eventId}`
    if (this.#known.get(envelope.idempotencyKey) !== mark) {
      // The sender's texts may be parts of long ones.
      this.#set(flat(envelope.idempotencyKey), flat(mark))
      return
    }
    const text = envelope.bytes
    if (text.length > EVENT_BYTES_MAX || hasMany(text)) return
    const repeat = new Repeat(envelope, text, dedupePlace(scope, envelope), entry, answer, isDivergent)
    this.#set(repeat.idempotencyKey, repeat)
  }

  /** The log doesn't know it any more. */
  forget({ idempotencyKey }: Repeat): void {
    this.#bytes -= bytesOf(this.#known.get(idempotencyKey))
    this.#known.delete(idempotencyKey)
  }

  #set(idempotencyKey: string, value: Repeat | string): void {
    this.#bytes += bytesOf(value) - bytesOf(this.#known.get(idempotencyKey))
    if (this.#bytes > BYTES_MAX) {
      this.#known.clear()
      this.#bytes = bytesOf(value)
    }
    this.#known.set(idempotencyKey, value)
  }
}

function bytesOf(value: Repeat | string | undefined): number {
  if (value === undefined) return 0
  return typeof value === 'string' ? MARK_BYTES : MARK_BYTES + value.bytes
}

/** Objects and arrays, or what could be taken for the beginning of one. */
function hasMany(text: ByteString): boolean {
  let count = 0
  for (const _ of text.matchAll(/[[{]/g)) if (++count > CONTAINERS_MAX) return true
  return false
}

/**
 * Whether `value` reads like `known`, which is JSON, and has nothing that JSON can't have. A getter that reads like it may pass:
 * nothing of it is stored.
 */
function readsLike(value: unknown, known: unknown): boolean {
  if (typeof known !== 'object' || known === null) return value === known
  if (typeof value !== 'object' || value === null) return false
  const isList = Array.isArray(known)
  if (isList && !(Array.isArray(value) && value.length === known.length)) return false
  if (Object.getPrototypeOf(value) !== (isList ? Array.prototype : Object.prototype)) return false
  const keys = Object.keys(known)
  // With those that are hidden; a list has its length.
  if (Object.getOwnPropertyNames(value).length !== keys.length + (isList ? 1 : 0)) return false
  if (Object.getOwnPropertySymbols(value).length !== 0) return false
  for (const key of keys) {
    const name = key as keyof typeof known
    if (!readsLike(value[name], known[name])) return false
  }
  return true
}
