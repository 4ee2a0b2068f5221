import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import { childIndex, Inner, isAt, Leaf, lowerBound, type Node, placeIn } from './node.ts'

/** What a tree needs of the place where its nodes are kept. */
export interface NodeKeeper {
  /** Nodes of this generation may change in place. */
  readonly generation: number
  /** Brings an unloaded node's content into memory. */
  load(node: Node): void
  /** Whether an unloaded leaf is asked for often enough to be worth loading. */
  isWanted(leaf: Leaf): boolean
  /** One entry of an unloaded leaf, which stays so. */
  findOnDisk(leaf: Leaf, key: ByteString): Entry | undefined
  /** The entries of an unloaded leaf for a scan, which may leave it unloaded. `once`: and should. */
  passing(leaf: Leaf, once: boolean): readonly Entry[]
  /** The node is about to change in place. */
  dirty(node: Node): void
  /** The writing goes on behind the leaf: nobody is likely to change it again before it is written. */
  seal(leaf: Leaf): void
  /** No newer version of this node will come: what it has on disk is free after the next checkpoint. */
  free(node: Node): void
  /** So many bytes were added to dirty nodes. */
  grew(bytes: number): void
  /** Unloads what is over the memory limit; never in the middle of a change. */
  trim(): void
}

/** The first and last key of interest, in either direction. */
export interface Span {
  readonly from: ByteString | undefined
  readonly to: ByteString | undefined
  readonly reverse: boolean
  readonly limit: number
  /** Entries that expire by then are not there. */
  readonly now: number
  /** Nobody will come back for them soon. */
  readonly once?: boolean
}

export function emptyRoot(generation: number): Leaf {
  return new Leaf(generation, [])
}

/**
 * The leaf of a tree to which the last search came, and the keys that belong there: who looks for a key and then writes under it,
 * and whoever writes key after key, comes there again. It holds for one root: a tree that gets another forgets it.
 */
export class Spot {
  leaf: Leaf | undefined = undefined
  low: ByteString = ''
  high: ByteString | undefined = undefined
  /** The leaf to which the last new entry went, and where its keys end. */
  written: Leaf | undefined = undefined
  writtenHigh: ByteString | undefined = undefined

  /** From the root down, before the way down is noted. */
  begin(): void {
    this.leaf = undefined
    this.low = ''
    this.high = undefined
  }

  /** The tree has another root. */
  forget(): void {
    this.begin()
    this.written = undefined
  }

  /** The way goes on to the child behind `keys[index - 1]`. */
  narrow(keys: readonly ByteString[], index: number): void {
    if (index > 0) this.low = keys[index - 1]
    if (index < keys.length) this.high = keys[index]
  }

  /** The leaf, if it is loaded and the key belongs there. */
  leafOf(key: ByteString): Leaf | undefined {
    const { leaf } = this
    if (leaf?.entries === undefined || key < this.low) return undefined
    return this.high === undefined || key < this.high ? leaf : undefined
  }
}

/** The newest entry under `key`, a removal or expired one included. `spot` is that of the root, if it has one. */
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
 * Adds the entries of the span to `out`, until it has `limit`. Stops earlier if `isEnough` says so after a leaf, and then
 * answers with the key at which to go on: as `from`, or as `to` of a reverse span.
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

/** A long scan must not fill the memory: what was read may go again, and so may the node whose children it reads. */
function childAgain(keeper: NodeKeeper, node: Inner, index: number): Node {
  if (node.keys === undefined) keeper.load(node)
  return node.child(index)
}
