import { exportRun } from './bundle/export.ts'
import { type Bundle, type ImportReport, importRun } from './bundle/import.ts'
import { type CopyReport, copyTenant } from './copying.ts'
import type { ByteString } from './core/bytes.ts'
import { AnnalsError, invalidArgument } from './core/errors.ts'
import { checkFunction } from './core/options.ts'
import { openNodeDisk } from './disk/node-disk.ts'
import { openEmbedded } from './embedded/open.ts'
import type { EngineInfo, Recovery, StorageStats } from './engine/capabilities.ts'
import { type BeginOptions, Database, type TransactionOptions } from './engine/database.ts'
import { type Namespace, type Scope, tenantRange } from './engine/keys.ts'
import type { Storage } from './engine/storage.ts'
import { Ledger } from './ledger/ledger.ts'
import { LedgerMetrics, type LedgerStats } from './ledger/metrics.ts'
import {
  checkOpenOnOptions,
  checkOpenOptions,
  checkStorage,
  type LedgerOptions,
  type OpenOnOptions,
  type OpenOptions,
} from './open-options.ts'
import { type Events, LiveEventLog } from './primitives/event-log.ts'
import type { Kv } from './primitives/kv.ts'
import { LiveKvStore } from './primitives/kv-store.ts'
import type { Guard } from './primitives/machine-definition.ts'
import { Runs } from './primitives/run-index.ts'
import { CellStore, type Cells } from './primitives/state-cell.ts'
import { MachineStore, type Machines } from './primitives/state-machine.ts'
import { TraceStore, type Traces } from './primitives/trace-store.ts'
import { type DroppableScopes, dropScope, type ScopesOptions, scopesWithoutRun } from './scopes.ts'
import { TelemetryStore } from './telemetry/telemetry-store.ts'
import { TenantScopes } from './tenant-scopes.ts'
import {
  areOptions,
  begin,
  type OpenTenantTransaction,
  type OpenTransaction,
  RunHandle,
  type ScopeContext,
  type ScopedTransaction,
  scopedIn,
  type TenantContext,
  type TenantTransaction,
  tenantIn,
  transact,
} from './transactions.ts'
import {
  allScopes,
  allTenants,
  type IndexReport,
  oneScope,
  rebuildIndices,
  verifyChains,
  verifyIndices,
} from './upkeep.ts'

/** Figures for monitoring: those that the engine has, and those of the ledger. */
export interface Stats extends Partial<StorageStats> {
  /** How far the time of the newest commit is ahead of the clock; above 0 only if the clock is or was wrong. */
  readonly aheadOfClockMs: number
  /** The figures of this tenant's ledger and projector since opening. */
  readonly ledger: LedgerStats
}

const TENANT_DEFAULT = 'default'

/**
 * Opens a store in a folder or in memory. Close it when done.
 * @example
 * const store = await open({ memory: true })
 * await store.kv.put('run-1', 'greeting', 'hello')
 * await store.kv.get('run-1', 'greeting') // → 'hello'
 * await store.close()
 */
export async function open(options: OpenOptions): Promise<Annals> {
  const { path, memory, durability, readOnly, verifyOnOpen = false, cacheBytes } = checkOpenOptions(options)
  const disk = memory === true ? undefined : openNodeDisk(path as string, { readOnly: readOnly === true })
  const storage = await openEmbedded({ disk, durability, readOnly, verifyOnOpen, cacheBytes })
  const { tenant = TENANT_DEFAULT, guards = {}, ledger = {} } = options
  return openOn(storage, { tenant, verifyOnOpen, guards, ledger })
}

/**
 * Opens a store on your own engine, which must implement `Storage` and pass `testStorage` of `annals/testing`. The handle owns
 * the engine from then on: it closes the engine when the handle is closed, and when opening fails.
 * @example
 * const store = await openOn(new ReferenceStorage(), { tenant: 'acme' })
 * await store.kv.put('run-1', 'greeting', 'hello')
 * await store.kv.get('run-1', 'greeting') // → 'hello'
 * await store.close()
 */
export async function openOn(storage: Storage, options: OpenOnOptions = {}): Promise<Annals> {
  try {
    checkStorage(storage)
    const { guards = {}, tenant = TENANT_DEFAULT, ledger = {}, verifyOnOpen } = checkOpenOnOptions(options)
    const database = new Database(storage)
    if (verifyOnOpen === true) await verifyChains(database)
    const annals = new Annals({ storage, database, guards: { ...guards }, ledger: { ...ledger } }, tenant)
    // Projects the events that an earlier process appended but did not project before it died.
    annals.ledger.start()
    return annals
  } catch (error) {
    await closeAfterFailure(storage)
    throw error
  }
}

async function closeAfterFailure(storage: Partial<Storage> | undefined): Promise<void> {
  try {
    await storage?.close?.()
  } catch {
    // The caller gets the reason why opening failed, which usually is why closing failed too.
  }
}

/** The parts that the handles of all tenants share. */
interface Store {
  readonly storage: Storage
  readonly database: Database
  readonly guards: Readonly<Record<string, Guard>>
  readonly ledger?: LedgerOptions
}

const UNNAMED_ENGINE: EngineInfo = { kind: 'other', durability: 'durable' }

/** The parts that all handles of one tenant share, so that the tenant has one projector and one cache. */
interface TenantParts {
  readonly ledger: Ledger
  readonly telemetry: TelemetryStore
}

/** A handle of a store for one tenant. */
export class Annals implements AsyncDisposable {
  /** Values under keys, per scope. */
  readonly kv: Kv
  /** Append-only, hash-chained event logs, one per scope. */
  readonly events: Events
  /** Versioned values that change by compare-and-set. */
  readonly cells: Cells
  /** State machines with stored definitions. */
  readonly machines: Machines
  /** Traces of an agent's thoughts, decisions and calls. */
  readonly traces: Traces
  /** The index of the tenant's runs: their status, tags, parents and deletion. */
  readonly runs: Runs
  /** Run events with idempotent appends, leases, snapshots and alerts. */
  readonly ledger: Ledger
  /** @internal The records of the telemetry service for this tenant. */
  readonly telemetry: TelemetryStore
  /** @internal The kind of the engine and its durability. */
  readonly engine: EngineInfo
  /** The tenant whose data this handle reaches. */
  readonly tenant: string
  readonly #store: Store
  readonly #tenants: Map<string, TenantParts>
  readonly #scopes: TenantScopes

  /** @internal Use `open`. */
  constructor(store: Store, tenant: string, tenants: Map<string, TenantParts> = new Map()) {
    this.#scopes = new TenantScopes(tenant)
    this.tenant = tenant
    this.engine = store.storage.engine ?? UNNAMED_ENGINE
    this.#store = store
    this.#tenants = tenants
    const { database, guards } = store
    const scopeOf = (scope: Scope): ByteString => this.#scopes.of(scope)
    this.kv = new LiveKvStore(database, scopeOf)
    this.events = new LiveEventLog(database, scopeOf)
    this.cells = new CellStore(database, scopeOf)
    this.machines = new MachineStore(database, scopeOf, guards)
    this.traces = new TraceStore(database, scopeOf)
    this.runs = new Runs(database, this.#scopes.runs)
    const known = tenants.get(tenant) ?? this.#tenantParts()
    tenants.set(tenant, known)
    this.ledger = known.ledger
    this.telemetry = known.telemetry
  }

  /**
   * Returns a handle of the same store for another tenant. Closing either handle closes the store for both.
   * @example
   * const acme = db.forTenant('acme')
   * await acme.kv.put(run, 'secret', 42)
   * await db.kv.get(run, 'secret') // → undefined
   */
  forTenant(tenant: string): Annals {
    const annals = new Annals(this.#store, tenant, this.#tenants)
    annals.ledger.start()
    return annals
  }

  /** @internal The names of all tenants with data in the store, for maintenance of the whole store. */
  tenants(): Promise<readonly string[]> {
    return allTenants(this.#store.database)
  }

  /**
   * Returns a handle of one scope, whose calls need no scope argument.
   * @example
   * const agent = db.run('run-7')
   * await agent.kv.put('mood', 'curious')
   * await db.kv.get('run-7', 'mood') // → 'curious'
   */
  run(scope: Scope): RunHandle {
    return new RunHandle(this.#scopeContext(scope))
  }

  /**
   * Runs `work` in a serializable transaction and commits all of its writes or none. If another commit changed what it read,
   * `work` runs again, so it must have no effects outside the transaction. An error that it throws rejects the promise
   * unchanged, and nothing is written.
   * @example
   * await db.cells.init(run, 'task', 'open')
   * await db.transaction(run, async tx => {
   *   const { version } = await tx.cells.read('task')
   *   await tx.cells.cas('task', version, 'done')
   *   await tx.events.append('task_done', { by: 'worker-1' })
   *   await tx.traces.record({ type: 'Thought', content: 'that was easy', confidence: 0.9 })
   * })
   * await db.events.length(run) // → 1
   */
  transaction<T>(
    scope: Scope,
    work: (tx: ScopedTransaction) => Promise<T> | T,
    options?: TransactionOptions,
  ): Promise<T>
  /**
   * Runs `work` in a transaction over any number of scopes of this tenant. `tx.run(scope)` has the primitives of a scope, and
   * `tx.runs` creates and changes runs. Everything is in one commit.
   * @example
   * await db.transaction(async tx => {
   *   const { runId } = await tx.runs.create({ tags: ['eval'] })
   *   await tx.run(runId).events.append('started', { by: run })
   *   await tx.run(run).kv.put('child', runId)
   * })
   * const child = await db.kv.get(run, 'child')
   * await db.events.length(child) // → 1
   */
  transaction<T>(work: (tx: TenantTransaction) => Promise<T> | T, options?: TransactionOptions): Promise<T>
  async transaction<T>(
    first: Scope | ((tx: TenantTransaction) => Promise<T> | T),
    second: TransactionOptions | ((tx: ScopedTransaction) => Promise<T> | T) = {},
    third: TransactionOptions = {},
  ): Promise<T> {
    const { database } = this.#store
    if (typeof first === 'function') {
      return transact(database, tenantIn(this.#context()), first, second as TransactionOptions)
    }
    return transact(
      database,
      scopedIn(this.#scopeContext(first)),
      second as (tx: ScopedTransaction) => T,
      third,
    )
  }

  /**
   * Begins a transaction that you end with `commit` or `rollback`. It is not retried.
   * @example
   * const tx = await db.begin(run)
   * await tx.kv.put('draft', 'hello')
   * await tx.rollback()
   * await db.kv.exists(run, 'draft') // → false
   */
  begin(scope: Scope, options?: BeginOptions): Promise<OpenTransaction>
  /**
   * Begins a transaction over any number of scopes of this tenant that you end with `commit` or `rollback`.
   * @example
   * const tx = await db.begin()
   * await tx.run('a').kv.put('greeting', 'hello')
   * await tx.run('b').kv.put('greeting', 'hello')
   * await tx.commit()
   * await db.kv.get('b', 'greeting') // → 'hello'
   */
  begin(options?: BeginOptions): Promise<OpenTenantTransaction>
  async begin(
    ...args: readonly [first?: Scope | BeginOptions, options?: BeginOptions]
  ): Promise<OpenTransaction | OpenTenantTransaction> {
    const { database } = this.#store
    const [first, options = {}] = args
    if (args.length === 0) return begin(database, tenantIn(this.#context()), {})
    if (areOptions(first)) return begin(database, tenantIn(this.#context()), first)
    return begin(database, scopedIn(this.#scopeContext(first as Scope)), options)
  }

  /**
   * Compares every index entry with its record, in one scope or in all scopes of this tenant.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'hm' })
   * await db.verifyIndices() // → { ok: true, problems: [] }
   */
  async verifyIndices(scope?: Scope): Promise<IndexReport> {
    return verifyIndices(this.#store.database, this.#scopesIn(scope))
  }

  /**
   * Repairs the index entries that `verifyIndices` reports. Unreadable records cannot be repaired and stay as they are.
   * @example
   * await db.rebuildIndices(run) // → { repaired: 0 }
   */
  async rebuildIndices(scope?: Scope): Promise<{ readonly repaired: number }> {
    return rebuildIndices(this.#store.database, this.#scopesIn(scope))
  }

  /**
   * Lists the scopes that hold data but have no run in the index, in byte order: scopes of runs that were never created, and
   * shared scopes of an agent or app. The tenant's shared scope is left out, because it holds the index of the runs.
   * @example
   * await db.kv.put('scratch-1', 'draft', 'hello')
   * const [scope] = await db.scopes({ prefix: 'scratch-' })
   * scope.run // → 'scratch-1'
   */
  async scopes(options: ScopesOptions = {}): Promise<readonly Namespace[]> {
    const found: Namespace[] = []
    for await (const scope of this.iterateScopes(options)) found.push(scope)
    return Object.freeze(found)
  }

  /** @internal Iterates over the result of `scopes`, starting after a given scope. */
  iterateScopes(options: ScopesOptions, after?: Scope): AsyncGenerator<Namespace, void, void> {
    return scopesWithoutRun(
      this.#scopesContext(),
      options,
      after === undefined ? undefined : this.#scopes.of(after),
    )
  }

  /**
   * Deletes all data of a scope without a run permanently, in one commit. Rejects with `INVALID_OPERATION` if the scope has a
   * run, ledger records or a held lease. If the scope had an event log, a tombstone with its length and last hash remains.
   * @example
   * await db.kv.put('scratch-1', 'draft', 'hello')
   * await db.drop('scratch-1')
   * await db.kv.exists('scratch-1', 'draft') // → false
   */
  async drop(scope: Scope): Promise<void> {
    await dropScope(this.#scopesContext(), this.#scopes.of(scope))
  }

  /**
   * Writes everything committed so far to the data files, so that the next opening need not replay the log. Does nothing on an
   * engine without checkpoints, such as PostgreSQL.
   */
  async checkpoint(): Promise<void> {
    await this.#store.storage.checkpoint?.()
  }

  /**
   * Copies everything committed so far into an empty folder outside the store's own folder. Reads and writes continue. Rejects
   * with `INVALID_OPERATION` if the engine has no files.
   */
  async backup(folder: string): Promise<void> {
    const { storage } = this.#store
    if (storage.backup === undefined) {
      const message = 'this store has no files to back up: use the backup tools of its database server'
      throw new AnnalsError('INVALID_OPERATION', message)
    }
    await storage.backup(folder)
  }

  /**
   * Rejects with the reason if no write can succeed now, for example because the disk is full, a sync has failed, the folder is
   * gone or the store is read-only. Changes no data. `stats().writable` reports what is known without a check.
   * @example
   * await db.checkWritable()
   */
  async checkWritable(): Promise<void> {
    const { storage } = this.#store
    if (storage.checkWritable !== undefined) await storage.checkWritable()
    else if (storage.readOnly === true)
      throw new AnnalsError('READ_ONLY', 'the store was opened with readOnly: true')
  }

  /** Returns figures of the engine and of this tenant's ledger, without reading from disk. */
  stats(): Stats {
    const { storage } = this.#store
    return {
      ...storage.stats?.(),
      aheadOfClockMs: storage.now() - storage.clock(),
      ledger: this.ledger.stats(),
    }
  }

  /**
   * Copies all data of this tenant into another store, on any engine. The other store must hold no data of the tenant. Records,
   * hashes, sequences, cell versions and times stay the same; only the `version` of a `kv` entry changes. Writes made during the
   * copy are not copied.
   * @example
   * await db.events.append(run, 'note', 'hello')
   * const other = await open({ memory: true })
   * const { events } = await db.copyTo(other)
   * events // → 1
   * await other.events.verifyChain(run) // → { isValid: true, length: 1 }
   * await other.close()
   */
  async copyTo(other: Annals): Promise<CopyReport> {
    if (!(other instanceof Annals) || other.#store === this.#store) {
      throw invalidArgument('other', 'must be the handle of another open store', undefined)
    }
    if (other.tenant !== this.tenant) {
      throw invalidArgument(
        'other',
        `must be a handle of the same tenant, ${JSON.stringify(this.tenant)}`,
        other.tenant,
      )
    }
    return copyTenant(this.#store.database, other.#store.database, this.tenant, this.#scopes.runs)
  }

  /**
   * Exports a run as a bundle: its index entry, its event log, its ledger records with every hash, and its snapshot.
   * `verifyBundle` verifies a bundle without a database. The run is read as the bundle is consumed.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const { isValid, records } = await verifyBundle(db.exportRun(run))
   * isValid // → true
   * records // → 1
   */
  async *exportRun(runId: Scope): AsyncGenerator<Uint8Array, void, void> {
    const { database } = this.#store
    const scopes = this.#scopes.runs
    yield* exportRun({ database, tenant: this.tenant, scopes, name: scopes.named(runId) })
  }

  /**
   * Imports the run of a bundle with every record, hash and time. The bundle is read twice: it is verified completely before
   * anything is written, and a damaged one is `CORRUPT` with the line. Importing the same run again changes nothing. A
   * different run with the same id is `RUN_EXISTS`. Imported records appear in `audit`, but not in `subscribeAll`, which
   * delivers only records that were appended in this store.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const other = await open({ memory: true })
   * await other.importRun(() => db.exportRun(run)) // → { runId: 'run-1', records: 1, events: 0 }
   * await other.importRun(() => db.exportRun(run)) // → { runId: 'run-1', records: 0, events: 0 }
   * await other.close()
   */
  async importRun(bundle: Bundle): Promise<ImportReport> {
    checkFunction('bundle', bundle)
    const { database } = this.#store
    const scopes = this.#scopes.runs
    const report = await importRun({ database, tenant: this.tenant, scopes }, bundle)
    // Even if nothing was new: an earlier import may have ended after its records and before their projection.
    await this.ledger.projectIfAny(await scopes.find(database, scopes.named(report.runId)))
    return report
  }

  /** The damage that opening repaired or ignored; undefined if there was none. */
  get recovery(): Recovery | undefined {
    return this.#store.storage.recovery
  }

  /**
   * Closes the store for all tenants. Waits for pending calls, and up to 5 s until `onAlert` has received all alerts. Later calls
   * are refused with `CLOSED`. Closing twice is allowed.
   */
  async close(): Promise<void> {
    const { database, ledger } = this.#store
    if (ledger?.onAlert !== undefined) {
      await Promise.all(Array.from(this.#tenants.values(), parts => parts.ledger.teller?.close()))
    }
    await database.close()
  }

  /** Closes the store at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #tenantParts(): TenantParts {
    const { tenant } = this
    const { database, storage } = this.#store
    const metrics = new LedgerMetrics()
    const { shared, runs: scopes, telemetry } = this.#scopes
    const { validateTransitions = false, onAlert } = this.#store.ledger ?? {}
    const context = { database, tenant, shared, scopes, metrics, validateTransitions, onAlert }
    const ledger = new Ledger(context, storage.readOnly === true)
    return { ledger, telemetry: new TelemetryStore(database, telemetry) }
  }

  #scopesContext(): DroppableScopes {
    const { runs: scopes, shared, telemetry } = this.#scopes
    const reserved = [shared, telemetry]
    return { database: this.#store.database, tenant: this.tenant, scopes, reserved }
  }

  #scopesIn(scope: Scope | undefined): AsyncIterable<ByteString> {
    if (scope !== undefined) return oneScope(this.#scopes.of(scope))
    return allScopes(this.#store.database, tenantRange(this.tenant))
  }

  #context(): TenantContext {
    const { database, guards } = this.#store
    return { database, guards, scopes: this.#scopes.runs, scopeOf: scope => this.#scopes.of(scope) }
  }

  #scopeContext(scope: Scope): ScopeContext {
    return { ...this.#context(), scope: this.#scopes.of(scope) }
  }
}
