import { type ByteString, fromU64, fromUtf8, u64, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { parseRfc3339 } from '../core/time.ts'
import { decodeValue, encodeRecord } from '../core/value.ts'
import { type Indexing, indexKey, indexRange, recordKey } from '../engine/indexes.ts'
import { TAGS } from '../engine/keys.ts'
import type { Delete, Entry, Place, Put, Range } from '../engine/storage.ts'
import type { RunRecord } from './run-record.ts'
import { FIRST_MS } from './run-time.ts'

/**
 * The layout of stored runs, in one tree of the tenant:
 *
 *   'r' id                record; the id is the number of its insert (12 hex digits) and its event id
 *   'e' event id          the id; so an event id is stored once
 *   't' 'i' 'p' 'a' 'j' 's'   indexes: all, by run id, parent, agent, job type, status (engine/indexes.ts)
 *   'c'                   the number of inserts (8 bytes)
 *   'na' agent, 'nj' job type   the number of runs of each (8 bytes)
 *
 * Index keys end with `created_at` and the id. So each index has the order in
 * which runs are listed; of equal times the later insert comes first.
 */

const TAG = TAGS.telemetry

export const BY_TIME = 't'
export const BY_RUN = 'i'
export const BY_PARENT = 'p'
export const BY_AGENT = 'a'
export const BY_JOB = 'j'
export const BY_STATUS = 's'

const EVENT = 'e'
const INSERTS = 'c'
const COUNT = 'n'
export const AGENTS = 'a'
export const JOBS = 'j'
export type Counted = typeof AGENTS | typeof JOBS

export const TELEMETRY_INDEXES: Indexing = {
  tag: TAG,
  kinds: BY_TIME + BY_RUN + BY_PARENT + BY_AGENT + BY_JOB + BY_STATUS,
  keysOf(record) {
    const id = record.key.slice(1)
    const run = recordOf(record)
    if (!id.endsWith(run.event_id.toLowerCase()))
      throw new AnnalsError('CORRUPT', 'a telemetry record is stored under the id of another run')
    return indexKeys(id, run)
  },
}

const ID_DIGITS = 12

export function idOf(insert: number, eventId: string): ByteString {
  return insert.toString(16).padStart(ID_DIGITS, '0') + eventId.toLowerCase()
}

export function eventPlace(scope: ByteString, eventId: string): Place {
  return { scope, tag: TAG, key: EVENT + eventId.toLowerCase() }
}

export function recordPlace(scope: ByteString, id: ByteString): Place {
  return { scope, tag: TAG, key: recordKey(id) }
}

export function insertsPlace(scope: ByteString): Place {
  return { scope, tag: TAG, key: INSERTS }
}

export function countPlace(scope: ByteString, counted: Counted, name: string): Place {
  return { scope, tag: TAG, key: COUNT + counted + utf8(name) }
}

/** The range of all counts of one kind. */
export function countRange(scope: ByteString, counted: Counted): Range {
  const next = String.fromCharCode(counted.charCodeAt(0) + 1)
  return { scope, tag: TAG, from: COUNT + counted, to: COUNT + next }
}

export function countedName({ key }: Entry): string {
  return fromUtf8(key.slice(2))
}

export function numberOf(entry: Entry | undefined): number {
  return entry === undefined ? 0 : fromU64(entry.value)
}

export function putNumber(place: Place, number: number): Put {
  return { op: 'put', ...place, value: u64(number) }
}

/** Stores a record, the id of its event id, and its index entries. */
export function insertOperations(scope: ByteString, id: ByteString, run: RunRecord): Put[] {
  return [
    { op: 'put', ...recordPlace(scope, id), value: encodeRun(run) },
    { op: 'put', ...eventPlace(scope, run.event_id), value: id },
    ...indexKeys(id, run).map((key): Put => ({ op: 'put', scope, tag: TAG, key, value: '' })),
  ]
}

/** Replaces a record, and the index entries that differ. */
export function changeOperations(
  scope: ByteString,
  id: ByteString,
  before: RunRecord,
  after: RunRecord,
): (Put | Delete)[] {
  const old = indexKeys(id, before)
  const now = indexKeys(id, after)
  const place = (key: ByteString): Place => ({ scope, tag: TAG, key })
  return [
    { op: 'put', ...recordPlace(scope, id), value: encodeRun(after) },
    ...old.filter(key => !now.includes(key)).map((key): Delete => ({ op: 'delete', ...place(key) })),
    ...now.filter(key => !old.includes(key)).map((key): Put => ({ op: 'put', ...place(key), value: '' })),
  ]
}

export function recordOf({ value }: Entry): RunRecord {
  return decodeValue<RunRecord>(value)
}

/** The range of an index for one component, between two times of creation (half-open, in milliseconds since 1970). */
export function runsRange(
  scope: ByteString,
  kind: string,
  component: string,
  from: number = FIRST_MS,
  to?: number,
): Range {
  const tree = { scope, tag: TAG }
  return indexRange(tree, kind, utf8(component), place(from), to === undefined ? undefined : place(to))
}

function encodeRun(run: RunRecord): ByteString {
  return encodeRecord({ ...run })
}

function indexKeys(id: ByteString, run: RunRecord): ByteString[] {
  const createdAt = parseRfc3339(run.created_at)
  if (createdAt === undefined) throw new AnnalsError('CORRUPT', 'a telemetry record has no created_at')
  const key = (kind: string, component: string): ByteString =>
    indexKey(kind, utf8(component), place(createdAt), id)
  const keys = [
    key(BY_TIME, ''),
    key(BY_RUN, run.run_id),
    key(BY_AGENT, run.agent_name),
    key(BY_JOB, run.job_type),
    key(BY_STATUS, run.status),
  ]
  return run.parent_run_id === undefined ? keys : [...keys, key(BY_PARENT, run.parent_run_id)]
}

/** A time as a number of an index key. These numbers are not negative, so they count from the first possible time. */
function place(ms: number): number {
  return Math.max(ms, FIRST_MS) - FIRST_MS
}
