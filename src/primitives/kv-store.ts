import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFlag, checkFunction, checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import { decodeStored, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { getMany } from '../engine/many-gets.ts'
import { pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import type { Delete, Entry, Place, Put, TreeId } from '../engine/storage.ts'
import { boundForm } from './bound.ts'
import { type Decoded, type KeyValue, pairOf, putOf, TAG } from './key-entry.ts'
import { checkKey, type ListOptions, rangeOf } from './key-range.ts'
import { type UpdateFunction, type UpdateReads, updateKeys } from './key-update.ts'
import type { KeyWrite, KvCalls, LiveKvCalls, PutOptions, RunKv, ScopedKv, VersionedValue } from './kv.ts'
import { type KeyChange, type WatchOptions, watchKeys } from './watching.ts'

/** The most keys that one call of `getMany` or `write` takes, and that `clear` deletes in one commit. */
const KEYS_MAX = 10_000

/** Implements `KvCalls`. `S` is a scope, or undefined if `scopeOf` knows it. */
export class KvStore<S> implements KvCalls<[scope: S]> {
  readonly #session: Session
  protected readonly scopeOf: (scope: S) => ByteString

  constructor(session: Session, scopeOf: (scope: S) => ByteString) {
    this.#session = session
    this.scopeOf = scopeOf
  }

  async get<T = Value>(scope: S, key: string): Promise<T | undefined> {
    const entry = await this.#session.get(this.scopeOf(scope), TAG, checkKey(key))
    return entry === undefined ? undefined : (decodeStored(entry.value) as T | Promise<T>)
  }

  async getVersioned<T = Value>(scope: S, key: string): Promise<VersionedValue<T> | undefined> {
    const entry = await this.#find(scope, key)
    if (entry === undefined) return undefined
    const { version, time: updatedAt } = entry
    return Object.freeze({ value: (await decodeStored(entry.value)) as T, version, updatedAt })
  }

  async getMany<T = Value>(scope: S, keys: readonly string[]): Promise<readonly (T | undefined)[]> {
    const bytes = this.scopeOf(scope)
    checkMany('keys', keys)
    const places = Array.from(keys, key => ({ scope: bytes, tag: TAG, key: checkKey(key) }))
    // Also without keys, so that a caller whose transaction has ended gets the error.
    const found =
      places.length === 0 ? await this.#session.view(async () => []) : await getMany(this.#session, places)
    const decode = (entry: Entry | undefined): Decoded<T | undefined> =>
      entry === undefined ? undefined : (decodeStored(entry.value) as T | Promise<T>)
    return Object.freeze(await mapInSlices(found, decode, entry => entry?.value.length ?? 0))
  }

  async put(scope: S, key: string, value: unknown, options: PutOptions = {}): Promise<number> {
    checkOptions('put', options, ['ifAbsent', 'ifVersion', 'ttlMs'])
    const given = putOf(this.#session, this.scopeOf(scope), key, value, options)
    const put = given instanceof Promise ? await given : given
    const { ifAbsent, ifVersion } = options
    if (ifAbsent === undefined && ifVersion === undefined) return (await this.#session.write([put])).version
    const condition = conditionOf(key, options)
    const { version } = await this.#session.update([put], ([entry]) => {
      condition(entry)
      return { operations: [put], result: undefined }
    })
    return version
  }

  async write(scope: S, operations: readonly KeyWrite[]): Promise<void> {
    const bytes = this.scopeOf(scope)
    checkMany('operations', operations)
    const encode = (operation: KeyWrite): Put | Delete | Promise<Put> => {
      if (operation?.op === 'put') {
        checkOptions('a put', operation, ['op', 'key', 'value', 'ttlMs'])
        return putOf(this.#session, bytes, operation.key, operation.value, operation)
      }
      if (operation?.op !== 'delete') throw invalidArgument('operations', "must have 'put' or 'delete' as op")
      checkOptions('a delete', operation, ['op', 'key'])
      return { op: 'delete', scope: bytes, tag: TAG, key: checkKey(operation.key) }
    }
    const size = (_: KeyWrite, write: Put | Delete): number => (write.op === 'put' ? write.value.length : 0)
    await this.#session.write(await mapInSlices(Array.from(operations), encode, size))
  }

  async delete(scope: S, key: string): Promise<boolean> {
    return this.#session.remove(this.#placeOf(scope, key))
  }

  async exists(scope: S, key: string): Promise<boolean> {
    return (await this.#find(scope, key)) !== undefined
  }

  async list(scope: S, options: ListOptions = {}): Promise<readonly string[]> {
    const found = await this.#session.scan(rangeOf(this.#treeOf(scope), 'list', options))
    return Object.freeze(await mapInSlices(found, ({ key }) => fromUtf8(key)))
  }

  async entries<T = Value>(scope: S, options: ListOptions = {}): Promise<readonly KeyValue<T>[]> {
    const found = await this.#session.scan(rangeOf(this.#treeOf(scope), 'entries', options))
    return Object.freeze(await mapInSlices(found, pairOf<T>, valueBytes))
  }

  async *iterate<T = Value>(scope: S, options: ListOptions = {}): AsyncGenerator<KeyValue<T>, void, void> {
    const range = rangeOf(this.#treeOf(scope), 'iterate', options)
    for await (const page of pages(this.#session, range)) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        yield pairOf<T>(entry)
      }
    }
  }

  async clear(scope: S, options: ListOptions = {}): Promise<number> {
    const range = rangeOf(this.#treeOf(scope), 'clear', options)
    let left = range.limit ?? Number.POSITIVE_INFINITY
    let cleared = 0
    while (left > 0) {
      const limit = Math.min(left, KEYS_MAX)
      const { result } = await this.#session.update([], (_, [found]) => deletion(range, found), {
        ranges: [{ ...range, limit }],
      })
      cleared += result
      if (result < limit) break
      left -= limit
    }
    return cleared
  }

  async update<R, T = Value>(scope: S, reads: UpdateReads, change: UpdateFunction<R, T>): Promise<R> {
    return updateKeys(this.#session, this.#treeOf(scope), reads, change)
  }

  of<T>(): KvCalls<[scope: S], T> {
    return this as KvCalls<[scope: S], unknown> as KvCalls<[scope: S], T>
  }

  #treeOf(scope: S): { readonly scope: ByteString; readonly tag: number } {
    return { scope: this.scopeOf(scope), tag: TAG }
  }

  #placeOf(scope: S, key: string): Place {
    return { scope: this.scopeOf(scope), tag: TAG, key: checkKey(key) }
  }

  #find(scope: S, key: string): Promise<Entry | undefined> {
    return this.#session.get(this.scopeOf(scope), TAG, checkKey(key))
  }
}

/** Implements `LiveKvCalls`. */
export class LiveKvStore<S> extends KvStore<S> implements LiveKvCalls<[scope: S]> {
  readonly #database: Database

  constructor(database: Database, scopeOf: (scope: S) => ByteString) {
    super(database, scopeOf)
    this.#database = database
  }

  async transaction<R>(scope: S, work: (kv: ScopedKv) => Promise<R> | R): Promise<R> {
    const bytes = this.scopeOf(scope)
    checkFunction('work', work)
    return this.#database.transaction(transaction => work(scopedKv(transaction, bytes)))
  }

  watch<T = Value>(scope: S, options: WatchOptions = {}): AsyncGenerator<KeyChange<T>, void, void> {
    return watchKeys(this.#database, () => ({ scope: this.scopeOf(scope), tag: TAG }), options)
  }

  override of<T>(): LiveKvCalls<[scope: S], T> {
    return this as LiveKvCalls<[scope: S], unknown> as LiveKvCalls<[scope: S], T>
  }
}

const scoped = boundForm<ScopedKv>(KvStore)
const live = boundForm<RunKv>(LiveKvStore)

/** The keys of one scope in a transaction. */
export function scopedKv(session: Session, scope: ByteString): ScopedKv {
  return scoped(new KvStore(session, () => scope))
}

/** The keys of one scope. */
export function runKv(database: Database, scope: ByteString): RunKv {
  return live(new LiveKvStore(database, () => scope))
}

/** Deletes the entries that were found, and returns how many there were. */
function deletion({ scope, tag }: TreeId, found: readonly Entry[]): { operations: Delete[]; result: number } {
  return { operations: found.map(({ key }) => ({ op: 'delete', scope, tag, key })), result: found.length }
}

/** Returns a function that throws `VERSION_MISMATCH` unless an entry fulfils the conditions of a put. */
function conditionOf(key: string, { ifAbsent, ifVersion }: PutOptions): (entry: Entry | undefined) => void {
  checkFlag('ifAbsent', ifAbsent)
  if (ifVersion !== undefined) checkWhole('ifVersion', ifVersion)
  if (ifAbsent === true && ifVersion !== undefined) {
    throw invalidArgument('ifVersion', 'and ifAbsent exclude each other: give one of them')
  }
  return entry => {
    if (ifAbsent === true && entry !== undefined)
      throw mismatch(key, `exists with version ${entry.version}`, entry)
    if (ifVersion === undefined || entry?.version === ifVersion) return
    const actual = entry === undefined ? 'is absent' : `has version ${entry.version}`
    throw mismatch(key, `${actual}, not version ${ifVersion}`, entry)
  }
}

function mismatch(key: string, why: string, entry: Entry | undefined): AnnalsError {
  return new AnnalsError('VERSION_MISMATCH', `the key ${JSON.stringify(key)} ${why}`, {
    key,
    actual: entry?.version ?? 0,
  })
}

function checkMany(name: string, items: readonly unknown[]): void {
  if (!Array.isArray(items)) throw invalidArgument(name, 'must be an array')
  if (items.length <= KEYS_MAX) return
  throw invalidArgument(name, `has ${items.length} items, and ${KEYS_MAX} are allowed: split it`)
}
