import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import type { EngineInfo } from '../engine/capabilities.ts'
import { isDedupeTag, isFeedTag } from '../engine/keys.ts'
import { checkLimit, checkOperations, checkPlace, checkRange, checkTree } from '../engine/operations.ts'
import type {
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
} from '../engine/storage.ts'
import { Committers } from './committers.ts'
import type { ConnectionSettings } from './connection.ts'
import { closedError } from './lane.ts'
import { Listener } from './listener.ts'
import { OwnChanges } from './own-changes.ts'
import { PlaceQueue } from './place-queue.ts'
import { BatchedReader } from './reader.ts'
import { bytes } from './reads.ts'
import { RememberedPlaces } from './remembered-places.ts'
import { Snapshots } from './snapshots.ts'
import { STATEMENTS } from './statements.ts'
import { Sweeper } from './sweeper.ts'
import { waitForWriters } from './writers.ts'

export interface StoreSettings extends ConnectionSettings {
  /** Of the tests; without it the server's clock counts. */
  readonly clock: (() => number) | undefined
  readonly snapshotConnections: number
  readonly readOnly: boolean
  /** What the server's clock said at opening, by `performance.now()`; and the time of the newest commit if that was later. */
  readonly opened: { readonly clock: number; readonly readAt: number; readonly ahead: number }
  /** How often entries that have expired are removed. */
  readonly sweepMs: number
}

type Point = NonNullable<Commit['points']>[number]

/** A step that others keep getting ahead of gives up, rather than never to end. */
const STEP_ATTEMPTS_MAX = 200
const STEP_PAUSE_MAX_MS = 20

/** The storage port on PostgreSQL: what each part does, and on which connection, is in its own file. */
export class PostgresStore implements Storage {
  readonly engine: EngineInfo = { kind: 'postgres', durability: 'durable' }
  readonly readOnly: boolean
  readonly #settings: StoreSettings
  readonly #committer: Committers
  readonly #reader: BatchedReader
  readonly #snapshots: Snapshots
  readonly #listener: Listener
  /** Removing is writing: a reader has none. */
  readonly #sweeper: Sweeper | undefined
  readonly #own = new OwnChanges()
  readonly #places = new PlaceQueue()
  readonly #remembered = new RememberedPlaces()
  readonly #underWay = new Set<Promise<unknown>>()
  /** Of all that was answered. */
  #latestTime: number
  #latestVersion = 0
  /** How far the server's clock is ahead of `performance.now()`, which nobody sets: at opening, and again with each sweep. */
  #serverAheadMs: number
  #closing: Promise<void> | undefined

  constructor(settings: StoreSettings) {
    this.#settings = settings
    this.readOnly = settings.readOnly
    this.#latestTime = settings.opened.ahead
    this.#serverAheadMs = settings.opened.clock - settings.opened.readAt
    const givenMs = (): number | undefined => settings.clock?.()
    this.#committer = new Committers(settings, () =>
      settings.clock === undefined ? {} : { clockMs: settings.clock(), notBeforeMs: this.now() },
    )
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

  update<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    try {
      // Who reads a feed in a step wants to wait for its writers, which changes nothing.
      if (reads.length > 0 && reads.every(({ tag }) => isFeedTag(tag))) this.#checkOpen()
      else this.#checkWritable()
      for (const place of reads) checkPlace(place)
      return this.#appendAtOnce(reads, step) ?? this.#track(this.#update(reads, step))
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
    const rows = await this.#track(
      this.#reader.run(connection =>
        connection.run(STATEMENTS.readScopes, [bytes(from), to === undefined ? undefined : bytes(to), limit]),
      ),
    )
    return rows.map(row => row['scope'] as ByteString)
  }

  /** Removes entries that have expired, so many at most; says how many it were. */
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

  /** The server's, as far as it is known here. */
  clock(): number {
    return this.#settings.clock?.() ?? Math.floor(performance.now() + this.#serverAheadMs)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#sweeper?.close()
    // What finds a conflict goes on with another read.
    while (this.#underWay.size > 0 || this.#committer.isBusy) {
      await Promise.allSettled([...this.#underWay, this.#committer.idle()])
    }
    this.#own.close()
    await Promise.all([
      this.#listener.close(),
      this.#committer.close(),
      this.#reader.close(),
      this.#snapshots.close(),
    ])
  }

  async #commit(commit: Commit): Promise<CommitOutcome> {
    this.#checkReadOnly()
    const outcome = await this.#committer.commit(commit)
    if (outcome.status === 'committed') this.#noteCommit(commit.operations, outcome)
    return outcome
  }

  #noteCommit(operations: readonly Operation[], { version, time }: Committed): void {
    this.#note(version, time)
    this.#own.note(operations)
  }

  /**
   * The way of nearly all appends: the step is tried on what is remembered, and is done if the commit finds it so. Undefined
   * if it has to go the long way. One append alone tells by itself that its key is known, and has changed nothing then.
   */
  #appendAtOnce<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> | undefined {
    if (!reads.some(isDedupe)) return undefined
    const recalled = this.#remembered.recall(reads)
    const judged = recalled && judgedBy(step, recalled.found)
    if (recalled === undefined || judged === undefined || 'error' in judged) return undefined
    const { operations, result } = judged
    if (operations.length !== 1 || operations[0].op !== 'append') return undefined
    checkOperations(operations)
    return this.#committer.commit({ points: recalled.points, operations }).then(outcome => {
      if (outcome.status === 'conflict') this.#remembered.forget(reads)
      else if (!outcome.appended[0].duplicate) {
        this.#noteCommit(operations, outcome)
        const { status, version, time, appended } = outcome
        return { status, version, time, appended, result }
      }
      return this.#track(this.#updateAppending(reads, step))
    })
  }

  /** Read, step, commit with what was read to be validated; again if somebody else was faster. */
  #update<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    return reads.some(isDedupe) ? this.#updateAppending(reads, step) : this.#updateInTurn(reads, step)
  }

  /**
   * A step that looks for a dedupe key is about to append, which changes nothing that others look at: it need not wait
   * for them.
   */
  async #updateAppending<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    for (let attempt = 1; ; attempt++) {
      const found = await this.#reader.points(reads)
      for (const entry of found) this.#noteEntry(entry)
      const { operations, result } = step(found)
      if (operations.length === 0) {
        const [version, time] = [this.#latestVersion, this.now()]
        return { status: 'committed', version, time, appended: [], result }
      }
      if (operations.some(({ op }) => op !== 'append')) return this.#updateInTurn(reads, step)
      checkOperations(operations)
      // One append alone tells by itself that its key is known, and has changed nothing then.
      const isAlone = operations.length === 1
      const points: Point[] = []
      reads.forEach(({ scope, tag, key }, i) => {
        if (!isAlone || !isDedupeTag(tag)) points.push({ scope, tag, key, version: found[i]?.version ?? 0 })
      })
      const outcome = await this.#commit({ points, operations })
      if (outcome.status === 'committed' && !(isAlone && outcome.appended[0].duplicate)) {
        this.#remembered.remember(reads, found)
        return { ...outcome, result }
      }
      if (outcome.status === 'conflict' && attempt === STEP_ATTEMPTS_MAX) {
        throw tooManyConflicts(attempt, outcome.on)
      }
    }
  }

  async #updateInTurn<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    const endTurn = await this.#places.turn(reads)
    try {
      await this.#settle(reads)
      for (let attempt = 1; ; attempt++) {
        const found = reads.length === 0 ? [] : await this.#reader.points(reads)
        for (const entry of found) this.#noteEntry(entry)
        // All places were read as of one moment: what the step makes of them, throwing included, is valid then.
        const { operations, result } = step(found)
        checkOperations(operations)
        if (operations.length === 0) {
          const [version, time] = [this.#latestVersion, this.now()]
          return { status: 'committed', version, time, appended: [], result }
        }
        const points = reads.map((place, i) => ({ ...place, version: found[i]?.version ?? 0 }))
        const outcome = await this.#commit({ points, operations })
        if (outcome.status === 'committed') return { ...outcome, result }
        if (attempt === STEP_ATTEMPTS_MAX) throw tooManyConflicts(attempt, outcome.on)
        await pause(Math.random() * Math.min(STEP_PAUSE_MAX_MS, attempt))
      }
    } finally {
      endTurn()
    }
  }

  /**
   * What this process has under way is through: all of it, if the step reads nothing. Whatever a feed is about to list is through
   * in other processes as well.
   */
  async #settle(reads: readonly Place[]): Promise<void> {
    if (reads.length === 0) await this.#committer.idle()
    else await this.#committer.quiet(reads.map(place => place.scope))
    for (const { scope } of reads.filter(({ tag }) => isFeedTag(tag))) {
      await this.#reader.run(connection => waitForWriters(connection, this.#settings, scope))
    }
  }

  /** Closing waits for it. */
  #track<T>(work: Promise<T>): Promise<T> {
    const settled = work.then(
      () => {
        this.#underWay.delete(settled)
      },
      () => {
        this.#underWay.delete(settled)
      },
    )
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

function isDedupe({ tag }: Place): boolean {
  return isDedupeTag(tag)
}

/** What it throws may be due to what is not so any more. */
function judgedBy<T>(
  step: Step<T>,
  found: readonly (Entry | undefined)[],
): ReturnType<Step<T>> | { readonly error: unknown } {
  try {
    return step(found)
  } catch (error) {
    return { error }
  }
}

function tooManyConflicts(attempts: number, on: TreeId): AnnalsError {
  const message = `a step found what it had read changed by others, ${attempts} times`
  return new AnnalsError('CONFLICT', message, { attempts, on })
}
