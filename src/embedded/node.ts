import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'

/**
 * Nodes of a copy-on-write B+tree.
 *
 * - A node is **dirty** until a checkpoint writes it. The ancestors of a dirty node are dirty too. A written node is
 *   **clean** and has a place on disk (`file`, `offset`, `length`, `crc`).
 * - A clean node may be **unloaded**. Its content leaves memory and is read again when needed.
 * - A node belongs to a **generation**. Only nodes of the current generation change in place. Older ones may be shared
 *   with a snapshot, so they are copied first. Nodes that are read from disk have generation 0.
 * - An unloaded leaf takes puts without being read. They wait in its **delta** until the content is needed, so random
 *   writes to cold data cost no reads.
 * - A full leaf that the writer has moved past is **sealed**. It is dirty but unloaded, and its `block` is encoded already.
 */
export const LEAF_BYTES_MAX = 4096
export const LEAF_ENTRIES_MAX = 128
/** The last leaf of a tree grows to this size before it is split, because splitting it less often is faster. */
export const EDGE_BYTES_MAX: number = 4 * LEAF_BYTES_MAX
export const INNER_CHILDREN_MAX = 128
export const INNER_BYTES_MAX = 16_384

/** The bytes of an entry on disk without its key and value; see node-codec.ts. */
export const ENTRY_OVERHEAD_BYTES = 22
/** The bytes of a child in an inner node without its key. */
export const CHILD_OVERHEAD_BYTES = 18
/** Measured memory use per entry or child, in addition to the bytes on disk. */
const LEAF_ENTRY_MEMORY_BYTES = 110
const CHILD_MEMORY_BYTES = 160
const CHILD_PLACE_MEMORY_BYTES = 64
/** The words of a place: file, offset, length, crc. */
const PLACE_WORDS = 4

/** The place of a node's newest written version, whose bytes the next version frees. File 0 means not written yet. */
export interface Home {
  file: number
  length: number
}

export type Node = Leaf | Inner

/** The common part of leaves and inner nodes: a generation, a place on disk and the state of the cache. */
abstract class Block {
  /** 0 for a leaf. */
  readonly level: number
  generation: number
  file = 0
  offset = 0
  length = 0
  crc = 0
  home: Home | undefined = undefined
  dirty: boolean
  /** Set by each use; cleared by the cache's clock hand. */
  used = false
  /** Whether the node is in the cache's ring. */
  cached = false
  /** The size on disk of the content that is in memory. */
  bytes = 0

  constructor(level: number, generation: number, dirty: boolean) {
    this.level = level
    this.generation = generation
    this.dirty = dirty
  }
}

export class Leaf extends Block {
  /** Sorted by key; undefined while unloaded. */
  entries: Entry[] | undefined
  /** Changes that are newer than the block; only while unloaded. */
  delta: Map<ByteString, Entry> | undefined = undefined
  /** The encoded content of a sealed leaf, without the delta, for the next checkpoint; only while unloaded. */
  block: Buffer | undefined = undefined
  /**
   * The index of the last new entry, or of the one before it if that has the higher key. Other changes may shift the
   * entries, so this is only a hint.
   */
  lastNew = -1
  /** How many new entries in a row were inserted at `lastNew` or a few places after it. */
  inRow = 0

  /** With entries, a new dirty leaf. Without, the stub of a leaf on disk. */
  constructor(generation: number, entries: Entry[] | undefined) {
    super(0, generation, entries !== undefined)
    this.entries = entries
  }

  get loaded(): boolean {
    return this.entries !== undefined
  }

  memoryBytes(): number {
    return this.bytes + (this.entries?.length ?? this.delta?.size ?? 0) * LEAF_ENTRY_MEMORY_BYTES
  }

  copy(generation: number): Leaf {
    const copy = new Leaf(generation, this.entries?.slice())
    copy.home = homeOf(this)
    copy.bytes = this.bytes
    copy.dirty = true
    if (copy.entries === undefined) {
      // The content is only on disk, where the copy reads it too.
      copy.file = this.file
      copy.offset = this.offset
      copy.length = this.length
      copy.crc = this.crc
      if (this.delta !== undefined) copy.delta = new Map(this.delta)
    }
    return copy
  }
}

export class Inner extends Block {
  /** `keys[i]` is the lowest key that may be in `children[i + 1]`; undefined while unloaded. */
  keys: ByteString[] | undefined
  /** Undefined for a child that was not used yet. `places` has its place on disk. */
  children: (Node | undefined)[]
  /** The children's places as read from the block, four words each. A child in `children` has its own, newer place. */
  places: Uint32Array | undefined = undefined

  /** With keys, a new dirty node. Without, the stub of a node on disk. */
  constructor(
    level: number,
    generation: number,
    keys: ByteString[] | undefined,
    children: (Node | undefined)[],
  ) {
    super(level, generation, keys !== undefined)
    this.keys = keys
    this.children = children
    if (keys !== undefined) this.bytes = innerBytes(keys)
  }

  /** The child, which is kept in `children`. */
  child(index: number): Node {
    const child = this.peek(index)
    this.children[index] = child
    return child
  }

  /** The child, or a temporary stub if it was not used yet. */
  peek(index: number): Node {
    const child = this.children[index]
    if (child !== undefined) return child
    const [file, offset, length, crc] = (this.places as Uint32Array).subarray(index * PLACE_WORDS)
    return stub(this.level - 1, file, offset, length, crc | 0)
  }

  /** Replaces `places` by stubs. Needed before children are added or removed, which would shift their indexes. */
  expand(): void {
    if (this.places === undefined) return
    for (let i = 0; i < this.children.length; i++) this.child(i)
    this.places = undefined
  }

  get loaded(): boolean {
    return this.keys !== undefined
  }

  memoryBytes(): number {
    const each = this.places === undefined ? CHILD_MEMORY_BYTES : CHILD_PLACE_MEMORY_BYTES
    return this.bytes + this.children.length * each
  }

  copy(generation: number): Inner {
    const copy = new Inner(this.level, generation, undefined, this.children.slice())
    copy.keys = this.keys?.slice()
    copy.places = this.places
    copy.bytes = this.bytes
    copy.home = homeOf(this)
    copy.dirty = true
    return copy
  }
}

/** A node whose content is only on disk. */
export function stub(level: number, file: number, offset: number, length: number, crc: number): Node {
  const node = level === 0 ? new Leaf(0, undefined) : new Inner(level, 0, undefined, [])
  node.file = file
  node.offset = offset
  node.length = length
  node.crc = crc
  return node
}

function innerBytes(keys: readonly ByteString[]): number {
  let bytes = CHILD_OVERHEAD_BYTES
  for (const key of keys) bytes += key.length + CHILD_OVERHEAD_BYTES
  return bytes
}

/** The exact size of an entry on disk. */
export function entryBytes(entry: Entry): number {
  return entry.key.length + entry.value.length + ENTRY_OVERHEAD_BYTES + (entry.expiresAt === 0 ? 0 : 8)
}

/**
 * The node's home, which all its copies share. It is created even before the node is written, because the node may be
 * copied before that.
 */
export function homeOf(node: Node): Home {
  node.home ??= { file: node.file, length: node.length }
  return node.home
}

/** The index of the first entry whose key is `key` or higher. */
export function lowerBound(entries: readonly Entry[], key: ByteString): number {
  let low = 0
  let high = entries.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (entries[middle].key < key) low = middle + 1
    else high = middle
  }
  return low
}

/** Whether the entry at the index has this key. */
export function isAt(entries: readonly Entry[], index: number, key: ByteString): boolean {
  return index < entries.length && entries[index].key === key
}

/** How many neighbours of the last new entry are compared: less than half as many as a binary search compares. */
const NEIGHBOURS = 3

/**
 * `lowerBound` in a loaded leaf. It looks next to the last new entry first: successive keys are often neighbours, and
 * that memory was used a moment ago.
 */
export function placeIn(leaf: Leaf, key: ByteString): number {
  const entries = leaf.entries as Entry[]
  const { lastNew } = leaf
  if (lastNew >= 0 && lastNew < entries.length) {
    if (entries[lastNew].key < key) {
      const end = lastNew + NEIGHBOURS
      for (let i = lastNew + 1; i <= end; i++) {
        if (i === entries.length || entries[i].key >= key) return i
      }
    } else if (lastNew === 0 || entries[lastNew - 1].key < key) return lastNew
  }
  return lowerBound(entries, key)
}

/** The index of the child that may contain `key`. */
export function childIndex(keys: readonly ByteString[], key: ByteString): number {
  let low = 0
  let high = keys.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (keys[middle] <= key) low = middle + 1
    else high = middle
  }
  return low
}

/** The shortest key above `left` and at most `right`. Inner nodes use it to separate two children. */
export function separator(left: ByteString, right: ByteString): ByteString {
  let common = 0
  while (common < left.length && left.charCodeAt(common) === right.charCodeAt(common)) common++
  return right.slice(0, common + 1)
}
