import { EventEmitter } from 'node:events'
import type { Annals, KeyWrite, RunKv, Scope, Value } from 'annals'
import type { KeyvStoreAdapter, StoredData } from 'keyv'
import { checkOptions } from '../core/options.ts'

/** Options of `AnnalsKeyv`. */
export interface AnnalsKeyvOptions {
  /** The scope that holds the entries. Give the adapter a scope of its own: `clear` without a namespace deletes all its keys. */
  readonly scope: Scope
}

/** Keyv's type of the entries of `setMany`. */
export type Entries = Parameters<NonNullable<KeyvStoreAdapter['setMany']>>[0]

/** The most keys that one call of `getMany`, `write` or `update` takes. */
const KEYS_MAX = 10_000

/**
 * A storage adapter for Keyv over the key-value storage of a scope. Keyv puts the namespace in front of each key, and values
 * with a lifetime also expire in the database, so that they take no space. Keys have 1 to 1,024 bytes of UTF-8 without U+0000.
 */
export class AnnalsKeyv extends EventEmitter implements KeyvStoreAdapter {
  /** Keyv reads its options here. It offers `iterator` only for the dialects of a fixed list, of which this is one. */
  readonly opts: { dialect: string; url: string }
  /** The namespace of the Keyv instance that uses the adapter. Keyv sets it. */
  namespace: string | undefined
  readonly #kv: RunKv

  /** Uses one scope of an open database. Closing the database stays with the caller. */
  constructor(db: Pick<Annals, 'run'>, options: AnnalsKeyvOptions) {
    super()
    checkOptions('AnnalsKeyv', options, ['scope'])
    this.opts = { dialect: 'sqlite', url: '' }
    this.#kv = db.run(options.scope).kv
    // Each Keyv instance on this adapter adds a listener, and there may be many.
    this.setMaxListeners(0)
  }

  /** Returns the stored data, or undefined. A failure is also emitted as `error`, because Keyv treats it as a missing key. */
  async get<T>(key: string): Promise<StoredData<T> | undefined> {
    try {
      return await this.#kv.get<StoredData<T>>(key)
    } catch (error) {
      if (this.listenerCount('error') > 0) this.emit('error', error)
      throw error
    }
  }

  /** Returns the stored data of many keys, in their order. */
  async getMany<T>(keys: string[]): Promise<StoredData<T | undefined>[]> {
    const found: StoredData<T | undefined>[] = []
    for (const some of slices(keys)) found.push(...(await this.#kv.getMany<StoredData<T>>(some)))
    return found
  }

  /** Stores data, for `ttl` milliseconds if given. */
  async set(key: string, value: Value, ttl?: number): Promise<boolean> {
    await this.#kv.put(key, storable(value), lifetime(ttl))
    return true
  }

  /** Stores many entries, up to 10,000 in one commit. Keyv returns the result, one boolean for each entry, to its caller. */
  setMany(entries: Entries): Promise<void> {
    const stored: Promise<unknown> = this.#write(entries)
    return stored as Promise<void>
  }

  /** Deletes a key, and returns whether it existed. */
  delete(key: string): Promise<boolean> {
    return this.#kv.delete(key)
  }

  /** Deletes many keys, up to 10,000 in one commit, and returns whether one of them existed. */
  async deleteMany(keys: string[]): Promise<boolean> {
    let deleted = 0
    for (const some of slices([...new Set(keys)])) {
      deleted += await this.#kv.update({ keys: some }, ({ keys: values }) => {
        const deletes = some.filter((_, i) => values[i] !== undefined)
        return { deletes, result: deletes.length }
      })
    }
    return deleted > 0
  }

  /** Deletes all keys of the namespace; without one, all keys of the scope. */
  async clear(): Promise<void> {
    await this.#kv.clear(within(this.namespace))
  }

  /** Returns whether a key exists and has not expired. */
  has(key: string): Promise<boolean> {
    return this.#kv.exists(key)
  }

  /** Returns for each key whether it exists and has not expired. */
  async hasMany(keys: string[]): Promise<boolean[]> {
    return (await this.getMany(keys)).map(data => data !== undefined)
  }

  /** Iterates over the keys of a namespace and their data, in byte order of the keys. */
  async *iterator<T>(namespace?: string): AsyncGenerator<(string | Awaited<T> | undefined)[], void> {
    for await (const [key, data] of this.#kv.iterate<Awaited<T>>(within(namespace))) yield [key, data]
  }

  /** Does nothing: the database stays open, because other parts of the program may use it. */
  async disconnect(): Promise<void> {}

  async #write(entries: Entries): Promise<readonly boolean[]> {
    const puts = entries.map(
      ({ key, value, ttl }): KeyWrite => ({ op: 'put', key, value: storable(value), ...lifetime(ttl) }),
    )
    for (const some of slices(puts)) await this.#kv.write(some)
    return entries.map(() => true)
  }
}

/** The keys of a namespace begin with it and a colon. */
function within(namespace: string | undefined): { readonly prefix?: string } {
  return namespace === undefined || namespace === '' ? {} : { prefix: `${namespace}:` }
}

/** Keyv allows fractions of milliseconds, and infinity for a value that never expires. */
function lifetime(ttl: number | undefined): { readonly ttlMs?: number } {
  return ttl === undefined || ttl === Number.POSITIVE_INFINITY ? {} : { ttlMs: Math.ceil(ttl) }
}

/** Without serialization Keyv passes `{ value, expires: undefined }`, and Annals stores no undefined. */
function storable(data: Value): Value {
  if (typeof data !== 'object' || data === null || Array.isArray(data) || data instanceof Uint8Array)
    return data
  return Object.fromEntries(Object.entries(data).filter(([, part]) => part !== undefined))
}

function* slices<T>(items: readonly T[]): Generator<readonly T[], void, void> {
  for (let i = 0; i < items.length; i += KEYS_MAX) yield items.slice(i, i + KEYS_MAX)
}
