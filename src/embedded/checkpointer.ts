import { AnnalsError } from '../core/errors.ts'
import { type Disk, isFull, lackOfDescriptors, outOfDescriptors } from '../disk/disk.ts'
import { removalOf } from './change.ts'
import type { Committer } from './committer.ts'
import { createStore } from './creation.ts'
import type { DataFiles } from './data-files.ts'
import { directoryKey, type Forest, parseDirectoryKey, type Tree } from './forest.ts'
import { fileId } from './format.ts'
import { homesBelow } from './graves.ts'
import { FIRST_MANIFEST, type Manifest, writeManifest } from './manifest.ts'
import { type Home, Inner, Leaf, type Node } from './node.ts'
import { encodeAddress } from './node-codec.ts'
import { type Relocation, relocate } from './relocation.ts'
import type { Scheduler } from './scheduler.ts'
import { apply, cutEdge, hasLongEdge } from './tree-changes.ts'
import type { Rotation, Wal } from './wal.ts'

export interface CheckpointerOptions {
  readonly disk: Disk
  readonly storeId: string
  readonly forest: Forest
  readonly data: DataFiles
  readonly wal: Wal
  readonly committer: Committer
  readonly scheduler: Scheduler
  readonly current: Manifest | undefined
  readonly previous: Manifest | undefined
  /** `found`: the store existed before. `created`: this handle created it. `missing`: there is no store on disk yet. */
  readonly origin: 'found' | 'created' | 'missing'
  /** Whether opening found commits or links in the log. */
  readonly leansOnLog: boolean
  /** With less garbage than this, no file is rewritten. */
  readonly garbageBytes: number
}

/** How long a checkpoint may block the event loop at a time. */
const SLICE_MS = 2
/** The most live bytes that one checkpoint moves, so that it stays short. */
const RELOCATE_BYTES = 32 * 1024 * 1024
const DIRECTORY_PAGE = 256

/**
 * Writes all changes since the last checkpoint to data files:
 *
 * 1. Moves the log to a new segment and freezes the trees, in one synchronous step.
 * 2. Writes the dirty nodes in slices, children first, and syncs them.
 * 3. Replaces the older manifest.
 * 4. Removes files that neither manifest names.
 *
 * Until step 3 is complete, the old manifest and the log hold all data. So a checkpoint that fails loses nothing.
 */
export class Checkpointer {
  /** The newest manifest on disk. */
  current: Manifest | undefined
  count = 0
  readonly #options: CheckpointerOptions
  #previous: Manifest | undefined
  #running: Promise<void> | undefined
  #sliceEnd = 0
  #confirmed = false
  /**
   * Whether a manifest on disk still needs the log that opening found. That log may be in the page cache only. The first checkpoint
   * writes its commits to the trees, but the older manifest still needs it. A crash while a later opening rewrites the newer
   * manifest would leave only the older one.
   */
  #leansOnFound: boolean
  /** The manifest slots (0, 1) that this handle has written successfully. */
  readonly #ours = new Set<number>()
  /** The generation at which the newest manifest was complete. Older snapshots may read files that it does not name. */
  #completedAt = 0

  constructor(options: CheckpointerOptions) {
    this.#options = options
    this.current = options.current
    this.#previous = options.previous
    this.#leansOnFound = options.leansOnLog
    if (options.origin !== 'created') return
    this.#confirmed = true
    this.#ours.add(FIRST_MANIFEST.generation)
  }

  /** Whether a store exists on disk. */
  get isCreated(): boolean {
    return this.#options.origin !== 'missing' || this.current !== undefined
  }

  get running(): boolean {
    return this.#running !== undefined
  }

  /** Runs a checkpoint. If one is running, a new one starts after it, because the running one may lack the newest commits. */
  async run(): Promise<void> {
    while (this.#running !== undefined) await this.#running.catch(() => undefined)
    const run = this.#findingRoom()
    this.#running = run
    try {
      await run
    } finally {
      this.#running = undefined
      // Batches may be held until a checkpoint ends, no matter who started it.
      this.#options.committer.group.release()
    }
  }

  /** Runs the checkpoint. On a full disk, gives up the prepared log segment and tries once more. */
  async #findingRoom(): Promise<void> {
    try {
      await this.#checkpoint()
    } catch (error) {
      const isForRoom = error instanceof AnnalsError && error.code === 'DISK_FULL'
      if (!isForRoom || !(await this.#options.wal.giveRoom())) throw error
      await this.#checkpoint()
    }
  }

  async #checkpoint(): Promise<void> {
    const { forest, committer } = this.#options
    // The previous checkpoint may have failed at a sync, which must not be retried.
    this.#refuseIfBroken()
    this.#sliceEnd = 0
    let start: Start | undefined
    try {
      await this.#confirmManifest()
      await this.#inSlices(this.#takeIn())
      await this.#inSlices(this.#relocateSparse())
      await this.#inSlices(this.#cutEdges())
      start = await this.#start()
      await this.#writeOut(start)
    } catch (error) {
      if (start !== undefined) this.#undo(start)
      throw this.#failure(error)
    } finally {
      forest.keepAll = false
    }
    committer.group.durableUpTo(start.version)
    // This checkpoint is complete. The next one tries again to remove the files.
    await this.#removeUnneeded().catch(() => undefined)
  }

  /** Prepares a segment and freezes the trees. A commit may use the segment before that, and then another one is prepared. */
  async #start(): Promise<Start> {
    const { wal, committer } = this.#options
    for (;;) {
      await wal.makeReady()
      const start = await committer.group.betweenBatches(() => (wal.isReady ? this.#freeze() : undefined))
      if (start !== undefined) return start
    }
  }

  async #writeOut(start: Start): Promise<void> {
    const { data } = this.#options
    await start.rotation.finish()
    await this.#inSlices(this.#writeTrees(start))
    await this.#inSlices(this.#freeGraves(start))
    for (const home of [...start.freed.splice(0), ...start.emptied]) data.release(home)
    await data.sync()
    const manifest = this.#manifest(start)
    await this.#writeManifest(manifest)
    this.#previous = this.current
    this.current = manifest
    if (this.#leansOnFound) await this.#giveUpFound()
    this.count++
  }

  /** Replaces the older manifest, the last one that needs the log that opening found. */
  async #giveUpFound(): Promise<void> {
    await this.#writeCopy()
    // Snapshots may read files that only the replaced manifest named. No file is removed while a snapshot is open.
    this.#completedAt = Number.POSITIVE_INFINITY
    this.#leansOnFound = false
  }

  /** Replaces the older manifest by a copy of the newest one. */
  async #writeCopy(): Promise<void> {
    const current = this.current as Manifest
    const copy = { ...current, generation: current.generation + 1 }
    await this.#writeManifest(copy)
    this.#previous = current
    this.current = copy
  }

  /**
   * Writes the manifest that opening found once more. If its writer failed to sync it, it may be in the page cache only, and a
   * sync without a write would not bring it to the device. This happens before the other manifest is replaced.
   *
   * If the other manifest is missing or unreadable, the device may still hold an old version of that file: one that is newer than
   * ours and names blocks that this checkpoint overwrites. A copy of our manifest replaces it.
   */
  async #confirmManifest(): Promise<void> {
    if (this.#confirmed) return
    const { origin, disk, storeId } = this.#options
    const found = this.current
    const current = found ?? FIRST_MANIFEST
    if (origin === 'missing') await createStore(disk, storeId)
    else await this.#writeManifest(current)
    this.current = current
    if (found !== undefined && this.#previous === undefined) await this.#writeCopy()
    this.#confirmed = true
  }

  /**
   * Writes a manifest to its slot. A file of an earlier process is removed and created again, not overwritten. Its name may be in
   * the page cache only, and a torn manifest in it could become valid together with a part of ours.
   */
  async #writeManifest(manifest: Manifest): Promise<void> {
    const slot = manifest.generation % 2
    // The only manifest must never be missing. Overwriting it with the same bytes can't damage it.
    const only = manifest === this.current && this.#previous === undefined
    const anew = !only && !this.#ours.delete(slot)
    await writeManifest(this.#options.disk, this.#options.storeId, manifest, anew)
    this.#ours.add(slot)
  }

  /** Restores the state before a failed checkpoint: the trees are dirty again, except for nodes that were written. */
  #undo(start: Start): void {
    const { forest, wal } = this.#options
    for (const { tree } of start.trees) forest.markDirty(tree)
    wal.tailBytes += start.rotation.bytes
    forest.nodes.freed = start.freed.concat(forest.nodes.freed)
    forest.graves = start.graves.concat(forest.graves)
    // Snapshots may read blocks that this checkpoint wrote, and the next one may free them. No file is removed while a snapshot is open.
    this.#completedAt = Number.POSITIVE_INFINITY
  }

  #refuseIfBroken(): void {
    const { group } = this.#options.committer
    if (group.broken !== undefined) throw group.readOnly()
  }

  /** Moves the log to the next segment and takes over the dirty trees. It is synchronous, so that no commit falls between. */
  #freeze(): Start {
    const { forest, wal, committer } = this.#options
    // If the store is broken, the trees may contain half of a commit.
    this.#refuseIfBroken()
    // The rotation may fail, so it comes before everything that would have to be undone.
    const rotation = wal.rotate()
    for (const tree of forest.dirtyTrees) this.#cutEdge(tree)
    const trees = [...forest.dirtyTrees].map(tree => ({ tree, root: tree.root }))
    forest.dirtyTrees.clear()
    for (const { tree } of trees) tree.dirty = false
    const { freed } = forest.nodes
    forest.nodes.freed = []
    const { graves } = forest
    forest.graves = []
    forest.nodes.dirtyBytes = 0
    forest.nodes.retireWritten()
    forest.nodes.freeze()
    forest.keepAll = true
    return {
      trees,
      freed,
      graves,
      emptied: [],
      rotation,
      version: committer.version,
      time: committer.time,
    }
  }

  /** Applies the commits that opening found in the log to the trees. */
  *#takeIn(): Steps {
    for (const _ of this.#options.forest.takeInAll()) if (this.#sliceOver()) yield
  }

  *#writeTrees(start: Start): Steps {
    for (const { tree, root } of start.trees) {
      yield* this.#writeTree(tree, root, start)
      // Writing a tree that is a single leaf never yields, and there may be many of them.
      if (this.#sliceOver()) yield
    }
    const { forest } = this.#options
    if (hasLongEdge(forest.directory)) forest.directory = cutEdge(forest.nodes, forest.directory)
    // A store without entries must have no data file: `storeIdWithoutManifest` takes one as proof that a manifest was lost.
    if (!isEmpty(forest.directory)) yield* this.#write(forest.directory)
  }

  *#writeTree(tree: Tree, root: Node, start: Start): Steps {
    const { forest } = this.#options
    if (root instanceof Leaf && !root.loaded && root.dirty) forest.nodes.load(root)
    const empty = isEmpty(root)
    if (!empty) yield* this.#write(root)
    else if (root.home !== undefined) start.emptied.push(root.home)
    // The directory needs no snapshots, because only its newest version is read.
    const key = directoryKey(tree.scope, tree.tag)
    const change = empty
      ? removalOf(key, 0, 0)
      : { key, value: encodeAddress(root), version: 0, time: 0, expiresAt: 0 }
    // Nodes that this change frees are not in the directory being written, so this checkpoint may free them. Nodes that other
    // code frees meanwhile still are in it.
    const { freed } = forest.nodes
    forest.nodes.freed = start.freed
    try {
      forest.directory = apply(forest.nodes, forest.directory, change)
    } finally {
      forest.nodes.freed = freed
    }
  }

  /** Appends a dirty node and its dirty descendants to the data files, children first. */
  *#write(node: Node): Steps {
    if (!node.dirty) return
    const { data } = this.#options
    if (node instanceof Inner) {
      for (const child of node.children) {
        if (child?.dirty !== true) continue
        if (child instanceof Inner) yield* this.#write(child)
        else data.append(child)
        if (this.#sliceOver()) yield
      }
    }
    data.append(node)
  }

  /** Frees the blocks of dropped trees. If reading one fails, all of its blocks are left to the next checkpoint. */
  *#freeGraves(start: Start): Steps {
    for (let root = start.graves.at(-1); root !== undefined; root = start.graves.at(-1)) {
      const homes: Home[] = []
      for (const home of homesBelow(this.#options.forest.nodes, root)) {
        homes.push(home)
        if (this.#sliceOver()) yield
      }
      // `push(...homes)` would fail for a large tree, because a call takes a limited number of arguments.
      for (const home of homes) start.freed.push(home)
      start.graves.pop()
    }
  }

  #sliceOver(): boolean {
    return this.#options.scheduler.now() > this.#sliceEnd
  }

  /**
   * Runs the steps in slices. Other code runs only where a step yields, after all appended nodes are written. So it may copy or
   * unload them. An `await` within a step would let it see places that are not written yet.
   */
  async #inSlices(steps: Steps): Promise<void> {
    const { data, forest, scheduler } = this.#options
    for (let done = false; !done; ) {
      try {
        done = steps.next().done === true
        data.flush()
      } catch (error) {
        data.abandon()
        throw error
      } finally {
        for (const node of data.takePlaced()) forest.nodes.settle(node)
      }
      forest.nodes.trim()
      if (done) return
      await new Promise<void>(resolve => scheduler.later(resolve))
      this.#sliceEnd = scheduler.now() + SLICE_MS
    }
  }

  #manifest(start: Start): Manifest {
    const { data, forest } = this.#options
    const { directory } = forest
    return {
      generation: (this.current?.generation ?? 0) + 1,
      version: start.version,
      time: start.time,
      walSegment: start.rotation.segment,
      walCrc: start.rotation.crc,
      nextFile: data.nextId,
      directory: isEmpty(directory) ? '' : Buffer.from(encodeAddress(directory), 'latin1').toString('hex'),
      files: data.listed(),
    }
  }

  /** Removes files that neither manifest names, unless a snapshot from before the older manifest may still read them. */
  async #removeUnneeded(): Promise<void> {
    const { forest, data, disk, wal } = this.#options
    const oldest = forest.oldestSnapshot()
    const unseen = oldest === undefined || oldest >= this.#completedAt
    this.#completedAt = forest.nodes.freeze() + 1
    if (this.#previous !== undefined) await wal.removeBelow(this.#previous.walSegment)
    if (!unseen) return
    const named = [...(this.current?.files ?? []), ...(this.#previous?.files ?? [])]
    const needed = new Set(named.map(file => file.id))
    for (const name of disk.list()) {
      const id = fileId('D', name)
      if (id !== undefined && !needed.has(id)) await data.remove(id)
    }
  }

  /** Cuts the long last leaves of dirty trees. `#freeze` cuts leaves that grow meanwhile, so a busy writer can't prolong this. */
  *#cutEdges(): Steps {
    for (const tree of [...this.#options.forest.dirtyTrees]) {
      this.#cutEdge(tree)
      if (this.#sliceOver()) yield
    }
  }

  /**
   * Cuts a tree's long last leaf, unless a snapshot may hold it. The snapshot would keep the long leaf in memory, because the
   * checkpoint writes only its parts.
   */
  #cutEdge(tree: Tree): void {
    const { forest } = this.#options
    if (!hasLongEdge(tree.root) || forest.isHeld(tree)) return
    forest.change(tree, root => cutEdge(forest.nodes, root))
  }

  /** Marks the live nodes of sparse files as dirty if more than half of all stored bytes are garbage. */
  *#relocateSparse(): Steps {
    const { data, forest, garbageBytes } = this.#options
    const live = data.liveBytes
    if (data.totalBytes - live <= Math.max(live, garbageBytes)) return
    const files = data.sparse(RELOCATE_BYTES)
    if (files.size === 0) return
    const work: Relocation = { keeper: forest.nodes, files, enough: () => this.#sliceOver(), next: undefined }
    let after: string | undefined
    for (;;) {
      const span = { from: after, to: undefined, reverse: false, limit: DIRECTORY_PAGE, now: 0 }
      const page = forest.collect(forest.directory, span)
      for (const { key } of page) {
        const { scope, tag } = parseDirectoryKey(key)
        let from: string | undefined
        do {
          // Looked up again after each pause, because the forest may have forgotten the tree meanwhile.
          const tree = forest.tree(scope, tag)
          // Relocation may replace leaves even if the root stays the same.
          tree.spot.forget()
          const root = relocate(work, tree.root, from)
          if (root !== tree.root) forest.change(tree, () => root)
          forest.nodes.trim()
          if (this.#sliceOver()) yield
          from = work.next
        } while (from !== undefined)
      }
      const last = page.at(-1)
      if (last === undefined) break
      after = `${last.key}\0`
    }
    work.next = undefined
    const whole: Relocation = { ...work, enough: () => false }
    forest.directory = relocate(whole, forest.directory, undefined)
  }

  /** Converts an error. After any error but a full disk or a lack of file descriptors, the store can only read. */
  #failure(error: unknown): AnnalsError {
    const { committer } = this.#options
    if (lackOfDescriptors(error) !== undefined) {
      return outOfDescriptors('the checkpoint failed, but no data is lost because the log has it', error)
    }
    if (isFull(error)) {
      const message = 'the disk is full, so the checkpoint failed. No data is lost: the log has it'
      return new AnnalsError('DISK_FULL', message, {}, error)
    }
    const failure =
      error instanceof AnnalsError
        ? error
        : new AnnalsError('IO_ERROR', `the checkpoint failed: ${String(error)}`, {}, error)
    committer.group.break(failure)
    return failure
  }
}

function isEmpty(root: Node): boolean {
  return root instanceof Leaf && root.entries?.length === 0
}

/** Work that pauses at each `yield`. */
type Steps = Generator<void, void, void>

/** The state that a checkpoint writes, as it was when the trees were frozen. */
interface Start {
  readonly trees: readonly { readonly tree: Tree; readonly root: Node }[]
  /** Blocks that the frozen trees no longer use. */
  readonly freed: Home[]
  /** The roots of dropped trees. */
  readonly graves: Node[]
  /** The blocks of roots that are empty now. Not in `freed`: if this checkpoint fails, the trees may grow again before the next one. */
  readonly emptied: Home[]
  readonly rotation: Rotation
  readonly version: number
  readonly time: number
}
