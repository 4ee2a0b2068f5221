import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { getMany } from './many-gets.ts'
import { pages } from './pages.ts'
import type { Session } from './session.ts'
import type { Entry, Range, Reader, TreeId } from './storage.ts'

/**
 * Records and their indexes in one tree. The first byte of a key tells its kind:
 *
 *   record   'r', id
 *   index    one letter, component, 00, time (8 bytes), id; no value
 *
 * An index is ordered by time, then id. Ids and components contain no byte 0,
 * so two different tuples never share a key, and no id or tag that a user chooses
 * can collide with a key of another kind. A record and its index entries are
 * written in one commit.
 */
const RECORD = 'r'

/** The indexes of a tree. */
export interface Indexing {
  /** The tag of the tree. */
  readonly tag: number
  /** The letters of the indexes. Keys with other letters are ignored. */
  readonly kinds: string
  /** Returns every index key that the record must have. */
  keysOf(record: Entry): readonly ByteString[]
}

/** The key of a record. */
export function recordKey(id: ByteString): ByteString {
  return RECORD + id
}

/** The key of an index entry. */
export function indexKey(kind: string, component: ByteString, time: number, id: ByteString): ByteString {
  return `${kind}${component}\0${u64(time)}${id}`
}

/** The range of an index with one component, from `fromTime` to before `toTime`. */
export function indexRange(
  tree: TreeId,
  kind: string,
  component: ByteString,
  fromTime = 0,
  toTime?: number,
): Range {
  const prefix = `${kind}${component}\0`
  const to = toTime === undefined ? `${kind}${component}\x01` : prefix + u64(toTime)
  return { scope: tree.scope, tag: tree.tag, from: prefix + u64(fromTime), to }
}

/** The id in an index key; undefined if the key is malformed. */
export function idOfIndexKey(key: ByteString): ByteString | undefined {
  const end = key.indexOf('\0', 1)
  const id = end < 0 ? '' : key.slice(end + 9)
  return id === '' ? undefined : id
}

/** The time in an index key. */
export function timeOfIndexKey(key: ByteString): number {
  return fromU64(key, key.indexOf('\0', 1) + 1)
}

const RECORDS_AT_ONCE = 1_024

/** Reads the records of index keys, in the order of the keys. Skips missing records, which `indexProblems` reports. */
export async function recordsOf(reader: Reader, tree: TreeId, keys: readonly ByteString[]): Promise<Entry[]> {
  const { scope, tag } = tree
  const found: Entry[] = []
  for (let start = 0; start < keys.length; start += RECORDS_AT_ONCE) {
    const places = keys.slice(start, start + RECORDS_AT_ONCE).map(key => {
      const id = idOfIndexKey(key)
      return id === undefined ? undefined : { scope, tag, key: recordKey(id) }
    })
    for (const entry of await getMany(reader, places)) if (entry !== undefined) found.push(entry)
  }
  return found
}

/** An index entry or a record that is damaged. */
export interface IndexProblem {
  /**
   * `missing`: a record lacks this index entry. `orphaned`: the entry belongs to no record. `wrong`: the entry has a value,
   * but must be empty. `unreadable`: the record is damaged or stored under the wrong key, so its index entries cannot be
   * checked and are left unchanged.
   */
  readonly problem: 'missing' | 'orphaned' | 'wrong' | 'unreadable'
  /** The key of the index entry, or of the unreadable record. */
  readonly key: ByteString
  /** The id of the record. */
  readonly id: ByteString
}

/** Compares every record with its index entries and every index entry with its record. */
export async function* indexProblems(
  reader: Reader,
  scope: ByteString,
  indexing: Indexing,
): AsyncGenerator<IndexProblem, void, void> {
  for await (const page of pages(reader, { scope, tag: indexing.tag })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      if (entry.key.startsWith(RECORD)) yield* problemsOfRecord(reader, scope, indexing, entry)
      else if (indexing.kinds.includes(entry.key[0])) {
        const id = idOfIndexKey(entry.key) ?? ''
        const record = id === '' ? undefined : await reader.get(scope, indexing.tag, recordKey(id))
        const problem = problemOf(indexing, entry.key, entry, record)
        if (problem !== undefined) yield { problem, key: entry.key, id }
      }
    }
  }
}

async function* problemsOfRecord(
  reader: Reader,
  scope: ByteString,
  indexing: Indexing,
  record: Entry,
): AsyncGenerator<IndexProblem, void, void> {
  const id = record.key.slice(RECORD.length)
  const keys = keysOf(indexing, record)
  if (keys === undefined) yield { problem: 'unreadable', key: record.key, id }
  for (const key of keys ?? []) {
    const entry = await reader.get(scope, indexing.tag, key)
    if (entry === undefined) yield { problem: 'missing', key, id }
  }
}

/** The index keys that a record must have; undefined if the record is damaged or stored under the wrong key. */
function keysOf(indexing: Indexing, record: Entry): readonly ByteString[] | undefined {
  const id = record.key.slice(RECORD.length)
  try {
    const keys = indexing.keysOf(record)
    return keys.every(key => idOfIndexKey(key) === id) ? keys : undefined
  } catch {
    return undefined
  }
}

function problemOf(
  indexing: Indexing,
  key: ByteString,
  entry: Entry | undefined,
  record: Entry | undefined,
): Exclude<IndexProblem['problem'], 'unreadable'> | undefined {
  const keys = record === undefined ? [] : keysOf(indexing, record)
  if (keys === undefined) return undefined
  const wanted = keys.includes(key)
  if (entry === undefined) return wanted ? 'missing' : undefined
  if (!wanted) return 'orphaned'
  return entry.value === '' ? undefined : 'wrong'
}

/** Repairs an index entry if it is still damaged. Returns whether it did. */
export async function mendIndex(
  session: Session,
  scope: ByteString,
  indexing: Indexing,
  { key, id }: IndexProblem,
): Promise<boolean> {
  const { tag } = indexing
  // A damaged record cannot be restored from its index entries.
  if (key.startsWith(RECORD)) return false
  const place = { scope, tag, key }
  const reads = id === '' ? [place] : [place, { scope, tag, key: recordKey(id) }]
  const { result } = await session.update(reads, ([entry, record]) => {
    const problem = problemOf(indexing, key, entry, record)
    if (problem === undefined) return { operations: [], result: false }
    const operation =
      problem === 'orphaned'
        ? ({ op: 'delete', ...place } as const)
        : ({ op: 'put', ...place, value: '' } as const)
    return { operations: [operation], result: true }
  })
  return result
}
