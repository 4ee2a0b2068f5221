import type { ByteString } from '../core/bytes.ts'
import { sorted } from '../core/long-sort.ts'
import type { LogHead } from '../engine/log.ts'
import type { Entry, ScopeRange } from '../engine/storage.ts'
import type { Change } from './change.ts'
import { entryBytes, Leaf, type Node } from './node.ts'
import { decodeAddress } from './node-codec.ts'
import type { NodeStore } from './node-store.ts'
import type { Pending } from './pending.ts'
import { DROP_KEY, type RecoveredChanges, type RecoveredTail } from './recovered-tail.ts'
import { collect, emptyRoot, find, type Span, Spot } from './tree.ts'
import { apply } from './tree-changes.ts'

/** With more open trees than this, clean ones are forgotten. */
const TREES_MAX = 20_000
/** How many scopes are visited between two pauses. */
const SCOPES_A_PAUSE = 1_024
/** How many scopes `#trimTrees` visits each time. */
const TRIM_STEPS = 4
/** The measured memory of an entry in a map, beyond its bytes. */
const POINT_MEMORY_BYTES = 160

/** A replaced root that snapshots still read. */
interface PastRoot {
  /** The last generation in which it was the root. */
  readonly until: number
  readonly root: Node
  /** How many snapshots read it. */
  holders: number
}

/** The tree of one (scope, tag): its newest root, older roots that snapshots still read, and pending changes. */
export class Tree {
  readonly scope: ByteString
  readonly tag: number
  root: Node
  /** The leaf of the root that was used last. */
  readonly spot: Spot = new Spot()
  /** The generation in which the root last changed. */
  changed = 0
  /** Older roots that snapshots still read, oldest first. */
  past: PastRoot[] = []
  /** Changes of batches that are not done yet. Readers don't see them. */
  pending: Pending | undefined = undefined
  /** The newest pending drop. It hides the root from commits, and all changes in `pending` came after it. */
  drop: Change | undefined = undefined
  /** Changes that opening found in the log and that are not in the root yet. The first commit waits until they are. */
  recovered: RecoveredChanges | undefined = undefined
  /** The head of a log, including pending appends. Undefined while it is unknown. */
  head: LogHead | undefined = undefined
  dirty = false
  /** The version of the last batch that its listeners were notified of. */
  toldOf = 0
  /** A cache of entries that were looked up and don't expire. A hit costs half as much as a search in the tree. */
  points: Map<ByteString, Entry> | undefined = undefined

  constructor(scope: ByteString, tag: number, root: Node) {
    this.scope = scope
    this.tag = tag
    this.root = root
  }
}

/**
 * All trees of a store. They are found through the directory, a tree that maps `scope 00 tag` to the address of a root. A snapshot
 * is just a generation number: a tree that changes later keeps its old root for it.
 */
export class Forest {
  readonly nodes: NodeStore
  /** The root of the directory, as of the last checkpoint. */
  directory: Node
  readonly dirtyTrees: Set<Tree> = new Set()
  /** Roots of trees that were dropped since the last checkpoint began. The next one frees the nodes below them. */
  graves: Node[] = []
  /** True while a checkpoint writes. No tree may be forgotten then, because the directory still has old addresses. */
  keepAll = false
  readonly #scopes = new Map<ByteString, Tree[]>()
  #count = 0
  /** The open snapshots by generation, each with the old roots that it reads. */
  readonly #snapshots = new Map<number, { readonly tree: Tree; readonly past: PastRoot }[]>()
  #newestSnapshot = -1
  /** Open trees with changes in the log that are not applied yet. */
  readonly #recovering = new Set<Tree>()
  /** Where `#trimTrees` continues. */
  #hand: Iterator<[ByteString, Tree[]]> | undefined
  readonly #pointsBytesMax: number
  #pointsBytes = 0
  /** The changes that opening found in the log, until all of them are applied. */
  #tail: RecoveredTail | undefined

  constructor(
    nodes: NodeStore,
    directory: Node | undefined,
    tail: RecoveredTail | undefined,
    pointsBytesMax: number,
  ) {
    this.nodes = nodes
    this.#tail = tail
    this.#pointsBytesMax = pointsBytesMax
    this.directory = directory ?? emptyRoot(0)
  }

  /** An entry from the cache of lookups. Undefined does not mean that there is none. */
  known(scope: ByteString, tag: number, key: ByteString): Entry | undefined {
    const trees = this.#scopes.get(scope)
    if (trees === undefined) return undefined
    for (const tree of trees) if (tree.tag === tag) return tree.points?.get(key)
    return undefined
  }

  /** Opens a tree, and creates it if it does not exist. For writers. */
  tree(scope: ByteString, tag: number): Tree {
    return this.treeIfAny(scope, tag) ?? this.#register(new Tree(scope, tag, emptyRoot(0)))
  }

  /** Opens a tree if it exists. For readers: a lookup must not create trees. */
  treeIfAny(scope: ByteString, tag: number): Tree | undefined {
    const known = this.#scopes.get(scope)
    if (known !== undefined) for (const tree of known) if (tree.tag === tag) return tree
    const listed = find(this.nodes, this.directory, directoryKey(scope, tag))
    const recovered = this.#tail?.take(scope, tag)
    if (listed === undefined && recovered === undefined) return undefined
    const tree = new Tree(scope, tag, listed === undefined ? emptyRoot(0) : decodeAddress(listed.value))
    tree.recovered = recovered
    if (recovered !== undefined) this.#recovering.add(tree)
    return this.#register(tree)
  }

  #register(tree: Tree): Tree {
    const siblings = this.#scopes.get(tree.scope)
    if (siblings === undefined) this.#scopes.set(tree.scope, [tree])
    else siblings.push(tree)
    this.#count++
    this.#trimTrees(tree)
    return tree
  }

  /** The newest applied change under a key: an entry, which may have expired, or a removal that is still in the log only. */
  find(tree: Tree, key: ByteString): Change | undefined {
    const known = tree.points?.get(key)
    if (known !== undefined) return known
    const before = this.nodes.diskFinds
    const entry =
      tree.recovered === undefined ? this.findIn(tree.root, key, tree.spot) : this.#findBehind(tree, key)
    // If the leaf was read from disk and not kept in memory, its entry is not worth caching either.
    const kept = this.nodes.diskFinds === before
    if (kept && entry !== undefined && isLasting(entry)) this.#remember(tree, entry)
    return entry
  }

  /** Looks in the recovered log first, and in the root only if the log has no drop of the tree. */
  #findBehind(tree: Tree, key: ByteString): Change | undefined {
    const changes = tree.recovered as RecoveredChanges
    const number = changes.get(key)
    if (number !== undefined) return this.#tail?.changeOf(number)
    return changes.has(DROP_KEY) ? undefined : this.findIn(tree.root, key)
  }

  /** The tags of the scope's trees. Some of the trees may be empty. */
  tagsOf(scope: ByteString): number[] {
    const span = { from: directoryKey(scope, 0), to: `${scope}\x01`, reverse: false, limit: 256, now: 0 }
    const listed = this.collect(this.directory, span).map(({ key }) => parseDirectoryKey(key).tag)
    const known = (this.#scopes.get(scope) ?? []).map(({ tag }) => tag)
    return [...new Set([...listed, ...known])]
  }

  /**
   * Scopes that have entries, in order, without the engine's own scope (''). Call it after `takeInAll`. It may pause at each
   * `yield`, and scopes that are written meanwhile may be missing.
   */
  *scopes({ from, to, limit }: ScopeRange): Generator<void, ByteString[], void> {
    const isInside = (scope: ByteString): boolean =>
      scope !== '' && (from === undefined || scope >= from) && (to === undefined || scope < to)
    const candidates = new Set<ByteString>()
    let looked = 0
    for (const scope of [...this.#scopes.keys()]) {
      if (isInside(scope)) candidates.add(scope)
      if (++looked % SCOPES_A_PAUSE === 0) yield
    }
    // Every scope that only the directory has is not empty, so `limit` of them are enough.
    let listed = 0
    for (const scope of this.#listedScopes(from, to)) {
      if (++looked % SCOPES_A_PAUSE === 0) yield
      if (!isInside(scope) || candidates.has(scope)) continue
      candidates.add(scope)
      if (++listed === limit) break
    }
    const found: ByteString[] = []
    for (const scope of yield* sorted([...candidates])) {
      if (this.#holds(scope)) found.push(scope)
      if (found.length === limit) break
      if (++looked % SCOPES_A_PAUSE === 0) yield
    }
    return found
  }

  /** Whether the scope has entries. */
  #holds(scope: ByteString): boolean {
    return this.tagsOf(scope).some(tag => !isEmpty(this.tree(scope, tag).root))
  }

  /** The scopes in the directory, in order, from `from` on. */
  *#listedScopes(
    from: ByteString | undefined,
    to: ByteString | undefined,
  ): Generator<ByteString, void, void> {
    for (let next = from; ; ) {
      const span = { from: next, to: undefined, reverse: false, limit: 1, now: 0 }
      const [first] = this.collect(this.directory, span)
      if (first === undefined) return
      const { scope } = parseDirectoryKey(first.key)
      if (to !== undefined && scope >= to) return
      yield scope
      next = `${scope}\x01`
    }
  }

  /** Adds an entry to the cache of lookups. If the cache exceeds its budget, it is emptied first. */
  #remember(tree: Tree, entry: Entry): void {
    this.#pointsBytes += entryBytes(entry) + POINT_MEMORY_BYTES
    if (this.#pointsBytes > this.#pointsBytesMax) {
      for (const trees of this.#scopes.values()) for (const each of trees) each.points = undefined
      this.#pointsBytes = 0
    }
    tree.points ??= new Map()
    tree.points.set(entry.key, entry)
  }

  /** The entry under a key below a root. `spot` must be the root's own. */
  findIn(root: Node, key: ByteString, spot?: Spot): Entry | undefined {
    const entry = find(this.nodes, root, key, spot)
    this.nodes.trim()
    return entry
  }

  /** The entries of the span, without pending changes. */
  scan(tree: Tree, span: Span): Entry[] {
    this.takeIn(tree)
    return this.collect(tree.root, span)
  }

  /** The entries of the span below a root. */
  collect(root: Node, span: Span): Entry[] {
    const out: Entry[] = []
    this.collectInto(out, root, span)
    return out
  }

  /** Adds entries to `out` until the span ends or `isEnough` is true. In the second case, returns the key to continue at. */
  collectInto(out: Entry[], root: Node, span: Span, isEnough?: () => boolean): ByteString | undefined {
    const next = collect(this.nodes, root, span, out, isEnough)
    this.nodes.trim()
    return next
  }

  /** Applies a committed change to the tree, so that readers see it. */
  apply(tree: Tree, change: Change): void {
    if (change.removes === 'tree') {
      this.#drop(tree)
      return
    }
    if (tree.points !== undefined) {
      const known = tree.points.get(change.key)
      if (known !== undefined) {
        tree.points.delete(change.key)
        this.#pointsBytes -= entryBytes(known) + POINT_MEMORY_BYTES
        if (isLasting(change)) this.#remember(tree, change)
      }
    }
    this.#beginChange(tree)
    tree.root = apply(this.nodes, tree.root, change, tree.spot)
    this.nodes.trim()
  }

  /** Empties the tree in one step, whatever its size. The next checkpoint frees the nodes of the old root. */
  #drop(tree: Tree): void {
    for (const entry of tree.points?.values() ?? [])
      this.#pointsBytes -= entryBytes(entry) + POINT_MEMORY_BYTES
    tree.points = undefined
    this.change(tree, root => this.#bury(root))
  }

  /** Leaves the nodes of a root to the next checkpoint to free. Returns an empty root. */
  #bury(root: Node): Node {
    // A store in memory has no blocks to free.
    if (this.nodes.hasFiles && !isEmpty(root)) this.graves.push(root)
    return emptyRoot(this.nodes.generation)
  }

  /** Replaces the tree's root. Snapshots keep the old one. */
  change(tree: Tree, step: (root: Node) => Node): void {
    this.#beginChange(tree)
    tree.spot.forget()
    tree.root = step(tree.root)
  }

  /** Must precede every change of a root: keeps the old root for snapshots and marks the tree as dirty. */
  #beginChange(tree: Tree): void {
    const { generation } = this.nodes
    if (tree.changed !== generation) {
      this.#keepForSnapshots(tree)
      tree.changed = generation
    }
    this.markDirty(tree)
  }

  /** Makes the next checkpoint write the tree. */
  markDirty(tree: Tree): void {
    if (tree.dirty) return
    tree.dirty = true
    this.dirtyTrees.add(tree)
  }

  /** Applies the recovered changes of this tree. Snapshots see them too, because the changes are older than any snapshot. */
  takeIn(tree: Tree): void {
    if (tree.recovered === undefined) return
    for (const _ of this.takeInSteps(tree));
  }

  /** Applies the recovered changes of all trees. It yields after each change, and others may open trees meanwhile. */
  *takeInAll(): Generator<void, void, void> {
    while (this.#tail !== undefined) {
      for (const tree of this.#recovering) yield* this.takeInSteps(tree)
      // Another caller may have applied the rest meanwhile.
      const next = this.#tail?.next()
      if (next !== undefined) this.tree(next.scope, next.tag)
      else if (this.#recovering.size === 0) this.#tail = undefined
    }
  }

  /** Applies the recovered changes of one tree. It yields after each change. */
  *takeInSteps(tree: Tree): Generator<void, void, void> {
    if (tree.recovered === undefined || this.#tail === undefined) return
    for (const change of this.#tail.drain(tree.recovered)) {
      this.#takeInChange(tree, change)
      yield
    }
    this.#endTakeIn(tree)
  }

  #takeInChange(tree: Tree, change: Change): void {
    tree.spot.forget()
    tree.root = change.removes === 'tree' ? this.#bury(tree.root) : apply(this.nodes, tree.root, change)
    this.markDirty(tree)
    this.nodes.trim()
  }

  #endTakeIn(tree: Tree): void {
    tree.recovered = undefined
    this.#recovering.delete(tree)
    // Open snapshots read this root, so its nodes must not change in place any more.
    this.nodes.freeze()
  }

  /** Keeps the current root for the snapshots that were taken since it last changed. */
  #keepForSnapshots(tree: Tree): void {
    if (!this.isHeld(tree)) return
    const past: PastRoot = { until: this.nodes.generation - 1, root: tree.root, holders: 0 }
    for (const [generation, held] of this.#snapshots) {
      if (generation < tree.changed) continue
      past.holders++
      held.push({ tree, past })
    }
    if (past.holders > 0) tree.past.push(past)
  }

  /** Takes a snapshot. Returns its generation, which stays readable until `release`. */
  snapshot(): number {
    const generation = this.nodes.freeze()
    this.#snapshots.set(generation, [])
    this.#newestSnapshot = generation
    return generation
  }

  /** Releases a snapshot, and the old roots that no other snapshot reads. */
  release(generation: number): void {
    const held = this.#snapshots.get(generation)
    if (held === undefined) return
    this.#snapshots.delete(generation)
    for (const { tree, past } of held) {
      past.holders--
      if (past.holders === 0) tree.past = tree.past.filter(other => other !== past)
    }
  }

  /** Whether a snapshot may read the tree's newest root. */
  isHeld(tree: Tree): boolean {
    return this.#snapshots.size > 0 && this.#newestSnapshot >= tree.changed
  }

  /** The generation of the oldest open snapshot. */
  oldestSnapshot(): number | undefined {
    // A Map iterates in the order of insertion, and generations only grow.
    for (const generation of this.#snapshots.keys()) return generation
    return undefined
  }

  /** The entry as a snapshot sees it. Recovered changes are part of every snapshot and need not be applied for this. */
  findAt(tree: Tree, generation: number, key: ByteString): Entry | undefined {
    if (tree.recovered !== undefined) return this.#findBehind(tree, key)
    return this.findIn(this.rootAt(tree, generation), key)
  }

  /** The tree's root as a snapshot sees it. */
  rootAt(tree: Tree, generation: number): Node {
    this.takeIn(tree)
    if (tree.changed <= generation) return tree.root
    for (const past of tree.past) if (past.until >= generation) return past.root
    return emptyRoot(0)
  }

  /**
   * Forgets clean trees if too many are open. The directory finds them again. Each opened tree visits only a few scopes, so this
   * never takes long.
   */
  #trimTrees(opened: Tree): void {
    if (this.#count <= TREES_MAX || this.keepAll) return
    for (let steps = TRIM_STEPS; steps > 0; steps--) {
      this.#hand ??= this.#scopes.entries()
      const { value, done } = this.#hand.next()
      if (done === true) {
        this.#hand = undefined
        return
      }
      const [scope, trees] = value
      const kept = trees.filter(tree => tree === opened || isNeeded(tree))
      this.#count -= trees.length - kept.length
      if (kept.length === 0) this.#scopes.delete(scope)
      else if (kept.length < trees.length) this.#scopes.set(scope, kept)
    }
  }
}

function isEmpty(root: Node): boolean {
  return root instanceof Leaf && root.entries?.length === 0
}

/** Whether the tree has state that the directory lacks, so that it must not be forgotten. */
function isNeeded(tree: Tree): boolean {
  const { dirty, pending, drop, recovered, past } = tree
  return dirty || pending !== undefined || drop !== undefined || recovered !== undefined || past.length > 0
}

/** The scope and tag of a directory key. */
export function parseDirectoryKey(key: ByteString): { scope: ByteString; tag: number } {
  return { scope: key.slice(0, -2), tag: key.charCodeAt(key.length - 1) }
}

/** Whether a change puts an entry that does not expire. Only such entries may be cached. */
function isLasting({ removes, expiresAt }: Change): boolean {
  return removes === undefined && expiresAt === 0
}

/** The key of a tree in the directory. */
export function directoryKey(scope: ByteString, tag: number): ByteString {
  return `${scope}\0${String.fromCharCode(tag)}`
}
