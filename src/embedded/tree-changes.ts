import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import {
  CHILD_OVERHEAD_BYTES,
  childIndex,
  EDGE_BYTES_MAX,
  entryBytes,
  IN_ROW_MIN,
  IN_ROW_REACH,
  INNER_BYTES_MAX,
  INNER_CHILDREN_MAX,
  Inner,
  LEAF_BYTES_MAX,
  LEAF_ENTRIES_MAX,
  Leaf,
  lowerBound,
  type Node,
  placeIn,
  REMOVED,
  separator,
} from './node.ts'
import { emptyRoot, type NodeKeeper, Spot } from './tree.ts'

/** What took a node's place: neighbours, and the keys that tell them apart. No neighbours: it became empty. */
interface Split {
  readonly nodes: Node[]
  readonly bounds: ByteString[]
}

const EMPTY: Split = { nodes: [], bounds: [] }

/** Puts an entry, or takes one away if it is a removal; returns the new root, whose spot `spot` is from then on. */
export function apply(keeper: NodeKeeper, root: Node, entry: Entry, spot: Spot = new Spot()): Node {
  if (applyNear(keeper, spot, entry)) return root
  spot.begin()
  const changed = writable(keeper, root)
  const split = applyTo(keeper, changed, entry, spot)
  if (split === EMPTY) {
    keeper.free(changed)
    return emptyRoot(keeper.generation)
  }
  let top = rootAfter(keeper, changed, split)
  while (top instanceof Inner && top.children.length === 1) {
    keeper.free(top)
    top = top.child(0)
  }
  return top
}

function rootAfter(keeper: NodeKeeper, changed: Node, split: Split | undefined): Node {
  if (split === undefined) return changed
  return new Inner(changed.level + 1, keeper.generation, split.bounds, split.nodes)
}

/** Whether the tree's last leaf has grown beyond what a leaf has. */
export function hasLongEdge(root: Node): boolean {
  let node: Node | undefined = root
  while (node instanceof Inner) node = node.children.at(-1)
  return node?.entries !== undefined && node.entries.length > 1 && node.bytes > LEAF_BYTES_MAX
}

/** Cuts such a leaf; returns the new root. On disk each leaf is short: one is read and written as a whole. */
export function cutEdge(keeper: NodeKeeper, root: Node): Node {
  const changed = writable(keeper, root)
  return rootAfter(keeper, changed, cutLast(keeper, changed))
}

function cutLast(keeper: NodeKeeper, node: Node): Split | undefined {
  if (node instanceof Leaf) return splitLeaf(keeper, node, (node.entries as Entry[]).length - 1)
  const last = node.children.length - 1
  const child = writable(keeper, node.peek(last))
  node.children[last] = child
  const split = cutLast(keeper, child)
  return split === undefined ? undefined : takeSplit(keeper, node, last, split)
}

/** The node itself if it may change, else a copy that may. */
export function writable(keeper: NodeKeeper, node: Node): Node {
  if (node.generation === keeper.generation) {
    if (!node.dirty) keeper.dirty(node)
    return node
  }
  // The copy of a clean stub can read the same block. That of a dirty one could not: once the original is written, the
  // block that both lean on is free.
  if (!node.loaded && (node.dirty || node instanceof Inner)) keeper.load(node)
  const copy = node.copy(keeper.generation)
  keeper.grew(copy.memoryBytes())
  return copy
}

/** Puts the entry where the last one went, if it fits there and the way down to there needs no change. */
function applyNear(keeper: NodeKeeper, spot: Spot, entry: Entry): boolean {
  const leaf = spot.leafOf(entry.key)
  // A leaf that may change in place has ancestors that may.
  if (leaf === undefined || !mayChange(keeper, leaf) || entry.expiresAt === REMOVED) return false
  const count = (leaf.entries as Entry[]).length
  const index = placeOf(leaf, entry.key)
  const front = frontAt(leaf, index, entry.key)
  const bytes = leaf.bytes + entryBytes(entry)
  if (count >= LEAF_ENTRIES_MAX || bytes > bytesMaxOf(spot, front === count)) return false
  if (put(keeper, leaf, index, entry)) wroteTo(keeper, spot, leaf)
  return true
}

function mayChange(keeper: NodeKeeper, leaf: Leaf): boolean {
  return leaf.dirty && leaf.generation === keeper.generation
}

/** A new entry went there. If those before it filled the neighbour before this leaf, the writing has gone on, and that one is sealed. */
function wroteTo(keeper: NodeKeeper, spot: Spot, leaf: Leaf): void {
  const before = spot.written
  if (leaf === before) return
  if (before !== undefined && spot.writtenHigh === spot.low && isDone(keeper, before)) keeper.seal(before)
  spot.written = leaf
  spot.writtenHigh = spot.high
}

function isDone(keeper: NodeKeeper, leaf: Leaf): boolean {
  const { loaded, inRow, bytes } = leaf
  return loaded && inRow >= IN_ROW_MIN && bytes >= LEAF_BYTES_MAX / 4 && mayChange(keeper, leaf)
}

/** What a leaf may have with one entry more: more than others where it is the tree's last one, and so is the entry. */
function bytesMaxOf(spot: Spot, atEnd: boolean): number {
  return atEnd && spot.high === undefined ? EDGE_BYTES_MAX : LEAF_BYTES_MAX
}

/** Where a key is, or belongs. */
function placeOf(leaf: Leaf, key: ByteString): number {
  const entries = leaf.entries as Entry[]
  const count = entries.length
  return count > 0 && entries[count - 1].key < key ? count : placeIn(leaf, key)
}

/**
 * Where the writing goes on behind, once the entry has gone to `index`; -1 if nothing says so. Behind all others, as logs and
 * bulk loads write; and behind several in a row, as where numbers count up between older ones.
 */
function frontAt(leaf: Leaf, index: number, key: ByteString): number {
  const entries = leaf.entries as Entry[]
  if (index === entries.length) return index
  if (leaf.inRow < IN_ROW_MIN || !isInRow(leaf, index) || entries[index].key === key) return -1
  return lastNewAt(leaf, index)
}

function isInRow({ lastNew }: Leaf, index: number): boolean {
  return lastNew >= 0 && index >= lastNew && index - lastNew <= IN_ROW_REACH
}

/** Of two that come in pairs, as a step's beginning and its end, the second may go before the first: but not a third. */
function lastNewAt({ lastNew }: Leaf, index: number): number {
  return index === lastNew ? index + 1 : index
}

function applyTo(keeper: NodeKeeper, node: Node, entry: Entry, spot: Spot): Split | undefined {
  if (node instanceof Leaf) {
    const split = applyToLeaf(keeper, node, entry, spot)
    // After a split other keys belong there, and after a removal it may move in with its neighbour.
    if (split === undefined && entry.expiresAt !== REMOVED) spot.leaf = node
    return split
  }
  if (node.keys === undefined) keeper.load(node)
  const keys = node.keys as ByteString[]
  const index = childIndex(keys, entry.key)
  spot.narrow(keys, index)
  const child = writable(keeper, node.peek(index))
  node.children[index] = child
  const split = applyTo(keeper, child, entry, spot)
  if (split === undefined) {
    if (entry.expiresAt === REMOVED && child instanceof Leaf) joinNeighbour(keeper, node, index)
    return undefined
  }
  if (split === EMPTY) return dropChild(keeper, node, index)
  return takeSplit(keeper, node, index, split)
}

/** Several children take the place of one. */
function takeSplit(keeper: NodeKeeper, node: Inner, index: number, split: Split): Split | undefined {
  const keys = node.keys as ByteString[]
  node.expand()
  node.children.splice(index, 1, ...split.nodes)
  keys.splice(index, 0, ...split.bounds)
  for (const bound of split.bounds) node.bytes += bound.length + CHILD_OVERHEAD_BYTES
  return innerFull(node)
    ? splitInner(keeper, node, index + split.nodes.length === node.children.length)
    : undefined
}

function dropChild(keeper: NodeKeeper, node: Inner, index: number): Split | undefined {
  node.expand()
  keeper.free(node.child(index))
  node.children.splice(index, 1)
  if (node.children.length === 0) return EMPTY
  dropKey(node, Math.max(0, index - 1))
  return undefined
}

function dropKey(node: Inner, index: number): void {
  const [key] = (node.keys as ByteString[]).splice(index, 1)
  node.bytes -= key.length + CHILD_OVERHEAD_BYTES
}

function applyToLeaf(keeper: NodeKeeper, leaf: Leaf, entry: Entry, spot: Spot): Split | undefined {
  if (leaf.entries === undefined) {
    // A removal may leave the leaf empty, and then it has to go; one that waits would leave an empty leaf for good.
    // What waits is not cut: all of it has to fit one block.
    const bytes = leaf.length + leaf.bytes + entryBytes(entry)
    if (entry.expiresAt !== REMOVED && bytes < 2 * LEAF_BYTES_MAX) return defer(keeper, leaf, entry)
    keeper.load(leaf)
  }
  const entries = leaf.entries as Entry[]
  const index = placeOf(leaf, entry.key)
  const known = index < entries.length && entries[index].key === entry.key
  if (entry.expiresAt === REMOVED) {
    if (known) {
      leaf.bytes -= entryBytes(entries[index])
      entries.splice(index, 1)
    }
    return entries.length === 0 ? EMPTY : undefined
  }
  const front = frontAt(leaf, index, entry.key)
  if (put(keeper, leaf, index, entry)) wroteTo(keeper, spot, leaf)
  if (!leafFull(leaf, bytesMaxOf(spot, front === entries.length - 1))) return undefined
  // Where its keys end now is not known here.
  spot.written = undefined
  return splitLeaf(keeper, leaf, front)
}

/** Puts the entry to its place: over the one under the same key, or before the first with a higher one. Answers whether it is new. */
function put(keeper: NodeKeeper, leaf: Leaf, index: number, entry: Entry): boolean {
  const entries = leaf.entries as Entry[]
  const bytes = entryBytes(entry)
  leaf.bytes += bytes
  keeper.grew(bytes)
  if (index < entries.length && entries[index].key === entry.key) {
    leaf.bytes -= entryBytes(entries[index])
    entries[index] = entry
    return false
  }
  leaf.inRow = isInRow(leaf, index) ? leaf.inRow + 1 : 0
  leaf.lastNew = lastNewAt(leaf, index)
  if (index === entries.length) entries.push(entry)
  else entries.splice(index, 0, entry)
  return true
}

/** The leaf is not in memory: remember the change until it is. */
function defer(keeper: NodeKeeper, leaf: Leaf, entry: Entry): undefined {
  leaf.delta ??= new Map()
  const before = leaf.delta.get(entry.key)
  const bytes = entryBytes(entry)
  leaf.bytes += bytes - (before === undefined ? 0 : entryBytes(before))
  leaf.delta.set(entry.key, entry)
  keeper.grew(bytes)
}

/** Lays a delta over the entries read from disk. */
export function merge(entries: Entry[], delta: ReadonlyMap<ByteString, Entry>): Entry[] {
  for (const entry of delta.values()) {
    const index = lowerBound(entries, entry.key)
    const known = index < entries.length && entries[index].key === entry.key
    if (entry.expiresAt === REMOVED) {
      if (known) entries.splice(index, 1)
    } else if (known) entries[index] = entry
    else entries.splice(index, 0, entry)
  }
  return entries
}

/** A leaf that shrank moves in with a neighbour, so that deleted data leave no chain of almost empty leaves. */
function joinNeighbour(keeper: NodeKeeper, parent: Inner, index: number): void {
  const leaf = parent.children[index] as Leaf
  if (leaf.entries === undefined || leaf.bytes > LEAF_BYTES_MAX / 4) return
  if (!joinNext(keeper, parent, index - 1)) joinNext(keeper, parent, index)
}

/** Joins a child with the next one, if there are both and they fit one leaf. Nothing is read for tidiness' sake alone. */
function joinNext(keeper: NodeKeeper, parent: Inner, index: number): boolean {
  const first = parent.children[index] as Leaf | undefined
  const second = parent.children[index + 1] as Leaf | undefined
  if (first?.entries === undefined || second?.entries === undefined) return false
  const bytes = first.bytes + second.bytes
  const count = first.entries.length + second.entries.length
  if (bytes > (LEAF_BYTES_MAX * 3) / 4 || count > LEAF_ENTRIES_MAX) return false
  const joined = writable(keeper, first) as Leaf
  joined.entries = [...first.entries, ...second.entries]
  joined.bytes = bytes
  keeper.grew(second.bytes)
  keeper.free(second)
  parent.expand()
  parent.children.splice(index, 2, joined)
  dropKey(parent, index)
  return true
}

function leafFull(leaf: Leaf, bytesMax: number): boolean {
  const count = (leaf.entries as Entry[]).length
  return count > 1 && (leaf.bytes > bytesMax || count > LEAF_ENTRIES_MAX)
}

/**
 * Splits in halves; but where the writing goes on behind `front`, so that what is before stays full, as nobody comes back to it, and
 * what is behind is not in the way.
 */
function splitLeaf(keeper: NodeKeeper, leaf: Leaf, front: number): Split {
  const entries = leaf.entries as Entry[]
  const { inRow } = leaf
  const half = front >= 0 || leaf.bytes > 2 * LEAF_BYTES_MAX ? LEAF_BYTES_MAX : leaf.bytes / 2
  const nodes: Leaf[] = []
  const bounds: ByteString[] = []
  let start = 0
  let bytes = 0
  const cut = (end: number): void => {
    // The first piece is the leaf itself: it keeps its line of versions on disk.
    const piece = start === 0 ? leaf : new Leaf(keeper.generation, [])
    piece.entries = entries.slice(start, end)
    piece.bytes = bytes
    const hasFront = start <= front && front < end
    piece.lastNew = hasFront ? front - start : -1
    piece.inRow = hasFront ? inRow : 0
    nodes.push(piece)
    if (start > 0) bounds.push(separator(entries[start - 1].key, entries[start].key))
    if (end <= front) keeper.seal(piece)
    start = end
    bytes = 0
  }
  for (let i = 0; i < entries.length; i++) {
    const size = entryBytes(entries[i])
    const full = bytes + size > LEAF_BYTES_MAX || i - start === LEAF_ENTRIES_MAX
    const first = nodes.length === 0 && (bytes >= half || i === front + 1)
    if (i > start && (full || first)) cut(i)
    bytes += size
  }
  cut(entries.length)
  return { nodes, bounds }
}

function innerFull(node: Inner): boolean {
  const count = node.children.length
  return count > 4 && (count > INNER_CHILDREN_MAX || node.bytes > INNER_BYTES_MAX)
}

function splitInner(keeper: NodeKeeper, node: Inner, atEnd: boolean): Split {
  node.expand()
  const keys = node.keys as ByteString[]
  const { children } = node
  const middle = atEnd ? children.length - 2 : children.length >>> 1
  const right = new Inner(node.level, keeper.generation, keys.slice(middle), children.slice(middle))
  const left = new Inner(node.level, keeper.generation, keys.slice(0, middle - 1), children.slice(0, middle))
  left.home = node.home
  return { nodes: [left, right], bounds: [keys[middle - 1]] }
}
