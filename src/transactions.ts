import type { ByteString } from './core/bytes.ts'
import { checkFlag, checkFunction, checkOptions, checkSignal } from './core/options.ts'
import type { BeginOptions, Database, TransactionOptions } from './engine/database.ts'
import type { Scope } from './engine/keys.ts'
import type { Session } from './engine/session.ts'
import type { ManualTransaction, Transaction } from './engine/transaction.ts'
import { type LiveEvents, liveEvents, type ScopedEvents, scopedEvents } from './primitives/event-log.ts'
import type { RunKv, ScopedKv } from './primitives/kv.ts'
import { runKv, scopedKv } from './primitives/kv-store.ts'
import type { Guard } from './primitives/machine-definition.ts'
import type { RunScopes } from './primitives/run-scopes.ts'
import { type ScopedCells, scopedCells } from './primitives/state-cell.ts'
import { type ScopedMachines, scopedMachines } from './primitives/state-machine.ts'
import { type ScopedTraces, scopedTraces } from './primitives/trace-store.ts'
import { TransactionRuns } from './primitives/transaction-runs.ts'

/** The parts of a tenant's handle that transactions need. */
export interface TenantContext {
  readonly database: Database
  readonly guards: Readonly<Record<string, Guard>>
  readonly scopes: RunScopes
  /** Throws `INVALID_ARGUMENT` for a scope of another tenant. */
  readonly scopeOf: (scope: Scope) => ByteString
}

/** The same, and one scope. */
export interface ScopeContext extends TenantContext {
  readonly scope: ByteString
}

/** The primitives of one scope within a transaction. Reads see the transaction's own writes. */
export interface ScopedCalls {
  /** The scope's keys and values. */
  readonly kv: ScopedKv
  /** The scope's event log. It cannot be tailed within a transaction. */
  readonly events: ScopedEvents
  /** The scope's cells. */
  readonly cells: ScopedCells
  /** The scope's state machines. */
  readonly machines: ScopedMachines
  /** The scope's traces. */
  readonly traces: ScopedTraces
}

/** A transaction over any number of scopes of one tenant. */
export interface TenantTransaction {
  /**
   * Returns the primitives of a scope. All scopes are committed together. Throws `INVALID_ARGUMENT` for a scope of another
   * tenant.
   */
  run(scope: Scope): ScopedCalls
  /** The run index, for creating and changing runs in the same commit. A run can't be deleted within a transaction. */
  readonly runs: TransactionRuns
}

/** A transaction with the primitives of one scope at hand. Other scopes are reached by `run`. */
export interface ScopedTransaction extends ScopedCalls, TenantTransaction {}

/** The end of a transaction that the caller ends. */
export interface TransactionEnd extends AsyncDisposable {
  /** Commits. Throws `CONFLICT` and writes nothing if data that the transaction read has changed. */
  commit(): Promise<void>
  /** Ends the transaction without writing anything. */
  rollback(): Promise<void>
  /** Rolls back unless the transaction was committed. */
  [Symbol.asyncDispose](): Promise<void>
}

/** A transaction with one scope at hand that the caller ends with `commit` or `rollback`. */
export interface OpenTransaction extends ScopedTransaction, TransactionEnd {}

/** A transaction over several scopes that the caller ends with `commit` or `rollback`. */
export interface OpenTenantTransaction extends TenantTransaction, TransactionEnd {}

/** The primitives of one scope. Each call is its own transaction. */
export class RunHandle {
  /** The scope's keys and values. */
  readonly kv: RunKv
  /** The scope's event log, which can also be tailed. */
  readonly events: LiveEvents
  /** The scope's cells. */
  readonly cells: ScopedCells
  /** The scope's state machines. */
  readonly machines: ScopedMachines
  /** The scope's traces. */
  readonly traces: ScopedTraces
  readonly #context: ScopeContext

  /** @internal Use `run`. */
  constructor(context: ScopeContext) {
    const { database, scope, guards } = context
    this.#context = context
    this.kv = runKv(database, scope)
    this.events = liveEvents(database, scope)
    this.cells = scopedCells(database, scope)
    this.machines = scopedMachines(database, scope, guards)
    this.traces = scopedTraces(database, scope)
  }

  /** Runs a transaction across the primitives. See `Annals.transaction`. */
  async transaction<T>(
    work: (tx: ScopedTransaction) => Promise<T> | T,
    options: TransactionOptions = {},
  ): Promise<T> {
    return transact(this.#context.database, scopedIn(this.#context), work, options)
  }

  /** Begins a transaction that the caller ends. See `Annals.begin`. */
  async begin(options: BeginOptions = {}): Promise<OpenTransaction> {
    return begin(this.#context.database, scopedIn(this.#context), options)
  }
}

/** Returns a function that makes the handle of a transaction over several scopes. */
export function tenantIn({
  guards,
  scopes,
  scopeOf,
}: TenantContext): (session: Session) => TenantTransaction {
  return session => ({
    run: scope => callsOf(session, scopeOf(scope), guards),
    runs: new TransactionRuns(session, scopes),
  })
}

/** Returns a function that makes the handle of a transaction with one scope at hand. */
export function scopedIn(context: ScopeContext): (session: Session) => ScopedTransaction {
  const tenant = tenantIn(context)
  return session => ({ ...callsOf(session, context.scope, context.guards), ...tenant(session) })
}

function callsOf(session: Session, scope: ByteString, guards: ScopeContext['guards']): ScopedCalls {
  return {
    kv: scopedKv(session, scope),
    events: scopedEvents(session, scope),
    cells: scopedCells(session, scope),
    machines: scopedMachines(session, scope, guards),
    traces: scopedTraces(session, scope),
  }
}

/** Runs `work` in a transaction with the handle that `handleOf` makes. */
export async function transact<H, T>(
  database: Database,
  handleOf: (session: Transaction) => H,
  work: (tx: H) => Promise<T> | T,
  options: TransactionOptions,
): Promise<T> {
  checkFunction('work', work)
  checkOptions('transaction', options, ['maxRetries', 'timeoutMs', 'readOnly', 'signal'])
  checkFlag('readOnly', options.readOnly)
  checkSignal(options.signal)
  return database.transaction(tx => work(handleOf(tx)), options)
}

/** Begins a transaction that the caller ends, with the handle that `handleOf` makes. */
export async function begin<H extends object>(
  database: Database,
  handleOf: (session: Transaction) => H,
  options: BeginOptions,
): Promise<H & TransactionEnd> {
  checkOptions('begin', options, ['timeoutMs', 'readOnly'])
  checkFlag('readOnly', options.readOnly)
  const transaction = database.begin(options)
  return { ...handleOf(transaction), ...endOf(transaction) }
}

function endOf(transaction: ManualTransaction): TransactionEnd {
  let ended = false
  return {
    async commit() {
      ended = true
      await transaction.commit()
    },
    async rollback() {
      ended = true
      await transaction.rollback()
    },
    async [Symbol.asyncDispose]() {
      if (ended) return
      ended = true
      // After a timeout the transaction is over, and there is nothing to roll back.
      await transaction.rollback().catch(() => undefined)
    },
  }
}

/** Tells the options of `begin` from a scope. What is neither is refused as a scope. */
export function areOptions(first: Scope | BeginOptions | undefined): first is BeginOptions {
  return typeof first === 'object' && first !== null && ('readOnly' in first || 'timeoutMs' in first)
}
