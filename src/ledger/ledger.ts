import { performance } from 'node:perf_hooks'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions, checkSignal } from '../core/options.ts'
import { mapInSlices } from '../core/slices.ts'
import { Follower } from '../engine/follower.ts'
import type { Scope } from '../engine/keys.ts'
import { type StoppableOptions, stoppable } from '../engine/stoppable.ts'
import type { RunName } from '../primitives/run-scopes.ts'
import { type AlertItem, alertNumberOf, alertPage, followAlerts } from './alert-subscriptions.ts'
import { AlertTeller } from './alert-teller.ts'
import { alertsFrom, iterateAlerts } from './alerts.ts'
import { type AuditQuery, auditRecords } from './audit.ts'
import { Authority } from './authority.ts'
import type { LedgerContext } from './context.ts'
import type { Envelope } from './envelope.ts'
import { type LedgerRegistry, StoredRegistry } from './event-id-registry.ts'
import { allRecords, firstRecords, recordPages } from './fetched-records.ts'
import { acquireLease, type LeaseOptions, releaseLease } from './lease.ts'
import {
  type AppendOptions,
  checkFetchLimit,
  epochOf,
  type FetchAllOptions,
  type FetchOptions,
  type IterateEventsOptions,
  type SubscribeAlertsOptions,
  type SubscribeAllOptions,
  type SubscribeOptions,
} from './ledger-options.ts'
import type { LedgerStats } from './metrics.ts'
import { snapshotIn } from './projected-snapshot.ts'
import { loadProjection, Projector, unprojectedRuns } from './projector.ts'
import { alertCount } from './raised-alerts.ts'
import { replayRun } from './replay.ts'
import type {
  AppendResult,
  LedgerAlert,
  RunEventRecord,
  RunEventWrite,
  RunSnapshot,
  RunStateStore,
} from './run-events.ts'
import { type FeedItem, feedPage, followAll, followRun, lastCursor } from './subscriptions.ts'
import { falseIfUnwritable } from './unwritable.ts'
import { type RunVerification, verifyRecords } from './verification.ts'

const BATCH_MAX = 10_000
const FETCH_DEFAULT = 1_000

/**
 * The ledger of run events. It stores each event once, however often it is sent,
 * in one order per run, and derives each run's state from its events. It is the
 * Append Authority of the run-event contract, and its projector.
 */
export class Ledger implements RunStateStore {
  /** The event-id registry for producers that write into this store. */
  readonly registry: LedgerRegistry
  readonly #context: LedgerContext
  readonly #authority: Authority
  readonly #projector: Projector
  /** @internal Close it before the store. */
  readonly teller: AlertTeller | undefined
  readonly #readOnly: boolean

  /** @internal Use `open`. */
  constructor(context: LedgerContext, readOnly: boolean) {
    this.#context = context
    this.#readOnly = readOnly
    const { onAlert } = context
    this.teller = readOnly || onAlert === undefined ? undefined : new AlertTeller(context, onAlert)
    this.#projector = new Projector(context, async () => this.teller?.counted())
    this.#authority = new Authority(context, this.#projector)
    this.registry = new StoredRegistry(context.database, context.scopes)
  }

  /**
   * Stores an event, or returns the record that has its key. Concurrent appends never conflict.
   * @example
   * const result = await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * result.runSeq // → 1
   * const again = await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * again.idempotent // → true
   * again.eventId // → result.eventId
   */
  async appendEvent(event: RunEventWrite, options?: AppendOptions): Promise<AppendResult> {
    const [result] = await this.#append([event], options, () => undefined)
    return result
  }

  /**
   * Stores up to 10,000 events of one run or several in one commit: all of them or none. More than 256 events, or 128 KiB,
   * are checked in slices, so don't change such events until the promise settles.
   * @example
   * const [started, step] = await db.ledger.appendEvents([
   *   newEvent({ eventType: 'RunStarted' }),
   *   newEvent({ eventType: 'StepStarted', stepId: 'fetch' }),
   * ])
   * step.runSeq // → 2
   */
  async appendEvents(
    events: readonly RunEventWrite[],
    options?: AppendOptions,
  ): Promise<readonly AppendResult[]> {
    if (!Array.isArray(events) || events.length > BATCH_MAX) {
      const message = `events must be an array of at most ${BATCH_MAX} events`
      throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'events', max: BATCH_MAX })
    }
    // A copy, because the caller may change the list. Holes become undefined, which is no event.
    const given = Array.from(events as readonly unknown[])
    return Object.freeze(await this.#append(given, options, index => index))
  }

  /** `indexOf` gives the index that an error names, for events that came in a list. */
  async #append(
    events: readonly unknown[],
    options: AppendOptions | undefined,
    indexOf: (index: number) => number | undefined,
  ): Promise<readonly AppendResult[]> {
    const since = performance.now()
    const { metrics } = this.#context
    const epoch = options === undefined ? undefined : epochOf(options)
    const accept = (event: unknown, index: number): Envelope => this.#authority.accept(event, indexOf(index))
    const accepted = mapInSlices(events, accept, (_, { bytes }) => bytes.length)
    const envelopes = accepted instanceof Promise ? await accepted : accepted
    if (envelopes.length === 0) return []
    try {
      const results = await this.#authority.append(envelopes, epoch)
      metrics.latency.add(performance.now() - since)
      this.start()
      return results
    } catch (error) {
      if (error instanceof AnnalsError && error.code === 'WRITER_FENCED') metrics.fenced++
      throw error
    }
  }

  /**
   * Returns a run's records in order: all of them, or at most `limit`. Returns an empty list for an unknown run. For a long
   * run use `iterateEvents`, which holds only a page in memory.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const [record] = await db.ledger.fetchEvents(run, { afterSeq: 0, limit: 10 })
   * record.eventType // → 'RunStarted'
   */
  async fetchEvents(runId: Scope, options: FetchOptions = {}): Promise<readonly RunEventRecord[]> {
    checkOptions('fetchEvents', options, ['afterSeq', 'limit'])
    const { afterSeq = 0, limit } = options
    checkWhole('afterSeq', afterSeq)
    const context = this.#context
    const name = context.scopes.named(runId)
    if (limit === undefined) return Object.freeze(await allRecords(context, name, afterSeq))
    return Object.freeze(await firstRecords(context, name, afterSeq, checkFetchLimit(limit)))
  }

  /**
   * Iterates over a run's records in order, reading page by page.
   * @example
   * await db.ledger.appendEvents([newEvent({ eventType: 'RunStarted' }), newEvent({ eventType: 'RunPaused' })])
   * const types = []
   * for await (const record of db.ledger.iterateEvents(run, { afterSeq: 1 })) types.push(record.eventType)
   * types // → ['RunPaused']
   */
  async *iterateEvents(
    runId: Scope,
    options: IterateEventsOptions = {},
  ): AsyncGenerator<RunEventRecord, void, void> {
    checkOptions('iterateEvents', options, ['afterSeq'])
    const { afterSeq = 0 } = options
    const name = this.#context.scopes.named(runId)
    for await (const page of recordPages(this.#context, name, checkWhole('afterSeq', afterSeq))) yield* page
  }

  /**
   * Returns records of all runs in the order in which they were stored, each with its cursor.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const [{ record, cursor }] = await db.ledger.fetchAll({ limit: 10 })
   * record.eventType // → 'RunStarted'
   * await db.ledger.fetchAll({ cursor }) // → []
   */
  async fetchAll(options: FetchAllOptions = {}): Promise<readonly FeedItem[]> {
    checkOptions('fetchAll', options, ['cursor', 'limit'])
    const { cursor, limit = FETCH_DEFAULT } = options
    return Object.freeze(await feedPage(this.#context, cursor, checkFetchLimit(limit)))
  }

  /**
   * Returns the cursor of the newest record, from which `subscribeAll` yields only new records. Undefined if there is none.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const cursor = await db.ledger.lastCursor()
   * await db.ledger.fetchAll({ cursor }) // → []
   */
  lastCursor(): Promise<string | undefined> {
    return lastCursor(this.#context)
  }

  /**
   * Returns the run's projected state, which may lag behind its records. Null for an unknown run.
   * @example
   * await db.ledger.getSnapshot('nobody') // → null
   */
  async getSnapshot(runId: Scope): Promise<RunSnapshot | null> {
    const { database, scopes } = this.#context
    const name = scopes.named(runId)
    this.start()
    return (
      (await database.view(async reader =>
        snapshotIn(reader, await loadProjection(reader, await scopes.find(reader, name))),
      )) ?? (await this.projectSnapshot(runId).catch(nullIfUnknown))
    )
  }

  /**
   * Returns the run's state after all of its records. Throws `RUN_NOT_FOUND` for an unknown run.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const { status, lastEventSeq } = await db.ledger.projectSnapshot(run)
   * status // → 'RUNNING'
   * lastEventSeq // → 1
   */
  async projectSnapshot(runId: Scope): Promise<RunSnapshot> {
    const { database, scopes } = this.#context
    const name = scopes.named(runId)
    const scope = await scopes.find(database, name)
    const isProjected =
      !this.#readOnly && (await this.#projector.project(scope).then(() => true, falseIfUnwritable))
    const snapshot = await database.view(async reader =>
      isProjected
        ? snapshotIn(reader, await loadProjection(reader, scope))
        : replayRun(reader, scope, undefined),
    )
    return snapshot ?? unknown(name.runId)
  }

  /**
   * Computes the run's state from its records alone: from all of them, or from those up to `atSeq`. Writes nothing.
   * @example
   * await db.ledger.appendEvents([newEvent({ eventType: 'RunStarted' }), newEvent({ eventType: 'RunCompleted' })])
   * const { status } = await db.ledger.replaySnapshot(run, { atSeq: 1 })
   * status // → 'RUNNING'
   */
  async replaySnapshot(runId: Scope, options: { readonly atSeq?: number } = {}): Promise<RunSnapshot> {
    checkOptions('replaySnapshot', options, ['atSeq'])
    const { atSeq } = options
    if (atSeq !== undefined && checkWhole('atSeq', atSeq) === 0) {
      throw invalidArgument('atSeq', 'must be 1 or more', atSeq)
    }
    const { database, scopes } = this.#context
    const name = scopes.named(runId)
    const snapshot = await database.view(async reader =>
      replayRun(reader, await scopes.find(reader, name), atSeq),
    )
    return snapshot ?? unknown(name.runId)
  }

  /**
   * Recomputes a run's hash chain, keys and state from its records, and reports the first mismatch.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * await db.ledger.verifyRun(run) // → { isValid: true, events: 1 }
   */
  async verifyRun(runId: Scope, options: StoppableOptions = {}): Promise<RunVerification> {
    const { database, scopes } = this.#context
    const name = scopes.named(runId)
    return database.view(async reader =>
      verifyRecords(stoppable(reader, 'verifyRun', options), await scopes.find(reader, name), name.runId),
    )
  }

  /**
   * Iterates over the records that were stored in a window of time, by `persistedAt`, then run id, then `runSeq`.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * const types = []
   * for await (const record of db.ledger.audit({ from: '2020-01-01T00:00:00Z', to: Date.now() + 1000 })) {
   *   types.push(record.eventType)
   * }
   * types // → ['RunStarted']
   */
  async *audit(query: AuditQuery): AsyncGenerator<RunEventRecord, void, void> {
    yield* auditRecords(this.#context, query)
  }

  /**
   * Returns the alerts of a run in the order of its records, or of all runs by time.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunResumed' }))
   * await db.ledger.projectSnapshot(run)
   * const [alert] = await db.ledger.alerts({ runId: run })
   * alert.code // → 'INVALID_TRANSITION'
   */
  async alerts(options: { readonly runId?: Scope } = {}): Promise<readonly LedgerAlert[]> {
    checkOptions('alerts', options, ['runId'])
    this.start()
    return alertsFrom(this.#context, this.#named(options.runId), this.#readOnly)
  }

  /**
   * Iterates over a run's records, then over new ones, each once. Ends when the signal aborts or `return` is called.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * for await (const record of db.ledger.subscribe({ runId: run, afterSeq: 0 })) {
   *   assert.equal(record.runSeq, 1)
   *   break
   * }
   */
  subscribe(options: SubscribeOptions): AsyncGenerator<RunEventRecord, void, void> {
    const context = this.#context
    return new Follower(async function* (endWith) {
      checkOptions('subscribe', options, ['runId', 'afterSeq', 'signal'])
      const { runId, afterSeq = 0, signal } = options
      checkSignal(signal)
      yield* followRun(
        context,
        context.scopes.named(runId),
        checkWhole('afterSeq', afterSeq),
        endWith(signal),
      )
    })
  }

  /**
   * Iterates over the records of all runs in the order in which they were stored, then over new ones. Each comes with a
   * cursor from which a later call can continue, in any process.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * for await (const { record, cursor } of db.ledger.subscribeAll()) {
   *   assert.equal(record.eventType, 'RunStarted')
   *   assert.equal(cursor.length, 24)
   *   break
   * }
   */
  subscribeAll(options: SubscribeAllOptions = {}): AsyncGenerator<FeedItem, void, void> {
    const context = this.#context
    return new Follower(async function* (endWith) {
      checkOptions('subscribeAll', options, ['cursor', 'signal'])
      const { cursor, signal } = options
      checkSignal(signal)
      yield* followAll(context, cursor, endWith(signal))
    })
  }

  /**
   * Iterates over the alerts of all runs in the order in which they were raised, then over new ones, whichever process
   * raises them. Each comes once, with a cursor from which a later call can continue.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunResumed' }))
   * for await (const { alert, cursor } of db.ledger.subscribeAlerts()) {
   *   assert.equal(alert.eventType, 'RunResumed')
   *   assert.equal(cursor, '1')
   *   break
   * }
   */
  subscribeAlerts(options: SubscribeAlertsOptions = {}): AsyncGenerator<AlertItem, void, void> {
    const context = this.#context
    this.start()
    return new Follower(async function* (endWith) {
      checkOptions('subscribeAlerts', options, ['cursor', 'signal'])
      const { cursor, signal } = options
      checkSignal(signal)
      yield* followAlerts(context, await alertNumberOf(context, cursor), endWith(signal))
    })
  }

  /**
   * Returns the cursor of the newest alert, from which `subscribeAlerts` yields only new alerts. Undefined if there is none.
   * @example
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunResumed' }))
   * await db.ledger.projectSnapshot(run)
   * await db.ledger.lastAlertCursor() // → '1'
   */
  async lastAlertCursor(): Promise<string | undefined> {
    const count = await alertCount(this.#context)
    return count === 0 ? undefined : String(count)
  }

  /**
   * Makes the caller the run's writer. From now on an append with an older epoch is refused with `WRITER_FENCED`. So is a new
   * event without an epoch, while the lease is held.
   * @example
   * const { epoch } = await db.ledger.acquireLease(run, { owner: 'worker-1', ttlMs: 30_000 })
   * await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }), { epoch })
   * await assert.rejects(db.ledger.appendEvent(newEvent({ eventType: 'RunPaused' })), { code: 'WRITER_FENCED' })
   */
  async acquireLease(runId: Scope, options: LeaseOptions): Promise<{ readonly epoch: number }> {
    return acquireLease(this.#context, runId, options)
  }

  /**
   * Ends a lease, so that anybody may append without an epoch. Throws `WRITER_FENCED` if a newer epoch was granted.
   * @example
   * const { epoch } = await db.ledger.acquireLease(run, { owner: 'worker-1' })
   * await db.ledger.releaseLease(run, epoch)
   * const { persisted } = await db.ledger.appendEvent(newEvent({ eventType: 'RunStarted' }))
   * persisted // → true
   */
  async releaseLease(runId: Scope, epoch: number): Promise<void> {
    return releaseLease(this.#context, runId, epoch)
  }

  /** Returns the ledger's counters since the database was opened. */
  stats(): LedgerStats {
    const { metrics, database } = this.#context
    return metrics.stats(database.now())
  }

  /** @internal Iterates over the stored alerts. */
  iterateAlerts(runId: Scope | undefined): AsyncGenerator<LedgerAlert, void, void> {
    this.start()
    return iterateAlerts(this.#context, this.#named(runId))
  }

  #named(run: Scope | undefined): RunName | undefined {
    return run === undefined ? undefined : this.#context.scopes.named(run)
  }

  /** @internal Returns up to `limit` alerts after a cursor. */
  async raisedAlerts(cursor: string | undefined, limit: number): Promise<readonly AlertItem[]> {
    this.start()
    return alertPage(this.#context, await alertNumberOf(this.#context, cursor), limit)
  }

  /** @internal Whether every snapshot and the index of runs cover all records. */
  async isSettled(): Promise<boolean> {
    return (await this.#unprojected()).length === 0
  }

  /** @internal Projects all runs, and so updates the index of runs. False if the store is not writable. */
  async settle(): Promise<boolean> {
    for (const scope of await this.#unprojected()) {
      if (!(await this.#projector.project(scope).then(() => true, falseIfUnwritable))) return false
    }
    return true
  }

  #unprojected(): Promise<readonly ByteString[]> {
    return this.#context.database.view(reader => unprojectedRuns(reader, this.#context))
  }

  /** @internal Projects the run in this scope, if it has records. */
  async projectIfAny(scope: ByteString): Promise<void> {
    if (!this.#readOnly) await this.#projector.project(scope).catch(falseIfUnwritable)
  }

  /** @internal Starts projecting in the background. */
  start(): void {
    this.teller?.start()
    if (!this.#readOnly) this.#projector.start()
  }
}

function unknown(runId: string): never {
  throw new AnnalsError('RUN_NOT_FOUND', `the ledger has no run ${JSON.stringify(runId)}`, { runId })
}

function nullIfUnknown(error: unknown): null {
  if (error instanceof AnnalsError && error.code === 'RUN_NOT_FOUND') return null
  throw error
}
