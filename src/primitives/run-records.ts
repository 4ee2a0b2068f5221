import { attach } from '../core/attached-bytes.ts'
import { type ByteString, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { decodeStored, decodeValue, encodeFields, joinSorted, partsOf, type Value } from '../core/value.ts'
import { type Indexing, indexKey, recordKey } from '../engine/indexes.ts'
import { TAGS } from '../engine/keys.ts'
import type { Delete, Entry, Place, Put } from '../engine/storage.ts'
import type { Run, RunHead } from './run.ts'

/** How runs are stored: one record for each run, and index entries that lead to it. */

export const BY_TIME = 't'
export const BY_STATUS = 's'
export const BY_TAG = 'g'
export const BY_PARENT = 'p'

export const RUN_INDEXES: Indexing = {
  tag: TAGS.run,
  kinds: BY_TIME + BY_STATUS + BY_TAG + BY_PARENT,
  keysOf: record => indexKeysOf(recordIn(record).head),
}

/** Where the record of a run is stored. */
export function runPlace(index: ByteString, runId: string): Place {
  return { scope: index, tag: TAGS.run, key: recordKey(utf8(runId)) }
}

/** A run as it is stored. The metadata stays encoded: it may have megabytes, and only its reader needs it decoded. */
export interface RunRecord {
  readonly head: RunHead
  readonly metadata: ByteString
}

/** The record of a run, read without decoding the metadata. */
export function recordIn({ value }: Pick<Entry, 'value'>): RunRecord {
  const { text, bytes } = partsOf(value)
  const { from, to } = metadataIn(text)
  const head = decodeValue<RunHead>(text.slice(0, from - METADATA.length) + text.slice(to))
  // Only the metadata can have bytes.
  return { head, metadata: attach(text.slice(from, to), bytes) }
}

/** The bytes of a record. Its fields are in the order of their names, so that the metadata can be found. */
export function recordBytes({ head, metadata }: RunRecord, bytesMax?: number): ByteString {
  return joinSorted({ ...encodeFields({ ...head }), metadata }, bytesMax)
}

/** The whole run; large metadata are decoded in slices. */
export function runOf<M = Value>({ value }: Pick<Entry, 'value'>): Run<M> | Promise<Run<M>> {
  return decodeStored<Run<M>>(value)
}

const METADATA = ',"metadata":'
const PARENT = ',"parentRun":"'
const RUN_ID = ',"runId":"'
/** More than an id takes in JSON. */
const PARENT_BYTES_MAX = 4096

/**
 * Finds the metadata in a record's text without parsing them. Members are in the order of their names: `createdAt` stands before
 * `metadata`, and `parentRun` (if any) and `runId` stand directly behind. In JSON, no string holds a quote without a
 * backslash before it, so `,"name":` never occurs inside of a string.
 */
function metadataIn(text: ByteString): { readonly from: number; readonly to: number } {
  const start = text.indexOf(METADATA)
  const runId = text.lastIndexOf(RUN_ID)
  if (start < 0 || runId < start) {
    throw new AnnalsError('CORRUPT', "a stored run can't be read", { reason: 'not the record of a run' })
  }
  const from = start + METADATA.length
  // A string directly before `runId` is the parent's id, unless the metadata themselves are a string.
  const end = text[runId - 1] === '"' ? Math.max(from, runId - PARENT_BYTES_MAX) : runId
  const parent = text.slice(end, runId).lastIndexOf(PARENT)
  return { from, to: parent < 0 ? runId : end + parent }
}

/** The writes that turn one state of a run into another: its record, and the index entries that differ. */
export function runOperations(
  index: ByteString,
  before: RunHead | undefined,
  after: RunRecord | undefined,
): (Put | Delete)[] {
  const place = (key: ByteString): Place => ({ scope: index, tag: TAGS.run, key })
  const record = runPlace(index, ((after?.head ?? before) as RunHead).runId)
  const old = before === undefined ? [] : indexKeysOf(before)
  const now = after === undefined ? [] : indexKeysOf(after.head)
  const gone = old.filter(key => !now.includes(key))
  const come = now.filter(key => !old.includes(key))
  return [
    after === undefined ? { op: 'delete', ...record } : { op: 'put', ...record, value: recordBytes(after) },
    ...gone.map((key): Delete => ({ op: 'delete', ...place(key) })),
    ...come.map((key): Put => ({ op: 'put', ...place(key), value: '' })),
  ]
}

function indexKeysOf({ runId, createdAt, status, tags, parentRun }: RunHead): ByteString[] {
  const key = (kind: string, component: string): ByteString =>
    indexKey(kind, utf8(component), createdAt, utf8(runId))
  const keys = [key(BY_TIME, ''), key(BY_STATUS, status), ...tags.map(tag => key(BY_TAG, tag))]
  return parentRun === undefined ? keys : [...keys, key(BY_PARENT, parentRun)]
}

/** Throws `RUN_NOT_FOUND` without an entry. */
export function existing(runId: string, entry: Entry | undefined): Entry {
  if (entry !== undefined) return entry
  throw notFound(runId)
}

export function notFound(runId: string): AnnalsError {
  return new AnnalsError('RUN_NOT_FOUND', `there is no run ${JSON.stringify(runId)}`, { runId })
}
