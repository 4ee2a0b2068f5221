import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import { childIndex, Inner, isAt, Leaf, lowerBound, type Node, placeIn } from './node.ts'

/** The functions that trees need from the store of nodes. */
export interface NodeKeeper {
  /** Nodes of this generation may change in place. */
  readonly generation: number
  /** Loads a node's content into memory. */
  load(node: Node): void
  /** Whether an unloaded leaf is used often enough to load it. */
  isWanted(leaf: Leaf): boolean
  /** Finds an entry in an unloaded leaf without loading it. */
  findOnDisk(leaf: Leaf, key: ByteString): Entry | undefined
  /** The entries of an unloaded leaf for a scan. May load the leaf, unless `once`. */
  passing(leaf: Leaf, once: boolean): readonly Entry[]
  /** Marks a clean node as dirty before it changes in place. */
  dirty(node: Node): void
  /** Encodes a full leaf that the writer has moved past, because it will hardly change again before the checkpoint. */
  seal(leaf: Leaf): void
  /** Frees the node's bytes on disk with the next checkpoint. Called when the node leaves the tree without a newer version. */
  free(node: Node): void
  /** Counts bytes that were added to dirty nodes. */
  grew(bytes: number): void
  /** Unloads clean nodes until the cache is within its limit. Must not be called during a change. */
  trim(): void
}

/** A range of keys to scan, from `from` (inclusive) to `to` (exclusive). */
export interface Span {
  readonly from: ByteString | undefined
  readonly to: ByteString | undefined
  readonly reverse: boolean
  readonly limit: number
  /** Entries that have expired at this time are skipped. */
  readonly now: number
  /** Bypasses the cache, because the entries will not be read again soon. */
  readonly once?: boolean
}

export function emptyRoot(generation: number): Leaf {
  return new Leaf(generation, [])
}

/**
 * Remembers the leaf that the last search in a tree found, and its key range. A read followed by a write of the same key,
 * and writes of successive keys, then need no search. A spot is valid for one root only.
 */
export class Spot {
  leaf: Leaf | undefined = undefined
  low: ByteString = ''
  high: ByteString | undefined = undefined
  /** The leaf that got the last new entry, and the end of its key range. */
  written: Leaf | undefined = undefined
  writtenHigh: ByteString | undefined = undefined

  /** Resets the range to all keys, before a search begins at the root. */
  begin(): void {
    this.leaf = undefined
    this.low = ''
    this.high = undefined
  }

  /** Clears the spot, because the root was replaced. */
  forget(): void {
    this.begin()
    this.written = undefined
  }

  /** Narrows the range to the child at `index`. */
  narrow(keys: readonly ByteString[], index: number): void {
    if (index > 0) this.low = keys[index - 1]
    if (index < keys.length) this.high = keys[index]
  }

  /** The remembered leaf, if it is loaded and its range contains the key. */
  leafOf(key: ByteString): Leaf | undefined {
    const { leaf } = this
    if (leaf?.entries === undefined || key < this.low) return undefined
    return this.high === undefined || key < this.high ? leaf : undefined
  }
}

/** The newest entry of `key`, possibly a removal or expired. `spot`, if given, must belong to the root. */
export function find(keeper: NodeKeeper, root: Node, key: ByteString, spot?: Spot): Entry | undefined {
  const near = spot?.leafOf(key)
  if (near !== undefined) {
    near.used = true
    return findInLeaf(near, key)
  }
  spot?.begin()
  let node = root
  let parent: Inner | undefined
  let index = 0
  while (node instanceof Inner) {
    if (node.keys === undefined) keeper.load(node)
    else node.used = true
    parent = node
    index = childIndex(node.keys as ByteString[], key)
    spot?.narrow(node.keys as ByteString[], index)
    node = node.level > 1 ? node.child(index) : node.peek(index)
  }
  if (node.entries !== undefined) {
    node.used = true
    if (spot !== undefined) spot.leaf = node
    return findInLeaf(node, key)
  }
  const waiting = node.delta?.get(key)
  if (waiting !== undefined) return waiting
  if (!keeper.isWanted(node)) return keeper.findOnDisk(node, key)
  if (parent !== undefined) parent.children[index] = node
  keeper.load(node)
  return findInLeaf(node, key)
}

function findInLeaf(leaf: Leaf, key: ByteString): Entry | undefined {
  const entries = leaf.entries as Entry[]
  const index = placeIn(leaf, key)
  return isAt(entries, index, key) ? entries[index] : undefined
}

/**
 * Adds the entries of the span to `out`, up to `limit`. If `isEnough` returns true after a leaf, it stops there and returns
 * the key to continue from, which is the next `from`, or the next `to` of a reverse span.
 */
export function collect(
  keeper: NodeKeeper,
  node: Node,
  span: Span,
  out: Entry[],
  isEnough?: () => boolean,
): ByteString | undefined {
  if (node instanceof Leaf) {
    if (node.entries !== undefined) node.used = true
    collectLeaf(node.entries ?? keeper.passing(node, span.once === true), span, out)
    return undefined
  }
  if (node.keys === undefined) keeper.load(node)
  else node.used = true
  return collectInner(keeper, node, span, out, isEnough)
}

function collectLeaf(entries: readonly Entry[], span: Span, out: Entry[]): void {
  const low = span.from === undefined ? 0 : lowerBound(entries, span.from)
  const high = span.to === undefined ? entries.length : lowerBound(entries, span.to)
  const { now, limit } = span
  if (span.reverse) {
    for (let i = high - 1; i >= low && out.length < limit; i--) {
      const entry = entries[i]
      if (entry.expiresAt === 0 || entry.expiresAt > now) out.push(entry)
    }
  } else {
    for (let i = low; i < high && out.length < limit; i++) {
      const entry = entries[i]
      if (entry.expiresAt === 0 || entry.expiresAt > now) out.push(entry)
    }
  }
}

function collectInner(
  keeper: NodeKeeper,
  node: Inner,
  span: Span,
  out: Entry[],
  isEnough: (() => boolean) | undefined,
): ByteString | undefined {
  const keys = node.keys as ByteString[]
  let first = span.from === undefined ? 0 : childIndex(keys, span.from)
  let last = span.to === undefined ? keys.length : childIndex(keys, span.to)
  while (first <= last && out.length < span.limit) {
    const index = span.reverse ? last-- : first++
    const next = collect(keeper, childAgain(keeper, node, index), span, out, isEnough)
    keeper.trim()
    if (next !== undefined) return next
    const isMore = first <= last && out.length < span.limit
    if (isMore && isEnough?.() === true) return span.reverse ? keys[last] : keys[first - 1]
  }
  return undefined
}

/** A child of a node that is being scanned. Trimming during a long scan may have unloaded the node, so it is loaded again. */
function childAgain(keeper: NodeKeeper, node: Inner, index: number): Node {
  if (node.keys === undefined) keeper.load(node)
  return node.child(index)
}
