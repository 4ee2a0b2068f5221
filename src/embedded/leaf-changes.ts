import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import type { Change } from './change.ts'
import {
  EDGE_BYTES_MAX,
  entryBytes,
  isAt,
  LEAF_BYTES_MAX,
  LEAF_ENTRIES_MAX,
  Leaf,
  lowerBound,
  type Node,
  placeIn,
  separator,
} from './node.ts'
import type { NodeKeeper, Spot } from './tree.ts'

/** So many new entries in a row, and more are expected behind them. */
const IN_ROW_MIN = 8
/** How far behind the last new entry the next one may go and still is in a row with it: older ones may lie in between. */
const IN_ROW_REACH = 8

/** What took a node's place: neighbours, and the keys that tell them apart. No neighbours: it became empty. */
export interface Split {
  readonly nodes: Node[]
  readonly bounds: ByteString[]
}

export const EMPTY: Split = { nodes: [], bounds: [] }

/** Puts the entry where the last one went, if it fits there and the way down to there needs no change. */
export function applyNear(keeper: NodeKeeper, spot: Spot, entry: Change): boolean {
  const leaf = spot.leafOf(entry.key)
  // A leaf that may change in place has ancestors that may.
  if (leaf === undefined || !mayChange(keeper, leaf) || entry.removes !== undefined) return false
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

/** Puts the entry into the leaf, or takes one away; answers what takes the leaf's place, unless it stays. */
export function applyToLeaf(keeper: NodeKeeper, leaf: Leaf, entry: Change, spot: Spot): Split | undefined {
  if (leaf.entries === undefined) {
    // A removal may leave the leaf empty, and then it has to go; one that waits would leave an empty leaf for good.
    // What waits is not cut: all of it has to fit one block.
    const bytes = leaf.length + leaf.bytes + entryBytes(entry)
    if (entry.removes === undefined && bytes < 2 * LEAF_BYTES_MAX) return defer(keeper, leaf, entry)
    keeper.load(leaf)
  }
  const entries = leaf.entries as Entry[]
  const index = placeOf(leaf, entry.key)
  if (entry.removes !== undefined) {
    if (isAt(entries, index, entry.key)) {
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
  if (isAt(entries, index, entry.key)) {
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
  if (leaf.inRow < IN_ROW_MIN || !isInRow(leaf, index) || isAt(entries, index, key)) return -1
  return lastNewAt(leaf, index)
}

function isInRow({ lastNew }: Leaf, index: number): boolean {
  return lastNew >= 0 && index >= lastNew && index - lastNew <= IN_ROW_REACH
}

/** Of two that come in pairs, as a step's beginning and its end, the second may go before the first: but not a third. */
function lastNewAt({ lastNew }: Leaf, index: number): number {
  return index === lastNew ? index + 1 : index
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
    if (isAt(entries, index, entry.key)) entries[index] = entry
    else entries.splice(index, 0, entry)
  }
  return entries
}

function leafFull(leaf: Leaf, bytesMax: number): boolean {
  const count = (leaf.entries as Entry[]).length
  return count > 1 && (leaf.bytes > bytesMax || count > LEAF_ENTRIES_MAX)
}

/**
 * Splits in halves; but where the writing goes on behind `front`, so that what is before stays full, as nobody comes back to it, and
 * what is behind is not in the way.
 */
export function splitLeaf(keeper: NodeKeeper, leaf: Leaf, front: number): Split {
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
