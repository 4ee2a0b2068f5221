import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkFunction, checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import { decodeValue, encodeValue, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import type { Entry, Range, Reader } from '../engine/storage.ts'
import type { Transaction } from '../engine/transaction.ts'

const TAG = TAGS.kv
const KEY_BYTES_MAX = 1024

export interface PutOptions {
  /** From so many milliseconds on the key reads as absent; without it, it stays. A positive integer. */
  readonly ttlMs?: number
}

export interface ListOptions {
  readonly prefix?: string
  /** A positive integer; without it everything comes. */
  readonly limit?: number
  /** Exclusive: begins behind this key. */
  readonly after?: string
}

export interface VersionedValue {
  readonly value: Value
  /** Grows with every change of the key. 0 for what the same transaction has put: it has no version yet. */
  readonly version: number
  readonly updatedAt: number
}

/** Key-value storage: working memory, settings, results of tools. Each call is a transaction of its own. */
export class Kv {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString
  readonly #clock: () => number

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString, clock: () => number) {
    this.#database = database
    this.#scopeOf = scopeOf
    this.#clock = clock
  }

  async get(scope: Scope, key: string): Promise<Value | undefined> {
    return decoded(await find(this.#database, this.#scopeOf(scope), key))
  }

  async getVersioned(scope: Scope, key: string): Promise<VersionedValue | undefined> {
    return versioned(await find(this.#database, this.#scopeOf(scope), key))
  }

  /** Writes the value, whatever was there. It can't conflict with anybody. */
  async put(scope: Scope, key: string, value: Value, options: PutOptions = {}): Promise<void> {
    const place = { scope: this.#scopeOf(scope), tag: TAG, key: checkKey(key) }
    const expiresAt = expiryOf(options, this.#clock)
    await this.#database.write([{ op: 'put', ...place, value: encodeValue(value), expiresAt }])
  }

  /** Whether the key was there. */
  async delete(scope: Scope, key: string): Promise<boolean> {
    const place = { scope: this.#scopeOf(scope), tag: TAG, key: checkKey(key) }
    const { result } = await this.#database.update([place], ([entry]) => {
      const existed = entry !== undefined
      return { operations: existed ? [{ op: 'delete', ...place }] : [], result: existed }
    })
    return result
  }

  async exists(scope: Scope, key: string): Promise<boolean> {
    return (await find(this.#database, this.#scopeOf(scope), key)) !== undefined
  }

  /** Keys in byte order of their UTF-8. */
  async list(scope: Scope, options: ListOptions = {}): Promise<string[]> {
    return list(this.#database, this.#scopeOf(scope), options)
  }

  /** Keys and values in byte order of the keys' UTF-8. */
  async entries(scope: Scope, options: ListOptions = {}): Promise<[string, Value][]> {
    return entries(this.#database, this.#scopeOf(scope), options)
  }

  /** Several operations on one scope, all or none; `work` may run several times. */
  async transaction<T>(scope: Scope, work: (kv: KvTransaction) => Promise<T> | T): Promise<T> {
    const bytes = this.#scopeOf(scope)
    checkFunction('work', work)
    return this.#database.transaction(transaction => work(new KvTransaction(transaction, bytes, this.#clock)))
  }
}

/** The same, in a transaction and with the scope bound. Reads see what the transaction has written. */
export class KvTransaction {
  readonly #transaction: Transaction
  readonly #scope: ByteString
  readonly #clock: () => number

  /** @internal Use `transaction`. */
  constructor(transaction: Transaction, scope: ByteString, clock: () => number) {
    this.#transaction = transaction
    this.#scope = scope
    this.#clock = clock
  }

  async get(key: string): Promise<Value | undefined> {
    return decoded(await find(this.#transaction, this.#scope, key))
  }

  async getVersioned(key: string): Promise<VersionedValue | undefined> {
    return versioned(await find(this.#transaction, this.#scope, key))
  }

  async put(key: string, value: Value, options: PutOptions = {}): Promise<void> {
    const expiresAt = expiryOf(options, this.#clock)
    this.#transaction.put(this.#scope, TAG, checkKey(key), encodeValue(value), expiresAt)
  }

  async delete(key: string): Promise<boolean> {
    const existed = (await find(this.#transaction, this.#scope, key)) !== undefined
    this.#transaction.delete(this.#scope, TAG, checkKey(key))
    return existed
  }

  async exists(key: string): Promise<boolean> {
    return (await find(this.#transaction, this.#scope, key)) !== undefined
  }

  async list(options: ListOptions = {}): Promise<string[]> {
    return list(this.#transaction, this.#scope, options)
  }

  async entries(options: ListOptions = {}): Promise<[string, Value][]> {
    return entries(this.#transaction, this.#scope, options)
  }
}

// What both share: over a database, or over a transaction.

function find(reader: Reader, scope: ByteString, key: string): Promise<Entry | undefined> {
  return reader.get(scope, TAG, checkKey(key))
}

async function list(reader: Reader, scope: ByteString, options: ListOptions): Promise<string[]> {
  return (await reader.scan(rangeOf(scope, options))).map(({ key }) => fromUtf8(key))
}

async function entries(reader: Reader, scope: ByteString, options: ListOptions): Promise<[string, Value][]> {
  const found = await reader.scan(rangeOf(scope, options))
  return found.map(({ key, value }) => [fromUtf8(key), decodeValue(value)])
}

function decoded(entry: Entry | undefined): Value | undefined {
  return entry === undefined ? undefined : decodeValue(entry.value)
}

function versioned(entry: Entry | undefined): VersionedValue | undefined {
  if (entry === undefined) return undefined
  return Object.freeze({
    value: decodeValue(entry.value),
    version: entry.version,
    updatedAt: entry.time,
  })
}

function checkKey(key: string): ByteString {
  return checkText('key', key, { bytesMax: KEY_BYTES_MAX })
}

function expiryOf(options: PutOptions, clock: () => number): number {
  checkOptions('put', options, ['ttlMs'])
  const { ttlMs } = options
  if (ttlMs === undefined) return 0
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0) {
    const expiresAt = clock() + ttlMs
    if (Number.isSafeInteger(expiresAt)) return expiresAt
  }
  throw new AnnalsError('INVALID_ARGUMENT', 'ttlMs must be a positive integer', {
    name: 'ttlMs',
    value: ttlMs,
  })
}

function rangeOf(scope: ByteString, options: ListOptions): Range {
  checkOptions('list', options, ['prefix', 'limit', 'after'])
  const { prefix, limit, after } = options
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit > 0)) {
    const message = 'limit must be a positive integer'
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'limit', value: limit })
  }
  const start = prefix === undefined || prefix === '' ? undefined : checkPrefix(prefix)
  const behind =
    after === undefined ? undefined : `${checkText('after', after, { bytesMax: KEY_BYTES_MAX })}\0`
  const from = start === undefined || (behind !== undefined && behind > start) ? behind : start
  return { scope, tag: TAG, from, to: start === undefined ? undefined : endOf(start), limit }
}

function checkPrefix(prefix: string): ByteString {
  return checkText('prefix', prefix, { bytesMax: KEY_BYTES_MAX })
}

/** The first key behind all that begin so: UTF-8 has no byte 0xff, so the last byte can grow by one. */
function endOf(prefix: ByteString): ByteString {
  const last = prefix.length - 1
  return prefix.slice(0, last) + String.fromCharCode(prefix.charCodeAt(last) + 1)
}
