import { AnnalsError } from '../core/errors.ts'
import { isFolderGone, isFull, isUnconfirmed, lackOfDescriptors, outOfDescriptors } from '../disk/disk.ts'
import { Batch } from './batch.ts'
import type { Scheduler } from './scheduler.ts'
import type { Wal } from './wal.ts'

export interface GroupCommitOptions {
  /** Undefined for a store in memory. */
  readonly wal: Wal | undefined
  readonly durable: boolean
  /** The version of the newest durable commit. */
  readonly version: number
  readonly scheduler: Scheduler
  /** Applies a batch that is as durable as the options require, so that readers see it. */
  readonly through: (batch: Batch) => void
  /** Removes all pending changes of batches that failed. */
  readonly undo: (batches: readonly Batch[]) => void
}

/** If syncs take longer than this, even a lone commit syncs on another thread, to keep the event loop free. */
const INLINE_SYNC_MS = 1
/** A sequence of commits without pauses yields to the event loop after this time. */
const TURN_MS = 2
/** A batch of this size takes no more commits. */
const BATCH_BYTES_MAX = 32 * 1024 * 1024

/**
 * Writes all waiting commits with one write and one sync. A batch has three states:
 *
 * - **building**: new commits join it.
 * - **flushing**: it is written as one frame and synced, while the next batch is building. A lone commit is synced inline, several
 *   commits on another thread.
 * - **done**: its changes are applied, and its callers have their answers.
 *
 * If a write fails, the log is cut back and all waiting commits are refused. If a sync fails, the outcome is unknown, and the store
 * never writes again.
 */
export class GroupCommit {
  /** The reason why the store can only read from now on. */
  broken: AnnalsError | undefined
  /** The reason why the last commit was refused, if it may be temporary, such as a full disk. */
  refused: AnnalsError | undefined
  /** The reason why the store can't even read any more. */
  lost: AnnalsError | undefined
  readonly #wal: Wal | undefined
  readonly #durable: boolean
  readonly #scheduler: Scheduler
  readonly #through: (batch: Batch) => void
  readonly #undo: (batches: readonly Batch[]) => void
  #building = new Batch()
  /** Full batches, in order, that are flushed before the one that is building. */
  #full: Batch[] = []
  #flushing: Batch | undefined
  #spare: Batch | undefined
  #held = false
  #scheduled = false
  #durableVersion: number
  /** The size of the last batch, or half of the previous value if that is more. Above 1, more commits are expected to arrive together. */
  #crowd = 0
  #turnStart = 0
  /** Whether the folder was checked in this turn of the event loop. */
  #folderChecked = false
  /** The moving average of the time that an inline sync takes. */
  #syncMs = 0
  #idle: (() => void)[] = []
  readonly #flushNow = (): void => this.#flush()

  constructor(options: GroupCommitOptions) {
    this.#wal = options.wal
    this.#durable = options.durable
    this.#durableVersion = options.version
    this.#scheduler = options.scheduler
    this.#through = options.through
    this.#undo = options.undo
  }

  /** The batch that takes the next commit. */
  get building(): Batch {
    if (this.#building.frame.bytes > BATCH_BYTES_MAX) {
      this.#full.push(this.#building)
      this.#building = this.#takeSpare()
    }
    return this.#building
  }

  /** Undoes the commit that was begun last and is incomplete. Earlier commits stay pending. */
  abandon(): void {
    const trees = new Set(this.#building.abandon())
    for (const tree of trees) {
      tree.pending = undefined
      tree.drop = undefined
      tree.head = undefined
    }
    for (const batch of [this.#flushing, ...this.#full, this.#building]) batch?.restore(trees)
  }

  /** Resolves with the answer when the batch that is building is done. */
  join<T>(answer: T): Promise<T> {
    const waiting = this.#building.wait(answer)
    this.#schedule()
    return waiting
  }

  /** Resolves with an answer that wrote nothing, when all commits that it may depend on are done. */
  settled<T>(answer: T): Promise<T> {
    if (!this.#building.isEmpty || this.#full.length > 0) return this.join(answer)
    return this.#flushing?.wait(answer) ?? Promise.resolve(answer)
  }

  /** Resolves when no batch is waiting or flushing. */
  async settle(): Promise<void> {
    while (this.#flushing !== undefined || this.#waits) await this.#nextEnd()
  }

  /** Runs `action` at a moment when every commit is either done or not yet written. */
  async betweenBatches<T>(action: () => T): Promise<T> {
    while (this.#flushing !== undefined) await this.#nextEnd()
    return action()
  }

  /** Makes batches wait until `release`, so that a checkpoint can catch up. */
  hold(): void {
    this.#held = true
  }

  /** Ends `hold`. */
  release(): void {
    this.#held = false
    if (this.#waits) this.#schedule()
  }

  /** Records that a checkpoint made all commits up to this version durable. */
  durableUpTo(version: number): void {
    this.#durableVersion = Math.max(this.#durableVersion, version)
  }

  /** Stops all writing and refuses the waiting batches. A batch that is flushing ends by itself. */
  break(error: AnnalsError): void {
    this.broken ??= error
    this.#refuse([], this.readOnly())
    this.#wake()
  }

  /** The error for calls that want to write to a broken store. */
  readOnly(): AnnalsError {
    const why = this.broken as AnnalsError
    const message = `the store became read-only and must be reopened. The cause: ${why.message}`
    return new AnnalsError('READ_ONLY', message, { cause: why.code }, why)
  }

  /** Whether commits wait to be flushed. */
  get #waits(): boolean {
    return !this.#building.isEmpty || this.#full.length > 0
  }

  #schedule(): void {
    if (this.#scheduled || this.#flushing !== undefined || this.#held) return
    this.#scheduled = true
    // If several commits are expected, waiting for the next turn of the event loop lets them share one write. A long sequence of
    // commits waits for it as well, so that other code can run.
    if (this.#crowd > 1 || this.#scheduler.now() - this.#turnStart > TURN_MS) {
      this.#scheduler.later(() => {
        this.#turnStart = this.#scheduler.now()
        this.#flush()
      })
    } else this.#scheduler.soon(this.#flushNow)
  }

  #flush(): void {
    this.#scheduled = false
    if (this.#held || this.#flushing !== undefined || !this.#waits) return
    const batch = this.#takeNext()
    this.#flushing = batch
    // A lone commit between two large batches counts as part of them. An inline sync would delay the commits that follow.
    this.#crowd = Math.max(batch.frame.commits, this.#crowd >> 1)
    if (this.#wal === undefined || batch.frame.commits === 0) this.#end(batch)
    else if (this.#write(this.#wal, batch)) {
      if (this.#durable) this.#sync(this.#wal, batch)
      else this.#end(batch)
    }
  }

  #takeNext(): Batch {
    const full = this.#full.shift()
    if (full !== undefined) return full
    const batch = this.#building
    this.#building = this.#takeSpare()
    return batch
  }

  #takeSpare(): Batch {
    const spare = this.#spare ?? new Batch()
    this.#spare = undefined
    return spare
  }

  #write(wal: Wal, batch: Batch): boolean {
    try {
      this.#checkFolder(wal)
      wal.write(batch.frame.finish(wal.segment(), this.#durableVersion, wal.lastCrc))
      return true
    } catch (error) {
      this.#writeFailed(wal, batch, error)
      return false
    }
  }

  /**
   * Checks before each batch that the folder is still there. With relaxed durability it does so once per turn of the event loop,
   * because the check costs more than a commit.
   */
  #checkFolder(wal: Wal): void {
    if (this.#folderChecked) return
    wal.checkFolder()
    if (this.#durable) return
    this.#folderChecked = true
    this.#scheduler.later(() => {
      this.#folderChecked = false
    })
  }

  #sync(wal: Wal, batch: Batch): void {
    if (this.#crowd > 1 || this.#syncMs > INLINE_SYNC_MS) {
      // The average decays, so that an inline sync is tried again later. The disk may be faster then.
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
    this.#durableVersion = batch.frame.lastVersion
    this.#end(batch)
  }

  /** Applies the batch, resolves its callers and schedules the next one. */
  #end(batch: Batch): void {
    this.#flushing = undefined
    try {
      this.#through(batch)
    } catch (error) {
      this.#applyFailed(batch, error)
      return
    }
    this.refused = undefined
    batch.end()
    this.#spare ??= batch
    this.#wake()
    if (this.#waits) this.#schedule()
  }

  /** Makes the store unusable. The batch is in the log, but the trees in memory have only a part of it. */
  #applyFailed(batch: Batch, error: unknown): void {
    const message = `a commit is in the log but could not be applied (${error}). Reopen the store`
    this.lost ??=
      error instanceof AnnalsError
        ? new AnnalsError(error.code, message, error.details, error)
        : new AnnalsError('IO_ERROR', message, {}, error)
    this.#outcomeUnknown(batch, message, error)
  }

  /** Refuses the batch if the log can be cut back to its previous end. Otherwise the outcome is unknown. */
  #writeFailed(wal: Wal, batch: Batch, error: unknown): void {
    if (isUnconfirmed(error)) {
      this.#syncFailed(batch, error)
      return
    }
    if (isFolderGone(error)) {
      this.#folderLost(batch, error)
      return
    }
    try {
      wal.cutBack()
    } catch (second) {
      this.#syncFailed(batch, second)
      return
    }
    this.#flushing = undefined
    this.refused = refusalOf(error)
    this.#refuse([batch], this.refused)
    this.#wake()
  }

  /** Refuses the batch and all later writes. Nothing was written, and the files of the moved or replaced folder stay as they are. */
  #folderLost(batch: Batch, error: AnnalsError): void {
    this.#flushing = undefined
    this.broken ??= error
    this.#refuse([batch], error)
    this.#wake()
  }

  /**
   * Stops all writing, because only reopening shows whether the batch is on the device. The sync is not retried: a second one may
   * report success without writing.
   */
  #syncFailed(batch: Batch, error: unknown): void {
    const message = `the disk failed to confirm the write, so the commit may or may not be stored (${error}). Reopen the store to find out`
    this.#outcomeUnknown(batch, message, error)
  }

  #outcomeUnknown(batch: Batch, message: string, error: unknown): void {
    const unknown = new AnnalsError('OUTCOME_UNKNOWN', message, {}, error)
    this.#flushing = undefined
    this.broken ??= unknown
    this.#undo([batch, ...this.#full, this.#building])
    batch.end(unknown)
    this.#refuse([], this.readOnly())
    this.#wake()
  }

  /** Rejects these batches and all waiting ones, which may depend on them. */
  #refuse(failed: readonly Batch[], refusal: AnnalsError): void {
    const batches = [...failed, ...this.#full.splice(0), this.#building]
    this.#undo(batches)
    for (const batch of batches) batch.end(refusal)
  }

  /** Resolves when the next batch ends. */
  #nextEnd(): Promise<void> {
    return new Promise(resolve => this.#idle.push(resolve))
  }

  #wake(): void {
    const idle = this.#idle
    if (idle.length === 0) return
    this.#idle = []
    for (const resume of idle) resume()
  }
}

/** The error for a batch whose write failed and was undone. */
function refusalOf(error: unknown): AnnalsError {
  if (lackOfDescriptors(error) !== undefined) return outOfDescriptors('nothing was committed', error)
  if (isFull(error)) {
    const message = 'the disk is full, so nothing was committed. Free some space and try again'
    return new AnnalsError('DISK_FULL', message, {}, error)
  }
  const message = `nothing was committed because the log could not be written (${error})`
  return new AnnalsError('IO_ERROR', message, {}, error)
}
