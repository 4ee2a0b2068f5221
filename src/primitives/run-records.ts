import { type ByteString, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { decodeValue, encodeRecord } from '../core/value.ts'
import { type Indexing, indexKey, recordKey } from '../engine/indexes.ts'
import { TAGS } from '../engine/keys.ts'
import type { Delete, Entry, Place, Put } from '../engine/storage.ts'
import type { Run } from './run.ts'

/** How runs are stored: a record each, and index entries that lead to it. */

export const BY_TIME = 't'
export const BY_STATUS = 's'
export const BY_TAG = 'g'
export const BY_PARENT = 'p'

export const RUN_INDEXES: Indexing = {
  tag: TAGS.run,
  kinds: BY_TIME + BY_STATUS + BY_TAG + BY_PARENT,
  keysOf: record => indexKeysOf(runOf(record)),
}

export function runPlace(index: ByteString, runId: string): Place {
  return { scope: index, tag: TAGS.run, key: recordKey(utf8(runId)) }
}

/** What turns one state of a run into another: the record, and the index entries that differ. */
export function runOperations(
  index: ByteString,
  before: Run | undefined,
  after: Run | undefined,
): (Put | Delete)[] {
  const place = (key: ByteString): Place => ({ scope: index, tag: TAGS.run, key })
  const record = runPlace(index, ((after ?? before) as Run).runId)
  const old = before === undefined ? [] : indexKeysOf(before)
  const now = after === undefined ? [] : indexKeysOf(after)
  const gone = old.filter(key => !now.includes(key))
  const come = now.filter(key => !old.includes(key))
  return [
    after === undefined
      ? { op: 'delete', ...record }
      : { op: 'put', ...record, value: encodeRecord({ ...after }) },
    ...gone.map((key): Delete => ({ op: 'delete', ...place(key) })),
    ...come.map((key): Put => ({ op: 'put', ...place(key), value: '' })),
  ]
}

function indexKeysOf({ runId, createdAt, status, tags, parentRun }: Run): ByteString[] {
  const key = (kind: string, component: string): ByteString =>
    indexKey(kind, utf8(component), createdAt, utf8(runId))
  const keys = [key(BY_TIME, ''), key(BY_STATUS, status), ...tags.map(tag => key(BY_TAG, tag))]
  return parentRun === undefined ? keys : [...keys, key(BY_PARENT, parentRun)]
}

export function runOf({ value }: Entry): Run {
  return decodeValue(value) as unknown as Run
}

/** As it will be read: frozen, with copies of what the caller gave, who may change it at any time. */
export function stored(run: Run): Run {
  return decodeValue(encodeRecord({ ...run })) as unknown as Run
}

export function existing(runId: string, entry: Entry | undefined): Entry {
  if (entry !== undefined) return entry
  throw notFound(runId)
}

export function notFound(runId: string): AnnalsError {
  return new AnnalsError('RUN_NOT_FOUND', `there is no run ${JSON.stringify(runId)}`, { runId })
}
