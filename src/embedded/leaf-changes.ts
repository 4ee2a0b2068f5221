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

/** After this many new entries in a row, more are expected to follow them. */
const IN_ROW_MIN = 8
/** How many places after the last new entry the next one may go and still count as in a row. Older entries may be in between. */
const IN_ROW_REACH = 8

/** The nodes that replace a node, and the keys that separate them. No nodes means that the node became empty. */
export interface Split {
  readonly nodes: Node[]
  readonly bounds: ByteString[]
}

export const EMPTY: Split = { nodes: [], bounds: [] }

/** Puts an entry into the leaf that was used last, without a search from the root. Returns false if that is not possible. */
export function applyNear(keeper: NodeKeeper, spot: Spot, entry: Change): boolean {
  const leaf = spot.leafOf(entry.key)
  // If a leaf may change in place, so may its ancestors.
  if (leaf === undefined || !mayChange(keeper, leaf) || entry.removes !== undefined) return false
  const count = (leaf.entries as Entry[]).length
  const index = placeOf(leaf, entry.key)
  const front = frontAt(leaf, index, entry.key)
  const bytes = leaf.bytes + entryBytes(entry)
  if (count >= LEAF_ENTRIES_MAX || bytes > bytesMaxOf(spot, front === count)) return false
  if (put(keeper, leaf, index, entry)) wroteTo(keeper, spot, leaf)
  return true
}

/** Whether the leaf may change in place: it is dirty, and no snapshot or checkpoint shares it. */
function mayChange(keeper: NodeKeeper, leaf: Leaf): boolean {
  return leaf.dirty && leaf.generation === keeper.generation
}

/** Applies a put or a removal to the leaf. Returns the nodes that replace the leaf, or undefined if it stays. */
export function applyToLeaf(keeper: NodeKeeper, leaf: Leaf, entry: Change, spot: Spot): Split | undefined {
  if (leaf.entries === undefined) {
    // A removal can't wait in the delta, because it may empty the leaf, and an empty leaf must leave its tree now.
    // A delta is not split, so the leaf with its delta must fit one block.
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
  // The split changes the leaf's upper bound, which is not known here.
  spot.written = undefined
  return splitLeaf(keeper, leaf, front)
}

/** Puts the entry at its index: replaces the one with the same key, or inserts it. Returns whether its key is new. */
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

/**
 * Records that a new entry went to the leaf. If the previous one went to the left neighbour, the writer has moved on. Then the
 * neighbour is sealed if entries in a row have filled it.
 */
function wroteTo(keeper: NodeKeeper, spot: Spot, leaf: Leaf): void {
  const before = spot.written
  if (leaf === before) return
  if (before !== undefined && spot.writtenHigh === spot.low && isDone(keeper, before)) keeper.seal(before)
  spot.written = leaf
  spot.writtenHigh = spot.high
}

/** Whether a leaf was filled by entries in a row, so that sealing it is worthwhile. */
function isDone(keeper: NodeKeeper, leaf: Leaf): boolean {
  const { loaded, inRow, bytes } = leaf
  return loaded && inRow >= IN_ROW_MIN && bytes >= LEAF_BYTES_MAX / 4 && mayChange(keeper, leaf)
}

/** The size limit of a leaf. It is higher for the last leaf of a tree if the new entry goes to its end. */
function bytesMaxOf(spot: Spot, atEnd: boolean): number {
  return atEnd && spot.high === undefined ? EDGE_BYTES_MAX : LEAF_BYTES_MAX
}

/** The index of a key, or the one where it belongs. Checks the end first, where most writers append. */
function placeOf(leaf: Leaf, key: ByteString): number {
  const entries = leaf.entries as Entry[]
  const count = entries.length
  return count > 0 && entries[count - 1].key < key ? count : placeIn(leaf, key)
}

/**
 * The index after which more entries are expected once the entry is at `index`, or -1. They are expected after the last entry of the
 * leaf, because logs and bulk loads append. They are also expected after several entries in a row, such as numbers that count up
 * between older keys.
 */
function frontAt(leaf: Leaf, index: number, key: ByteString): number {
  const entries = leaf.entries as Entry[]
  if (index === entries.length) return index
  if (leaf.inRow < IN_ROW_MIN || !isInRow(leaf, index) || isAt(entries, index, key)) return -1
  return lastNewAt(leaf, index)
}

/** Whether a new entry at `index` continues the row of new entries. */
function isInRow({ lastNew }: Leaf, index: number): boolean {
  return lastNew >= 0 && index >= lastNew && index - lastNew <= IN_ROW_REACH
}

/**
 * The `lastNew` after a new entry went to `index`. Entries may come in pairs, such as start and end of a step, and the second of a
 * pair may sort before the first. A third entry before both of them ends the row.
 */
function lastNewAt({ lastNew }: Leaf, index: number): number {
  return index === lastNew ? index + 1 : index
}

/** Adds the change to the delta of a leaf that is not in memory. */
function defer(keeper: NodeKeeper, leaf: Leaf, entry: Entry): undefined {
  leaf.delta ??= new Map()
  const before = leaf.delta.get(entry.key)
  const bytes = entryBytes(entry)
  leaf.bytes += bytes - (before === undefined ? 0 : entryBytes(before))
  leaf.delta.set(entry.key, entry)
  keeper.grew(bytes)
}

/** Applies a delta to the entries that were read from disk. */
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
 * Splits a leaf: after `front` if more entries are expected there, otherwise in halves (a very long leaf in more parts). Splitting
 * after `front` leaves full leaves before it, where no more entries are expected, and moves later entries out of the way.
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
    // The first piece is the leaf itself, so that its block on disk is replaced and freed.
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
