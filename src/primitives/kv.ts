import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkLimit } from '../core/numbers.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { mapInSlices, valueBytes } from '../core/slices.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, encodeGiven, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Put, Range } from '../engine/storage.ts'

const TAG = TAGS.kv
const KEY_BYTES_MAX = 1024

/** Options of `put`. */
export interface PutOptions {
  /** The lifetime in milliseconds, a positive integer. After it, the key reads as absent. Unlimited by default. */
  readonly ttlMs?: number
}

/** Selects the keys that `list` and `entries` return. */
export interface ListOptions {
  /** Only keys that begin with this text; all keys by default. */
  readonly prefix?: string
  /** The most items to return, a positive integer; unlimited by default. */
  readonly limit?: number
  /** The last key of the page before. The result starts after it. */
  readonly after?: string
}

/** A value with the version and time of its last change. */
export interface VersionedValue {
  /** The stored value. */
  readonly value: Value
  /** Grows with every change of the key. 0 for a value that the same transaction has put, which has no version yet. */
  readonly version: number
  /** When the key was last written, in milliseconds since 1970. For an own put of a transaction, when that began. */
  readonly updatedAt: number
}

/** Key-value storage, for example for working memory, settings and results of tools. Each call is its own transaction. */
export class Kv {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
  }

  /**
   * Returns the value, or undefined if the key is absent.
   * @example
   * await db.kv.put(run, 'config/model', 'small')
   * await db.kv.get(run, 'config/model') // → 'small'
   * await db.kv.get(run, 'nothing') // → undefined
   */
  async get(scope: Scope, key: string): Promise<Value | undefined> {
    return decoded(await this.#database.get(this.#scopeOf(scope), TAG, checkKey(key)))
  }

  /**
   * Returns the value with the version and time of the commit that wrote it.
   * @example
   * await db.kv.put(run, 'config/model', 'small')
   * const { value, version, updatedAt } = await db.kv.getVersioned(run, 'config/model')
   * value // → 'small'
   * version > 0 // → true
   */
  async getVersioned(scope: Scope, key: string): Promise<VersionedValue | undefined> {
    return this.#at(scope).getVersioned(key)
  }

  /**
   * Writes the value, whatever the key had before. It never conflicts with other writes. A value of more than 128 KiB is
   * encoded in slices, so do not change it before the promise settles.
   * @example
   * await db.kv.put(run, 'scratch', { step: 1n, notes: new Uint8Array([1, 2]) })
   * await db.kv.put(run, 'session', 'token', { ttlMs: 60_000 })
   * await db.kv.exists(run, 'session') // → true
   */
  async put(scope: Scope, key: string, value: Value, options: PutOptions = {}): Promise<void> {
    const put = putOf(this.#database, this.#scopeOf(scope), key, value, options)
    await this.#database.write([put instanceof Promise ? await put : put])
  }

  /**
   * Deletes the key, and returns whether it existed. In a transaction, it returns whether the key existed when the
   * transaction began. That is not a read: other changes of the key cause no conflict.
   * @example
   * await db.kv.put(run, 'a', 1)
   * await db.kv.delete(run, 'a') // → true
   * await db.kv.delete(run, 'a') // → false
   */
  async delete(scope: Scope, key: string): Promise<boolean> {
    return this.#at(scope).delete(key)
  }

  /**
   * Returns whether the key exists.
   * @example
   * await db.kv.exists(run, 'a') // → false
   */
  async exists(scope: Scope, key: string): Promise<boolean> {
    return this.#at(scope).exists(key)
  }

  /**
   * Returns the keys, in byte order of their UTF-8.
   * @example
   * for (const key of ['config/b', 'config/a', 'other']) await db.kv.put(run, key, 1)
   * await db.kv.list(run, { prefix: 'config/' }) // → ['config/a', 'config/b']
   * await db.kv.list(run, { after: 'config/a', limit: 1 }) // → ['config/b']
   */
  async list(scope: Scope, options: ListOptions = {}): Promise<readonly string[]> {
    return this.#at(scope).list(options)
  }

  /**
   * Returns keys and values, in byte order of the keys' UTF-8.
   * @example
   * await db.kv.put(run, 'b', 2)
   * await db.kv.put(run, 'a', 1)
   * await db.kv.entries(run) // → [['a', 1], ['b', 2]]
   */
  async entries(scope: Scope, options: ListOptions = {}): Promise<readonly (readonly [string, Value])[]> {
    return this.#at(scope).entries(options)
  }

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
  async transaction<T>(scope: Scope, work: (kv: ScopedKv) => Promise<T> | T): Promise<T> {
    const bytes = this.#scopeOf(scope)
    checkFunction('work', work)
    return this.#database.transaction(transaction => work(new ScopedKv(transaction, bytes)))
  }

  #at(scope: Scope): ScopedKv {
    return new ScopedKv(this.#database, this.#scopeOf(scope))
  }
}

/** The keys of one scope. In a transaction, reads see the transaction's own writes. */
export class ScopedKv {
  readonly #session: Session
  readonly #scope: ByteString

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString) {
    this.#session = session
    this.#scope = scope
  }

  /** Returns the value, or undefined if the key is absent or has expired. */
  async get(key: string): Promise<Value | undefined> {
    return decoded(await this.#find(key))
  }

  /** Returns the value with the version and time of the commit that wrote it, or undefined if the key is absent. */
  async getVersioned(key: string): Promise<VersionedValue | undefined> {
    return versioned(await this.#find(key))
  }

  /** Writes the value, whatever the key had before. */
  async put(key: string, value: Value, options: PutOptions = {}): Promise<void> {
    const put = putOf(this.#session, this.#scope, key, value, options)
    await this.#session.write([put instanceof Promise ? await put : put])
  }

  /** Deletes the key. Returns whether it existed; in a transaction, whether it existed when the transaction began. */
  async delete(key: string): Promise<boolean> {
    return this.#session.remove({ scope: this.#scope, tag: TAG, key: checkKey(key) })
  }

  /** Returns whether the key exists and has not expired. */
  async exists(key: string): Promise<boolean> {
    return (await this.#find(key)) !== undefined
  }

  /** Returns the keys, in byte order of their UTF-8. */
  async list(options: ListOptions = {}): Promise<readonly string[]> {
    const found = await this.#session.scan(rangeOf(this.#scope, options))
    return Object.freeze(await mapInSlices(found, ({ key }) => fromUtf8(key)))
  }

  /** Returns keys and values, in byte order of the keys' UTF-8. */
  async entries(options: ListOptions = {}): Promise<readonly (readonly [string, Value])[]> {
    const found = await this.#session.scan(rangeOf(this.#scope, options))
    return Object.freeze(await mapInSlices(found, pairOf, valueBytes))
  }

  #find(key: string): Promise<Entry | undefined> {
    return this.#session.get(this.#scope, TAG, checkKey(key))
  }
}

function putOf(
  session: Session,
  scope: ByteString,
  key: string,
  value: Value,
  options: PutOptions,
): Put | Promise<Put> {
  const keyBytes = checkKey(key)
  const expiresAt = expiryOf(options, session)
  const made = (bytes: ByteString): Put => {
    return { op: 'put', scope, tag: TAG, key: keyBytes, expiresAt, value: bytes }
  }
  const encoded = encodeGiven(value)
  return typeof encoded === 'string' ? made(encoded) : encoded.then(made)
}

function decoded(entry: Entry | undefined): Value | undefined | Promise<Value> {
  return entry === undefined ? undefined : decodeStored(entry.value)
}

async function versioned(entry: Entry | undefined): Promise<VersionedValue | undefined> {
  if (entry === undefined) return undefined
  const { version, time: updatedAt } = entry
  return Object.freeze({ value: await decodeStored(entry.value), version, updatedAt })
}

/** A key with its value. */
function pairOf({ key, value }: Entry): readonly [string, Value] | Promise<readonly [string, Value]> {
  const pairWith = (decoded: Value): readonly [string, Value] =>
    Object.freeze([fromUtf8(key), decoded] as const)
  const decoded = decodeStored(value)
  return decoded instanceof Promise ? decoded.then(pairWith) : pairWith(decoded)
}

function checkKey(key: string, name = 'key'): ByteString {
  return checkText(name, key, { bytesMax: KEY_BYTES_MAX })
}

function expiryOf(options: PutOptions, session: Session): number {
  checkOptions('put', options, ['ttlMs'])
  const { ttlMs } = options
  if (ttlMs === undefined) return 0
  const clock = session.clock()
  const ttlMax = Number.MAX_SAFE_INTEGER - clock
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0 && ttlMs <= ttlMax) return clock + ttlMs
  const why =
    Number.isSafeInteger(ttlMs) && ttlMs > 0 ? `can be at most ${ttlMax} now` : 'must be a positive integer'
  throw new AnnalsError('INVALID_ARGUMENT', `ttlMs ${why}`, { name: 'ttlMs', value: ttlMs, max: ttlMax })
}

function rangeOf(scope: ByteString, options: ListOptions): Range {
  checkOptions('list', options, ['prefix', 'limit', 'after'])
  const { prefix, after } = options
  const limit = checkLimit(options.limit)
  const start = prefix === undefined || prefix === '' ? undefined : checkKey(prefix, 'prefix')
  const behind = after === undefined ? undefined : `${checkKey(after, 'after')}\0`
  const from = start === undefined || (behind !== undefined && behind > start) ? behind : start
  return { scope, tag: TAG, from, to: start === undefined ? undefined : endOf(start), limit }
}

/** The first key after all keys with a prefix. UTF-8 has no byte 0xff, so the last byte can be incremented. */
function endOf(prefix: ByteString): ByteString {
  const last = prefix.length - 1
  return prefix.slice(0, last) + String.fromCharCode(prefix.charCodeAt(last) + 1)
}
