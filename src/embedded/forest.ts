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

/** Trees kept at hand beyond this are forgotten once they are clean. */
const TREES_MAX = 20_000
/** Scopes that are looked at before a pause. */
const SCOPES_A_PAUSE = 1_024
const TRIM_STEPS = 4
/** What an entry costs in memory beyond its bytes, in a map; measured. */
const POINT_MEMORY_BYTES = 160

/** A root that a later change has replaced, and how many snapshots still stand on it. */
interface PastRoot {
  /** The last generation that it stands for. */
  readonly until: number
  readonly root: Node
  holders: number
}

/** One (scope, tag): its newest root, older roots that snapshots still see, and commits that are not yet durable. */
export class Tree {
  readonly scope: ByteString
  readonly tag: number
  root: Node
  /** Of the root. */
  readonly spot: Spot = new Spot()
  /** The generation in which the root last changed. */
  changed = 0
  /** Roots before that, each with the last generation it stood for; only while snapshots need them. */
  past: PastRoot[] = []
  /** By key, written to the log or about to be; readers don't see them. */
  pending: Pending | undefined = undefined
  /** The newest drop that is pending: what is pending came after it, and the root is as good as empty. */
  drop: Change | undefined = undefined
  /** From the log, and not in the root yet; before the first commit after an opening only. */
  recovered: RecoveredChanges | undefined = undefined
  /** Of a log, pending appends included; undefined while unknown. */
  head: LogHead | undefined = undefined
  dirty = false
  /** The version up to which its listeners were told of changes. */
  toldOf = 0
  /** Entries that were looked up and never expire, by key: a hit costs half of a search. */
  points: Map<ByteString, Entry> | undefined = undefined

  constructor(scope: ByteString, tag: number, root: Node) {
    this.scope = scope
    this.tag = tag
    this.root = root
  }
}

/**
 * All trees, found through a directory that is itself a tree: scope, 00, tag →
 * where the root lies. A snapshot of everything is a generation number: trees
 * that change afterwards keep their old root for it.
 */
export class Forest {
  readonly nodes: NodeStore
  /** As of the last checkpoint. */
  directory: Node
  readonly dirtyTrees: Set<Tree> = new Set()
  /** Roots of trees that were dropped since the last checkpoint began: what is below them is to be freed. */
  graves: Node[] = []
  /** While a checkpoint writes, the directory lags behind: no tree may be forgotten. */
  keepAll = false
  readonly #scopes = new Map<ByteString, Tree[]>()
  #count = 0
  /** By generation, with the roots of the past that each one stands on. */
  readonly #snapshots = new Map<number, { readonly tree: Tree; readonly past: PastRoot }[]>()
  #newestSnapshot = -1
  /** Trees that have not taken in what the log holds for them. */
  readonly #recovering = new Set<Tree>()
  /** Where `trim` goes on. */
  #hand: Iterator<[ByteString, Tree[]]> | undefined
  readonly #pointsBytesMax: number
  #pointsBytes = 0
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

  /** An entry that was looked up before and never expires; undefined says nothing. */
  known(scope: ByteString, tag: number, key: ByteString): Entry | undefined {
    const trees = this.#scopes.get(scope)
    if (trees === undefined) return undefined
    for (const tree of trees) if (tree.tag === tag) return tree.points?.get(key)
    return undefined
  }

  /** The tree, made if it is missing; for those who may write to it. */
  tree(scope: ByteString, tag: number): Tree {
    return this.treeIfAny(scope, tag) ?? this.#register(new Tree(scope, tag, emptyRoot(0)))
  }

  /** The tree, if anything was ever written to it. */
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

  /** The newest durable change under a key: an entry, which may have expired, or a removal that is still in the log. */
  find(tree: Tree, key: ByteString): Change | undefined {
    const known = tree.points?.get(key)
    if (known !== undefined) return known
    const before = this.nodes.diskFinds
    const entry =
      tree.recovered === undefined ? this.findIn(tree.root, key, tree.spot) : this.#findBehind(tree, key)
    // What is not worth keeping its leaf in memory is not worth keeping itself.
    const kept = this.nodes.diskFinds === before
    if (kept && entry !== undefined && isLasting(entry)) this.#remember(tree, entry)
    return entry
  }

  /** In the log first, and in the root only if the log has not dropped what was there. */
  #findBehind(tree: Tree, key: ByteString): Change | undefined {
    const changes = tree.recovered as RecoveredChanges
    const number = changes.get(key)
    if (number !== undefined) return this.#tail?.changeOf(number)
    return changes.has(DROP_KEY) ? undefined : this.findIn(tree.root, key)
  }

  /** Tags of the scope's trees; some may be empty. */
  tagsOf(scope: ByteString): number[] {
    const span = { from: directoryKey(scope, 0), to: `${scope}\x01`, reverse: false, limit: 256, now: 0 }
    const listed = this.collect(this.directory, span).map(({ key }) => parseDirectoryKey(key).tag)
    const known = (this.#scopes.get(scope) ?? []).map(({ tag }) => tag)
    return [...new Set([...listed, ...known])]
  }

  /** Scopes of which a tree holds something; the engine's own, which has no name, is none. All that the log holds must have been taken in. It can pause at each `yield`: what is written meanwhile may or may not be there. */
  *scopes({ from, to, limit }: ScopeRange): Generator<void, ByteString[], void> {
    const isInside = (scope: ByteString): boolean =>
      scope !== '' && (from === undefined || scope >= from) && (to === undefined || scope < to)
    const candidates = new Set<ByteString>()
    let looked = 0
    for (const scope of [...this.#scopes.keys()]) {
      if (isInside(scope)) candidates.add(scope)
      if (++looked % SCOPES_A_PAUSE === 0) yield
    }
    // Those that only the directory knows are as it says.
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

  #holds(scope: ByteString): boolean {
    return this.tagsOf(scope).some(tag => !isEmpty(this.tree(scope, tag).root))
  }

  /** In order, from the one to which the key `from` belongs. */
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

  #remember(tree: Tree, entry: Entry): void {
    this.#pointsBytes += entryBytes(entry) + POINT_MEMORY_BYTES
    if (this.#pointsBytes > this.#pointsBytesMax) {
      for (const trees of this.#scopes.values()) for (const each of trees) each.points = undefined
      this.#pointsBytes = 0
    }
    tree.points ??= new Map()
    tree.points.set(entry.key, entry)
  }

  findIn(root: Node, key: ByteString, spot?: Spot): Entry | undefined {
    const entry = find(this.nodes, root, key, spot)
    this.nodes.trim()
    return entry
  }

  /** Entries of the newest durable state. */
  scan(tree: Tree, span: Span): Entry[] {
    this.takeIn(tree)
    return this.collect(tree.root, span)
  }

  collect(root: Node, span: Span): Entry[] {
    const out: Entry[] = []
    this.collectInto(out, root, span)
    return out
  }

  /** The same, until `isEnough`; then answers with the key at which to go on. */
  collectInto(out: Entry[], root: Node, span: Span, isEnough?: () => boolean): ByteString | undefined {
    const next = collect(this.nodes, root, span, out, isEnough)
    this.nodes.trim()
    return next
  }

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

  /** One step, whatever the tree holds; the next checkpoint frees what is below the old root. */
  #drop(tree: Tree): void {
    for (const entry of tree.points?.values() ?? [])
      this.#pointsBytes -= entryBytes(entry) + POINT_MEMORY_BYTES
    tree.points = undefined
    this.change(tree, root => this.#bury(root))
  }

  #bury(root: Node): Node {
    // In memory nothing has a place to free.
    if (this.nodes.hasFiles && !isEmpty(root)) this.graves.push(root)
    return emptyRoot(this.nodes.generation)
  }

  /** Gives the tree another root; snapshots keep the one they know. */
  change(tree: Tree, step: (root: Node) => Node): void {
    this.#beginChange(tree)
    tree.spot.forget()
    tree.root = step(tree.root)
  }

  #beginChange(tree: Tree): void {
    const { generation } = this.nodes
    if (tree.changed !== generation) {
      this.#keepForSnapshots(tree)
      tree.changed = generation
    }
    this.markDirty(tree)
  }

  markDirty(tree: Tree): void {
    if (tree.dirty) return
    tree.dirty = true
    this.dirtyTrees.add(tree)
  }

  /** Applies what the log holds for this tree. It was always part of it, for snapshots too, so they see it as well. */
  takeIn(tree: Tree): void {
    if (tree.recovered === undefined) return
    for (const _ of this.takeInSteps(tree));
  }

  /** Applies all that the log holds; stops after each change, so that others may run. They may open trees meanwhile. */
  *takeInAll(): Generator<void, void, void> {
    while (this.#tail !== undefined) {
      for (const tree of this.#recovering) yield* this.takeInSteps(tree)
      // Somebody else may have taken in the rest meanwhile.
      const next = this.#tail?.next()
      if (next !== undefined) this.tree(next.scope, next.tag)
      else if (this.#recovering.size === 0) this.#tail = undefined
    }
  }

  /** The same for one tree. */
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
    // A snapshot shares these nodes from now on.
    this.nodes.freeze()
  }

  /** The root is about to be replaced; snapshots taken since it was new stand on it. */
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

  /** A generation that stays readable until it is released. */
  snapshot(): number {
    const generation = this.nodes.freeze()
    this.#snapshots.set(generation, [])
    this.#newestSnapshot = generation
    return generation
  }

  release(generation: number): void {
    const held = this.#snapshots.get(generation)
    if (held === undefined) return
    this.#snapshots.delete(generation)
    for (const { tree, past } of held) {
      past.holders--
      if (past.holders === 0) tree.past = tree.past.filter(other => other !== past)
    }
  }

  /** Whether a snapshot may stand on the tree's newest root. */
  isHeld(tree: Tree): boolean {
    return this.#snapshots.size > 0 && this.#newestSnapshot >= tree.changed
  }

  oldestSnapshot(): number | undefined {
    // Generations only grow, and a Map keeps its order.
    for (const generation of this.#snapshots.keys()) return generation
    return undefined
  }

  /** The entry as a snapshot sees it. What the log holds was always there, so it need not be taken in for that. */
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
   * Forgets clean trees when there are many; they are found again through the directory. A few are looked at whenever one
   * more is opened, so this never takes long.
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

/** Whether the tree is more than what the directory knows of it. */
function isNeeded(tree: Tree): boolean {
  const { dirty, pending, drop, recovered, past } = tree
  return dirty || pending !== undefined || drop !== undefined || recovered !== undefined || past.length > 0
}

/** The tree that a directory's key stands for. */
export function parseDirectoryKey(key: ByteString): { scope: ByteString; tag: number } {
  return { scope: key.slice(0, -2), tag: key.charCodeAt(key.length - 1) }
}

/** Whether a change puts an entry that is there until it is changed: only such an entry can be kept for later reads. */
function isLasting({ removes, expiresAt }: Change): boolean {
  return removes === undefined && expiresAt === 0
}

export function directoryKey(scope: ByteString, tag: number): ByteString {
  return `${scope}\0${String.fromCharCode(tag)}`
}
