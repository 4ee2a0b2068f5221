import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import type { Given } from '../core/storable.ts'
import { checkTags } from '../core/text.ts'
import { encodeGiven, type Value } from '../core/value.ts'
import { indexRange, recordsOf } from '../engine/indexes.ts'
import { HEAD_KEY, headTag, type Scope, TAGS } from '../engine/keys.ts'
import { pages } from '../engine/pages.ts'
import type { Session } from '../engine/session.ts'
import type { Entry, Operation, Place, Reader, TreeId } from '../engine/storage.ts'
import { checkStatus, type Run, type RunHead, type RunStatus, STATUSES, touched, withStatus } from './run.ts'
import { type CreateRunOptions, type EnsureRunOptions, RunCreation } from './run-creation.ts'
import { newestFirst, planQuery, type RunQuery } from './run-query.ts'
import {
  BY_STATUS,
  existing,
  type RunRecord,
  recordBytes,
  recordIn,
  runOf,
  runOperations,
} from './run-records.ts'
import { type RunName, type RunScopes, stepInRun } from './run-scopes.ts'

/** The number of runs in each status. */
export interface RunStats {
  /** All runs. */
  readonly total: number
  /** Runs with the status Active. */
  readonly active: number
  /** Runs with the status Completed. */
  readonly completed: number
  /** Runs with the status Failed. */
  readonly failed: number
  /** Runs with the status Cancelled. */
  readonly cancelled: number
  /** Runs with the status Paused. */
  readonly paused: number
  /** Runs with the status Archived. */
  readonly archived: number
}

/**
 * The calls of the run index that a transaction has too. In a transaction, reads see its own changes. `M` is the type of the
 * metadata.
 */
export class TransactionRuns<M = Value> {
  readonly #session: Session
  readonly #creation: RunCreation
  /** @internal */
  protected readonly scopes: RunScopes

  /** @internal Use `transaction` or `begin`. */
  constructor(session: Session, scopes: RunScopes, creation?: RunCreation) {
    this.#session = session
    this.scopes = scopes
    this.#creation = creation ?? new RunCreation(session, scopes, work => work(session))
  }

  /**
   * Creates a run, in app and agent `default` or in a namespace. Throws `RUN_EXISTS` if a run of the tenant has the id
   * already, in whatever app and agent, and `RUN_NOT_FOUND` if the parent does not exist.
   * @example
   * const { runId } = await db.runs.create({ tags: ['nightly'], metadata: { model: 'small' } })
   * const critic = namespace({ tenant: 'default', app: 'research', agent: 'critic', run: 'review-7' })
   * const child = await db.runs.create({ runId: critic, parentRun: runId })
   * child.status // → 'Active'
   * child.app // → 'research'
   */
  async create<T = M>(options: CreateRunOptions<Given<M, T>> = {}): Promise<Run<T>> {
    return this.#creation.create<T>(options)
  }

  /**
   * Returns the run of this id, and creates it if it is missing. The options apply only to a run that is created. With a
   * namespace, throws `RUN_EXISTS` if the run lives in another app or agent.
   * @example
   * const first = await db.runs.ensure('r1', { tags: ['eval'] })
   * const again = await db.runs.ensure('r1')
   * again.tags // → ['eval']
   */
  async ensure<T = M>(runId: Scope, options: EnsureRunOptions<Given<M, T>> = {}): Promise<Run<T>> {
    return this.#creation.ensure<T>(runId, options)
  }

  /**
   * Returns the run, or undefined if there is none.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.get('r1')
   * status // → 'Active'
   */
  async get(runId: Scope): Promise<Run<M> | undefined> {
    const entry = await this.#entry(this.#session, this.scopes.named(runId))
    return entry === undefined ? undefined : runOf<M>(entry)
  }

  /**
   * Changes the run's status. Throws `INVALID_TRANSITION` if the status may not follow the present one.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.updateStatus('r1', 'Paused')
   * status // → 'Paused'
   */
  async updateStatus(runId: Scope, status: RunStatus): Promise<Run<M>> {
    return this.#setStatus(runId, checkStatus(status))
  }

  /**
   * Sets the status to Completed.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status, completedAt } = await db.runs.complete('r1')
   * status // → 'Completed'
   * typeof completedAt // → 'number'
   */
  async complete(runId: Scope): Promise<Run<M>> {
    return this.#setStatus(runId, 'Completed')
  }

  /**
   * Sets the status to Failed, and stores why.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { error } = await db.runs.fail('r1', 'out of tokens')
   * error // → 'out of tokens'
   */
  async fail(runId: Scope, error: string): Promise<Run<M>> {
    if (typeof error !== 'string') throw invalidArgument('error', 'must be a string')
    return this.#setStatus(runId, 'Failed', error)
  }

  /**
   * Sets the status to Cancelled.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.cancel('r1')
   * status // → 'Cancelled'
   */
  async cancel(runId: Scope): Promise<Run<M>> {
    return this.#setStatus(runId, 'Cancelled')
  }

  /**
   * Sets the status to Paused.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.pause('r1')
   * status // → 'Paused'
   */
  async pause(runId: Scope): Promise<Run<M>> {
    return this.#setStatus(runId, 'Paused')
  }

  /**
   * Sets the status of a paused run back to Active.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.pause('r1')
   * const { status } = await db.runs.resume('r1')
   * status // → 'Active'
   */
  async resume(runId: Scope): Promise<Run<M>> {
    return this.#setStatus(runId, 'Active')
  }

  /**
   * Sets the status to Archived, which hides the run from `query` and `list`. Its data stay readable and writable.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.archive('r1')
   * await db.runs.list() // → []
   * await db.runs.list({ includeArchived: true }) // → ['r1']
   */
  async archive(runId: Scope): Promise<Run<M>> {
    return this.#setStatus(runId, 'Archived')
  }

  /**
   * Adds tags to the run's tags.
   * @example
   * await db.runs.create({ runId: 'r1', tags: ['a'] })
   * const { tags } = await db.runs.addTags('r1', ['b', 'a'])
   * tags // → ['a', 'b']
   */
  async addTags(runId: Scope, tags: readonly string[]): Promise<Run<M>> {
    const added = checkTags(tags)
    return this.#changeHead(runId, run => ({ ...run, tags: [...new Set([...run.tags, ...added])] }))
  }

  /**
   * Replaces the run's metadata.
   * @example
   * await db.runs.create({ runId: 'r1', metadata: { a: 1 } })
   * const { metadata } = await db.runs.updateMetadata('r1', { b: 2 })
   * metadata // → { b: 2 }
   */
  async updateMetadata<T = M>(runId: Scope, metadata: Given<M, T>): Promise<Run<T>> {
    // Encoded before the first await, because the caller may change a short value as soon as the call returns.
    const encoded = encodeGiven(metadata)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return this.#change<T>(runId, ({ head }) => ({ head, metadata: bytes }))
  }

  /**
   * Returns the runs that match, newest first. Runs created in the same millisecond are in the order of their commits.
   * Archived runs are left out unless `includeArchived` or `status: 'Archived'` asks for them.
   * @example
   * await db.runs.create({ runId: 'r1', tags: ['eval', 'nightly'] })
   * await db.runs.create({ runId: 'r2', tags: ['eval'] })
   * const found = await db.runs.query({ tags: ['eval'], status: 'Active', limit: 10 })
   * found.map(({ runId }) => runId) // → ['r2', 'r1']
   */
  async query(query: RunQuery = {}): Promise<readonly Run<M>[]> {
    const { wanted, limit, range, parent, after: last } = planQuery(this.#tree(), query, this.scopes)
    return this.#session.view(async reader => {
      const found: Run<M>[] = []
      // Children store only the id of their parent. If that run lives in another namespace, it is another parent.
      if (parent !== undefined && (await this.#livesElsewhere(reader, parent))) return Object.freeze(found)
      const after =
        last === undefined ? undefined : recordIn(existing(last.runId, await this.#entry(reader, last))).head
      for await (const keys of newestFirst(reader, range, after)) {
        for (const entry of await recordsOf(reader, range, keys)) {
          if (isSliceOver()) await nextSlice()
          const decoded = runOf<M>(entry)
          const run = decoded instanceof Promise ? await decoded : decoded
          if (!wanted(run)) continue
          found.push(run)
          if (found.length === limit) return Object.freeze(found)
        }
      }
      return Object.freeze(found)
    })
  }

  /**
   * Returns the ids of all runs, newest first.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.list() // → ['r1']
   */
  async list(options: { readonly includeArchived?: boolean } = {}): Promise<readonly string[]> {
    checkOptions('list', options, ['includeArchived'])
    return Object.freeze(await mapInSlices(await this.query(options), ({ runId }) => runId))
  }

  /**
   * Returns the children of a run, newest first. Archived children are included, and so are children of a deleted run.
   * @example
   * await db.runs.create({ runId: 'parent' })
   * await db.runs.create({ runId: 'child', parentRun: 'parent' })
   * const children = await db.runs.children('parent')
   * children.map(({ runId }) => runId) // → ['child']
   */
  async children(runId: Scope): Promise<readonly Run<M>[]> {
    return this.query({ parentRun: runId, includeArchived: true })
  }

  /**
   * Counts the runs in each status.
   * @example
   * await db.runs.create()
   * const { total, active } = await db.runs.stats()
   * total // → 1
   * active // → 1
   */
  async stats(): Promise<RunStats> {
    const counts = await this.#session.view(reader =>
      Promise.all(
        STATUSES.map(async status => {
          let count = 0
          for await (const page of pages(reader, indexRange(this.#tree(), BY_STATUS, status))) {
            count += page.length
          }
          return [status.toLowerCase(), count] as const
        }),
      ),
    )
    const total = counts.reduce((sum, [, count]) => sum + count, 0)
    return Object.freeze({ total, ...Object.fromEntries(counts) }) as RunStats
  }

  #setStatus(runId: Scope, status: RunStatus, error?: string): Promise<Run<M>> {
    return this.#changeHead(
      runId,
      (run, now, [ledgerHead]) => {
        if (ledgerHead !== undefined && status !== 'Archived') {
          const message = `run ${JSON.stringify(run.runId)} has ledger events, which alone decide its status`
          throw new AnnalsError('INVALID_OPERATION', message, { runId: run.runId })
        }
        return withStatus(run, status, now, error)
      },
      scope => [headPlace(scope, TAGS.ledger)],
    )
  }

  #changeHead(
    runId: Scope,
    change: (run: RunHead, now: number, more: readonly (Entry | undefined)[]) => RunHead,
    placesIn?: (scope: ByteString) => readonly Place[],
  ): Promise<Run<M>> {
    return this.#change<M>(
      runId,
      ({ head, metadata }, now, more) => ({ head: change(head, now, more), metadata }),
      placesIn,
    )
  }

  /** Writes the record that `change` returns, with its index entries. */
  async #change<T>(
    runId: Scope,
    change: (run: RunRecord, now: number, more: readonly (Entry | undefined)[]) => RunRecord,
    placesIn: (scope: ByteString) => readonly Place[] = () => [],
  ): Promise<Run<T>> {
    const now = this.#session.now()
    const changed = await stepInExisting(this.#session, this.scopes, runId, placesIn, (before, more) => {
      const { head, metadata } = change(before, now, more)
      const after = { head: touched(head, now), metadata }
      return { operations: runOperations(this.scopes.index, before.head, after), result: after }
    })
    return runOf<T>({ value: recordBytes(changed) })
  }

  /** The run's record, if the run lives in the scope that the name asks for. */
  async #entry(reader: Reader, name: RunName): Promise<Entry | undefined> {
    const { scope, tag, key } = this.scopes.record(name.runId)
    return this.scopes.ifNamed(name, await reader.get(scope, tag, key))
  }

  /** Whether the run exists in another scope than the name asks for. False for a deleted run: its scope is not known. */
  async #livesElsewhere(reader: Reader, { runId, scope }: RunName): Promise<boolean> {
    if (scope === undefined) return false
    const record = await this.#entry(reader, { runId, scope: undefined })
    return record !== undefined && this.scopes.scopeIn(runId, record) !== scope
  }

  #tree(): TreeId {
    return { scope: this.scopes.index, tag: TAGS.run }
  }
}

/** Runs a step over the record of an existing run and over entries of its scope. See `stepInRun`. */
export function stepInExisting<T, O extends Operation>(
  session: Parameters<typeof stepInRun<T, O>>[0],
  scopes: RunScopes,
  runId: Scope,
  placesIn: (scope: ByteString) => readonly Place[],
  step: (
    run: RunRecord,
    more: readonly (Entry | undefined)[],
    scope: ByteString,
  ) => { readonly operations: readonly O[]; readonly result: T },
): Promise<T> {
  const name = scopes.named(runId)
  return stepInRun<T, O>(session, scopes, name, placesIn, (record, more, scope) =>
    step(recordIn(existing(name.runId, record)), more, scope),
  )
}

/** Where the head of a scope's log is stored. */
export function headPlace(scope: ByteString, log: number): Place {
  return { scope, tag: headTag(log), key: HEAD_KEY }
}
