import { type ByteString, toBuffer } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import type { EngineInfo } from '../engine/capabilities.ts'
import { dedupeTag, isDedupeTag, isFeedTag } from '../engine/keys.ts'
import {
  checkBoundedRanges,
  checkLimit,
  checkOperations,
  checkPlace,
  checkRange,
  checkTree,
} from '../engine/operations.ts'
import type {
  Append,
  Commit,
  CommitOutcome,
  Committed,
  Entry,
  Operation,
  Patience,
  Place,
  Range,
  ScopeRange,
  Snapshot,
  Step,
  Storage,
  TreeId,
  Updated,
  UpdateOptions,
} from '../engine/storage.ts'
import type { GivenTimes } from './commit-batch.ts'
import type { ConnectionSettings } from './connection.ts'
import { closedError } from './lane.ts'
import { Listener } from './listener.ts'
import { OwnChanges } from './own-changes.ts'
import { PlacesInUse } from './places-in-use.ts'
import { BatchedReader } from './reader.ts'
import { RememberedPlaces } from './remembered-places.ts'
import { Snapshots } from './snapshots.ts'
import { STATEMENTS } from './statements.ts'
import { Sweeper } from './sweeper.ts'
import { TenantCommitters } from './tenant-committers.ts'
import { UpdateRounds } from './update-rounds.ts'
import { waitForWriters } from './writers.ts'

export interface StoreSettings extends ConnectionSettings {
  /** The clock of a test; undefined for the server's. */
  readonly clock: (() => number) | undefined
  readonly snapshotConnections: number
  readonly readOnly: boolean
  /** The server's clock at opening, and `performance.now()` then. `ahead` is the newest commit time if that is later, else 0. */
  readonly opened: { readonly clock: number; readonly readAt: number; readonly ahead: number }
  /** How often expired entries are removed. */
  readonly sweepMs: number
}

/** A step that usually appends and conflicts this often runs in a round. */
const APPEND_ATTEMPTS_MAX = 8

/** The storage port on PostgreSQL. It delegates to parts that each have their own connection. */
export class PostgresStore implements Storage {
  readonly engine: EngineInfo = { kind: 'postgres', durability: 'durable' }
  readonly readOnly: boolean
  readonly #settings: StoreSettings
  readonly #committers: TenantCommitters
  readonly #reader: BatchedReader
  readonly #snapshots: Snapshots
  readonly #listener: Listener
  /** Undefined if the store is read-only, because sweeping writes. */
  readonly #sweeper: Sweeper | undefined
  readonly #own = new OwnChanges()
  readonly #places = new PlacesInUse()
  readonly #rounds: UpdateRounds
  readonly #remembered = new RememberedPlaces()
  readonly #underWay = new Set<Promise<unknown>>()
  /** The latest commit time in any answer. */
  #latestTime: number
  #latestVersion = 0
  /** The server's clock minus `performance.now()`, which nobody can set. Measured at opening and with each sweep. */
  #serverAheadMs: number
  #closing: Promise<void> | undefined

  constructor(settings: StoreSettings) {
    this.#settings = settings
    this.readOnly = settings.readOnly
    this.#latestTime = settings.opened.ahead
    this.#serverAheadMs = settings.opened.clock - settings.opened.readAt
    const givenMs = (): number | undefined => settings.clock?.()
    const given = (): GivenTimes =>
      settings.clock === undefined ? {} : { clockMs: settings.clock(), notBeforeMs: this.now() }
    this.#committers = new TenantCommitters(settings, given)
    this.#rounds = new UpdateRounds(settings, {
      given,
      quiet: scopes => this.#committers.quiet(scopes),
      noteEntry: entry => this.#noteEntry(entry),
      noteCommit: (operations, committed) => this.#noteCommit(operations, committed),
      unchanged: () => this.#unchanged(undefined),
    })
    this.#reader = new BatchedReader(settings, givenMs)
    this.#snapshots = new Snapshots(settings, {
      max: settings.snapshotConnections,
      givenMs,
      note: time => this.#note(0, time),
    })
    this.#listener = new Listener(settings)
    this.#sweeper = settings.readOnly
      ? undefined
      : new Sweeper(entriesMax => this.sweep(entriesMax), settings.sweepMs)
  }

  async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    this.#checkOpen()
    const place = { scope, tag, key }
    checkPlace(place)
    const [entry] = await this.#track(this.#reader.points([place]))
    this.#noteEntry(entry)
    return entry
  }

  async scan(range: Range): Promise<readonly Entry[]> {
    this.#checkOpen()
    checkRange(range)
    const entries = await this.#track(this.#reader.range(range))
    for (const entry of entries) this.#noteEntry(entry)
    return entries
  }

  async snapshot(): Promise<Snapshot> {
    this.#checkOpen()
    return this.#snapshots.take()
  }

  async commit(commit: Commit): Promise<CommitOutcome> {
    this.#checkWritable()
    checkOperations(commit.operations)
    return this.#commit(commit)
  }

  update<T>(reads: readonly Place[], step: Step<T>, options: UpdateOptions = {}): Promise<Updated<T>> {
    try {
      const { ranges } = options
      const hasRanges = ranges !== undefined && ranges.length > 0
      // A step that reads only feeds waits for the writers of the feeds, and writes nothing.
      if (!hasRanges && reads.length > 0 && reads.every(({ tag }) => isFeedTag(tag))) this.#checkOpen()
      else this.#checkWritable()
      for (const place of reads) checkPlace(place)
      if (hasRanges) {
        checkBoundedRanges(ranges)
        return this.#track(this.#rounds.update(reads, ranges, step))
      }
      if (options.appends !== true) return this.#track(this.#updateAlone(reads, step))
      return this.#appendAtOnce(reads, step) ?? this.#track(this.#updateAppending(reads, step))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void> {
    this.#checkOpen()
    checkTree(tree)
    if (patience !== undefined) return this.#own.subscribe(tree, listener, patience.othersWithinMs)
    return this.#track(this.#listener.subscribe(tree, listener))
  }

  async scopes({ from = '', to, limit }: ScopeRange): Promise<readonly ByteString[]> {
    this.#checkOpen()
    checkLimit(limit)
    const values = [toBuffer(from), to === undefined ? undefined : toBuffer(to), limit]
    const rows = await this.#track(
      this.#reader.run(connection => connection.run(STATEMENTS.readScopes, values)),
    )
    return rows.map(row => row['scope'] as ByteString)
  }

  /** Asks the server, which may be a standby or have been made read-only since the store was opened. */
  async checkWritable(): Promise<void> {
    this.#checkWritable()
    const [row] = await this.#track(this.#reader.run(connection => connection.run(STATEMENTS.isReadOnly, [])))
    if (row['is_read_only'] === true) {
      throw new AnnalsError(
        'READ_ONLY',
        'the PostgreSQL server is a standby or read-only: connect to the primary',
      )
    }
  }

  /** Removes at most `entriesMax` expired entries, and returns how many it has removed. */
  async sweep(entriesMax: number): Promise<number> {
    this.#checkWritable()
    const given = this.#settings.clock?.()
    const work = this.#reader.run(connection => connection.run(STATEMENTS.sweep, [entriesMax, given]))
    const [row] = await this.#track(work)
    this.#serverAheadMs = (row['clock_ms'] as number) - performance.now()
    return row['swept'] as number
  }

  now(): number {
    this.#latestTime = Math.max(this.#latestTime, this.clock())
    return this.#latestTime
  }

  /** The server's clock, as last measured. */
  clock(): number {
    return this.#settings.clock?.() ?? Math.floor(performance.now() + this.#serverAheadMs)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#sweeper?.close()
    // A step that finds a conflict starts new reads and commits.
    while (this.#underWay.size > 0 || this.#committers.isBusy) {
      await Promise.allSettled([...this.#underWay, this.#committers.idle()])
    }
    this.#own.close()
    await Promise.all([
      this.#listener.close(),
      this.#committers.close(),
      this.#rounds.close(),
      this.#reader.close(),
      this.#snapshots.close(),
    ])
  }

  async #commit(commit: Commit): Promise<CommitOutcome> {
    this.#checkReadOnly()
    const outcome = await this.#committers.commit(commit)
    if (outcome.status === 'committed') this.#noteCommit(commit.operations, outcome)
    return outcome
  }

  #noteCommit(operations: readonly Operation[], { version, time }: Committed): void {
    this.#note(version, time)
    this.#own.note(operations)
  }

  /**
   * The way of nearly all appends: runs the step on remembered entries and commits its append, without a read. The commit
   * validates the remembered entries. Returns undefined if the step has to read first.
   */
  #appendAtOnce<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> | undefined {
    const recalled = this.#remembered.recall(reads)
    const judged = recalled && judgedBy(step, recalled.found)
    if (recalled === undefined || judged === undefined || 'error' in judged) return undefined
    const { operations, result } = judged
    const append = loneAppend(operations)
    // A dedupe key that was taken for new without a look must be the key of the append itself.
    if (append === undefined || reads.some(place => isDedupeTag(place.tag) && !isKeyOf(place, append)))
      return undefined
    checkOperations(operations)
    const readsKey = reads.some(place => isKeyOf(place, append))
    return this.#committers.commit({ points: recalled.points, operations }).then(outcome => {
      if (outcome.status === 'conflict') this.#remembered.forget(reads)
      else if (!readsKey || !outcome.appended[0].duplicate) {
        this.#noteCommit(operations, outcome)
        const { status, version, time, appended } = outcome
        return { status, version, time, appended, result }
      }
      return this.#track(this.#updateAppending(reads, step))
    })
  }

  /**
   * Runs a step that probably only appends. An append changes nothing that other steps read, so the step does not wait for
   * its turn. A lone append need not validate that its own dedupe key is new: a duplicate changes nothing, its answer says
   * so, and the step runs again with the key present.
   */
  async #updateAppending<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    for (let attempt = 1; ; attempt++) {
      const found = await this.#readAll(reads)
      const { operations, result } = step(found, [])
      if (operations.length === 0) return this.#unchanged(result)
      if (operations.some(({ op }) => op !== 'append')) return this.#updateAlone(reads, step)
      checkOperations(operations)
      const append = loneAppend(operations)
      const isOwnKey = (place: Place): boolean => append !== undefined && isKeyOf(place, append)
      const reliesOnNewKey = reads.some((place, i) => found[i] === undefined && isOwnKey(place))
      const points = pointsOf(reads, found).filter(point => point.version > 0 || !isOwnKey(point))
      const outcome = await this.#commit({ points, operations })
      if (outcome.status === 'committed' && !(reliesOnNewKey && outcome.appended[0].duplicate)) {
        this.#remembered.remember(reads, found)
        return { ...outcome, result }
      }
      if (attempt === APPEND_ATTEMPTS_MAX) return this.#rounds.update(reads, [], step)
    }
  }

  /**
   * Reads, runs the step, and commits with the reads to be validated, without a lock in between. A step that competes with
   * another one, in this process or in another, runs in a round under a lock instead.
   */
  async #updateAlone<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    const use = this.#places.begin(reads)
    try {
      await Promise.all(use.before)
      // Steps over feeds mostly write nothing, and may belong to a read-only store.
      if (use.before.length > 0 && !reads.some(({ tag }) => isFeedTag(tag))) {
        return await this.#rounds.update(reads, [], step)
      }
      await this.#settle(reads)
      const found = await this.#readAll(reads)
      // All places were read as of one moment, so the step's result is valid, and so is an error that it throws.
      const { operations, result } = step(found, [])
      checkOperations(operations)
      if (operations.length === 0) return this.#unchanged(result)
      const outcome = await this.#commit({ points: pointsOf(reads, found), operations })
      if (outcome.status === 'committed') return { ...outcome, result }
      return await this.#rounds.update(reads, [], step)
    } finally {
      use.end()
    }
  }

  async #readAll(reads: readonly Place[]): Promise<(Entry | undefined)[]> {
    if (reads.length === 0) return []
    const found = await this.#reader.points(reads)
    for (const entry of found) this.#noteEntry(entry)
    return found
  }

  /** The outcome of a step without operations. */
  #unchanged<T>(result: T): Updated<T> {
    return { status: 'committed', version: this.#latestVersion, time: this.now(), appended: [], result }
  }

  /**
   * Waits for this process's commits to the scopes that a step reads, or for all its commits if the step reads nothing. For a
   * feed it also waits for the appends of other processes.
   */
  async #settle(reads: readonly Place[]): Promise<void> {
    if (reads.length === 0) await Promise.all([this.#committers.idle(), this.#rounds.idle()])
    else await this.#committers.quiet(reads.map(place => place.scope))
    for (const { scope } of reads.filter(({ tag }) => isFeedTag(tag))) {
      await this.#reader.run(connection => waitForWriters(connection, this.#settings, scope))
    }
  }

  /** Makes `close` wait for this work. */
  #track<T>(work: Promise<T>): Promise<T> {
    const forget = (): void => {
      this.#underWay.delete(settled)
    }
    const settled = work.then(forget, forget)
    this.#underWay.add(settled)
    return work
  }

  #noteEntry(entry: Entry | undefined): void {
    if (entry !== undefined) this.#note(entry.version, entry.time)
  }

  #note(version: number, time: number): void {
    if (version > this.#latestVersion) this.#latestVersion = version
    if (time > this.#latestTime) this.#latestTime = time
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw closedError()
  }

  #checkWritable(): void {
    this.#checkOpen()
    this.#checkReadOnly()
  }

  #checkReadOnly(): void {
    if (this.#settings.readOnly)
      throw new AnnalsError('READ_ONLY', 'the store was opened with readOnly: true')
  }
}

function loneAppend(operations: readonly Operation[]): Append | undefined {
  const [first] = operations
  return operations.length === 1 && first.op === 'append' ? first : undefined
}

/** Whether the place is the dedupe key of this append. */
function isKeyOf({ scope, tag, key }: Place, append: Append): boolean {
  return key === append.dedupe?.key && tag === dedupeTag(append.tag) && scope === append.scope
}

function pointsOf(
  reads: readonly Place[],
  found: readonly (Entry | undefined)[],
): NonNullable<Commit['points']> {
  return reads.map(({ scope, tag, key }, i) => ({ scope, tag, key, version: found[i]?.version ?? 0 }))
}

/** Runs the step on remembered entries. They may be out of date, so an error that the step throws proves nothing. */
function judgedBy<T>(
  step: Step<T>,
  found: readonly (Entry | undefined)[],
): ReturnType<Step<T>> | { readonly error: unknown } {
  try {
    return step(found, [])
  } catch (error) {
    return { error }
  }
}
