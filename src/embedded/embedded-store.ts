import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { runInSlices } from '../core/slices.ts'
import { type Disk, diskFailure } from '../disk/disk.ts'
import { isWithin, openNodeDisk } from '../disk/node-disk.ts'
import type { Durability, EngineInfo, Recovery, StorageStats } from '../engine/capabilities.ts'
import { checkBoundedRanges, checkLimit, checkPlace, checkRange } from '../engine/operations.ts'
import type {
  Commit,
  CommitOutcome,
  Entry,
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
import { copyCheckpoint } from './backup.ts'
import { isGone } from './change.ts'
import type { Checkpointer } from './checkpointer.ts'
import type { Committer } from './committer.ts'
import type { DataFiles } from './data-files.ts'
import type { Forest, Tree } from './forest.ts'
import { ForestSnapshot } from './forest-snapshot.ts'
import { collectRest, collectSlice, sliceFor } from './long-scan.ts'
import { spanOf } from './newest.ts'
import type { Node } from './node.ts'
import type { Scheduler } from './scheduler.ts'
import type { Span } from './tree.ts'
import { verifyForest } from './verification.ts'
import type { Wal } from './wal.ts'

/** Receives warnings about background work that failed. */
export type Warn = (message: string, code: string) => void

/** The parts of a store that only a store on disk has. */
export interface Persistence {
  readonly disk: Disk
  readonly storeId: string
  readonly data: DataFiles
  readonly wal: Wal
  readonly checkpointer: Checkpointer
  /** A checkpoint starts when the log exceeds `walBytes` or the dirty nodes exceed `dirtyBytes`. */
  readonly walBytes: number
  readonly dirtyBytes: number
  /** Whether the first commit must wait for a checkpoint. `#settleRecovered` has the reason. */
  readonly needsCheckpoint: boolean
}

/** Commits wait while a checkpoint runs and the log or the dirty nodes exceed their limit by this factor. */
const HOLD_FACTOR = 2
const EXPIRE_LIMIT = 1_000
const NO_RANGES: readonly never[] = []

type State = 'open' | 'closing' | 'closed'

/** The storage port on a folder or in memory. It wraps the synchronous engine in the port's asynchronous calls. */
export class EmbeddedStore implements Storage {
  readonly engine: EngineInfo
  readonly readOnly: boolean
  readonly recovery: Recovery | undefined
  readonly #forest: Forest
  readonly #committer: Committer
  readonly #persistence: Persistence | undefined
  readonly #warn: Warn
  readonly #scheduler: Scheduler
  readonly #listeners = new Map<ByteString, Map<number, Set<() => void>>>()
  #state: State = 'open'
  #closing: Promise<void> | undefined
  /** After a failed checkpoint, the next one starts when the log is this long. */
  #retryBytes = 0
  #expiring = false
  /** Whether opening found data in the log, or no room to create the store, and no checkpoint has succeeded since. */
  #recovered: boolean
  #settling: Promise<void> | undefined
  /** Checkpoints, backups and other calls that use the disk. Closing waits for them. */
  readonly #underWay = new Set<Promise<unknown>>()

  /** @internal Use `openEmbedded`. */
  constructor(parts: {
    readonly forest: Forest
    readonly committer: Committer
    readonly persistence: Persistence | undefined
    readonly durability: Durability
    readonly readOnly: boolean
    readonly recovery: Recovery | undefined
    readonly warn: Warn
    readonly scheduler: Scheduler
  }) {
    this.#scheduler = parts.scheduler
    this.#warn = parts.warn
    this.#forest = parts.forest
    this.#committer = parts.committer
    this.#persistence = parts.persistence
    this.engine =
      parts.persistence === undefined
        ? { kind: 'memory', durability: 'relaxed' }
        : { kind: 'embedded', durability: parts.durability }
    this.readOnly = parts.readOnly
    this.recovery = parts.recovery
    this.#recovered = parts.persistence?.needsCheckpoint === true
  }

  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    // The fast path for most reads. A hit needs no argument checks, because invalid arguments never hit.
    const sound = this.#state === 'open' && this.#committer.group.lost === undefined
    const known = sound ? this.#forest.known(scope, tag, key) : undefined
    return known === undefined ? this.#find(scope, tag, key) : Promise.resolve(known)
  }

  async #find(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    this.#check()
    checkPlace({ scope, tag, key })
    const tree = this.#forest.treeIfAny(scope, tag)
    const entry = tree === undefined ? undefined : this.#forest.find(tree, key)
    return entry === undefined || isGone(entry, this.#committer.clock()) ? undefined : entry
  }

  async scan(range: Range): Promise<readonly Entry[]> {
    this.#check()
    checkRange(range)
    const span = spanOf(range, this.#committer.clock())
    const slice = sliceFor(span)
    if (slice !== undefined) {
      await slice
      this.#check()
    }
    const tree = this.#forest.treeIfAny(range.scope, range.tag)
    if (tree === undefined) return []
    if (tree.recovered !== undefined) await runInSlices(this.#forest.takeInSteps(tree), () => this.#check())
    const out: Entry[] = []
    const next = collectSlice(this.#forest, tree.root, span, out)
    if (next !== undefined) await this.#collectRest(tree.root, span, out, next)
    return out
  }

  /** Continues a scan on the root as it is now. It takes a snapshot, which makes writes slower, so short scans avoid it. */
  async #collectRest(root: Node, span: Span, out: Entry[], next: ByteString): Promise<void> {
    const pin = this.#forest.snapshot()
    try {
      await collectRest(this.#forest, root, span, out, next, () => this.#check())
    } finally {
      this.#forest.release(pin)
    }
  }

  async scopes(range: ScopeRange): Promise<readonly ByteString[]> {
    this.#check()
    checkLimit(range.limit)
    await runInSlices(this.#forest.takeInAll(), () => this.#check())
    return runInSlices(this.#forest.scopes(range), () => this.#check())
  }

  now(): number {
    return this.#committer.now()
  }

  clock(): number {
    return this.#committer.clock()
  }

  async snapshot(): Promise<Snapshot> {
    this.#check()
    return new ForestSnapshot(this.#forest, this.#committer, () => this.#check())
  }

  // Not `async`, because returning a promise from an async function costs three turns of the microtask queue.
  commit(commit: Commit): Promise<CommitOutcome> {
    try {
      this.#checkWritable()
      if (this.#recovered) {
        return this.#await(this.#settleRecovered().then(() => this.#committer.commit(commit)))
      }
      return this.#committer.commit(commit)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  update<T>(
    reads: readonly Place[],
    step: Step<T>,
    { ranges = NO_RANGES }: UpdateOptions = {},
  ): Promise<Updated<T>> {
    try {
      this.#checkWritable()
      for (const place of reads) checkPlace(place)
      if (ranges.length > 0) checkBoundedRanges(ranges)
      if (this.#recovered) {
        return this.#await(this.#settleRecovered().then(() => this.#committer.update(reads, step, ranges)))
      }
      return this.#committer.update(reads, step, ranges)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  async subscribe({ scope, tag }: TreeId, listener: () => void, patience?: Patience): Promise<() => void> {
    this.#check()
    const tags = entryOf(this.#listeners, scope, () => new Map<number, Set<() => void>>())
    const listeners = entryOf(tags, tag, () => new Set<() => void>())
    const tell =
      patience === undefined
        ? atOnce(listener)
        : this.#onceATurn(() => {
            if (listeners.has(tell)) listener()
          })
    listeners.add(tell)
    return () => {
      if (!listeners.delete(tell)) return
      if (listeners.size === 0) tags.delete(tag)
      if (tags.size === 0) this.#listeners.delete(scope)
    }
  }

  /** Patient subscribers get one notification for all commits of a tick, because notifying costs more than counting. */
  #onceATurn(listener: () => void): () => void {
    let isTold = false
    const run = (): void => {
      isTold = false
      listener()
    }
    return () => {
      if (isTold) return
      isTold = true
      this.#scheduler.later(run)
    }
  }

  /** Writes all earlier commits to the trees on disk, so that opening does not need the log for them. */
  async checkpoint(): Promise<void> {
    this.#checkWritable()
    await this.#await(this.#checkpoint())
  }

  async #checkpoint(): Promise<void> {
    if (this.#committer.group.broken !== undefined) throw this.#committer.group.broken
    if (this.#recovered) await this.#settleRecovered()
    await this.#expire()
    await this.#persistence?.checkpointer.run()
  }

  /** Copies all commits so far into an empty folder, which must be outside of the store's folder. Reads and writes continue. */
  async backup(to: string | Disk): Promise<void> {
    this.#check()
    const p = this.#persistence
    if (p === undefined) {
      throw new AnnalsError('INVALID_OPERATION', 'cannot back up a store in memory: it has no files')
    }
    await this.#await(this.#backup(p, typeof to === 'object' ? to : backupFolder(p.disk, to)))
  }

  async #backup(p: Persistence, to: Disk): Promise<void> {
    try {
      if (!this.readOnly) await this.#checkpoint()
      const pin = this.#forest.snapshot()
      // A read-only store can't write a checkpoint, so the log is copied too.
      const copied = copyCheckpoint(p.disk, to, p.storeId, p.checkpointer.current, this.readOnly)
      await copied.finally(() => this.#forest.release(pin))
    } catch (error) {
      throw diskFailure(error, 'the backup failed')
    } finally {
      to.close()
    }
  }

  /** Reads and checks every node. Throws `CORRUPT` at the first damaged one. */
  async verify(): Promise<void> {
    this.#check()
    // Without pauses, because a commit in between would change the counts that are being compared.
    for (const _ of verifyForest(this.#forest, this.#persistence?.data.uses ?? new Map()));
  }

  /** Throws the reason if no commit can succeed now. It commits nothing, but runs the checkpoint that a recovery requires. */
  async checkWritable(): Promise<void> {
    this.#checkWritable()
    const { group } = this.#committer
    if (group.broken !== undefined) throw group.readOnly()
    if (this.#persistence !== undefined) await this.#await(this.#probe(this.#persistence))
    group.refused = undefined
  }

  async #probe({ disk, wal }: Persistence): Promise<void> {
    try {
      disk.check()
      if (this.#recovered) await this.#settleRecovered()
      await this.#committer.group.betweenBatches(() => wal.probe())
    } catch (error) {
      throw diskFailure(error, 'nothing can be committed')
    }
  }

  /** The reason why commits can't succeed, as far as it is known without writing. */
  #writeProblem(): AnnalsError | undefined {
    try {
      this.#checkWritable()
      this.#persistence?.disk.check()
    } catch (error) {
      return diskFailure(error, 'nothing can be committed')
    }
    return this.#committer.group.broken ?? this.#committer.group.refused
  }

  stats(): StorageStats {
    const { nodes } = this.#forest
    const p = this.#persistence
    const location = p?.disk.location
    const problem = this.#writeProblem()
    return {
      ...(p?.checkpointer.isCreated === true ? { storeId: p.storeId } : {}),
      ...(location === undefined ? {} : { folder: { device: location.device, inode: location.inode } }),
      writable: problem === undefined,
      ...(problem === undefined ? {} : { writeProblem: { code: problem.code, message: problem.message } }),
      version: this.#committer.version,
      checkpoints: this.#persistence?.checkpointer.count ?? 0,
      walBytes: this.#persistence?.wal.tailBytes ?? 0,
      dataBytes: this.#persistence?.data.totalBytes ?? 0,
      liveBytes: this.#persistence?.data.liveBytes ?? 0,
      cachedBytes: nodes.cachedBytes,
      dirtyBytes: nodes.dirtyBytes,
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** @internal Called after each batch. Notifies subscribers, and starts checkpoints and the removal of expired entries. */
  applied(trees: readonly Tree[]): void {
    if (this.#listeners.size > 0) this.#notify(trees)
    if (this.#committer.isExpiryDue() && !this.#expiring) void this.#expireInBackground()
    const p = this.#persistence
    if (p === undefined) return
    const behind = Math.max(p.wal.tailBytes / p.walBytes, this.#forest.nodes.dirtyBytes / p.dirtyBytes)
    if (behind < 1 || p.wal.tailBytes < this.#retryBytes) return
    if (!p.checkpointer.running) void this.#await(this.#checkpointInBackground(p))
    else if (behind > HOLD_FACTOR) this.#committer.group.hold()
  }

  async #checkpointInBackground(p: Persistence): Promise<void> {
    try {
      await p.checkpointer.run()
      this.#retryBytes = 0
    } catch (error) {
      // The disk may be full. The log continues while it can, and the next attempt comes after another `walBytes` of it.
      this.#retryBytes = p.wal.tailBytes + p.walBytes
      this.#warn(String(error), (error as AnnalsError).code)
    }
  }

  /** Removes expired entries, which readers no longer see, to free their space. */
  async #expire(): Promise<void> {
    while ((await this.#committer.expire(EXPIRE_LIMIT)) === EXPIRE_LIMIT);
  }

  async #expireInBackground(): Promise<void> {
    this.#expiring = true
    try {
      await this.#expire()
    } catch (error) {
      this.#warn(`cannot remove expired entries: ${error}`, (error as AnnalsError).code)
    }
    this.#expiring = false
  }

  /**
   * Runs the checkpoint that precedes the first commit after a recovery. If the previous process failed to sync the log, the log may
   * be in the page cache only. Our sync would not write it to the device, and new commits would follow a gap. With the
   * checkpoint they don't depend on the old log.
   */
  async #settleRecovered(): Promise<void> {
    this.#settling ??= (this.#persistence as Persistence).checkpointer.run()
    try {
      await this.#settling
      this.#recovered = false
    } catch (error) {
      this.#committer.group.refused = diskFailure(error, 'nothing can be committed')
      throw error
    } finally {
      this.#settling = undefined
    }
  }

  async #close(): Promise<void> {
    this.#state = 'closing'
    do {
      await Promise.allSettled(this.#underWay)
      await this.#committer.group.settle()
    } while (this.#underWay.size > 0)
    const p = this.#persistence
    let failure: unknown
    const writable = !this.readOnly && this.#committer.group.broken === undefined && !this.#recovered
    if (p !== undefined && writable && this.#committer.isExpiryDue()) await this.#expireInBackground()
    if (p !== undefined) {
      const clean = p.wal.tailBytes === 0 && this.#forest.dirtyTrees.size === 0 && !p.checkpointer.running
      if (!clean && !this.readOnly && this.#committer.group.broken === undefined) {
        // The log has all acknowledged commits, but the caller should learn that the disk fails.
        await p.checkpointer.run().catch((error: unknown) => (failure = error))
      }
      await p.wal.close()
      p.data.close()
      p.disk.close()
    }
    this.#state = 'closed'
    for (const tags of this.#listeners.values()) for (const listeners of tags.values()) call(listeners)
    this.#listeners.clear()
    if (failure !== undefined) throw failure
  }

  /** Makes `close` wait for the work. */
  #await<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work)
    const end = (): void => void this.#underWay.delete(work)
    work.then(end, end)
    return work
  }

  /** Notifies the listeners of each changed tree, once per batch. */
  #notify(trees: readonly Tree[]): void {
    const { version } = this.#committer
    for (const tree of trees) {
      if (tree.toldOf === version) continue
      tree.toldOf = version
      const listeners = this.#listeners.get(tree.scope)?.get(tree.tag)
      if (listeners !== undefined) call(listeners)
    }
  }

  #check(): void {
    if (this.#state !== 'open') throw new AnnalsError('CLOSED', 'the store is closed: open it again')
    if (this.#committer.group.lost !== undefined) throw this.#committer.group.lost
  }

  #checkWritable(): void {
    this.#check()
    if (this.readOnly) throw new AnnalsError('READ_ONLY', 'the store was opened with readOnly: true')
  }
}

/** Opens the backup's folder. Refuses one in the store's folder, because losing that folder would lose both. */
function backupFolder(store: Disk, folder: string): Disk {
  const path = store.location?.path
  if (path !== undefined && typeof folder === 'string' && isWithin(path, folder)) {
    throw invalidArgument('folder', "must not be in the store's own folder", folder)
  }
  return openNodeDisk(folder)
}

function call(listeners: Iterable<() => void>): void {
  for (const tell of listeners) tell()
}

const resolved = Promise.resolve()

/**
 * Wraps a listener. The wrapper is a new function, so the same listener can subscribe twice. The listener runs in a microtask, so one
 * that throws can't affect the commit.
 */
function atOnce(listener: () => void): () => void {
  return () => void resolved.then(listener)
}

/** The value under a key, made and stored if it is missing. */
function entryOf<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}
