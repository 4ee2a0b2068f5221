import type { ByteString } from './core/bytes.ts'
import { AnnalsError } from './core/errors.ts'
import { checkFunction, checkOptions } from './core/options.ts'
import { checkText } from './core/text.ts'
import { openNodeDisk } from './embedded/node-disk.ts'
import { type Durability, openEmbedded } from './embedded/open.ts'
import type { EmbeddedStore, Recovery, StorageStats } from './embedded/store.ts'
import { Database, type TransactionOptions } from './engine/database.ts'
import { resolveScope, type Scope } from './engine/keys.ts'
import type { ManualTransaction, Transaction } from './engine/transaction.ts'
import { Kv, KvTransaction } from './primitives/kv.ts'

export interface OpenOptions {
  /** The store's folder; it is made if it is missing. */
  readonly path?: string
  /** Nothing on disk: for tests, and for what may be lost. */
  readonly memory?: boolean
  /** What an answered commit survives: a power cut (`durable`, the default), or the death of the process. */
  readonly durability?: Durability
  /** Whose data this handle reaches; `default` without it. */
  readonly tenant?: string
  readonly readOnly?: boolean
  /** Reads and checks everything stored before anything is served. */
  readonly verifyOnOpen?: boolean
  /** Memory for data that could be read from disk again; 64 MiB without it. */
  readonly cacheBytes?: number
}

const OPTIONS: readonly string[] = [
  'path',
  'memory',
  'durability',
  'tenant',
  'readOnly',
  'verifyOnOpen',
  'cacheBytes',
]
const TENANT_DEFAULT = 'default'
const TENANT_BYTES_MAX = 256
/** Scopes that a handle remembers in encoded form. */
const SCOPES_MAX = 1_000

/** Opens a store: `open({ path: './data' })`, or `open({ memory: true })`. Close it when done. */
export async function open(options: OpenOptions): Promise<Annals> {
  const { path, memory, durability, readOnly, verifyOnOpen, cacheBytes } = checkOpenOptions(options)
  const disk = memory === true ? undefined : openNodeDisk(path as string, { readOnly: readOnly === true })
  const storage = await openEmbedded({ disk, durability, readOnly, verifyOnOpen, cacheBytes })
  const database = new Database(storage)
  return new Annals(storage, database, options.tenant ?? TENANT_DEFAULT)
}

/** A store as one tenant sees it. */
export class Annals implements AsyncDisposable {
  readonly kv: Kv
  readonly tenant: string
  readonly #storage: EmbeddedStore
  readonly #database: Database
  readonly #scopes = new Map<string, ByteString>()

  /** @internal Use `open`. */
  constructor(storage: EmbeddedStore, database: Database, tenant: string) {
    checkText('tenant', tenant, { bytesMax: TENANT_BYTES_MAX })
    this.tenant = tenant
    this.#storage = storage
    this.#database = database
    this.kv = new Kv(
      database,
      scope => this.#scopeOf(scope),
      () => storage.now(),
    )
  }

  /** The same store, seen as another tenant. Closing either closes both. */
  forTenant(tenant: string): Annals {
    return new Annals(this.#storage, this.#database, tenant)
  }

  /**
   * Runs `work` and commits, all or nothing, as if no other transaction ran beside it. If what it read was changed
   * meanwhile, it runs again: it must have no other effects. What it throws comes out as it is, and nothing is written.
   */
  async transaction<T>(
    scope: Scope,
    work: (tx: ScopedTransaction) => Promise<T> | T,
    options: TransactionOptions = {},
  ): Promise<T> {
    const bytes = this.#scopeOf(scope)
    checkFunction('work', work)
    checkOptions('transaction', options, ['maxRetries', 'timeoutMs', 'readOnly', 'signal'])
    const clock = (): number => this.#storage.now()
    return this.#database.transaction(tx => work(new ScopedTransaction(tx, bytes, clock)), options)
  }

  /** A transaction that you end yourself, with `commit` or `rollback`. It is not retried. */
  async begin(
    scope: Scope,
    options: Pick<TransactionOptions, 'readOnly' | 'timeoutMs'> = {},
  ): Promise<OpenTransaction> {
    const bytes = this.#scopeOf(scope)
    checkOptions('begin', options, ['timeoutMs', 'readOnly'])
    return new OpenTransaction(this.#database.begin(options), bytes, () => this.#storage.now())
  }

  /** Brings all that was committed into the data files, so that opening need not read the log for it. */
  checkpoint(): Promise<void> {
    return this.#storage.checkpoint()
  }

  /** Copies all that was committed into an empty folder, while others go on reading and writing. */
  async backup(folder: string): Promise<void> {
    this.#storage.checkBackup()
    await this.#storage.backup(openNodeDisk(folder))
  }

  stats(): StorageStats {
    return this.#storage.stats()
  }

  /** What opening had to cut off or leave aside; undefined if nothing. */
  get recovery(): Recovery | undefined {
    return this.#storage.recovery
  }

  /** Waits for what is under way. After it, every call is refused with `CLOSED`; closing twice is fine. */
  close(): Promise<void> {
    return this.#storage.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #scopeOf(scope: Scope): ByteString {
    if (typeof scope !== 'string') return resolveScope(this.tenant, scope)
    const known = this.#scopes.get(scope)
    if (known !== undefined) return known
    const bytes = resolveScope(this.tenant, scope)
    if (this.#scopes.size === SCOPES_MAX) this.#scopes.clear()
    this.#scopes.set(scope, bytes)
    return bytes
  }
}

/** The primitives in one transaction, with the scope bound. */
export class ScopedTransaction {
  readonly kv: KvTransaction

  /** @internal Use `transaction` or `begin`. */
  constructor(transaction: Transaction, scope: ByteString, clock: () => number) {
    this.kv = new KvTransaction(transaction, scope, clock)
  }
}

export class OpenTransaction extends ScopedTransaction implements AsyncDisposable {
  readonly #transaction: ManualTransaction
  #ended = false

  /** @internal Use `begin`. */
  constructor(transaction: ManualTransaction, scope: ByteString, clock: () => number) {
    super(transaction, scope, clock)
    this.#transaction = transaction
  }

  /** `CONFLICT` if what was read has changed; then nothing is written. */
  async commit(): Promise<void> {
    this.#ended = true
    await this.#transaction.commit()
  }

  async rollback(): Promise<void> {
    this.#ended = true
    await this.#transaction.rollback()
  }

  /** Rolls back what was not committed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    // It may be over by itself, by a time-out: then there is nothing to roll back.
    await this.#transaction.rollback().catch(() => undefined)
  }
}

function checkOpenOptions(options: OpenOptions): OpenOptions {
  checkOptions('open', options, OPTIONS)
  const { path, memory, durability, cacheBytes } = options
  for (const name of ['memory', 'readOnly', 'verifyOnOpen'] as const) {
    const value: unknown = options[name]
    if (value !== undefined && typeof value !== 'boolean') throw invalid(name, 'must be true or false', value)
  }
  if (memory === true && path !== undefined) throw invalid('path', 'is of no use with memory: true', path)
  if (memory !== true && path === undefined) throw invalid('path', 'is missing (or give memory: true)', path)
  if (durability !== undefined && durability !== 'durable' && durability !== 'relaxed') {
    throw invalid('durability', "must be 'durable' or 'relaxed'", durability)
  }
  if (cacheBytes !== undefined && !(Number.isSafeInteger(cacheBytes) && cacheBytes >= 0)) {
    throw invalid('cacheBytes', 'must be a whole number, 0 or more', cacheBytes)
  }
  if (options.tenant !== undefined) checkText('tenant', options.tenant, { bytesMax: TENANT_BYTES_MAX })
  return options
}

function invalid(name: string, why: string, value: unknown): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name, value })
}
