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
  /** `missing`: no store was created yet. `created`: by this handle. */
  readonly origin: 'found' | 'created' | 'missing'
  /** Opening found commits or links in the log. */
  readonly leansOnLog: boolean
  /** Garbage below this is not worth rewriting anything. */
  readonly garbageBytes: number
}

/** How long a checkpoint may keep others from running. */
const SLICE_MS = 2
/** Live bytes to move in one checkpoint, so that it stays short. */
const RELOCATE_BYTES = 32 * 1024 * 1024
const DIRECTORY_PAGE = 256

/**
 * Writes what changed since the last checkpoint: moves the log to a new segment
 * and freezes the trees in one step, writes their dirty nodes, children first, a
 * slice at a time, syncs, and then replaces the older manifest. Only then may
 * files go that neither manifest names. At any moment before, the manifest that
 * is there and the log make the whole; a checkpoint that fails changes nothing
 * but the time until the next.
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
   * What opening found in the log, commits and links, may be in the system's memory only. Commits are in the trees by the first
   * checkpoint, but the manifest before it still needs that log, and would be the only one while a later opening confirms the newer one.
   */
  #leansOnFound: boolean
  /** Which of the two files this handle has written, with success. */
  readonly #ours = new Set<number>()
  /** The generation at which the newest manifest was complete: older snapshots may read files that it no longer names. */
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

  /** Whether there is a store on the disk. */
  get isCreated(): boolean {
    return this.#options.origin !== 'missing' || this.current !== undefined
  }

  get running(): boolean {
    return this.#running !== undefined
  }

  /** One after the other; a caller hears of one that began after its call. */
  async run(): Promise<void> {
    while (this.#running !== undefined) await this.#running.catch(() => undefined)
    const run = this.#findingRoom()
    this.#running = run
    try {
      await run
    } finally {
      this.#running = undefined
      // Whoever asked for it: batches may have been told to wait for it.
      this.#options.committer.group.release()
    }
  }

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
    // The one before may have failed while this one waited: what it could not sync must not be synced again.
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
    // What can't be removed now, the next checkpoint finds again; this one is complete.
    await this.#removeUnneeded().catch(() => undefined)
  }

  /** A commit may have taken the segment that was made for the rotation: then another one is made. */
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

  async #giveUpFound(): Promise<void> {
    await this.#writeCopy()
    // Snapshots may read what only the older manifest has named: as long as there are any, files stay.
    this.#completedAt = Number.POSITIVE_INFINITY
    this.#leansOnFound = false
  }

  /** In the place of the older manifest. */
  async #writeCopy(): Promise<void> {
    const current = this.current as Manifest
    const copy = { ...current, generation: current.generation + 1 }
    await this.#writeManifest(copy)
    this.#previous = current
    this.current = copy
  }

  /**
   * The manifest that opening found may be in the system's memory only, if the sync of who wrote it failed: then no
   * sync of ours would bring it to the device. Written again, it gets there, before the other one is given up.
   * If there is no other one, or none that can be read, the device may still hold what was there before somebody failed
   * to replace it: newer than ours, and it names blocks that we are about to overwrite. A copy of ours takes its place.
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
   * A file that others left behind is replaced, not overwritten: its name may be in the system's memory only, and half
   * of a manifest that it may hold must not become whole by a part of ours.
   */
  async #writeManifest(manifest: Manifest): Promise<void> {
    const slot = manifest.generation % 2
    // The only one there is must not be gone for a moment. To write the same bytes again can't damage it.
    const only = manifest === this.current && this.#previous === undefined
    const anew = !only && !this.#ours.delete(slot)
    await writeManifest(this.#options.disk, this.#options.storeId, manifest, anew)
    this.#ours.add(slot)
  }

  /** The trees are as dirty as they were, but for what is written already. */
  #undo(start: Start): void {
    const { forest, wal } = this.#options
    for (const { tree } of start.trees) forest.markDirty(tree)
    wal.tailBytes += start.rotation.bytes
    forest.nodes.freed = start.freed.concat(forest.nodes.freed)
    forest.graves = start.graves.concat(forest.graves)
    // Snapshots may read what was written in vain, and the next one may free it: as long as there are any, files stay.
    this.#completedAt = Number.POSITIVE_INFINITY
  }

  #refuseIfBroken(): void {
    const { group } = this.#options.committer
    if (group.broken !== undefined) throw group.readOnly()
  }

  #freeze(): Start {
    const { forest, wal, committer } = this.#options
    // A commit may have been taken in by half.
    this.#refuseIfBroken()
    // First, because it may fail.
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

  /** What opening found in the log belongs into the trees. */
  *#takeIn(): Steps {
    for (const _ of this.#options.forest.takeInAll()) if (this.#sliceOver()) yield
  }

  *#writeTrees(start: Start): Steps {
    for (const { tree, root } of start.trees) {
      yield* this.#writeTree(tree, root, start)
      // Many trees are one leaf each, and nothing within them pauses.
      if (this.#sliceOver()) yield
    }
    const { forest } = this.#options
    if (hasLongEdge(forest.directory)) forest.directory = cutEdge(forest.nodes, forest.directory)
    // A store that never held anything has no data file: see `refuseLostManifest`.
    if (!isEmpty(forest.directory)) yield* this.#write(forest.directory)
  }

  *#writeTree(tree: Tree, root: Node, start: Start): Steps {
    const { forest } = this.#options
    if (root instanceof Leaf && !root.loaded && root.dirty) forest.nodes.load(root)
    const empty = isEmpty(root)
    if (!empty) yield* this.#write(root)
    else if (root.home !== undefined) start.emptied.push(root.home)
    // Only the newest directory is ever read, so it needs no snapshot of its own.
    const key = directoryKey(tree.scope, tree.tag)
    const change = empty
      ? removalOf(key, 0, 0)
      : { key, value: encodeAddress(root), version: 0, time: 0, expiresAt: 0 }
    // What this frees of the directory is not in the one that is being written; others free what still is.
    const { freed } = forest.nodes
    forest.nodes.freed = start.freed
    try {
      forest.directory = apply(forest.nodes, forest.directory, change)
    } finally {
      forest.nodes.freed = freed
    }
  }

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

  /** What is below the roots of dropped trees is free, like them. One is done wholly or not at all: this may fail. */
  *#freeGraves(start: Start): Steps {
    for (let root = start.graves.at(-1); root !== undefined; root = start.graves.at(-1)) {
      const homes: Home[] = []
      for (const home of homesBelow(this.#options.forest.nodes, root)) {
        homes.push(home)
        if (this.#sliceOver()) yield
      }
      // Not as arguments: there may be more than a call takes.
      for (const home of homes) start.freed.push(home)
      start.graves.pop()
    }
  }

  #sliceOver(): boolean {
    return this.#options.scheduler.now() > this.#sliceEnd
  }

  /**
   * Others run only where the steps yield, and by then every appended node has its place for good: so they may copy or
   * unload it. (An `await` in between would let them see places that are not written yet.)
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

  /** Files that neither manifest names go, unless a snapshot from before the older one may still read them. */
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

  /** What grows meanwhile, in these or others, is for `#freeze`: whoever keeps writing must not keep this from its end. */
  *#cutEdges(): Steps {
    for (const tree of [...this.#options.forest.dirtyTrees]) {
      this.#cutEdge(tree)
      if (this.#sliceOver()) yield
    }
  }

  /** A snapshot would keep what was cut in memory for good, as it is never written: then the leaf stays long this time. */
  #cutEdge(tree: Tree): void {
    const { forest } = this.#options
    if (!hasLongEdge(tree.root) || forest.isHeld(tree)) return
    forest.change(tree, root => cutEdge(forest.nodes, root))
  }

  /** Makes the live nodes of sparse files dirty, if more than half of all that is stored is garbage. */
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
          // Anew each time: meanwhile it may have been forgotten and opened again.
          const tree = forest.tree(scope, tag)
          // Also where the root stays, leaves below it may get others in their place.
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

  /** Only a full disk and a lack of descriptors pass; after anything else, nothing more may be written. */
  #failure(error: unknown): AnnalsError {
    const { committer } = this.#options
    if (lackOfDescriptors(error) !== undefined) {
      return outOfDescriptors('the checkpoint failed, and nothing is lost, as the log holds it', error)
    }
    if (isFull(error)) {
      const message = 'the checkpoint failed: the disk is full; nothing is lost, the log holds it'
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

/** Work that can stop between two steps. */
type Steps = Generator<void, void, void>

interface Start {
  readonly trees: readonly { readonly tree: Tree; readonly root: Node }[]
  readonly freed: Home[]
  /** Of trees that were dropped. */
  readonly graves: Node[]
  /** Of roots that hold nothing now. If this fails they may grow again before the next. */
  readonly emptied: Home[]
  readonly rotation: Rotation
  readonly version: number
  readonly time: number
}
