import type { ByteString } from '../core/bytes.ts'
import { dedupeTag, feedTag, HEAD_KEY, headTag } from '../engine/keys.ts'
import {
  commitTime,
  dedupeValue,
  feedKey,
  feedValue,
  headAfter,
  headValue,
  linkAppend,
} from '../engine/log.ts'
import { checkOperations } from '../engine/operations.ts'
import type {
  Append,
  Appended,
  Commit,
  CommitOutcome,
  Drop,
  Entry,
  Operation,
  Place,
  Put,
  Range,
  Step,
  Updated,
} from '../engine/storage.ts'
import type { Batch } from './batch.ts'
import { type Change, dropOf, removalOf } from './change.ts'
import { due, expiryTree, nextExpiry, reminder } from './expiry.ts'
import type { Forest, Tree } from './forest.ts'
import { GroupCommit } from './group-commit.ts'
import { conflictOf, duplicateOf, headOf, newest, newestChange, newestRange } from './newest.ts'
import type { Scheduler } from './scheduler.ts'
import type { Wal } from './wal.ts'

export interface CommitterOptions {
  readonly forest: Forest
  /** Undefined for a store in memory. */
  readonly wal: Wal | undefined
  readonly durable: boolean
  readonly version: number
  readonly time: number
  readonly clock: () => number
  readonly scheduler: Scheduler
  /** Called after a batch was applied, with the trees that readers now see changed. */
  readonly applied: (trees: readonly Tree[]) => void
}

/**
 * Validates commits and adds them to the current batch. Each commit is checked in one synchronous step against all commits before
 * it, including pending ones, so it needs no locks and no retries. Its changes are pending until its batch is done.
 *
 * An answer that wrote nothing, such as a conflict, waits for the pending commits that it saw. Otherwise a caller could learn of
 * data that a crash still undoes.
 */
export class Committer {
  /** The version of the newest commit that readers see; `time` is its time. */
  version: number
  time: number
  readonly group: GroupCommit
  readonly #forest: Forest
  readonly #clock: () => number
  readonly #applied: (trees: readonly Tree[]) => void
  /** The version of the newest commit, pending or not. */
  #lastVersion: number
  #lastTime: number
  /** The latest time that was given out. */
  #latest: number
  /** The clock's value at the last commit. */
  #lastClock = 0
  /** No reminder is due before this time. 0 until the first check. */
  #nextExpiry = 0
  readonly #recording = new Recording()

  constructor(options: CommitterOptions) {
    this.version = options.version
    this.time = options.time
    this.#lastVersion = options.version
    this.#lastTime = options.time
    this.#latest = options.time
    this.#forest = options.forest
    this.#clock = options.clock
    this.#applied = options.applied
    this.group = new GroupCommit({
      ...options,
      through: batch => this.#apply(batch),
      undo: batches => this.#undo(batches),
    })
  }

  /** The current clock, which decides whether entries have expired. It may jump back. */
  clock(): number {
    return this.#clock()
  }

  /** The current time for commits and snapshots. It never goes back, even if the clock does. */
  now(clock: number = this.#clock()): number {
    if (clock > this.#latest) this.#latest = clock
    return this.#latest
  }

  /** Applies the operations, unless a read of the commit is outdated. Then the answer is the conflict. */
  commit(commit: Commit): Promise<CommitOutcome> {
    this.#guard(commit.operations)
    const clock = this.#look()
    const now = this.now(clock)
    const conflict = conflictOf(this.#forest, commit, clock)
    if (conflict !== undefined) return this.group.settled(conflict)
    return this.#write(commit.operations, now, undefined, NOTHING, NOTHING)
  }

  /** Runs the step on the newest entries, pending ones included, and applies the operations that it returns. */
  update<T>(reads: readonly Place[], step: Step<T>, ranges: readonly Range[]): Promise<Updated<T>> {
    this.#guard([])
    const clock = this.#look()
    const now = this.now(clock)
    const found = new Array<Entry | undefined>(reads.length)
    for (let i = 0; i < reads.length; i++) found[i] = newest(this.#forest, reads[i], clock)
    const scanned =
      ranges.length === 0 ? NOTHING : ranges.map(range => newestRange(this.#forest, range, clock))
    let outcome: ReturnType<Step<T>>
    try {
      outcome = step(found, scanned)
      this.#guard(outcome.operations)
    } catch (error) {
      return this.group.settled(undefined).then(() => Promise.reject(error))
    }
    if (outcome.operations.length === 0) return this.#written([], outcome.result, false)
    return this.#write(outcome.operations, now, outcome.result, reads, found)
  }

  /** Whether an entry may have expired that is not removed yet. */
  isExpiryDue(): boolean {
    return this.#nextExpiry <= this.#lastClock
  }

  /** Removes expired entries, for at most `limit` reminders. Resolves with the number of reminders handled. */
  async expire(limit: number): Promise<number> {
    const clock = this.#look()
    if (this.group.broken !== undefined) return 0
    const reminders = due(this.#forest, clock, limit)
    this.#nextExpiry = reminders.length < limit ? nextExpiry(this.#forest, clock) : clock
    if (reminders.length === 0) return 0
    const recording = this.#recording
    recording.start(this.group.building, this.#lastVersion + 1, this.now(clock), NOTHING, NOTHING)
    try {
      for (const { reminder, scope, tag, key, expiresAt } of reminders) {
        recording.remove(expiryTree(this.#forest), reminder)
        const tree = this.#forest.tree(scope, tag)
        const entry = newestChange(this.#forest, tree, key)
        // A later put may have given the entry another lifetime, or none.
        if (entry?.expiresAt === expiresAt) recording.remove(tree, key)
      }
    } catch (error) {
      this.#takeBack(recording, error)
    }
    this.#recorded(recording)
    await this.group.join(undefined)
    return reminders.length
  }

  /** Reads the clock and remembers it for `isExpiryDue`. */
  #look(): number {
    this.#lastClock = this.#clock()
    return this.#lastClock
  }

  #guard(operations: readonly Operation[]): void {
    if (this.group.broken !== undefined) throw this.group.readOnly()
    checkOperations(operations)
  }

  #write<T>(
    operations: readonly Operation[],
    now: number,
    result: T,
    reads: readonly Place[],
    found: readonly (Entry | undefined)[],
  ): Promise<Updated<T>> {
    const time = commitTime(operations, now)
    if (time > this.#latest) this.#latest = time
    const recording = this.#recording
    recording.start(this.group.building, this.#lastVersion + 1, time, reads, found)
    const appended: Appended[] = []
    try {
      for (const operation of operations) {
        if (operation.op === 'put') this.#put(recording, operation)
        else if (operation.op === 'append') appended.push(this.#append(recording, operation))
        else if (operation.op === 'drop') this.#drop(recording, operation)
        else recording.remove(this.#forest.tree(operation.scope, operation.tag), operation.key)
      }
      this.#endLog(recording)
    } catch (error) {
      this.#takeBack(recording, error)
    }
    this.#recorded(recording)
    return this.#written(appended, result, recording.begun)
  }

  #written<T>(appended: readonly Appended[], result: T, begun: boolean): Promise<Updated<T>> {
    const status = 'committed' as const
    const answer = { status, version: this.#lastVersion, time: this.#lastTime, appended, result }
    return begun ? this.group.join(answer) : this.group.settled(answer)
  }

  // Opening a tree may make the forest forget another one that is clean and has nothing pending. So get each tree right before its use.

  #put(recording: Recording, { scope, tag, key, value, expiresAt = 0, time: own }: Put): void {
    const { version, time } = recording
    const tree = this.#forest.tree(scope, tag)
    recording.change(tree, { key, value, version, time: own ?? time, expiresAt })
    if (expiresAt === 0) return
    this.#nextExpiry = Math.min(this.#nextExpiry, expiresAt)
    recording.change(expiryTree(this.#forest), reminder(tree, key, expiresAt, version, time))
  }

  #drop(recording: Recording, { scope }: Drop): void {
    // Recovery derives a head from every append. Writing the head now lets the drop include the tree of heads.
    this.#endLog(recording)
    for (const tag of this.#forest.tagsOf(scope)) recording.drop(this.#forest.tree(scope, tag))
  }

  #append(recording: Recording, append: Append): Appended {
    const { version, time } = recording
    const duplicate = duplicateOf(this.#forest, append, time, recording.isAbsent(append))
    if (duplicate !== undefined) return duplicate
    const { scope, tag, dedupe, feed } = append
    const linked = linkAppend(headOf(this.#forest, append), append, time)
    const tree = this.#forest.tree(scope, tag)
    if (recording.log !== tree) this.#endLog(recording)
    recording.put(tree, linked.key, linked.value)
    recording.log = tree
    tree.head = headAfter(linked)
    const memo = dedupe?.memo ?? ''
    if (dedupe !== undefined) {
      const known = this.#forest.tree(scope, dedupeTag(tag))
      recording.put(known, dedupe.key, dedupeValue(linked, memo))
    }
    if (feed !== undefined) {
      const key = feedKey(version, recording.listed++)
      recording.put(this.#forest.tree(feed, feedTag(tag)), key, feedValue(linked, scope))
    }
    const { sequence, hash, time: stamp } = linked
    return { sequence, hash, time: stamp, duplicate: false, memo }
  }

  /** Writes the head of a log, once for all consecutive appends to it. */
  #endLog(recording: Recording): void {
    const { log, version, time } = recording
    if (log?.head === undefined) return
    const value = headValue(log.head)
    const heads = this.#forest.tree(log.scope, headTag(log.tag))
    recording.imply(heads, { key: HEAD_KEY, value, version, time, expiresAt: 0 })
    recording.log = undefined
  }

  /** Ends a commit. One without changes does not get a version. */
  #recorded(recording: Recording): void {
    const { begun, version, time } = recording
    recording.end()
    if (!begun) return
    this.#lastVersion = version
    this.#lastTime = time
  }

  /** Undoes a commit that failed halfway because a read failed, and throws the error. */
  #takeBack(recording: Recording, error: unknown): never {
    recording.end()
    if (recording.begun) this.group.abandon()
    throw error
  }

  #apply(batch: Batch): void {
    const trees = batch.apply(this.#forest)
    const { last } = batch
    if (last === undefined) return
    this.version = last.version
    this.time = last.time
    this.#applied(trees)
  }

  #undo(batches: readonly Batch[]): void {
    for (const batch of batches) batch.discard()
    this.#lastVersion = this.version
    this.#lastTime = this.time
  }
}

const NOTHING: readonly never[] = []

/**
 * A commit that is being added to a batch. It begins with its first change. One object is reused for all commits. With a new object for
 * each commit, V8 would drop the object's hidden class at a full garbage collection, and the optimized code with it.
 */
class Recording {
  version = 0
  time = 0
  begun = false
  /** The number of appends that a feed lists. */
  listed = 0
  /** The last log that was appended to, if its head is not written yet. */
  log: Tree | undefined = undefined
  #batch: Batch | undefined = undefined
  #reads: readonly Place[] = NOTHING
  #found: readonly (Entry | undefined)[] = NOTHING
  #read = 0

  /** Begins the next commit. `reads` and `found` are the reads of its step and their results. */
  start(
    batch: Batch,
    version: number,
    time: number,
    reads: readonly Place[],
    found: readonly (Entry | undefined)[],
  ): void {
    this.version = version
    this.time = time
    this.begun = false
    this.listed = 0
    this.log = undefined
    this.#batch = batch
    this.#reads = reads
    this.#found = found
    this.#read = 0
  }

  /** Releases references to the commit's data. */
  end(): void {
    this.#batch = undefined
    this.#reads = NOTHING
    this.#found = NOTHING
  }

  /**
   * Whether the step already read the append's dedupe key and found nothing, which saves a second lookup. A step usually appends in
   * the order of its reads, so each read is compared only once. False means unknown.
   */
  isAbsent({ scope, tag, dedupe }: Append): boolean {
    if (dedupe === undefined) return false
    const dedupes = dedupeTag(tag)
    while (this.#read < this.#reads.length) {
      const at = this.#read++
      const read = this.#reads[at]
      if (read.key === dedupe.key && read.tag === dedupes && read.scope === scope)
        return this.#found[at] === undefined
    }
    return false
  }

  change(tree: Tree, change: Change): void {
    const batch = this.#batch as Batch
    if (!this.begun) {
      this.begun = true
      batch.begin(this.version, this.time)
    }
    batch.change(tree, change)
  }

  /** Puts an entry that does not expire. */
  put(tree: Tree, key: ByteString, value: ByteString): void {
    this.change(tree, { key, value, version: this.version, time: this.time, expiresAt: 0 })
  }

  /** Puts an entry that recovery derives, so that the log need not hold it. */
  imply(tree: Tree, entry: Entry): void {
    ;(this.#batch as Batch).imply(tree, entry)
  }

  remove(tree: Tree, key: ByteString): void {
    this.change(tree, removalOf(key, this.version, this.time))
  }

  drop(tree: Tree): void {
    this.change(tree, dropOf(this.version, this.time))
  }
}
