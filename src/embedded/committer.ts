import { AnnalsError } from '../core/errors.ts'
import { dedupeTag } from '../engine/keys.ts'
import { checkOperations } from '../engine/operations.ts'
import type {
  Append,
  Appended,
  Commit,
  CommitOutcome,
  Committed,
  Entry,
  Operation,
  Place,
  Put,
  Step,
  Updated,
} from '../engine/storage.ts'
import { isFull } from './disk.ts'
import { due, expiryTree, reminder } from './expiry.ts'
import type { Forest, Tree } from './forest.ts'
import { conflictOf, duplicateOf, link, newest } from './newest.ts'
import { REMOVED } from './node.ts'
import type { Scheduler } from './scheduler.ts'
import type { Wal } from './wal.ts'
import { FrameWriter } from './wal-frame.ts'

type Change = (tree: Tree, entry: Entry) => void

/** What waits for one write and one sync. */
class Batch {
  readonly frame = new FrameWriter()
  trees: Tree[] = []
  entries: Entry[] = []
  waiters: Waiter[] = []
}

interface Waiter {
  settle(): void
  reject(error: unknown): void
}

export interface CommitterOptions {
  readonly forest: Forest
  /** Absent for a store in memory. */
  readonly wal: Wal | undefined
  readonly durable: boolean
  readonly version: number
  readonly time: number
  readonly clock: () => number
  readonly scheduler: Scheduler
  /** A batch was applied: readers see it now. */
  readonly applied: (trees: readonly Tree[]) => void
}

/** A sync that takes longer than this is worth a thread even for one commit: meanwhile the event loop lives. */
const INLINE_SYNC_MS = 1
/** Commits that follow one another without a pause must let others run so often. */
const TURN_MS = 2

/**
 * Group commit. A commit is judged at once against everything before it,
 * pending commits included, encoded into the batch that is **building**, and
 * its changes become pending. A flush writes the building batch as one frame
 * and syncs it (**flushing**; the next one builds meanwhile); then the changes
 * are applied to the trees, where readers see them, and the callers are
 * answered. An answer that wrote nothing but saw pending commits waits for
 * them too: nobody hears of what may still be lost.
 *
 * A write that fails refuses all that is pending, and the log is cut back. A
 * sync that fails leaves the outcome unknown; nothing is written any more.
 */
export class Committer {
  /** Of the newest commit that readers see. */
  version: number
  time: number
  /** Why nothing can be written any more. */
  broken: AnnalsError | undefined
  /** While set, batches wait: a checkpoint has to catch up. */
  held = false
  readonly #forest: Forest
  readonly #wal: Wal | undefined
  readonly #durable: boolean
  readonly #clock: () => number
  readonly #scheduler: Scheduler
  readonly #applied: (trees: readonly Tree[]) => void
  #building = new Batch()
  #spare: Batch | undefined = new Batch()
  #flushing: Batch | undefined
  #scheduled = false
  #lastVersion: number
  #lastTime: number
  #latest: number
  #durableVersion: number
  #crowd = 0
  #turnStart = 0
  #syncMs = 0
  #idle: (() => void)[] = []

  constructor(options: CommitterOptions) {
    this.version = options.version
    this.time = options.time
    this.#lastVersion = options.version
    this.#lastTime = options.time
    this.#latest = options.time
    this.#durableVersion = options.version
    this.#forest = options.forest
    this.#wal = options.wal
    this.#durable = options.durable
    this.#clock = options.clock
    this.#scheduler = options.scheduler
    this.#applied = options.applied
  }

  /** Never before what was said or stored already, whatever the clock does: what has expired stays so. */
  now(): number {
    const now = this.#clock()
    if (now > this.#latest) this.#latest = now
    return this.#latest
  }

  commit(commit: Commit): Promise<CommitOutcome> {
    this.#guard(commit.operations)
    const now = this.now()
    const conflict = conflictOf(this.#forest, commit, now)
    if (conflict !== undefined) return this.#settled(conflict)
    return this.#write(commit.operations, now)
  }

  update<T>(reads: readonly Place[], step: Step<T>): Promise<Updated<T>> {
    this.#guard([])
    const now = this.now()
    const found = reads.map(({ scope, tag, key }) =>
      newest(this.#forest, this.#forest.tree(scope, tag), key, now),
    )
    let outcome: ReturnType<Step<T>>
    try {
      outcome = step(found)
      this.#guard(outcome.operations)
    } catch (error) {
      return this.#failed(error)
    }
    const { result, operations } = outcome
    return this.#write(operations, now, result) as Promise<Updated<T>>
  }

  /** Removes entries whose time has come, some at a time; resolves with how many reminders it took care of. */
  async expire(limit: number): Promise<number> {
    const now = this.now()
    const reminders = due(this.#forest, now, limit)
    if (reminders.length === 0 || this.broken !== undefined) return 0
    this.#record(now, (version, change) => {
      for (const { reminder, scope, tag, key, expiresAt } of reminders) {
        const gone = { value: '', version, time: now, expiresAt: REMOVED }
        change(expiryTree(this.#forest), { key: reminder, ...gone })
        const tree = this.#forest.tree(scope, tag)
        const entry = tree.pending?.get(key) ?? this.#forest.find(tree, key)
        // It may have been put again since, to stay longer or for good.
        if (entry?.expiresAt === expiresAt) change(tree, { key, ...gone })
      }
    })
    await this.#join(this.#building, undefined)
    return reminders.length
  }

  /** Resolves once nothing is pending and nothing is under way. */
  async settle(): Promise<void> {
    while (this.#flushing !== undefined || this.#building.waiters.length > 0) {
      await new Promise<void>(resolve => this.#idle.push(resolve))
    }
  }

  /** Runs `action` at a moment when every commit is either applied or not yet written. */
  async betweenBatches<T>(action: () => T): Promise<T> {
    while (this.#flushing !== undefined) await new Promise<void>(resolve => this.#idle.push(resolve))
    return action()
  }

  /** Lets batches go on after `held` was cleared. */
  release(): void {
    this.held = false
    if (this.#building.waiters.length > 0) this.#schedule()
  }

  /** Everything so far is on the device, though not by a sync of ours. */
  durableUpTo(version: number): void {
    this.#durableVersion = Math.max(this.#durableVersion, version)
  }

  break(error: AnnalsError): void {
    this.broken ??= error
    this.#refuse(this.#building, this.#readOnly())
  }

  #guard(operations: readonly Operation[]): void {
    if (this.broken !== undefined) throw this.#readOnly()
    checkOperations(operations)
  }

  #readOnly(): AnnalsError {
    const why = this.broken as AnnalsError
    const message = `nothing can be written any more: ${why.message}; reopen the store`
    return new AnnalsError('READ_ONLY', message, { cause: why.code }, why)
  }

  #write(
    operations: readonly Operation[],
    now: number,
    result?: unknown,
  ): Promise<Committed & { result: unknown }> {
    const appended: Appended[] = []
    const wrote = this.#record(now, (version, change) => {
      for (const operation of operations) {
        const tree = this.#forest.tree(operation.scope, operation.tag)
        if (operation.op === 'append') appended.push(this.#append(tree, operation, version, now, change))
        else if (operation.op === 'put') this.#put(tree, operation, version, now, change)
        else change(tree, { key: operation.key, value: '', version, time: now, expiresAt: REMOVED })
      }
    })
    const answer = {
      status: 'committed' as const,
      version: this.#lastVersion,
      time: this.#lastTime,
      appended,
      result,
    }
    return wrote ? this.#join(this.#building, answer) : this.#settled(answer)
  }

  #put(tree: Tree, { key, value, expiresAt = 0 }: Put, version: number, time: number, change: Change): void {
    change(tree, { key, value, version, time, expiresAt })
    if (expiresAt !== 0) change(expiryTree(this.#forest), reminder(tree, key, expiresAt, version, time))
  }

  #append(tree: Tree, append: Append, version: number, time: number, change: Change): Appended {
    const duplicate = duplicateOf(this.#forest, append, time)
    if (duplicate !== undefined) return duplicate
    const { event, dedupe, answer } = link(this.#forest, tree, append, version, time)
    change(tree, event)
    if (dedupe !== undefined) change(this.#forest.tree(append.scope, dedupeTag(append.tag)), dedupe)
    return answer
  }

  /** One commit into the building batch; false if it changed nothing: then there was none. */
  #record(now: number, fill: (version: number, change: Change) => void): boolean {
    const batch = this.#building
    const version = this.#lastVersion + 1
    let begun = false
    fill(version, (tree, entry) => {
      if (!begun) {
        begun = true
        batch.frame.begin(version, now)
      }
      batch.frame.change(tree.scope, tree.tag, entry)
      batch.trees.push(tree)
      batch.entries.push(entry)
      tree.pending ??= new Map()
      tree.pending.set(entry.key, entry)
    })
    if (!begun) return false
    this.#lastVersion = version
    this.#lastTime = now
    return true
  }

  #join<T>(batch: Batch, answer: T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      batch.waiters.push({ settle: () => resolve(answer), reject })
      if (batch === this.#building) this.#schedule()
    })
  }

  /** Answers without a write, once all that the answer may rest on is durable. */
  #settled<T>(answer: T): Promise<T> {
    if (this.#building.waiters.length > 0) return this.#join(this.#building, answer)
    if (this.#flushing !== undefined) return this.#join(this.#flushing, answer)
    return Promise.resolve(answer)
  }

  async #failed(error: unknown): Promise<never> {
    await this.#settled(undefined)
    throw error
  }

  #schedule(): void {
    if (this.#scheduled || this.#flushing !== undefined || this.held) return
    this.#scheduled = true
    // A crowd is worth a turn of the event loop: all of it gets on the same write. So is being kind to others.
    if (this.#crowd > 1 || this.#scheduler.now() - this.#turnStart > TURN_MS) {
      this.#scheduler.later(() => {
        this.#turnStart = this.#scheduler.now()
        this.#flush()
      })
    } else this.#scheduler.soon(() => this.#flush())
  }

  #flush(): void {
    this.#scheduled = false
    const batch = this.#building
    if (this.held || batch.waiters.length === 0) return
    this.#building = this.#spare ?? new Batch()
    this.#spare = undefined
    this.#flushing = batch
    this.#crowd = batch.frame.commits
    if (this.#wal === undefined || batch.frame.commits === 0) this.#finish(batch)
    else if (this.#writeFrame(this.#wal, batch)) {
      if (this.#durable) this.#sync(this.#wal, batch)
      else this.#finish(batch)
    }
  }

  #writeFrame(wal: Wal, batch: Batch): boolean {
    try {
      wal.write(batch.frame.finish(wal.segment(), this.#durableVersion))
      return true
    } catch (error) {
      this.#writeFailed(wal, batch, error)
      return false
    }
  }

  #sync(wal: Wal, batch: Batch): void {
    if (this.#crowd > 1 || this.#syncMs > INLINE_SYNC_MS) {
      // A lone commit will try again, one day, whether the disk has become quick.
      if (this.#crowd === 1) this.#syncMs *= 0.95
      void wal.syncLater().then(
        () => this.#synced(batch),
        (error: unknown) => this.#syncFailed(batch, error),
      )
      return
    }
    const start = this.#scheduler.now()
    try {
      wal.sync()
    } catch (error) {
      this.#syncFailed(batch, error)
      return
    }
    this.#syncMs = this.#syncMs * 0.8 + (this.#scheduler.now() - start) * 0.2
    this.#synced(batch)
  }

  #synced(batch: Batch): void {
    this.#durableVersion = batch.frame.firstVersion + batch.frame.commits - 1
    this.#turnStart = this.#crowd > 1 ? this.#scheduler.now() : this.#turnStart
    this.#finish(batch)
  }

  #finish(batch: Batch): void {
    const { trees, entries, waiters } = batch
    for (let i = 0; i < trees.length; i++) {
      const tree = trees[i]
      const entry = entries[i]
      this.#forest.apply(tree, entry)
      // A later commit's pending entry stays.
      if (tree.pending?.get(entry.key) === entry) {
        tree.pending.delete(entry.key)
        if (tree.pending.size === 0) tree.pending = undefined
      }
    }
    const last = entries.at(-1)
    if (last !== undefined) {
      this.version = last.version
      this.time = last.time
    }
    this.#flushing = undefined
    batch.trees = []
    batch.entries = []
    batch.waiters = []
    batch.frame.reset()
    this.#spare ??= batch
    for (const waiter of waiters) waiter.settle()
    if (trees.length > 0) this.#applied(trees)
    this.#wake()
    if (this.#building.waiters.length > 0) this.#schedule()
  }

  #wake(): void {
    const idle = this.#idle
    if (idle.length === 0) return
    this.#idle = []
    for (const resume of idle) resume()
  }

  /** Nothing of it counts, if the log can be cut back to where it was; else nobody knows. */
  #writeFailed(wal: Wal, batch: Batch, error: unknown): void {
    try {
      wal.cutBack()
    } catch (second) {
      this.#syncFailed(batch, second)
      return
    }
    const refusal = isFull(error)
      ? new AnnalsError(
          'DISK_FULL',
          'the disk is full: nothing was committed; make room and try again',
          {},
          error,
        )
      : new AnnalsError(
          'IO_ERROR',
          `the log could not be written: nothing was committed (${String(error)})`,
          {},
          error,
        )
    this.#flushing = undefined
    this.#refuse(batch, refusal)
    this.#wake()
  }

  /** Whether it is on the device is known only after reopening. A second sync could lie: it is never tried. */
  #syncFailed(batch: Batch, error: unknown): void {
    const unknown = new AnnalsError(
      'OUTCOME_UNKNOWN',
      `the disk failed to confirm the write (${String(error)}): reopen the store to see what it holds`,
      {},
      error,
    )
    this.#flushing = undefined
    for (const waiter of batch.waiters.splice(0)) waiter.reject(unknown)
    this.broken ??= unknown
    this.#refuse(batch, this.#readOnly())
    this.#wake()
  }

  /** Rejects this batch and the one building, which saw it; versions, sequences and pending entries go back. */
  #refuse(batch: Batch, refusal: AnnalsError): void {
    const waiters = [...batch.waiters]
    if (batch !== this.#building) waiters.push(...this.#building.waiters)
    for (const each of [batch, this.#building]) {
      for (const tree of each.trees) {
        tree.pending = undefined
        tree.head = undefined
      }
      each.trees = []
      each.entries = []
      each.waiters = []
      each.frame.reset()
    }
    this.#spare ??= batch === this.#building ? undefined : batch
    this.#lastVersion = this.version
    this.#lastTime = this.time
    for (const waiter of waiters) waiter.reject(refusal)
  }
}
