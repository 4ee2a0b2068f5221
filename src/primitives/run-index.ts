import { type ByteString, fromUtf8, hex, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { newOrderedId } from '../core/id.ts'
import { checkTime } from '../core/numbers.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { checkTags } from '../core/text.ts'
import { decodeValue, encodeValue, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { idOfIndexKey, indexKey, indexRange, recordsOf, timeOfIndexKey } from '../engine/indexes.ts'
import { HEAD_KEY, headTag, type Scope, TAGS } from '../engine/keys.ts'
import { parseHead } from '../engine/log.ts'
import { behind, pages } from '../engine/pages.ts'
import type { Entry, Operation, Place, Reader } from '../engine/storage.ts'
import {
  checkStatus,
  type Run,
  type RunStatus,
  STATUSES,
  type Tombstone,
  touched,
  withStatus,
} from './run.ts'
import { newestFirst, planQuery, type RunQuery } from './run-query.ts'
import {
  BY_PARENT,
  BY_STATUS,
  BY_TIME,
  existing,
  notFound,
  runOf,
  runOperations,
  runPlace,
  stored,
} from './run-records.ts'

const TAG = TAGS.run
/** Tombstones have the shape of an index, with something in them. */
const TOMBSTONE = 'x'

export interface CreateRunOptions {
  /** One that no other run of the tenant has; without it one is made. */
  readonly runId?: string
  /** A run that exists. */
  readonly parentRun?: string
  readonly tags?: readonly string[]
  readonly metadata?: Value
}

export interface DeleteRunOptions {
  /** A run with ledger records is deleted only if you say so, and why. */
  readonly purgeLedger?: boolean
  readonly reason?: string
}

/** @internal */
export interface MarkedTombstone {
  readonly tombstone: Tombstone
  readonly deletedAt: number
  readonly mark: string
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
  readonly #scopeOf: (scope: Scope) => ByteString
  /** What the tenant's runs share. */
  readonly #index: ByteString

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString, index: ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
    this.#index = index
  }

  /**
   * Makes a run. `RUN_EXISTS` if the id is taken, `RUN_NOT_FOUND` without its parent.
   * @example
   * const { runId } = await db.runs.create({ tags: ['nightly'], metadata: { model: 'small' } })
   * const child = await db.runs.create({ parentRun: runId })
   * child.status // → 'Active'
   */
  async create(options: CreateRunOptions = {}): Promise<Run> {
    checkOptions('create', options, ['runId', 'parentRun', 'tags', 'metadata'])
    const now = this.#database.now()
    const { runId = newOrderedId(now), parentRun, tags = [], metadata = {} } = options
    const run = stored({
      runId,
      ...(parentRun === undefined ? {} : { parentRun }),
      status: 'Active',
      createdAt: now,
      updatedAt: now,
      tags: checkTags(tags),
      metadata,
    })
    const record = this.#record(runId)
    const operations = runOperations(this.#index, undefined, run)
    const refuseKnown = (known: Entry | undefined): void => {
      if (known === undefined) return
      throw new AnnalsError('RUN_EXISTS', `there is a run ${JSON.stringify(runId)} already`, { runId })
    }
    if (parentRun === undefined) {
      await this.#database.update([record], ([known]) => {
        refuseKnown(known)
        return { operations, result: undefined }
      })
    } else {
      await this.#database.transaction(async tx => {
        refuseKnown(await tx.get(record.scope, record.tag, record.key))
        await this.#checkParent(tx, runId, parentRun)
        await tx.write(operations)
      })
    }
    return run
  }

  /**
   * The run, or undefined.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.get('r1')
   * status // → 'Active'
   */
  async get(runId: string): Promise<Run | undefined> {
    const { scope, tag, key } = this.#record(runId)
    const entry = await this.#database.get(scope, tag, key)
    return entry === undefined ? undefined : runOf(entry)
  }

  /**
   * Brings the run into another status, if that may follow its own; else `INVALID_TRANSITION`.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.updateStatus('r1', 'Paused')
   * status // → 'Paused'
   */
  async updateStatus(runId: string, status: RunStatus): Promise<Run> {
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
  async complete(runId: string): Promise<Run> {
    return this.#setStatus(runId, 'Completed')
  }

  /**
   * The run has failed, and why.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { error } = await db.runs.fail('r1', 'out of tokens')
   * error // → 'out of tokens'
   */
  async fail(runId: string, error: string): Promise<Run> {
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
  async cancel(runId: string): Promise<Run> {
    return this.#setStatus(runId, 'Cancelled')
  }

  /**
   * The run waits.
   * @example
   * await db.runs.create({ runId: 'r1' })
   * const { status } = await db.runs.pause('r1')
   * status // → 'Paused'
   */
  async pause(runId: string): Promise<Run> {
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
  async resume(runId: string): Promise<Run> {
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
  async archive(runId: string): Promise<Run> {
    return this.#setStatus(runId, 'Archived')
  }

  /**
   * Adds tags to those that are there.
   * @example
   * await db.runs.create({ runId: 'r1', tags: ['a'] })
   * const { tags } = await db.runs.addTags('r1', ['b', 'a'])
   * tags // → ['a', 'b']
   */
  async addTags(runId: string, tags: readonly string[]): Promise<Run> {
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
  async updateMetadata(runId: string, metadata: Value): Promise<Run> {
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
    const { wanted, limit, range } = planQuery(this.#tree(), query)
    return this.#database.view(async reader => {
      const found: Run[] = []
      const after = query.after === undefined ? undefined : await this.#existing(reader, query.after)
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
  async children(runId: string): Promise<readonly Run[]> {
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
  async delete(runId: string, options: DeleteRunOptions = {}): Promise<Tombstone> {
    const { purgeLedger, reason } = checkDelete(options)
    const scope = this.#scopeOf(runId)
    const head = (tag: number): Place => ({ scope, tag: headTag(tag), key: HEAD_KEY })
    const now = this.#database.now()
    const mark = this.#place(indexKey(TOMBSTONE, '', now, utf8(newOrderedId(now))))
    const { result } = await this.#database.update(
      [this.#record(runId), head(TAGS.event), head(TAGS.ledger)],
      ([record, events, ledger]) => {
        const run = runOf(existing(runId, record))
        if (ledger !== undefined && !purgeLedger) {
          const message = `run ${JSON.stringify(runId)} has ledger records: delete needs purgeLedger and a reason`
          throw new AnnalsError('INVALID_OPERATION', message, { runId })
        }
        const { length, hash } = parseHead(events)
        const tombstone: Tombstone = {
          runId,
          deletedAt: now,
          ...(reason === undefined ? {} : { reason }),
          events: length,
          headHash: hex(hash),
        }
        const operations: Operation[] = [
          ...runOperations(this.#index, run, undefined),
          { op: 'drop', scope },
          { op: 'put', ...mark, value: encodeValue(tombstone as unknown as Value) },
        ]
        return { operations, result: tombstone }
      },
    )
    return Object.freeze(result)
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
    const range = { ...indexRange(this.#tree(), TOMBSTONE, ''), reverse: true }
    const found = await this.#database.scan(range)
    return Object.freeze(await mapInSlices(found, tombstoneOf))
  }

  /** @internal The same from behind one on, each with what sets it apart from others of its time. */
  async *iterateTombstones(
    after?: Omit<MarkedTombstone, 'tombstone'>,
  ): AsyncGenerator<MarkedTombstone, void, void> {
    const range = { ...indexRange(this.#tree(), TOMBSTONE, ''), reverse: true }
    const rest =
      after === undefined
        ? range
        : behind(range, indexKey(TOMBSTONE, '', checkTime('after', after.deletedAt), utf8(after.mark)))
    for await (const page of pages(this.#database, rest)) {
      for (const { key, value } of page) {
        if (isSliceOver()) await nextSlice()
        const tombstone = tombstoneOf({ value })
        yield { tombstone, deletedAt: timeOfIndexKey(key), mark: fromUtf8(idOfIndexKey(key) ?? '') }
      }
    }
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

  async #setStatus(runId: string, status: RunStatus, error?: string): Promise<Run> {
    const ledger = { scope: this.#scopeOf(runId), tag: headTag(TAGS.ledger), key: HEAD_KEY }
    return this.#change(
      runId,
      (run, now, [ledgerHead]) => {
        if (ledgerHead !== undefined && status !== 'Archived') {
          const message = `run ${JSON.stringify(runId)} gets its status from its ledger events alone`
          throw new AnnalsError('INVALID_OPERATION', message, { runId })
        }
        return withStatus(run, status, now, error)
      },
      [ledger],
    )
  }

  /** Writes what `change` makes of the run, with its index entries. */
  async #change(
    runId: string,
    change: (run: Run, now: number, more: readonly (Entry | undefined)[]) => Run,
    more: readonly Place[] = [],
  ): Promise<Run> {
    const now = this.#database.now()
    const { result } = await this.#database.update([this.#record(runId), ...more], ([record, ...others]) => {
      const before = runOf(existing(runId, record))
      const after = touched(change(before, now, others), now)
      return { operations: runOperations(this.#index, before, after), result: after }
    })
    return stored(result)
  }

  /** The parent exists, and the run is none of its ancestors: an id that was used before may still have children. */
  async #checkParent(tx: Reader, runId: string, parentRun: string): Promise<void> {
    let ancestor = await this.#ancestor(tx, parentRun)
    if (ancestor === undefined) throw notFound(parentRun)
    const children = indexRange(this.#tree(), BY_PARENT, utf8(runId))
    if ((await tx.scan({ ...children, limit: 1 })).length === 0) return
    while (ancestor?.parentRun !== undefined) {
      if (ancestor.parentRun === runId) {
        const message = `run ${JSON.stringify(runId)} would be its own ancestor`
        throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'parentRun', runId, parentRun })
      }
      ancestor = await this.#ancestor(tx, ancestor.parentRun)
    }
  }

  /**
   * The run, read beside the transaction: its tags or metadata may change as often as they like. What the transaction
   * depends on is that it exists, and whose child it is; both stand for as long as its index entry by time does.
   */
  async #ancestor(tx: Reader, runId: string): Promise<Run | undefined> {
    const { scope, tag, key } = this.#record(runId)
    const entry = await this.#database.get(scope, tag, key)
    const run = entry === undefined ? undefined : runOf(entry)
    const proof = run === undefined ? key : indexKey(BY_TIME, '', run.createdAt, utf8(runId))
    return (await tx.get(scope, tag, proof)) === undefined ? undefined : run
  }

  async #existing(reader: Reader, runId: string): Promise<Run> {
    const { scope, tag, key } = this.#record(runId)
    return runOf(existing(runId, await reader.get(scope, tag, key)))
  }

  #record(runId: string): Place {
    if (typeof runId !== 'string') {
      throw new AnnalsError('INVALID_ARGUMENT', 'a run id must be a string', { name: 'runId' })
    }
    // It has to be one that data can be stored under.
    this.#scopeOf(runId)
    return runPlace(this.#index, runId)
  }

  #place(key: ByteString): Place {
    return { ...this.#tree(), key }
  }

  #tree(): { readonly scope: ByteString; readonly tag: number } {
    return { scope: this.#index, tag: TAG }
  }
}

function tombstoneOf({ value }: Pick<Entry, 'value'>): Tombstone {
  return decodeValue(value) as unknown as Tombstone
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
