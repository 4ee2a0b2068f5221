import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFlag, checkFunction, checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import type { Given } from '../core/storable.ts'
import { decodeStored, encodeGiven, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { getMany } from '../engine/many-gets.ts'
import { pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import type { Delete, Entry, Place, Put } from '../engine/storage.ts'
import { boundForm } from './bound.ts'
import { checkKey, type ListOptions, rangeOf } from './key-range.ts'
import { type KeyChange, type WatchOptions, watchKeys } from './watching.ts'

const TAG = TAGS.kv
/** The most keys that one call of `getMany` or `write` takes, and that `clear` deletes in one commit. */
const KEYS_MAX = 10_000

/** Options of a put in `write`. */
export interface LifetimeOptions {
  /** The lifetime in milliseconds, a positive integer. After it, the key reads as absent. Unlimited by default. */
  readonly ttlMs?: number
}

/** Options of `put`. */
export interface PutOptions extends LifetimeOptions {
  /** Refuses the put with `VERSION_MISMATCH` if the key exists. */
  readonly ifAbsent?: boolean
  /** Refuses the put with `VERSION_MISMATCH` unless the key has this version (see `getVersioned`). Excludes `ifAbsent`. */
  readonly ifVersion?: number
}

/** A value with the version and time of its last change. */
export interface VersionedValue<T = Value> {
  /** The stored value. */
  readonly value: T
  /** Grows with every change of the key. 0 for a value that the same transaction has put, which has no version yet. */
  readonly version: number
  /** When the key was last written, in milliseconds since 1970. For an own put of a transaction, when that began. */
  readonly updatedAt: number
}

/** A key with its value. */
export type KeyValue<T = Value> = readonly [key: string, value: T]

/** One change of `write`. */
export type KeyWrite<T = unknown> =
  | ({
      /** Identifies a put. */
      readonly op: 'put'
      /** The key to write. */
      readonly key: string
      /** The value to write. */
      readonly value: T
    } & LifetimeOptions)
  | {
      /** Identifies a delete. */
      readonly op: 'delete'
      /** The key to delete. */
      readonly key: string
    }

/**
 * Key-value storage, for example for working memory, settings and results of tools. `S` holds the parameters that come before
 * the others: a scope, or nothing if the scope is bound. `V` is the type of the values.
 */
export interface KvCalls<S extends readonly unknown[], V = Value> {
  /**
   * Returns the value, or undefined if the key is absent or has expired.
   * @example
   * await db.kv.put(run, 'config/model', 'small')
   * await db.kv.get(run, 'config/model') // → 'small'
   * await db.kv.get(run, 'nothing') // → undefined
   */
  get<T = V>(...args: [...S, key: string]): Promise<T | undefined>

  /**
   * Returns the value with the version and time of the commit that wrote it, or undefined if the key is absent.
   * @example
   * await db.kv.put(run, 'config/model', 'small')
   * const { value, version, updatedAt } = await db.kv.getVersioned(run, 'config/model')
   * value // → 'small'
   * version > 0 // → true
   */
  getVersioned<T = V>(...args: [...S, key: string]): Promise<VersionedValue<T> | undefined>

  /**
   * Returns the values of up to 10,000 keys, in the order of the keys; undefined for a key that is absent.
   * @example
   * await db.kv.put(run, 'a', 1)
   * await db.kv.getMany(run, ['b', 'a']) // → [undefined, 1]
   */
  getMany<T = V>(...args: [...S, keys: readonly string[]]): Promise<readonly (T | undefined)[]>

  /**
   * Writes the value and returns the key's new version (in a transaction 0, because the version is assigned at commit). Without
   * a condition it never conflicts with other writes. A value of more than 128 KiB is encoded in slices, so do not change it
   * before the promise settles.
   * @example
   * await db.kv.put(run, 'scratch', { step: 1n, notes: new Uint8Array([1, 2]) })
   * await db.kv.put(run, 'session', 'token', { ttlMs: 60_000 })
   * const version = await db.kv.put(run, 'lock', 'mine', { ifAbsent: true })
   * await db.kv.put(run, 'lock', 'still mine', { ifVersion: version })
   * await db.kv.get(run, 'lock') // → 'still mine'
   */
  put<T>(...args: [...S, key: string, value: Given<V, T>, options?: PutOptions]): Promise<number>

  /**
   * Puts and deletes up to 10,000 keys in one commit, in the given order. It reads nothing, so it never conflicts.
   * @example
   * await db.kv.write(run, [
   *   { op: 'put', key: 'a', value: 1 },
   *   { op: 'put', key: 'b', value: 2, ttlMs: 60_000 },
   *   { op: 'delete', key: 'c' },
   * ])
   * await db.kv.list(run) // → ['a', 'b']
   */
  write<T>(...args: [...S, operations: readonly KeyWrite<Given<V, T>>[]]): Promise<void>

  /**
   * Deletes the key, and returns whether it existed. In a transaction, it returns whether the key existed when the
   * transaction began. That is not a read: other changes of the key cause no conflict.
   * @example
   * await db.kv.put(run, 'a', 1)
   * await db.kv.delete(run, 'a') // → true
   * await db.kv.delete(run, 'a') // → false
   */
  delete(...args: [...S, key: string]): Promise<boolean>

  /**
   * Returns whether the key exists and has not expired.
   * @example
   * await db.kv.exists(run, 'a') // → false
   */
  exists(...args: [...S, key: string]): Promise<boolean>

  /**
   * Returns the keys, in byte order of their UTF-8.
   * @example
   * for (const key of ['config/b', 'config/a', 'other']) await db.kv.put(run, key, 1)
   * await db.kv.list(run, { prefix: 'config/' }) // → ['config/a', 'config/b']
   * await db.kv.list(run, { after: 'config/a', limit: 1 }) // → ['config/b']
   * await db.kv.list(run, { lt: 'other', reverse: true, limit: 1 }) // → ['config/b']
   */
  list(...args: [...S, options?: ListOptions]): Promise<readonly string[]>

  /**
   * Returns keys and values, in byte order of the keys' UTF-8.
   * @example
   * await db.kv.put(run, 'b', 2)
   * await db.kv.put(run, 'a', 1)
   * await db.kv.entries(run) // → [['a', 1], ['b', 2]]
   * await db.kv.entries(run, { gt: 'a' }) // → [['b', 2]]
   */
  entries<T = V>(...args: [...S, options?: ListOptions]): Promise<readonly KeyValue<T>[]>

  /**
   * Iterates over keys and values, reading a page at a time. Each page shows the newest state; in a transaction, all pages show
   * the transaction's state.
   * @example
   * for (const key of ['a', 'b', 'c']) await db.kv.put(run, key, 1)
   * const keys = []
   * for await (const [key] of db.kv.iterate(run, { reverse: true })) keys.push(key)
   * keys // → ['c', 'b', 'a']
   */
  iterate<T = V>(...args: [...S, options?: ListOptions]): AsyncGenerator<KeyValue<T>, void, void>

  /**
   * Returns the same calls, with values of type `T`.
   * @example
   * // In TypeScript: const jobs = db.kv.of<Job>()
   * const jobs = db.kv.of()
   * await jobs.put(run, 'job/1', { status: 'ready' })
   * const job = await jobs.get(run, 'job/1')
   * job.status // → 'ready'
   */
  of<T>(): KvCalls<S, T>
}

/** The calls of `KvCalls`, and those that no transaction has. */
export interface LiveKvCalls<S extends readonly unknown[], V = Value> extends KvCalls<S, V> {
  /**
   * Runs several operations on one scope as one transaction. After a conflict, `work` runs again.
   * @example
   * await db.kv.put(run, 'balance', 100)
   * await db.kv.transaction(run, async kv => {
   *   await kv.put('balance', (await kv.get('balance')) + 50)
   *   await kv.put('changed', true)
   * })
   * await db.kv.get(run, 'balance') // → 150
   */
  transaction<R>(...args: [...S, work: (kv: KvCalls<[], V>) => Promise<R> | R]): Promise<R>

  /**
   * Iterates over all keys with a prefix, and then over their changes. It delivers the newest value of each key at least once; a
   * slow reader skips older values. A key that was deleted or has expired is delivered without a value. After a change it reads
   * all watched keys again, so keep the prefix narrow. It ends when the signal aborts or `return` is called.
   * @example
   * await db.kv.put(run, 'job/1', 'ready')
   * setTimeout(() => db.kv.put(run, 'job/1', 'done'), 5)
   * const seen = []
   * for await (const { value } of db.kv.watch(run, { prefix: 'job/' })) {
   *   seen.push(value)
   *   if (value === 'done') break
   * }
   * seen // → ['ready', 'done']
   */
  watch<T = V>(...args: [...S, options?: WatchOptions]): AsyncGenerator<KeyChange<T>, void, void>

  /** Returns the same calls, with values of type `T`. */
  of<T>(): LiveKvCalls<S, T>
}

/** The keys and values of all scopes. Each call is its own transaction. */
export type Kv<V = Value> = LiveKvCalls<[scope: Scope], V>
/** The keys and values of one scope. Each call is its own transaction. */
export type RunKv<V = Value> = LiveKvCalls<[], V>
/** The keys and values of one scope in a transaction, whose reads see its own writes. */
export type ScopedKv<V = Value> = KvCalls<[], V>

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

type Decoded<T> = T | Promise<T>

function putOf(
  session: Session,
  scope: ByteString,
  key: string,
  value: unknown,
  { ttlMs }: LifetimeOptions,
): Put | Promise<Put> {
  const keyBytes = checkKey(key)
  const expiresAt = ttlMs === undefined ? 0 : expiryOf(ttlMs, session.clock())
  const made = (bytes: ByteString): Put => {
    return { op: 'put', scope, tag: TAG, key: keyBytes, expiresAt, value: bytes }
  }
  const encoded = encodeGiven(value)
  return typeof encoded === 'string' ? made(encoded) : encoded.then(made)
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

function pairOf<T>({ key, value }: Entry): Decoded<KeyValue<T>> {
  const pairWith = (decoded: Value): KeyValue<T> => Object.freeze([fromUtf8(key), decoded as T] as const)
  const decoded = decodeStored(value)
  return decoded instanceof Promise ? decoded.then(pairWith) : pairWith(decoded)
}

function checkMany(name: string, items: readonly unknown[]): void {
  if (!Array.isArray(items)) throw invalidArgument(name, 'must be an array')
  if (items.length <= KEYS_MAX) return
  throw invalidArgument(name, `has ${items.length} items, and ${KEYS_MAX} are allowed: split it`)
}

function expiryOf(ttlMs: number, clock: number): number {
  const ttlMax = Number.MAX_SAFE_INTEGER - clock
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0 && ttlMs <= ttlMax) return clock + ttlMs
  const why =
    Number.isSafeInteger(ttlMs) && ttlMs > 0 ? `can be at most ${ttlMax} now` : 'must be a positive integer'
  throw new AnnalsError('INVALID_ARGUMENT', `ttlMs ${why}`, { name: 'ttlMs', value: ttlMs, max: ttlMax })
}
