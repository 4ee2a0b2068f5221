import {
  type AbstractDatabaseOptions,
  AbstractIterator,
  type AbstractIteratorOptions,
  AbstractLevel,
  AbstractSnapshot,
} from 'abstract-level'
import type { Annals, KeyWrite, KvCalls, ListOptions, OpenTransaction, RunHandle, Scope } from 'annals'
import { invalidArgument } from '../core/errors.ts'
import { checkFlag } from '../core/options.ts'
import { TIMER_MAX_MS } from '../core/pause.ts'

/** Options of `AnnalsLevel`. */
export interface AnnalsLevelOptions<K = string, V = string> extends AbstractDatabaseOptions<K, V> {
  /** The scope that holds the entries. Give the level a scope of its own: `clear` deletes all its keys. */
  readonly scope: Scope
  /**
   * Whether iterators show the state of their creation, and whether `snapshot()` is supported; true by default. On PostgreSQL each
   * open iterator and snapshot then holds one of the `snapshotConnections`. Without snapshots an iterator reads the newest state,
   * page by page.
   */
  readonly snapshots?: boolean
}

/** Keys and values in the formats of abstract-level that need no conversion. */
export type Data = string | Uint8Array
type Format = 'utf8' | 'buffer' | 'view'

/** The options that abstract-level passes to the private methods. */
interface ReadOptions {
  readonly keyEncoding: Format
  readonly valueEncoding: Format
  readonly snapshot?: AbstractSnapshot
}

interface RangeOptions extends ReadOptions {
  readonly gt?: Data
  readonly gte?: Data
  readonly lt?: Data
  readonly lte?: Data
  readonly reverse: boolean
  /** -1 for all entries. */
  readonly limit: number
}

interface EntryOptions extends RangeOptions {
  readonly keys: boolean
  readonly values: boolean
}

interface BatchOperation {
  readonly type: 'put' | 'del'
  readonly key: Data
  readonly value?: Data
}

/** The calls that both the database and a transaction have. */
type Store = KvCalls<[], Data>

/** The most keys that one call of `getMany` or `write` takes. */
const KEYS_MAX = 10_000
/** An iterator's first page is short, because many iterators are closed soon. Each page is twice as long as the one before. */
const PAGE_FIRST = 16
const PAGE_MAX = 1_024
/** The target size of a page, which suits many small values as well as few large ones. */
const PAGE_BYTES = 512 * 1024

/**
 * An abstract-level database in one scope of an Annals database. Keys are arbitrary bytes: up to 1,024 ASCII characters, or half as
 * many other bytes. Values have up to 16 MiB. Closing the level leaves the Annals database open.
 */
export class AnnalsLevel<K = string, V = string> extends AbstractLevel<Data, K, V> {
  readonly #run: RunHandle
  readonly #kv: Store
  readonly #hasSnapshots: boolean
  /** Snapshots that the database is taking. Writes wait for them, so that a snapshot never shows a later write. */
  readonly #taking = new Set<Promise<unknown>>()

  /** Uses one scope of an open database, which the caller closes. */
  constructor(db: Pick<Annals, 'run'>, options: AnnalsLevelOptions<K, V>) {
    if (typeof options !== 'object' || options === null)
      throw invalidArgument('options', 'must be an object with a scope')
    const { scope, snapshots = true, ...forward } = options
    checkFlag('snapshots', snapshots)
    const encodings = { utf8: true, buffer: true, view: true }
    super(
      { encodings, has: true, implicitSnapshots: snapshots, explicitSnapshots: snapshots },
      forward as AbstractDatabaseOptions<K, V>,
    )
    this.#run = db.run(scope)
    this.#kv = this.#run.kv.of<Data>()
    this.#hasSnapshots = snapshots
  }

  /** @internal */
  async _get(key: Data, options: ReadOptions): Promise<Data | undefined> {
    const store = options.snapshot === undefined ? this.#kv : await this.#storeOf(options.snapshot)
    const value = await store.get(keyOf(key))
    return value === undefined ? undefined : inFormat(value, options.valueEncoding)
  }

  /** @internal */
  async _getMany(keys: readonly Data[], options: ReadOptions): Promise<(Data | undefined)[]> {
    const store = await this.#storeOf(options.snapshot)
    const found: (Data | undefined)[] = []
    for (const some of slices(keys.map(keyOf))) {
      for (const value of await store.getMany(some))
        found.push(value === undefined ? undefined : inFormat(value, options.valueEncoding))
    }
    return found
  }

  /** @internal */
  async _has(key: Data, options: ReadOptions): Promise<boolean> {
    return (await this.#storeOf(options.snapshot)).exists(keyOf(key))
  }

  /** @internal */
  async _hasMany(keys: readonly Data[], options: ReadOptions): Promise<boolean[]> {
    const found = await this._getMany(keys, { ...options, valueEncoding: 'utf8' })
    return found.map(value => value !== undefined)
  }

  /** @internal */
  async _put(key: Data, value: Data): Promise<void> {
    if (this.#taking.size > 0) await this.#taken()
    await this.#kv.put(keyOf(key), storable(value))
  }

  /** @internal */
  _del(key: Data): Promise<void> {
    return this._batch([{ type: 'del', key }])
  }

  /** @internal */
  async _batch(operations: readonly BatchOperation[]): Promise<void> {
    const writes = operations.map(writeOf)
    if (this.#taking.size > 0) await this.#taken()
    if (writes.length <= KEYS_MAX) return this.#kv.write(writes)
    // A batch of any length is one commit.
    await this.#run.transaction(async ({ kv }) => {
      for (const some of slices(writes)) await kv.of<Data>().write(some)
    })
  }

  /** @internal */
  async _clear(options: RangeOptions): Promise<void> {
    const { limit, snapshot } = options
    const range = { ...rangeOf(options), ...(limit < 0 ? {} : { limit }) }
    const store = await this.#storeOf(snapshot)
    if (this.#taking.size > 0) await this.#taken()
    if (store === this.#kv) {
      await this.#kv.clear(range)
      return
    }
    const keys = await store.list(range)
    for (const some of slices(keys)) await this.#kv.write(some.map(key => ({ op: 'delete', key })))
  }

  /** @internal */
  _iterator(options: EntryOptions): AnnalsIterator<K, V> {
    if (options.snapshot !== undefined)
      return new AnnalsIterator(this, options, this.#storeOf(options.snapshot))
    if (!this.#hasSnapshots) return new AnnalsIterator(this, options, this.#kv)
    const transaction = this.#take()
    return new AnnalsIterator(this, options, storeIn(transaction), transaction)
  }

  /** @internal */
  _snapshot(options: object): AbstractSnapshot {
    if (!this.#hasSnapshots) {
      const error = new Error(
        'Database does not support explicit snapshots: it was made with snapshots: false',
      )
      throw Object.assign(error, { code: 'LEVEL_NOT_SUPPORTED' })
    }
    return new AnnalsSnapshot(options, this.#run, this.#take())
  }

  /** The newest state, or that of a snapshot. */
  #storeOf(snapshot: AbstractSnapshot | undefined): Store | Promise<Store> {
    if (snapshot === undefined) return this.#kv
    if (snapshot instanceof AnnalsSnapshot && snapshot.run === this.#run) return storeIn(snapshot.transaction)
    throw invalidArgument('snapshot', 'must be a snapshot of the same database')
  }

  /** Begins a transaction for reading. It sees no write that is called after this. */
  #take(): Promise<OpenTransaction> {
    const transaction = this.#run.begin({ readOnly: true, timeoutMs: TIMER_MAX_MS })
    // The database has taken the snapshot once a read is answered.
    const taken: Promise<unknown> = storeIn(transaction)
      .then(store => store.exists(keyOf('')))
      // Reads report the error, if any.
      .catch(() => undefined)
      .then(() => this.#taking.delete(taken))
    this.#taking.add(taken)
    return transaction
  }

  async #taken(): Promise<void> {
    await Promise.all(this.#taking)
  }
}

/** Reads entries page by page. */
class AnnalsIterator<K, V> extends AbstractIterator<AnnalsLevel<K, V>, K, V> {
  readonly #options: EntryOptions
  readonly #store: Store | Promise<Store>
  readonly #transaction: Promise<OpenTransaction> | undefined
  /** The range without the parts that were read; undefined after its end. */
  #rest: ListOptions | undefined
  #page: Entry[] = []
  /** How many entries of the page were returned. */
  #used = 0
  #pageLength = PAGE_FIRST

  /** `transaction` is one that ends with the iterator. */
  constructor(
    level: AnnalsLevel<K, V>,
    options: EntryOptions,
    store: Store | Promise<Store>,
    transaction?: Promise<OpenTransaction>,
  ) {
    super(level, options as AbstractIteratorOptions<K, V>)
    this.#options = options
    this.#store = store
    this.#transaction = transaction
    this.#rest = rangeOf(options)
  }

  async _next(): Promise<Entry | undefined> {
    if (this.#used === this.#page.length) await this.#load(this.#pageLength, this.limit - this.count)
    return this.#page[this.#used++]
  }

  async _nextv(size: number): Promise<Entry[]> {
    const found = this.#taken(size)
    if (found.length === size) return found
    const missing = size - found.length
    await this.#load(Math.max(missing, this.#pageLength), this.limit - this.count - found.length)
    return found.length === 0 ? this.#taken(missing) : found.concat(this.#taken(missing))
  }

  async _all(): Promise<Entry[]> {
    const left = this.limit - this.count
    const found = this.#taken(left)
    await this.#load(Number.POSITIVE_INFINITY, left - found.length)
    return found.length === 0 ? this.#taken(left) : found.concat(this.#taken(left))
  }

  _seek(target: Data): void {
    const key = keyOf(target)
    this.#page = []
    this.#used = 0
    this.#pageLength = PAGE_FIRST
    this.#rest = isWithin(rangeOf(this.#options), key) ? rangeOf(this.#options, key) : undefined
  }

  async _close(): Promise<void> {
    // A transaction that failed to begin needs no end, and the reads have reported the error.
    const transaction = await this.#transaction?.catch(() => undefined)
    await transaction?.[Symbol.asyncDispose]()
  }

  /** Takes up to `count` entries from the page. */
  #taken(count: number): Entry[] {
    const page = this.#page
    const start = this.#used
    if (start === 0 && count >= page.length) {
      this.#page = []
      return page
    }
    this.#used = Math.min(start + count, page.length)
    return page.slice(start, this.#used)
  }

  /** Reads the next page: `count` entries, but at most `left`. */
  async #load(count: number, left: number): Promise<void> {
    this.#page = []
    this.#used = 0
    const limit = Math.min(count, left)
    if (this.#rest === undefined || limit <= 0) return
    const range = limit === Number.POSITIVE_INFINITY ? this.#rest : { ...this.#rest, limit }
    const { keys, values, keyEncoding, valueEncoding } = this.#options
    const store = await this.#store
    let last: string | undefined
    let bytes = 0
    if (values) {
      for (const [key, value] of await store.entries(range)) {
        this.#page.push([keys ? keyInFormat(key, keyEncoding) : undefined, inFormat(value, valueEncoding)])
        last = key
        bytes += key.length + value.length
      }
    } else {
      for (const key of await store.list(range)) {
        this.#page.push([keyInFormat(key, keyEncoding), undefined])
        last = key
      }
    }
    const { length } = this.#page
    this.#rest = last === undefined || length < limit ? undefined : { ...this.#rest, after: last }
    const fitting = Math.floor((PAGE_BYTES * length) / Math.max(1, bytes))
    this.#pageLength = Math.max(1, Math.min(this.#pageLength * 2, PAGE_MAX, fitting))
  }
}

type Entry = [key: Data | undefined, value: Data | undefined]

/** The types of abstract-level leave out the constructor's parameter. */
const SnapshotBase: new (options: object) => AbstractSnapshot = AbstractSnapshot

/** A state of a level that stays readable. */
class AnnalsSnapshot extends SnapshotBase {
  readonly run: RunHandle
  readonly transaction: Promise<OpenTransaction>

  constructor(options: object, run: RunHandle, transaction: Promise<OpenTransaction>) {
    super(options)
    this.run = run
    this.transaction = transaction
  }

  async _close(): Promise<void> {
    const transaction = await this.transaction.catch(() => undefined)
    await transaction?.[Symbol.asyncDispose]()
  }
}

async function storeIn(transaction: Promise<OpenTransaction>): Promise<Store> {
  return (await transaction).kv.of<Data>()
}

function writeOf({ type, key, value = '' }: BatchOperation): KeyWrite<Data> {
  return type === 'put'
    ? { op: 'put', key: keyOf(key), value: storable(value) }
    : { op: 'delete', key: keyOf(key) }
}

/** The range of Annals' keys, from `start` on if given. `gte` and `lte` win over `gt` and `lt`, as abstract-level demands. */
function rangeOf({ gt, gte, lt, lte, reverse }: RangeOptions, start?: string): ListOptions {
  const lower = gte !== undefined ? { gte: keyOf(gte) } : gt !== undefined ? { gt: keyOf(gt) } : {}
  const upper = lte !== undefined ? { lte: keyOf(lte) } : lt !== undefined ? { lt: keyOf(lt) } : {}
  if (start === undefined) return { reverse, ...lower, ...upper }
  return reverse ? { reverse, ...lower, lte: start } : { reverse, ...upper, gte: start }
}

function isWithin({ gt, gte, lt, lte }: ListOptions, key: string): boolean {
  if ((gt !== undefined && key <= gt) || (gte !== undefined && key < gte)) return false
  return !((lt !== undefined && key >= lt) || (lte !== undefined && key > lte))
}

/** Keys that are stored as they are. */
const PLAIN = /^[\x02-\x7f]+$/

/**
 * The key of Annals for a key of abstract-level, which is any sequence of bytes. Annals' keys are text without U+0000, in byte order
 * of their UTF-8. So each byte becomes the code point of the same number, which keeps the order and leaves ASCII as it is. The byte 0
 * becomes U+0001 U+0001, the byte 1 becomes U+0001 U+0002, and the empty key U+0001, which is below all others.
 */
function keyOf(key: Data): string {
  if (typeof key === 'string' && PLAIN.test(key)) return key
  const bytes = bufferOf(key).latin1Slice()
  if (bytes === '') return '\x01'
  return bytes.replace(/[\0\x01]/g, byte => (byte === '\0' ? '\x01\x01' : '\x01\x02'))
}

/** The key of abstract-level for a key of Annals. The inverse of `keyOf`. */
function keyInFormat(key: string, format: Format): Data {
  if (format === 'utf8' && PLAIN.test(key)) return key
  const bytes =
    key === '\x01' ? '' : key.replace(/\x01[\x01\x02]/g, pair => (pair === '\x01\x01' ? '\0' : '\x01'))
  const buffer = Buffer.from(bytes, 'latin1')
  return format === 'utf8' ? buffer.utf8Slice() : buffer
}

/** Text is stored as text, so that Annals' own tools show it, and bytes as bytes. */
function storable(value: Data): Data {
  return typeof value === 'string' ? value.toWellFormed() : value
}

/** A value can be read in another format than it was written in. */
function inFormat(value: Data, format: Format): Data {
  if (format !== 'utf8') return bufferOf(value)
  return typeof value === 'string' ? value : bufferOf(value).utf8Slice()
}

function bufferOf(data: Data): Buffer {
  return typeof data === 'string'
    ? Buffer.from(data, 'utf8')
    : Buffer.from(data.buffer, data.byteOffset, data.byteLength)
}

function* slices<T>(items: readonly T[]): Generator<readonly T[], void, void> {
  for (let i = 0; i < items.length; i += KEYS_MAX) yield items.slice(i, i + KEYS_MAX)
}
