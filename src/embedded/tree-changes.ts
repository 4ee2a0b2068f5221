import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import type { Change } from './change.ts'
import { applyNear, applyToLeaf, EMPTY, type Split, splitLeaf } from './leaf-changes.ts'
import {
  CHILD_OVERHEAD_BYTES,
  childIndex,
  INNER_BYTES_MAX,
  INNER_CHILDREN_MAX,
  Inner,
  LEAF_BYTES_MAX,
  LEAF_ENTRIES_MAX,
  Leaf,
  type Node,
} from './node.ts'
import { emptyRoot, type NodeKeeper, Spot } from './tree.ts'

/** Applies a put or a removal, and returns the new root. `spot` belongs to the old root, and afterwards to the new one. */
export function apply(keeper: NodeKeeper, root: Node, entry: Change, spot: Spot = new Spot()): Node {
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

/** Whether the tree's last leaf is longer than a leaf on disk may be. */
export function hasLongEdge(root: Node): boolean {
  let node: Node | undefined = root
  while (node instanceof Inner) node = node.children.at(-1)
  return node?.entries !== undefined && node.entries.length > 1 && node.bytes > LEAF_BYTES_MAX
}

/** Splits the last leaf, and returns the new root. Leaves on disk are short, because each is read and written whole. */
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

/** The node itself, marked as dirty, if it may change in place; otherwise a copy. */
export function writable(keeper: NodeKeeper, node: Node): Node {
  if (node.generation === keeper.generation) {
    if (!node.dirty) keeper.dirty(node)
    return node
  }
  // A copy of a clean stub can read the same block. A copy of a dirty stub can't: when the original is written, the old
  // block is freed.
  if (!node.loaded && (node.dirty || node instanceof Inner)) keeper.load(node)
  const copy = node.copy(keeper.generation)
  keeper.grew(copy.memoryBytes())
  return copy
}

function applyTo(keeper: NodeKeeper, node: Node, entry: Change, spot: Spot): Split | undefined {
  if (node instanceof Leaf) {
    const split = applyToLeaf(keeper, node, entry, spot)
    // A split changes the leaf's key range, and after a removal the leaf may be merged into its neighbour.
    if (split === undefined && entry.removes === undefined) spot.leaf = node
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
    if (entry.removes !== undefined && child instanceof Leaf) joinNeighbour(keeper, node, index)
    return undefined
  }
  if (split === EMPTY) return dropChild(keeper, node, index)
  return takeSplit(keeper, node, index, split)
}

/** Replaces a child by the nodes that it was split into. Splits the node too if it is full then. */
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

/** Merges a small leaf with a neighbour. Otherwise deletions would leave a chain of almost empty leaves. */
function joinNeighbour(keeper: NodeKeeper, parent: Inner, index: number): void {
  const leaf = parent.children[index] as Leaf
  if (leaf.entries === undefined || leaf.bytes > LEAF_BYTES_MAX / 4) return
  if (!joinNext(keeper, parent, index - 1)) joinNext(keeper, parent, index)
}

/** Merges a child with the next one if both are loaded and fit into one leaf. It never reads a leaf just to merge it. */
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
