import { type ByteString, fromU64, fromUtf8, u64, utf8 } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { bodyHashAfter } from '../core/hash.ts'
import { formatRfc3339 } from '../core/time.ts'
import { decodeJson } from '../core/value.ts'
import { bodyPrefixOf } from '../engine/chain.ts'
import { dedupeTag, feedTag, HEAD_KEY, headTag, TAGS } from '../engine/keys.ts'
import { parseLogEntry, timeOf } from '../engine/log.ts'
import type { Append, Entry, Place, Put, TreeId } from '../engine/storage.ts'
import type { Envelope } from './envelope.ts'
import { factIn } from './facts.ts'
import { alertOf, type RunState, runStateOf, stepStateOf } from './reduce.ts'
import type {
  LedgerAlert,
  RunEventRecord,
  RunEventWrite,
  RunHeading,
  RunSnapshot,
  StepSnapshot,
} from './run-events.ts'
import type { Projectable } from './run-projection.ts'
import { runStateJson, stepJson } from './snapshot.ts'
import type { StepState } from './steps.ts'

/**
 * Where the ledger keeps things. A run's records are a log (tag 06) in the
 * run's own scope; what is derived from them, and what guards them, lies beside
 * it in one tree (tag 08). The first byte of a key says what it is:
 *
 *   m  whose run it is, as its first event said
 *   l  the lease; empty where nobody has had one
 *   x  an idempotency key: why its event was rejected
 *   i  an idempotency key: the event id that a producer has chosen for it
 *   r  the state of the run; s, a step id: the state of a step, with the numbers of records for their errors
 *   g  the same for validating appends, as of the newest one; h, a step id
 *   a  sequence (8 bytes): an alert
 *   u  an event id in lower case: the event has an alert; no value
 *
 * So everything of a run goes when the run goes. In the scope that a tenant's
 * runs share, the same tree has
 *
 *   p  up to where the feed was projected
 *   a  time (8 bytes), run id, 00, sequence (8 bytes): an alert of some run; no value
 *   c  how many alerts were raised (8 bytes)
 *   n  number (8 bytes), from 1: the alert that was raised as this one; its key under `a`, without that letter
 *   f  run id, 00, sequence (8 bytes): records from there on that came from another store (imported.ts)
 *   e  run id: the newest epoch that was granted for a run of this id
 */
export const LOG: number = TAGS.ledger
const TAG = TAGS.projection

export const HEADING_KEY = 'm'
export const LEASE_KEY = 'l'
export const RUN_STATE_KEY = 'r'
export const GUARD_KEY = 'g'
export const PROGRESS_KEY = 'p'
export const ALERT_COUNT_KEY = 'c'
const REJECTION = 'x'
const EVENT_ID = 'i'
const CHUNK = 's'
const GUARDED_STEP = 'h'
const ALERT = 'a'
const ALERTED = 'u'
const NUMBERED = 'n'
export const IMPORTED = 'f'
const EPOCH = 'e'

export function placeOf(scope: ByteString, key: ByteString): Place {
  return { scope, tag: TAG, key }
}

export function rejectionPlace(scope: ByteString, idempotencyKey: string): Place {
  return placeOf(scope, REJECTION + idempotencyKey)
}

export function eventIdPlace(scope: ByteString, idempotencyKey: string): Place {
  return placeOf(scope, EVENT_ID + idempotencyKey)
}

/** Of a step, for validating appends. */
export function guardedStepPlace(scope: ByteString, stepId: string): Place {
  return placeOf(scope, GUARDED_STEP + utf8(stepId))
}

/**
 * Steps that are stored together: one entry for many is cheaper, and a run may have very many; but with each that changes, all
 * of its chunk are written again.
 */
export const STEPS_PER_CHUNK = 16

export function chunkPlace(scope: ByteString, chunk: number): Place {
  return placeOf(scope, CHUNK + u64(chunk))
}

export function dedupePlace(scope: ByteString, envelope: Envelope): Place {
  return { scope, tag: dedupeTag(LOG), key: dedupeKeyOf(envelope) }
}

/** Longer ones are known by their idempotency key, which can't be taken for an identity: it has no `|`. */
const IDENTITY_BYTES_MAX = 256

/**
 * By what the log tells the events of a run apart: by what the idempotency key is made of, not by the key itself. A hash
 * could lie anywhere in a tree, so that each event would touch another leaf; events of one step lie together like this, and
 * steps that follow one another mostly do.
 */
function dedupeKeyOf({ identity, idempotencyKey }: Envelope): ByteString {
  return identity.length <= IDENTITY_BYTES_MAX ? identity : idempotencyKey
}

/** What the log remembers of an event: its id, with which a duplicate is answered. */
export function dedupeOf(envelope: Envelope): NonNullable<Append['dedupe']> {
  return { key: dedupeKeyOf(envelope), memo: envelope.eventId }
}

export function headPlace(scope: ByteString): Place {
  return { scope, tag: headTag(LOG), key: HEAD_KEY }
}

export function feedTree(shared: ByteString): TreeId {
  return { scope: shared, tag: feedTag(LOG) }
}

interface KeyRange extends TreeId {
  readonly from: ByteString
  readonly to: ByteString
}

/** All of one kind. */
function kind(scope: ByteString, letter: string): KeyRange {
  return { scope, tag: TAG, from: letter, to: String.fromCharCode(letter.charCodeAt(0) + 1) }
}

export const chunksIn = (scope: ByteString): KeyRange => kind(scope, CHUNK)
/** In a run's scope: those of the run; in the shared one: which there are. */
export const alertsIn = (scope: ByteString): KeyRange => kind(scope, ALERT)
/** In the shared scope: the records that came from another store. */
export const importedIn = (shared: ByteString): KeyRange => kind(shared, IMPORTED)

/** All that is projected of a run. */
export function projectedIn(scope: ByteString): readonly KeyRange[] {
  return [kind(scope, RUN_STATE_KEY), chunksIn(scope), alertsIn(scope), kind(scope, ALERTED)]
}

/** Whether an entry of this tree can be had from the records again. */
export function isDerived(key: ByteString): boolean {
  const derived = [RUN_STATE_KEY, CHUNK, ALERT, ALERTED, NUMBERED, ALERT_COUNT_KEY, PROGRESS_KEY]
  return derived.includes(key[0])
}

/**
 * LD11: whether a record that has the event's key has another payload. A record with another hash is not the one that the key
 * stands for: the run was deleted and begun anew.
 */
export function saysOther(record: Entry, hash: ByteString, envelope: Envelope): boolean {
  // A producer that retries sends the very same event.
  if (record.value.endsWith(envelope.bytes)) return false
  const found = parseLogEntry(record)
  return found.hash === hash && fromKeyOn(found.body) !== fromKeyOn(envelope.bytes)
}

/** No text before it can hold these quotes: JSON would write them with a backslash. */
function fromKeyOn(body: ByteString): ByteString {
  return body.slice(body.indexOf('"idempotencyKey":"'))
}

/** The body of an entry is the event in canonical JSON; its type is hashed in front of it, as that of any event (P7). */
export function appendOf(scope: ByteString, shared: ByteString, envelope: Envelope): Append {
  const body = envelope.bytes
  return {
    op: 'append',
    scope,
    tag: LOG,
    body,
    bodyHash: bodyHashAfter(bodyPrefixOf(scope), envelope.typeBytes, body),
    dedupe: dedupeOf(envelope),
    feed: shared,
  }
}

export function writtenIn(body: ByteString): RunEventWrite {
  return decodeJson(body) as RunEventWrite
}

/** `runSeq` counts from 1, sequences from 0. */
export function recordOf(entry: Entry): RunEventRecord {
  const { sequence, time, body } = parseLogEntry(entry)
  return Object.freeze({ ...writtenIn(body), runSeq: sequence + 1, persistedAt: formatRfc3339(time) })
}

/** For the projector: in place of an error stands the record's number, so that a state stays small whatever it holds. */
export function projectableIn(entry: Entry): Projectable {
  const fact = factIn(entry)
  return {
    ...fact,
    error: fact.error === undefined ? undefined : fact.runSeq,
    version: entry.version,
    time: timeOf(entry),
    alert: refusal => alertOf(recordOf(entry), refusal),
  }
}

/** By name: what is spread has a shape of its own at each place. */
export function putAt({ scope, tag, key }: Place, value: ByteString): Put {
  return { op: 'put', scope, tag, key, value }
}

export function putJson(place: Place, value: unknown): Put {
  return putAt(place, canonicalJsonBytes(value))
}

function json<T>(entry: Entry | undefined): T | undefined {
  return entry === undefined ? undefined : (decodeJson(entry.value) as T)
}

/** Whose run it is: the first event says so, and all others have to agree. */
export type StoredHeading = Omit<RunHeading, 'runId'>

export const headingIn = (entry: Entry | undefined): StoredHeading | undefined => json(entry)

export function runStateIn(entry: Entry | undefined): RunState | undefined {
  const state = json<Omit<RunSnapshot, 'steps'> & { readonly steps: number }>(entry)
  return state === undefined ? undefined : runStateOf(state, state.steps)
}

export function putRunState(place: Place, run: RunState): Put {
  return putAt(place, runStateJson(run))
}

export function guardedStepIn(entry: Entry | undefined): StepState | undefined {
  const step = json<StepSnapshot & { readonly position: number }>(entry)
  return step === undefined ? undefined : stepStateOf(step, step.position)
}

export function putGuardedStep(scope: ByteString, step: StepState): Put {
  return putAt(guardedStepPlace(scope, step.stepId), stepJson(step, true))
}

/** Steps in order, from the chunk's first; in place of an error, the number of the record that has it. */
export function chunkIn(entry: Entry): readonly StepSnapshot[] {
  return decodeJson(entry.value) as readonly StepSnapshot[]
}

export function putChunk(scope: ByteString, chunk: number, steps: readonly StepState[]): Put {
  return putAt(chunkPlace(scope, chunk), `[${steps.map(step => stepJson(step)).join(',')}]`)
}

export const alertIn = (entry: Entry | undefined): LedgerAlert | undefined => json(entry)

export interface Lease {
  readonly epoch: number
  readonly owner: string
  /** How long it was granted for; absent if it holds until it is released. */
  readonly ttlMs?: number
  /** Until when others are kept out, by the engine's clock; absent as `ttlMs` is. */
  readonly expiresAt?: number
}

export function epochPlace(shared: ByteString, runId: string): Place {
  return placeOf(shared, EPOCH + utf8(runId))
}

export const epochIn = (entry: Entry | undefined): number => json<number>(entry) ?? 0
/** Empty where nobody has one: to find nothing takes a search, and each append looks here. */
export const leaseIn = (entry: Entry | undefined): Lease | undefined =>
  entry === undefined || entry.value === '' ? undefined : json(entry)

export function putNoLease(scope: ByteString): Put {
  return putAt(placeOf(scope, LEASE_KEY), '')
}

/** Says of an event that it has an alert. */
export function alertedPlace(scope: ByteString, eventId: string): Place {
  return placeOf(scope, ALERTED + eventId.toLowerCase())
}

/** The alert beside its run, and where all alerts of the tenant are listed: by time, and as they were raised. */
export function alertPuts(
  scope: ByteString,
  shared: ByteString,
  alert: LedgerAlert,
  time: number,
  number: number,
): Put[] {
  const sequence = u64(alert.runSeq)
  const listed = `${u64(time)}${utf8(alert.runId)}\0${sequence}`
  return [
    putJson(placeOf(scope, ALERT + sequence), alert),
    putAt(placeOf(shared, ALERT + listed), ''),
    putAt(placeOf(shared, NUMBERED + u64(number)), listed),
  ]
}

/** Of an alert in the list by time: where it is. */
export interface ListedAlert {
  readonly runId: string
  readonly key: ByteString
  readonly time: number
}

export function listedAlert({ key }: Entry): ListedAlert {
  return listedIn(key.slice(1))
}

function listedIn(listed: ByteString): ListedAlert {
  const end = listed.length - 9
  const runId = fromUtf8(listed.slice(8, end))
  return { runId, key: ALERT + listed.slice(end + 1), time: fromU64(listed) }
}

/** The tree that changes whenever an alert is raised. */
export function alertTree(shared: ByteString): TreeId {
  return { scope: shared, tag: TAG }
}

/** In the shared scope: the alerts in the order in which they were raised, from this number on. */
export function numberedAlertsFrom(shared: ByteString, number: number): KeyRange {
  return { ...kind(shared, NUMBERED), from: NUMBERED + u64(number) }
}

/** Which alert was raised as which. */
export function numberedAlert({ key, value }: Entry): {
  readonly number: number
  readonly listed: ListedAlert
} {
  return { number: fromU64(key, 1), listed: listedIn(value) }
}
