import { AnnalsError } from '../core/errors.ts'
import { isFolderGone, isFull, isUnconfirmed, lackOfDescriptors, outOfDescriptors } from '../disk/disk.ts'
import { Batch } from './batch.ts'
import type { Scheduler } from './scheduler.ts'
import type { Wal } from './wal.ts'

export interface GroupCommitOptions {
  /** Absent for a store in memory. */
  readonly wal: Wal | undefined
  readonly durable: boolean
  /** Of the newest commit that is on the device. */
  readonly version: number
  readonly scheduler: Scheduler
  /** The batch is as safe as it was asked to be: readers may see it. */
  readonly through: (batch: Batch) => void
  /** These batches failed: nothing of them may be left. */
  readonly undo: (batches: readonly Batch[]) => void
}

/** A sync that takes longer than this is worth a thread even for one commit: meanwhile the event loop lives. */
const INLINE_SYNC_MS = 1
/** Commits that follow one another without a pause must let others run so often. */
const TURN_MS = 2
/** A batch that has grown so far takes no more commits. */
const BATCH_BYTES_MAX = 32 * 1024 * 1024

/**
 * One write and one sync for all commits that wait. Commits join the batch that
 * is **building**. When its turn comes it is **flushing**: written as one frame
 * and synced, inline for a lone commit, on another thread for a crowd, while the
 * next one builds. Then it is through, and everybody is answered.
 *
 * A write that fails refuses all that waits, and the log is cut back. A sync that
 * fails leaves the outcome unknown, and nothing is ever written again.
 */
export class GroupCommit {
  /** Why nothing can be written any more. */
  broken: AnnalsError | undefined
  /** Why the last commit was refused, if it was, for want of something that may come back. */
  refused: AnnalsError | undefined
  /** Why nothing can be read any more, either. */
  lost: AnnalsError | undefined
  readonly #wal: Wal | undefined
  readonly #durable: boolean
  readonly #scheduler: Scheduler
  readonly #through: (batch: Batch) => void
  readonly #undo: (batches: readonly Batch[]) => void
  #building = new Batch()
  /** Full ones, in order, before the one that is building. */
  #full: Batch[] = []
  #flushing: Batch | undefined
  #spare: Batch | undefined
  #held = false
  #scheduled = false
  #durableVersion: number
  /** How many commits the last batch had, or half as many as that before it. */
  #crowd = 0
  #turnStart = 0
  /** In this turn of the event loop. */
  #folderChecked = false
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

  /** Where the next commit goes. */
  get building(): Batch {
    if (this.#building.frame.bytes > BATCH_BYTES_MAX) {
      this.#full.push(this.#building)
      this.#building = this.#takeSpare()
    }
    return this.#building
  }

  /** Takes back the commit that was begun last, of which something is missing. Those before it stay pending. */
  abandon(): void {
    const trees = new Set(this.#building.abandon())
    for (const tree of trees) {
      tree.pending = undefined
      tree.drop = undefined
      tree.head = undefined
    }
    for (const batch of [this.#flushing, ...this.#full, this.#building]) batch?.restore(trees)
  }

  /** Answers once the batch that is building is through. */
  join<T>(answer: T): Promise<T> {
    const waiting = this.#building.wait(answer)
    this.#schedule()
    return waiting
  }

  /** Answers without a write, once all that the answer may rest on is through. */
  settled<T>(answer: T): Promise<T> {
    if (!this.#building.isEmpty || this.#full.length > 0) return this.join(answer)
    return this.#flushing?.wait(answer) ?? Promise.resolve(answer)
  }

  /** Resolves once nothing waits and nothing is under way. */
  async settle(): Promise<void> {
    while (this.#flushing !== undefined || this.#waits) await this.#nextEnd()
  }

  /** Runs `action` at a moment when every commit is either through or not yet written. */
  async betweenBatches<T>(action: () => T): Promise<T> {
    while (this.#flushing !== undefined) await this.#nextEnd()
    return action()
  }

  /** Batches wait until `release`: a checkpoint has to catch up. */
  hold(): void {
    this.#held = true
  }

  release(): void {
    this.#held = false
    if (this.#waits) this.#schedule()
  }

  /** Everything up to this version is on the device, though not by a sync of ours. */
  durableUpTo(version: number): void {
    this.#durableVersion = Math.max(this.#durableVersion, version)
  }

  /** From now on nothing is written. What is under way comes to its own end. */
  break(error: AnnalsError): void {
    this.broken ??= error
    this.#refuse([], this.readOnly())
    this.#wake()
  }

  readOnly(): AnnalsError {
    const why = this.broken as AnnalsError
    const message = `nothing can be written any more: ${why.message}; reopen the store`
    return new AnnalsError('READ_ONLY', message, { cause: why.code }, why)
  }

  get #waits(): boolean {
    return !this.#building.isEmpty || this.#full.length > 0
  }

  #schedule(): void {
    if (this.#scheduled || this.#flushing !== undefined || this.#held) return
    this.#scheduled = true
    // A crowd is worth a turn of the event loop: all of it gets on the same write. So is letting others run.
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
    // One that is alone between two crowds is one of them: a sync inline would keep the others waiting.
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

  /** Before each batch. Where commits are relaxed, that would cost more than they do: once in a turn of the event loop. */
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
    this.#durableVersion = batch.frame.lastVersion
    this.#end(batch)
  }

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

  /** It is in the log, but the trees in memory have only a part of it: they are of no use any more. */
  #applyFailed(batch: Batch, error: unknown): void {
    const message = `what was committed could not be taken in (${error}): reopen the store`
    this.lost ??=
      error instanceof AnnalsError
        ? new AnnalsError(error.code, message, error.details, error)
        : new AnnalsError('IO_ERROR', message, {}, error)
    this.#outcomeUnknown(batch, message, error)
  }

  /** Nothing of it counts, if the log can be cut back to where it was; else nobody knows. */
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

  /** Nothing of the batch was written. What is in the folder stays as it is, wherever that may be now. */
  #folderLost(batch: Batch, error: AnnalsError): void {
    this.#flushing = undefined
    this.broken ??= error
    this.#refuse([batch], error)
    this.#wake()
  }

  /** Whether it is on the device is known only after reopening. A second sync could lie: it is never tried. */
  #syncFailed(batch: Batch, error: unknown): void {
    const message = `the disk failed to confirm the write (${error}): reopen the store to see what it holds`
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

  /** Rejects these batches and all that wait behind them: they may rest on them. */
  #refuse(failed: readonly Batch[], refusal: AnnalsError): void {
    const batches = [...failed, ...this.#full.splice(0), this.#building]
    this.#undo(batches)
    for (const batch of batches) batch.end(refusal)
  }

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

function refusalOf(error: unknown): AnnalsError {
  if (lackOfDescriptors(error) !== undefined) return outOfDescriptors('nothing was committed', error)
  if (isFull(error)) {
    const message = 'the disk is full: nothing was committed; make room and try again'
    return new AnnalsError('DISK_FULL', message, {}, error)
  }
  const message = `the log could not be written: nothing was committed (${error})`
  return new AnnalsError('IO_ERROR', message, {}, error)
}
