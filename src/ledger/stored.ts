import { type ByteString, fromU64, fromUtf8, u64, utf8 } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { bodyHashAfter } from '../core/hash.ts'
import { formatRfc3339 } from '../core/time.ts'
import { decodeJson } from '../core/value.ts'
import { bodyPrefixOf } from '../engine/chain.ts'
import { dedupeTag, feedTag, HEAD_KEY, headTag, TAGS } from '../engine/keys.ts'
import { parseLogEntry } from '../engine/log.ts'
import type { Append, Entry, Place, Put, TreeId } from '../engine/storage.ts'
import type { Envelope } from './envelope.ts'
import { type RunState, runStateOf, stepStateOf } from './reduce.ts'
import type {
  LedgerAlert,
  RunEventRecord,
  RunEventWrite,
  RunHeading,
  RunSnapshot,
  StepSnapshot,
} from './run-events.ts'
import { runStateJson, stepJson } from './snapshot.ts'
import type { StepState } from './steps.ts'

/**
 * The storage layout of the ledger. A run's records are a log (tag 06) in the
 * run's own scope. One more tree in that scope (tag 08) holds the derived state,
 * the lease and the keys. So deleting the scope deletes everything of the run.
 * The first byte of a key names the kind of entry; the rest identifies it:
 *
 *   m                         the run's heading: tenant, project, environment and plan of the first event
 *   l                         the lease; empty if there is none
 *   x  idempotency key        the rejection of an event
 *   i  idempotency key        the event id that a producer has claimed
 *   r                         the projected state of the run
 *   s  chunk (8 bytes)        the projected state of up to 16 steps; errors are stored as the `runSeq` of their record
 *   g                         the run's state as of the newest validated append
 *   h  step id                a step's state as of the newest validated append
 *   a  runSeq (8 bytes)       an alert
 *   u  event id, lower case   marks an event that has an alert; no value
 *
 * The same tree in the scope that a tenant's runs share has these kinds:
 *
 *   p                                         the projector's position in the feed
 *   a  time (8), run id, 00, runSeq (8)       lists an alert by time; no value
 *   c                                         the number of alerts raised so far (8 bytes)
 *   n  alert number (8), from 1               lists alerts as they were raised; the value is the `a` key without its letter
 *   f  run id, 00, runSeq (8)                 a range of records from another store (imported.ts)
 *   e  run id                                 the newest epoch granted for this run id
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

/** The place of an entry in the tree of derived state. */
export function placeOf(scope: ByteString, key: ByteString): Place {
  return { scope, tag: TAG, key }
}

/** The place of the rejection of an event (LD2). */
export function rejectionPlace(scope: ByteString, idempotencyKey: string): Place {
  return placeOf(scope, REJECTION + idempotencyKey)
}

/** The place of the event id that a producer has claimed (L22). */
export function eventIdPlace(scope: ByteString, idempotencyKey: string): Place {
  return placeOf(scope, EVENT_ID + idempotencyKey)
}

/** The place of a step's state for validating appends. */
export function guardedStepPlace(scope: ByteString, stepId: string): Place {
  return placeOf(scope, GUARDED_STEP + utf8(stepId))
}

/**
 * The number of steps in one stored chunk. Fewer entries are cheaper for runs with many steps, but a change to one step
 * rewrites its whole chunk.
 */
export const STEPS_PER_CHUNK = 16

/** The place of a chunk of steps; chunks count from 0. */
export function chunkPlace(scope: ByteString, chunk: number): Place {
  return placeOf(scope, CHUNK + u64(chunk))
}

/** The place where the log remembers an event, to detect duplicates. */
export function dedupePlace(scope: ByteString, envelope: Envelope): Place {
  return { scope, tag: dedupeTag(LOG), key: dedupeKeyOf(envelope) }
}

/** Longer identities are replaced by the idempotency key, which can't equal an identity because it has no `|`. */
const IDENTITY_BYTES_MAX = 256

/**
 * The key by which the log detects duplicates: the preimage of the idempotency key, not its hash. Hashes are scattered over
 * the tree, so each event would touch another leaf. Preimages of one step are neighbours, and those of consecutive steps
 * mostly are.
 */
function dedupeKeyOf({ identity, idempotencyKey }: Envelope): ByteString {
  return identity.length <= IDENTITY_BYTES_MAX ? identity : idempotencyKey
}

/** The dedupe entry of an event. It contains the event id, because duplicates are answered with it. */
export function dedupeOf(envelope: Envelope): NonNullable<Append['dedupe']> {
  return { key: dedupeKeyOf(envelope), memo: envelope.eventId }
}

/** The place of the log's head, which holds its length and last hash. */
export function headPlace(scope: ByteString): Place {
  return { scope, tag: headTag(LOG), key: HEAD_KEY }
}

/** The feed: lists the records of all runs of a tenant in the order of their commits. */
export function feedTree(shared: ByteString): TreeId {
  return { scope: shared, tag: feedTag(LOG) }
}

interface KeyRange extends TreeId {
  readonly from: ByteString
  readonly to: ByteString
}

/** The range of all keys of one kind. */
function kind(scope: ByteString, letter: string): KeyRange {
  return { scope, tag: TAG, from: letter, to: String.fromCharCode(letter.charCodeAt(0) + 1) }
}

/** The range of a run's step chunks. */
export const chunksIn = (scope: ByteString): KeyRange => kind(scope, CHUNK)
/** The range of alerts: a run's alerts in its own scope, the list by time in the shared scope. */
export const alertsIn = (scope: ByteString): KeyRange => kind(scope, ALERT)
/** The range of imported record ranges, in the shared scope. */
export const importedIn = (shared: ByteString): KeyRange => kind(shared, IMPORTED)

/** The ranges of everything that the projector stores in a run's scope. */
export function projectedIn(scope: ByteString): readonly KeyRange[] {
  return [kind(scope, RUN_STATE_KEY), chunksIn(scope), alertsIn(scope), kind(scope, ALERTED)]
}

/** Whether an entry of this tree can be rebuilt from the records. */
export function isDerived(key: ByteString): boolean {
  const derived = [RUN_STATE_KEY, CHUNK, ALERT, ALERTED, NUMBERED, ALERT_COUNT_KEY, PROGRESS_KEY]
  return derived.includes(key[0])
}

/**
 * LD11: whether the record with the event's key differs from the event. `hash` is the hash in the dedupe entry. A record
 * with another hash belongs to a later run with the same id, and is not compared.
 */
export function saysOther(record: Entry, hash: ByteString, envelope: Envelope): boolean {
  // The common case: a retry sends the same event, so nothing has to be parsed.
  if (record.value.endsWith(envelope.bytes)) return false
  const found = parseLogEntry(record)
  return found.hash === hash && fromKeyOn(found.body) !== fromKeyOn(envelope.bytes)
}

/** The body from the idempotency key on. Earlier strings can't contain this text, because JSON escapes their quotes. */
function fromKeyOn(body: ByteString): ByteString {
  return body.slice(body.indexOf('"idempotencyKey":"'))
}

/** The append of an event. The body is its canonical JSON; the hash covers the type and the body, as for any event (P7). */
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

/** Decodes the event in the body of a record. */
export function writtenIn(body: ByteString): RunEventWrite {
  return decodeJson(body) as RunEventWrite
}

/** Decodes a record. `runSeq` counts from 1, log sequences from 0. */
export function recordOf(entry: Entry): RunEventRecord {
  const { sequence, time, body } = parseLogEntry(entry)
  return Object.freeze({ ...writtenIn(body), runSeq: sequence + 1, persistedAt: formatRfc3339(time) })
}

/** A put at a place. Lists the fields, because spreading gives the object another hidden class at each call site. */
export function putAt({ scope, tag, key }: Place, value: ByteString): Put {
  return { op: 'put', scope, tag, key, value }
}

/** A put of a value as canonical JSON. */
export function putJson(place: Place, value: unknown): Put {
  return putAt(place, canonicalJsonBytes(value))
}

function json<T>(entry: Entry | undefined): T | undefined {
  return entry === undefined ? undefined : (decodeJson(entry.value) as T)
}

/** The owner and plan of a run, taken from its first event (LD8). */
export type StoredHeading = Omit<RunHeading, 'runId'>

/** Decodes a stored heading. */
export const headingIn = (entry: Entry | undefined): StoredHeading | undefined => json(entry)

/** Decodes a stored run state. */
export function runStateIn(entry: Entry | undefined): RunState | undefined {
  const state = json<Omit<RunSnapshot, 'steps'> & { readonly steps: number }>(entry)
  return state === undefined ? undefined : runStateOf(state, state.steps)
}

/** Stores a run state. */
export function putRunState(place: Place, run: RunState): Put {
  return putAt(place, runStateJson(run))
}

/** Decodes a step's state for validating appends. */
export function guardedStepIn(entry: Entry | undefined): StepState | undefined {
  const step = json<StepSnapshot & { readonly position: number }>(entry)
  return step === undefined ? undefined : stepStateOf(step, step.position)
}

/** Stores a step's state for validating appends. */
export function putGuardedStep(scope: ByteString, step: StepState): Put {
  return putAt(guardedStepPlace(scope, step.stepId), stepJson(step, true))
}

/** Decodes the steps of a chunk, in order. Each `error` is the `runSeq` of the record that contains it. */
export function chunkIn(entry: Entry): readonly StepSnapshot[] {
  return decodeJson(entry.value) as readonly StepSnapshot[]
}

/** Stores the steps of a chunk. */
export function putChunk(scope: ByteString, chunk: number, steps: readonly StepState[]): Put {
  return putAt(chunkPlace(scope, chunk), `[${steps.map(step => stepJson(step)).join(',')}]`)
}

/** Decodes a stored alert. */
export const alertIn = (entry: Entry | undefined): LedgerAlert | undefined => json(entry)

/** A stored lease (LD16). */
export interface Lease {
  readonly epoch: number
  readonly owner: string
  /** The duration of the lease; absent if it holds until it is released. */
  readonly ttlMs?: number
  /** When the lease expires, by the engine's clock; absent if it holds until it is released. */
  readonly expiresAt?: number
}

/** The place of the newest epoch granted for a run id. It outlives the run, so that epochs never repeat. */
export function epochPlace(shared: ByteString, runId: string): Place {
  return placeOf(shared, EPOCH + utf8(runId))
}

/** Decodes an epoch; 0 if none was granted. */
export const epochIn = (entry: Entry | undefined): number => json<number>(entry) ?? 0
/** Decodes a lease. "No lease" is stored as an empty value, because every append looks here and a failed search costs more. */
export const leaseIn = (entry: Entry | undefined): Lease | undefined =>
  entry === undefined || entry.value === '' ? undefined : json(entry)

/** Stores that a run has no lease. */
export function putNoLease(scope: ByteString): Put {
  return putAt(placeOf(scope, LEASE_KEY), '')
}

/** The place of the mark that an event has an alert. */
export function alertedPlace(scope: ByteString, eventId: string): Place {
  return placeOf(scope, ALERTED + eventId.toLowerCase())
}

/** Stores an alert in its run's scope, and lists it for the tenant by time and by number. */
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

/** A list entry that points to an alert: `key` is the alert's key in the scope of its run. */
export interface ListedAlert {
  readonly runId: string
  readonly key: ByteString
  readonly time: number
}

/** Decodes an entry of the list by time. */
export function listedAlert({ key }: Entry): ListedAlert {
  return listedIn(key.slice(1))
}

function listedIn(listed: ByteString): ListedAlert {
  const end = listed.length - 9
  const runId = fromUtf8(listed.slice(8, end))
  return { runId, key: ALERT + listed.slice(end + 1), time: fromU64(listed) }
}

/** The tree to watch for new alerts. */
export function alertTree(shared: ByteString): TreeId {
  return { scope: shared, tag: TAG }
}

/** The range of the list by number, from this number on. */
export function numberedAlertsFrom(shared: ByteString, number: number): KeyRange {
  return { ...kind(shared, NUMBERED), from: NUMBERED + u64(number) }
}

/** Decodes an entry of the list by number. */
export function numberedAlert({ key, value }: Entry): {
  readonly number: number
  readonly listed: ListedAlert
} {
  return { number: fromU64(key, 1), listed: listedIn(value) }
}
