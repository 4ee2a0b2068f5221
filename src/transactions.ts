import type { ByteString } from './core/bytes.ts'
import { checkFlag, checkFunction, checkOptions, checkSignal } from './core/options.ts'
import type { BeginOptions, Database, TransactionOptions } from './engine/database.ts'
import type { Session } from './engine/session.ts'
import type { ManualTransaction } from './engine/transaction.ts'
import { type LiveEvents, liveEvents, type ScopedEvents, scopedEvents } from './primitives/event-log.ts'
import type { RunKv, ScopedKv } from './primitives/kv.ts'
import { runKv, scopedKv } from './primitives/kv-store.ts'
import type { Guard } from './primitives/machine-definition.ts'
import { type ScopedCells, scopedCells } from './primitives/state-cell.ts'
import { type ScopedMachines, scopedMachines } from './primitives/state-machine.ts'
import { type ScopedTraces, scopedTraces } from './primitives/trace-store.ts'

/** The primitives of one scope. */
export interface ScopeContext {
  readonly database: Database
  readonly scope: ByteString
  readonly guards: Readonly<Record<string, Guard>>
}

/** The primitives of one scope within a transaction. */
export class ScopedTransaction {
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

  /** @internal Use `transaction` or `begin`. */
  constructor(session: Session, { scope, guards }: ScopeContext) {
    this.kv = scopedKv(session, scope)
    this.events = scopedEvents(session, scope)
    this.cells = scopedCells(session, scope)
    this.machines = scopedMachines(session, scope, guards)
    this.traces = scopedTraces(session, scope)
  }
}

/** A transaction that the caller ends with `commit` or `rollback`. */
export class OpenTransaction extends ScopedTransaction implements AsyncDisposable {
  readonly #transaction: ManualTransaction
  #ended = false

  /** @internal Use `begin`. */
  constructor(transaction: ManualTransaction, context: ScopeContext) {
    super(transaction, context)
    this.#transaction = transaction
  }

  /** Commits. Throws `CONFLICT` and writes nothing if data that the transaction read has changed. */
  async commit(): Promise<void> {
    this.#ended = true
    await this.#transaction.commit()
  }

  /** Ends the transaction without writing anything. */
  async rollback(): Promise<void> {
    this.#ended = true
    await this.#transaction.rollback()
  }

  /** Rolls back unless the transaction was committed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    // After a timeout the transaction is over, and there is nothing to roll back.
    await this.#transaction.rollback().catch(() => undefined)
  }
}

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
    return transact(this.#context, work, options)
  }

  /** Begins a transaction that the caller ends. See `Annals.begin`. */
  async begin(options: BeginOptions = {}): Promise<OpenTransaction> {
    return begin(this.#context, options)
  }
}

export async function transact<T>(
  context: ScopeContext,
  work: (tx: ScopedTransaction) => Promise<T> | T,
  options: TransactionOptions,
): Promise<T> {
  checkFunction('work', work)
  checkOptions('transaction', options, ['maxRetries', 'timeoutMs', 'readOnly', 'signal'])
  checkFlag('readOnly', options.readOnly)
  checkSignal(options.signal)
  return context.database.transaction(tx => work(new ScopedTransaction(tx, context)), options)
}

export async function begin(context: ScopeContext, options: BeginOptions): Promise<OpenTransaction> {
  checkOptions('begin', options, ['timeoutMs', 'readOnly'])
  checkFlag('readOnly', options.readOnly)
  return new OpenTransaction(context.database.begin(options), context)
}
