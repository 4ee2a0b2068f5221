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
import {
  appShared,
  type Namespace,
  resolveScope,
  type Scope,
  tenantRange,
  tenantShared,
} from './engine/keys.ts'
import type { Storage } from './engine/storage.ts'
import { Ledger } from './ledger/ledger.ts'
import { LedgerMetrics, type LedgerStats } from './ledger/metrics.ts'
import {
  checkOpenOnOptions,
  checkOpenOptions,
  type LedgerOptions,
  type OpenOnOptions,
  type OpenOptions,
} from './open-options.ts'
import { Events } from './primitives/event-log.ts'
import { Kv } from './primitives/kv.ts'
import type { Guard } from './primitives/machine-definition.ts'
import { Runs } from './primitives/run-index.ts'
import { RunScopes } from './primitives/run-scopes.ts'
import { Cells } from './primitives/state-cell.ts'
import { Machines } from './primitives/state-machine.ts'
import { Traces } from './primitives/trace-store.ts'
import { type DroppableScopes, dropScope, type ScopesOptions, scopesWithoutRun } from './scopes.ts'
import { TelemetryStore } from './telemetry/telemetry-store.ts'
import {
  begin,
  type OpenTransaction,
  RunHandle,
  type ScopeContext,
  type ScopedTransaction,
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

/** Figures for monitoring: those of the engine, as far as it has them, and those of the ledger. */
export interface Stats extends Partial<StorageStats> {
  /** How far the time of the newest commit lies ahead of the clock; above 0 only if the clock is wrong, or was. */
  readonly aheadOfClockMs: number
  /** What this tenant's ledger and projector have done since opening. */
  readonly ledger: LedgerStats
}

const TENANT_DEFAULT = 'default'
/** Under this the telemetry service has a scope of its own: its writes wait for no others. */
const TELEMETRY_APP = 'telemetry'
/** Scopes that a handle remembers in encoded form. */
const SCOPES_MAX = 1_000

/**
 * Opens a store, in a folder or in memory. Close it when done.
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
 * Opens a store on an engine of your own: anything that implements `Storage` and passes `testStorage` of `annals/testing`.
 * The handle owns the engine from then on. It closes the engine when it is closed, and when opening fails.
 * @example
 * const store = await openOn(new ReferenceStorage(), { tenant: 'acme' })
 * await store.kv.put('run-1', 'greeting', 'hello')
 * await store.kv.get('run-1', 'greeting') // → 'hello'
 * await store.close()
 */
export async function openOn(storage: Storage, options: OpenOnOptions = {}): Promise<Annals> {
  try {
    const { guards = {}, tenant = TENANT_DEFAULT, ledger = {}, verifyOnOpen } = checkOpenOnOptions(options)
    const database = new Database(storage)
    if (verifyOnOpen === true) await verifyChains(database)
    const annals = new Annals({ storage, database, guards: { ...guards }, ledger: { ...ledger } }, tenant)
    // Projects what an earlier process had appended and not projected before it died.
    annals.ledger.start()
    return annals
  } catch (error) {
    await storage.close()
    throw error
  }
}

/** What the handles of all tenants share. */
interface Store {
  readonly storage: Storage
  readonly database: Database
  readonly guards: Readonly<Record<string, Guard>>
  readonly ledger?: LedgerOptions
}

const UNNAMED_ENGINE: EngineInfo = { kind: 'other', durability: 'durable' }

/** What the handles of one tenant share: its projector, and what it remembers. */
interface TenantParts {
  readonly ledger: Ledger
  readonly telemetry: TelemetryStore
}

/** A store as one tenant sees it. */
export class Annals implements AsyncDisposable {
  /** Values under keys, per scope. */
  readonly kv: Kv
  /** Append-only, hash-chained event logs, one per scope. */
  readonly events: Events
  /** Versioned values that change by compare-and-set. */
  readonly cells: Cells
  /** State machines with stored definitions. */
  readonly machines: Machines
  /** Traces of what an agent thought, decided and called. */
  readonly traces: Traces
  /** The index of the tenant's runs: their status, tags, parents and deletion. */
  readonly runs: Runs
  /** Run events with idempotent appends, leases, snapshots and alerts. */
  readonly ledger: Ledger
  /** @internal What the telemetry service keeps of this tenant. */
  readonly telemetry: TelemetryStore
  /** @internal Of what kind the store is. */
  readonly engine: EngineInfo
  /** The tenant whose data this handle reaches. */
  readonly tenant: string
  readonly #store: Store
  readonly #tenants: Map<string, TenantParts>
  readonly #scopes = new Map<string, ByteString>()
  readonly #runScopes: RunScopes

  /** @internal Use `open`. */
  constructor(store: Store, tenant: string, tenants: Map<string, TenantParts> = new Map()) {
    const namespace = tenantShared({ tenant })
    this.tenant = tenant
    this.engine = store.storage.engine ?? UNNAMED_ENGINE
    this.#store = store
    this.#tenants = tenants
    const { database, guards } = store
    const scopeOf = (scope: Scope): ByteString => this.#scopeOf(scope)
    this.kv = new Kv(database, scopeOf)
    this.events = new Events(database, scopeOf)
    this.cells = new Cells(database, scopeOf)
    this.machines = new Machines(database, scopeOf, guards)
    this.traces = new Traces(database, scopeOf)
    const shared = scopeOf(namespace)
    this.#runScopes = new RunScopes(tenant, shared, scopeOf)
    this.runs = new Runs(database, this.#runScopes)
    const known = tenants.get(tenant) ?? this.#tenantParts(shared)
    tenants.set(tenant, known)
    this.ledger = known.ledger
    this.telemetry = known.telemetry
  }

  /**
   * The same store, seen as another tenant. Closing either closes both.
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

  /** @internal Those that have something in the store, for who looks after all of it. */
  tenants(): Promise<readonly string[]> {
    return allTenants(this.#store.database)
  }

  /**
   * A handle with the scope bound.
   * @example
   * const agent = db.run('run-7')
   * await agent.kv.put('mood', 'curious')
   * await db.kv.get('run-7', 'mood') // → 'curious'
   */
  run(scope: Scope): RunHandle {
    return new RunHandle(this.#context(scope))
  }

  /**
   * Runs `work` and commits, all or nothing, as if no other transaction ran beside it. If what it read was changed
   * meanwhile, it runs again: it must have no other effects. What it throws comes out as it is, and nothing is written.
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
  async transaction<T>(
    scope: Scope,
    work: (tx: ScopedTransaction) => Promise<T> | T,
    options: TransactionOptions = {},
  ): Promise<T> {
    return transact(this.#context(scope), work, options)
  }

  /**
   * A transaction that you end yourself, with `commit` or `rollback`. It is not retried.
   * @example
   * const tx = await db.begin(run)
   * await tx.kv.put('draft', 'hello')
   * await tx.rollback()
   * await db.kv.exists(run, 'draft') // → false
   */
  async begin(scope: Scope, options: BeginOptions = {}): Promise<OpenTransaction> {
    return begin(this.#context(scope), options)
  }

  /**
   * Compares every index entry with its record: of one scope, or of all that this handle reaches.
   * @example
   * await db.traces.record(run, { type: 'Thought', content: 'hm' })
   * await db.verifyIndices() // → { ok: true, problems: [] }
   */
  async verifyIndices(scope?: Scope): Promise<IndexReport> {
    return verifyIndices(this.#store.database, this.#scopesIn(scope))
  }

  /**
   * Mends what `verifyIndices` reports; a record that is unreadable it can't, and leaves alone.
   * @example
   * await db.rebuildIndices(run) // → { repaired: 0 }
   */
  async rebuildIndices(scope?: Scope): Promise<{ readonly repaired: number }> {
    return rebuildIndices(this.#store.database, this.#scopesIn(scope))
  }

  /**
   * The scopes that hold data but have no run, in byte order: of runs that nobody created, and those that runs of an agent or
   * app share. The scope that all runs of a tenant share is not among them: it holds their index.
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

  /** @internal What `scopes` gives, from behind one on, read as it is asked for. */
  iterateScopes(options: ScopesOptions, after?: Scope): AsyncGenerator<Namespace, void, void> {
    return scopesWithoutRun(
      this.#scopesContext(),
      options,
      after === undefined ? undefined : this.#scopeOf(after),
    )
  }

  /**
   * Removes all that a scope without a run holds, in one commit, for good. `INVALID_OPERATION` if the scope has a run,
   * ledger records, or a lease that is held. If the scope had an event log, a tombstone says how long it was.
   * @example
   * await db.kv.put('scratch-1', 'draft', 'hello')
   * await db.drop('scratch-1')
   * await db.kv.exists('scratch-1', 'draft') // → false
   */
  async drop(scope: Scope): Promise<void> {
    await dropScope(this.#scopesContext(), this.#scopeOf(scope))
  }

  /**
   * Writes everything committed so far into the data files, so that the next opening need not replay the log. Does nothing
   * on an engine without checkpoints of its own, such as PostgreSQL.
   */
  async checkpoint(): Promise<void> {
    await this.#store.storage.checkpoint?.()
  }

  /**
   * Copies everything committed so far into an empty folder outside of the store's own, while reads and writes go on.
   * `INVALID_OPERATION` if the engine has no files to copy.
   */
  async backup(folder: string): Promise<void> {
    const { storage } = this.#store
    if (storage.backup === undefined) {
      const message = 'this store has no files of its own to back up: use the means of its database server'
      throw new AnnalsError('INVALID_OPERATION', message)
    }
    await storage.backup(folder)
  }

  /**
   * Rejects with the reason if no write can succeed now: the disk is full, a sync has failed, the folder is gone, the store is
   * read-only. Changes nothing that a reader could see. `stats().writable` reports what is known without trying.
   * @example
   * await db.checkWritable()
   */
  async checkWritable(): Promise<void> {
    const { storage } = this.#store
    if (storage.checkWritable !== undefined) await storage.checkWritable()
    else if (storage.readOnly === true)
      throw new AnnalsError('READ_ONLY', 'the store was opened with readOnly: true')
  }

  /** Figures of the engine and of this tenant's ledger, from memory. */
  stats(): Stats {
    const { storage } = this.#store
    return {
      ...storage.stats?.(),
      aheadOfClockMs: storage.now() - storage.clock(),
      ledger: this.ledger.stats(),
    }
  }

  /**
   * Copies all that this handle reaches into a store that has nothing of its tenant yet, on whatever engine: a move
   * without a rewrite. Records, hashes, sequences, cell versions and times come along; only the `version` that
   * `kv` shows of an entry is that of the copy. What is written here meanwhile is not copied.
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
      throw invalidArgument('other', 'must be another store that was opened', undefined)
    }
    if (other.tenant !== this.tenant) {
      throw invalidArgument(
        'other',
        `must be a handle of the same tenant, ${JSON.stringify(this.tenant)}`,
        other.tenant,
      )
    }
    return copyTenant(this.#store.database, other.#store.database, this.tenant, this.#runScopes)
  }

  /**
   * A run as a bundle: its entry in the index, its log, its ledger records with every hash, and its snapshot, in lines
   * that prove themselves without a database (`verifyBundle`). Read as it is asked for.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const { isValid, records } = await verifyBundle(db.exportRun(run))
   * isValid // → true
   * records // → 1
   */
  async *exportRun(runId: Scope): AsyncGenerator<Uint8Array, void, void> {
    const { database } = this.#store
    const scopes = this.#runScopes
    yield* exportRun({ database, tenant: this.tenant, scopes, name: scopes.named(runId) })
  }

  /**
   * Takes in the run of a bundle, with every record, hash and time. The bundle is read twice, and verified before anything
   * is written: else `CORRUPT` with the line. The same run again changes nothing; another run of that id is `RUN_EXISTS`.
   * Imported records are in `audit`, but not in `subscribeAll`, which has what was persisted here.
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
    const scopes = this.#runScopes
    const report = await importRun({ database, tenant: this.tenant, scopes }, bundle)
    // Also if all were there: whoever imported them may have died before.
    await this.ledger.projectIfAny(await scopes.find(database, scopes.named(report.runId)))
    return report
  }

  /** What opening had to cut off or leave aside; undefined if nothing. */
  get recovery(): Recovery | undefined {
    return this.#store.storage.recovery
  }

  /**
   * Waits for what is under way, and up to 5 s for an `onAlert` that has not been told of all alerts. After it, every call is
   * refused with `CLOSED`; closing twice is fine.
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

  #tenantParts(shared: ByteString): TenantParts {
    const { tenant } = this
    const { database, storage } = this.#store
    const metrics = new LedgerMetrics()
    const scopes = this.#runScopes
    const { validateTransitions = false, onAlert } = this.#store.ledger ?? {}
    const context = { database, tenant, shared, scopes, metrics, validateTransitions, onAlert }
    const ledger = new Ledger(context, storage.readOnly === true)
    return { ledger, telemetry: new TelemetryStore(database, this.#telemetryScope()) }
  }

  #telemetryScope(): ByteString {
    return this.#scopeOf(appShared({ tenant: this.tenant, app: TELEMETRY_APP }))
  }

  #scopesContext(): DroppableScopes {
    const scopes = this.#runScopes
    const reserved = [scopes.index, this.#telemetryScope()]
    return { database: this.#store.database, tenant: this.tenant, scopes, reserved }
  }

  #scopesIn(scope: Scope | undefined): AsyncIterable<ByteString> {
    if (scope !== undefined) return oneScope(this.#scopeOf(scope))
    return allScopes(this.#store.database, tenantRange(this.tenant))
  }

  #context(scope: Scope): ScopeContext {
    const { database, guards } = this.#store
    return { database, guards, scope: this.#scopeOf(scope) }
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
