import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { checkTags } from '../core/text.ts'
import { decodeValue, encodeValue, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { indexRange, recordsOf } from '../engine/indexes.ts'
import { HEAD_KEY, headTag, type Scope, TAGS } from '../engine/keys.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Place, Reader, Step, TreeId } from '../engine/storage.ts'
import {
  checkStatus,
  type Run,
  type RunStatus,
  STATUSES,
  type Tombstone,
  touched,
  withStatus,
} from './run.ts'
import { type CreateRunOptions, type EnsureRunOptions, RunCreation } from './run-creation.ts'
import { newestFirst, planQuery, type RunQuery } from './run-query.ts'
import { BY_STATUS, existing, runOf, runOperations, stored } from './run-records.ts'
import { type RunName, type RunScopes, stepInRun } from './run-scopes.ts'
import { allTombstones, buried, iterateTombstones, type MarkedTombstone, newGrave } from './tombstones.ts'

export interface DeleteRunOptions {
  /** A run with ledger records is deleted only if you say so, and why. */
  readonly purgeLedger?: boolean
  readonly reason?: string
}

export interface RunStats {
  readonly total: number
  readonly active: number
  readonly completed: number
  readonly failed: number
  readonly cancelled: number
  readonly paused: number
  readonly archived: number
}

/** The runs of a tenant: what each is, how it stands, and which belong together. */
export class Runs {
  readonly #database: Database
  readonly #scopes: RunScopes
  readonly #creation: RunCreation

  /** @internal Use `open`. */
  constructor(database: Database, scopes: RunScopes) {
    this.#database = database
    this.#scopes = scopes
    this.#creation = new RunCreation(database, scopes)
  }

  /**
   * Creates a run, in app and agent `default` or in a namespace. `RUN_EXISTS` if a run of the tenant has the id already,
   * in whatever app and agent; `RUN_NOT_FOUND` without its parent.
   * @example
   * const { runId } = await db.runs.create({ tags: ['nightly'], metadata: { model: 'small' } })
   * const critic = namespace({ tenant: 'default', app: 'research', agent: 'critic', run: 'review-7' })
   * const child = await db.runs.create({ runId: critic, parentRun: runId })
   * child.status // → 'Active'
   * child.app // → 'research'
   */
  async create(options: CreateRunOptions = {}): Promise<Run> {
    return this.#creation.create(options)
  }

  /**
   * The run of this id, created if it was not there. The options count only for a run that is created. A namespace asks
   * for the run in that app and agent: `RUN_EXISTS` if the run lives in another.
   * @example
   * const first = await db.runs.ensure('r1', { tags: ['eval'] })
   * const again = await db.runs.ensure('r1')
   * again.tags // → ['eval']
   */
  async ensure(runId: Scope, options: EnsureRunOptions = {}): Promise<Run> {
    return this.#creation.ensure(runId, options)
  }

  /**
   * The run, or undefined.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.get('r1')
   * status // → 'Active'
   */
  async get(runId: Scope): Promise<Run | undefined> {
    const entry = await this.#entry(this.#database, this.#scopes.named(runId))
    return entry === undefined ? undefined : runOf(entry)
  }

  /**
   * Brings the run into another status, if that may follow its own; else `INVALID_TRANSITION`.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.updateStatus('r1', 'Paused')
   * status // → 'Paused'
   */
  async updateStatus(runId: Scope, status: RunStatus): Promise<Run> {
    return this.#setStatus(runId, checkStatus(status))
  }

  /**
   * The run has done what it was to do.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status, completedAt } = await db.runs.complete('r1')
   * status // → 'Completed'
   * typeof completedAt // → 'number'
   */
  async complete(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, 'Completed')
  }

  /**
   * The run has failed, and why.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { error } = await db.runs.fail('r1', 'out of tokens')
   * error // → 'out of tokens'
   */
  async fail(runId: Scope, error: string): Promise<Run> {
    if (typeof error !== 'string') {
      throw new AnnalsError('INVALID_ARGUMENT', 'error must be a string', { name: 'error' })
    }
    return this.#setStatus(runId, 'Failed', error)
  }

  /**
   * Somebody has called the run off.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.cancel('r1')
   * status // → 'Cancelled'
   */
  async cancel(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, 'Cancelled')
  }

  /**
   * The run waits.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.pause('r1')
   * status // → 'Paused'
   */
  async pause(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, 'Paused')
  }

  /**
   * A paused run goes on.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.pause('r1')
   * const { status } = await db.runs.resume('r1')
   * status // → 'Active'
   */
  async resume(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, 'Active')
  }

  /**
   * Hides the run from `query` and `list`. Its data stay readable and writable.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.archive('r1')
   * await db.runs.list() // → []
   * await db.runs.list({ includeArchived: true }) // → ['r1']
   */
  async archive(runId: Scope): Promise<Run> {
    return this.#setStatus(runId, 'Archived')
  }

  /**
   * Adds tags to those that are there.
   * @example
   * await db.runs.create({ runId: 'r1', tags: ['a'] })
   * const { tags } = await db.runs.addTags('r1', ['b', 'a'])
   * tags // → ['a', 'b']
   */
  async addTags(runId: Scope, tags: readonly string[]): Promise<Run> {
    const added = checkTags(tags)
    return this.#change(runId, run => ({ ...run, tags: [...new Set([...run.tags, ...added])] }))
  }

  /**
   * Replaces the metadata.
   * @example
   * await db.runs.create({ runId: 'r1', metadata: { a: 1 } })
   * const { metadata } = await db.runs.updateMetadata('r1', { b: 2 })
   * metadata // → { b: 2 }
   */
  async updateMetadata(runId: Scope, metadata: Value): Promise<Run> {
    // A copy: the caller may change it before the step runs, and after.
    const copy = decodeValue(encodeValue(metadata))
    return this.#change(runId, run => ({ ...run, metadata: copy }))
  }

  /**
   * Runs, newest first: by the time of creation, within a millisecond by the commit. Archived ones only if `includeArchived` or `status: 'Archived'` asks for them.
   * @example
   * await db.runs.create({ runId: 'r1', tags: ['eval', 'nightly'] })
   * await db.runs.create({ runId: 'r2', tags: ['eval'] })
   * const found = await db.runs.query({ tags: ['eval'], status: 'Active', limit: 10 })
   * found.map(({ runId }) => runId) // → ['r2', 'r1']
   */
  async query(query: RunQuery = {}): Promise<readonly Run[]> {
    const { wanted, limit, range, parent, after: last } = planQuery(this.#tree(), query, this.#scopes)
    return this.#database.view(async reader => {
      const found: Run[] = []
      // Children know the id of their parent: one that lives elsewhere is another parent.
      if (parent !== undefined && (await this.#livesElsewhere(reader, parent))) return Object.freeze(found)
      const after = last === undefined ? undefined : await this.#existing(reader, last)
      for await (const keys of newestFirst(reader, range, after)) {
        for (const entry of await recordsOf(reader, range, keys)) {
          if (isSliceOver()) await nextSlice()
          const run = runOf(entry)
          if (!wanted(run)) continue
          found.push(run)
          if (found.length === limit) return Object.freeze(found)
        }
      }
      return Object.freeze(found)
    })
  }

  /**
   * The ids of all runs, newest first.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.list() // → ['r1']
   */
  async list(options: { readonly includeArchived?: boolean } = {}): Promise<readonly string[]> {
    checkOptions('list', options, ['includeArchived'])
    return Object.freeze(await mapInSlices(await this.query(options), ({ runId }) => runId))
  }

  /**
   * The runs whose parent this is, newest first; also archived ones, and also if the parent was deleted.
   * @example
   * await db.runs.create({ runId: 'parent' })
   * await db.runs.create({ runId: 'child', parentRun: 'parent' })
   * const children = await db.runs.children('parent')
   * children.map(({ runId }) => runId) // → ['child']
   */
  async children(runId: Scope): Promise<readonly Run[]> {
    return this.query({ parentRun: runId, includeArchived: true })
  }

  /**
   * Removes the run and all its data, in one step whatever its size, for good; a tombstone stays. The id may be used
   * again. A run with ledger records is refused unless `purgeLedger` and a `reason` are given.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.events.append('r1', 'note', 'hello')
   * const { events } = await db.runs.delete('r1', { reason: 'asked to forget' })
   * events // → 1
   * await db.events.length('r1') // → 0
   */
  async delete(runId: Scope, options: DeleteRunOptions = {}): Promise<Tombstone> {
    const { purgeLedger, reason } = checkDelete(options)
    const index = this.#scopes.index
    const grave = newGrave(index, this.#database.now())
    const tombstone = await this.#step(
      runId,
      scope => [headPlace(scope, TAGS.event), headPlace(scope, TAGS.ledger)],
      (run, [events, ledger], scope) => {
        if (ledger !== undefined && !purgeLedger) {
          const message = `run ${JSON.stringify(run.runId)} has ledger records: delete needs purgeLedger and a reason`
          throw new AnnalsError('INVALID_OPERATION', message, { runId: run.runId })
        }
        const { tombstone: left, put } = buried(grave, run, events, reason)
        return {
          operations: [...runOperations(index, run, undefined), { op: 'drop', scope }, put],
          result: left,
        }
      },
    )
    return Object.freeze(tombstone)
  }

  /**
   * What is left of deleted runs, newest first.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * await db.runs.delete('r1')
   * const [tombstone] = await db.runs.tombstones()
   * tombstone.runId // → 'r1'
   */
  async tombstones(): Promise<readonly Tombstone[]> {
    return allTombstones(this.#database, this.#scopes.index)
  }

  /** @internal The same from behind one on, each with what sets it apart from others of its time. */
  iterateTombstones(after?: Omit<MarkedTombstone, 'tombstone'>): AsyncGenerator<MarkedTombstone, void, void> {
    return iterateTombstones(this.#database, this.#scopes.index, after)
  }

  /**
   * How many runs there are in each status.
   * @example
   * await db.runs.create()
   * const { total, active } = await db.runs.stats()
   * total // → 1
   * active // → 1
   */
  async stats(): Promise<RunStats> {
    const counts = await this.#database.view(reader =>
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

  #setStatus(runId: Scope, status: RunStatus, error?: string): Promise<Run> {
    return this.#change(
      runId,
      (run, now, [ledgerHead]) => {
        if (ledgerHead !== undefined && status !== 'Archived') {
          const message = `run ${JSON.stringify(run.runId)} gets its status from its ledger events alone`
          throw new AnnalsError('INVALID_OPERATION', message, { runId: run.runId })
        }
        return withStatus(run, status, now, error)
      },
      scope => [headPlace(scope, TAGS.ledger)],
    )
  }

  /** Writes what `change` makes of the run, with its index entries. */
  async #change(
    runId: Scope,
    change: (run: Run, now: number, more: readonly (Entry | undefined)[]) => Run,
    placesIn: (scope: ByteString) => readonly Place[] = () => [],
  ): Promise<Run> {
    const now = this.#database.now()
    const changed = await this.#step(runId, placesIn, (before, more) => {
      const after = touched(change(before, now, more), now)
      return { operations: runOperations(this.#scopes.index, before, after), result: after }
    })
    return stored(changed)
  }

  #step<T>(
    runId: Scope,
    placesIn: (scope: ByteString) => readonly Place[],
    step: (run: Run, more: readonly (Entry | undefined)[], scope: ByteString) => ReturnType<Step<T>>,
  ): Promise<T> {
    const name = this.#scopes.named(runId)
    return stepInRun(this.#database, this.#scopes, name, placesIn, (record, more, scope) =>
      step(runOf(existing(name.runId, record)), more, scope),
    )
  }

  /** The run's record, if the run lives where the name says. */
  async #entry(reader: Reader, name: RunName): Promise<Entry | undefined> {
    const { scope, tag, key } = this.#scopes.record(name.runId)
    return this.#scopes.ifNamed(name, await reader.get(scope, tag, key))
  }

  async #existing(reader: Reader, name: RunName): Promise<Run> {
    return runOf(existing(name.runId, await this.#entry(reader, name)))
  }

  /** Of a run that was deleted nobody knows where it lived. */
  async #livesElsewhere(reader: Reader, { runId, scope }: RunName): Promise<boolean> {
    if (scope === undefined) return false
    const record = await this.#entry(reader, { runId, scope: undefined })
    return record !== undefined && this.#scopes.scopeIn(runId, record) !== scope
  }

  #tree(): TreeId {
    return { scope: this.#scopes.index, tag: TAGS.run }
  }
}

function headPlace(scope: ByteString, log: number): Place {
  return { scope, tag: headTag(log), key: HEAD_KEY }
}

function checkDelete(options: DeleteRunOptions): DeleteRunOptions {
  checkOptions('delete', options, ['purgeLedger', 'reason'])
  const { purgeLedger, reason } = options
  checkFlag('purgeLedger', purgeLedger)
  if (reason !== undefined && (typeof reason !== 'string' || reason === '')) {
    throw new AnnalsError('INVALID_ARGUMENT', 'reason must be a text', { name: 'reason', value: reason })
  }
  if (purgeLedger === true && reason === undefined) {
    throw new AnnalsError('INVALID_ARGUMENT', 'purgeLedger needs a reason', { name: 'reason' })
  }
  return options
}
