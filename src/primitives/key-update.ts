import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { invalidArgument } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import type { Given } from '../core/storable.ts'
import { decodeValue, encodeValue, type Value } from '../core/value.ts'
import type { Session } from '../engine/session.ts'
import type { BoundedRange, Delete, Entry, Put, TreeId } from '../engine/storage.ts'
import { expiryOf, type KeyValue, type LifetimeOptions } from './key-entry.ts'
import { checkKey, type ListOptions, rangeOf } from './key-range.ts'

/** A range of keys that `update` reads. */
export interface UpdateRange extends ListOptions {
  /** The most entries to read, a positive integer. All ranges of an update read at most 10,000 entries together. */
  readonly limit: number
}

/** The keys and ranges that `update` reads, and within which it may write. */
export interface UpdateReads {
  /** Single keys. */
  readonly keys?: readonly string[]
  /** Ranges of keys. */
  readonly ranges?: readonly UpdateRange[]
}

/** What `update` found, in the order in which it was asked for. */
export interface UpdateFound<T> {
  /** The values of the keys; undefined for a key that is absent. */
  readonly keys: readonly (T | undefined)[]
  /** The entries of each range. */
  readonly ranges: readonly (readonly KeyValue<T>[])[]
}

/** The changes that the function of `update` returns. */
export interface UpdateChanges<R, T> {
  /** The keys to write. Each must be one of the keys, or within the bounds of a range (whose limit does not count). */
  readonly puts?: readonly ({
    /** The key to write. */
    readonly key: string
    /** The value to write. */
    readonly value: T
  } & LifetimeOptions)[]
  /** The keys to delete, within the same bounds. */
  readonly deletes?: readonly string[]
  /** The value that `update` returns. */
  readonly result: R
}

/** The pure function of `update`. */
export type UpdateFunction<R, T> = (found: UpdateFound<T>) => UpdateChanges<R, Given<T, unknown>>

/** Runs `change` on the declared keys and ranges, and writes what it returns, in one serialized step. */
export async function updateKeys<R, T>(
  session: Session,
  tree: TreeId,
  reads: UpdateReads,
  change: UpdateFunction<R, T>,
): Promise<R> {
  checkOptions('update', reads, ['keys', 'ranges'])
  const keys = listOf('keys', reads.keys).map(key => checkKey(key))
  const ranges = listOf('ranges', reads.ranges).map(range => boundedRange(tree, range))
  checkFunction('change', change)
  const declared = new Set(keys)
  const places = keys.map(key => ({ ...tree, key }))
  const step = (found: readonly (Entry | undefined)[], inRanges: readonly (readonly Entry[])[]) => {
    const changes = checkChanges(
      change({ keys: found.map(storedValue<T>), ranges: inRanges.map(pairsOf<T>) }),
    )
    const written = new Set<ByteString>()
    const keyOf = (key: string): ByteString => {
      const bytes = checkKey(key)
      if (!declared.has(bytes) && !ranges.some(range => isWithin(range, bytes))) {
        throw invalidArgument('key', 'is neither among the declared keys nor within a declared range', key)
      }
      if (written.has(bytes)) throw invalidArgument('key', 'is written twice', key)
      written.add(bytes)
      return bytes
    }
    const puts = listOf('puts', changes.puts).map((put): Put => {
      checkOptions('a put', put, ['key', 'value', 'ttlMs'])
      const expiresAt = expiryOf(put.ttlMs, session.clock())
      return { op: 'put', ...tree, key: keyOf(put.key), value: encodeValue(put.value), expiresAt }
    })
    const deletes = listOf('deletes', changes.deletes).map(
      (key): Delete => ({ op: 'delete', ...tree, key: keyOf(key) }),
    )
    return { operations: [...puts, ...deletes], result: changes.result }
  }
  return (await session.update(places, step, { ranges })).result
}

function listOf<T>(name: string, list: readonly T[] | undefined): readonly T[] {
  if (list === undefined) return []
  if (Array.isArray(list)) return list
  throw invalidArgument(name, 'must be an array')
}

function boundedRange(tree: TreeId, options: UpdateRange): BoundedRange {
  const range = rangeOf(tree, 'a range', options)
  if (range.limit === undefined) throw invalidArgument('limit', 'must be given for each range')
  return { ...range, limit: range.limit }
}

function isWithin({ from = '', to }: BoundedRange, key: ByteString): boolean {
  return key >= from && (to === undefined || key < to)
}

function checkChanges<R, T>(changes: UpdateChanges<R, T>): UpdateChanges<R, T> {
  if (changes instanceof Promise) {
    // The caller gets the error below, so a rejection of the ignored promise must not end the process.
    changes.catch(() => undefined)
    throw invalidArgument('change', 'must return its changes, not a promise: it runs inside the commit')
  }
  checkOptions('the changes of an update', changes, ['puts', 'deletes', 'result'])
  return changes
}

function storedValue<T>(entry: Entry | undefined): T | undefined {
  return entry === undefined ? undefined : (decodeValue(entry.value) as Value as T)
}

function pairsOf<T>(entries: readonly Entry[]): readonly KeyValue<T>[] {
  return entries.map(({ key, value }) => [fromUtf8(key), decodeValue(value) as Value as T])
}
