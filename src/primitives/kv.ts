import type { Given } from '../core/storable.ts'
import type { Value } from '../core/value.ts'
import type { Scope } from '../engine/keys.ts'
import type { KeyValue, LifetimeOptions } from './key-entry.ts'
import type { ListOptions } from './key-range.ts'
import type { UpdateFunction, UpdateReads } from './key-update.ts'
import type { KeyChange, WatchOptions } from './watching.ts'

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
   * Deletes the keys of a range, and returns how many there were. Up to 10,000 keys are deleted in one commit, more in commits of
   * 10,000, in order. In a transaction all are deleted in its commit.
   * @example
   * for (const key of ['job/1', 'job/2', 'other']) await db.kv.put(run, key, 1)
   * await db.kv.clear(run, { prefix: 'job/' }) // → 2
   * await db.kv.list(run) // → ['other']
   */
  clear(...args: [...S, options?: ListOptions]): Promise<number>

  /**
   * Reads keys and ranges, and writes what `change` returns, in one serialized step. It never conflicts: of a hundred workers that
   * each claim the next entry of a queue, all get different ones. `change` must be synchronous and pure, because it may run more
   * than once. It may write only the declared keys, and keys within the bounds of the declared ranges.
   * @example
   * await db.kv.write(run, [
   *   { op: 'put', key: 'ready/1', value: 'first' },
   *   { op: 'put', key: 'ready/2', value: 'second' },
   * ])
   * const claim = () =>
   *   db.kv.update(run, { ranges: [{ prefix: 'ready/', limit: 1 }] }, ({ ranges: [[next]] }) =>
   *     next === undefined ? { result: undefined } : { deletes: [next[0]], result: next[1] },
   *   )
   * await Promise.all([claim(), claim(), claim()]) // → ['first', 'second', undefined]
   */
  update<R, T = V>(...args: [...S, reads: UpdateReads, change: UpdateFunction<R, T>]): Promise<R>

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
