import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { getMany } from './many-gets.ts'
import { pages } from './pages.ts'
import type { Session } from './session.ts'
import type { Entry, Range, Reader, TreeId } from './storage.ts'

/**
 * Records with indexes, in one tree. The first byte of a key says what it is:
 *
 *   record   'r', id
 *   index    one letter, component, 00, time (8 bytes), id; no value
 *
 * An index is ordered by time, then id. Ids and components hold no byte 0, so
 * no two different tuples share a key, and whatever a user calls things, no id
 * or tag reaches a key of another kind. Index entries are written with their
 * record, in one commit.
 */
const RECORD = 'r'

/** What indexes a tree has. */
export interface Indexing {
  readonly tag: number
  /** The letters of its indexes; other keys are none of their business. */
  readonly kinds: string
  /** Every index key that a record has to have. */
  keysOf(record: Entry): readonly ByteString[]
}

export function recordKey(id: ByteString): ByteString {
  return RECORD + id
}

export function indexKey(kind: string, component: ByteString, time: number, id: ByteString): ByteString {
  return `${kind}${component}\0${u64(time)}${id}`
}

/** All of an index under one component, between two times (half-open). */
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

/** The id in an index key, undefined if it is none. */
export function idOfIndexKey(key: ByteString): ByteString | undefined {
  const end = key.indexOf('\0', 1)
  const id = end < 0 ? '' : key.slice(end + 9)
  return id === '' ? undefined : id
}

export function timeOfIndexKey(key: ByteString): number {
  return fromU64(key, key.indexOf('\0', 1) + 1)
}

const RECORDS_AT_ONCE = 1_024

/** The records that keys of an index lead to, in their order. One without a record is left out: `indexProblems` tells. */
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

/** An index entry, or a record, that is not as it should be. */
export interface IndexProblem {
  /**
   * Missing: a record has none. Orphaned: no record wants it. Wrong: it holds something. Unreadable: the record itself, or
   * it is another's than its key says; nothing can be said about its entries, and they are left alone.
   */
  readonly problem: 'missing' | 'orphaned' | 'wrong' | 'unreadable'
  readonly key: ByteString
  /** Of the record. */
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

/** Undefined if the record is none that was stored under its key: damaged, or somebody else's. */
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

/** Mends the entry, if it still needs it; answers whether it did. */
export async function mendIndex(
  session: Session,
  scope: ByteString,
  indexing: Indexing,
  { key, id }: IndexProblem,
): Promise<boolean> {
  const { tag } = indexing
  // There is nothing to make it from again.
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
