import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'

/**
 * Nodes of a copy-on-write B+tree.
 *
 * A node is **dirty** until it is written, and so are its ancestors; then it
 * is clean and has a place on disk (`file`, `offset`, `length`, `crc`). A clean
 * node may be **unloaded**: its content leaves memory and is read back when
 * needed. A node belongs to a **generation**; only one of the current
 * generation may change, others are shared with a snapshot and get copied
 * first. What comes from disk belongs to generation 0.
 *
 * An unloaded leaf takes puts without being read: they wait in its `delta`
 * until the content is needed. So recovery and random writes to cold data cost
 * no reads.
 *
 * A leaf that is full enough, and behind which the writing goes on, is **sealed**: it
 * is dirty, and unloaded nevertheless, as its `block` is put together already.
 */
export const LEAF_BYTES_MAX = 4096
export const LEAF_ENTRIES_MAX = 128
/** The last leaf of a tree takes so much at its end before it is cut into several: to cut it for each few takes longer. */
export const EDGE_BYTES_MAX: number = 4 * LEAF_BYTES_MAX
export const INNER_CHILDREN_MAX = 128
export const INNER_BYTES_MAX = 16_384

/** What an entry costs on disk beside its key and value; see node-codec.ts. */
export const ENTRY_OVERHEAD_BYTES = 22
/** What a child costs in an inner node beside its key. */
export const CHILD_OVERHEAD_BYTES = 18
/** What objects cost in memory beyond their bytes on disk; measured. */
const LEAF_ENTRY_MEMORY_BYTES = 110
const CHILD_MEMORY_BYTES = 160
const CHILD_PLACE_MEMORY_BYTES = 64
/** File, offset, length, crc. */
const PLACE_WORDS = 4

/** Where the newest written version of a node lies (file 0: nowhere yet): what its next version frees. */
export interface Home {
  file: number
  length: number
}

export type Node = Leaf | Inner

/** What leaves and inner nodes have in common: an age, and a place on disk. */
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
  /** Set by each use, cleared by the cache's clock hand. */
  used = false
  /** The cache's clock has it. */
  cached = false
  /** On disk, of what is in memory. */
  bytes = 0

  constructor(level: number, generation: number, dirty: boolean) {
    this.level = level
    this.generation = generation
    this.dirty = dirty
  }
}

export class Leaf extends Block {
  /** In key order; undefined while unloaded. */
  entries: Entry[] | undefined
  /** Newer than what is on disk; only while unloaded. */
  delta: Map<ByteString, Entry> | undefined = undefined
  /** What the next checkpoint will write, but for the delta; only while unloaded. */
  block: Buffer | undefined = undefined
  /** Where the last new entry went, or the one before it if that lies behind: a hint, which says nothing after other changes. */
  lastNew = -1
  /** How many new entries in a row went there or a little behind. */
  inRow = 0

  /** A new leaf with entries, or with none the stub of one on disk. */
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
      // Its content is still only on disk: the copy reads it from there too.
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
  /** Undefined: on disk, at the place of the same index, and nobody has asked for it yet. */
  children: (Node | undefined)[]
  /** Where the children lie, four words each, as the block had it; children that are there know better. */
  places: Uint32Array | undefined = undefined

  /** A new inner node with keys, or with none the stub of one on disk. */
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

  /** The child; from now on the node has it. */
  child(index: number): Node {
    const child = this.peek(index)
    this.children[index] = child
    return child
  }

  /** The child, or if nobody has asked for it yet a stub that is gone after use. */
  peek(index: number): Node {
    const child = this.children[index]
    if (child !== undefined) return child
    const [file, offset, length, crc] = (this.places as Uint32Array).subarray(index * PLACE_WORDS)
    return stub(this.level - 1, file, offset, length, crc | 0)
  }

  /** Before children come or go: their indexes are no longer those of the places. */
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

/** A node that is on disk only. */
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

/** What the entry takes on disk, exactly. */
export function entryBytes(entry: Entry): number {
  return entry.key.length + entry.value.length + ENTRY_OVERHEAD_BYTES + (entry.expiresAt === 0 ? 0 : 8)
}

/**
 * The record of where a node's line of copies lies on disk, shared by all of them. It is made before there is anything
 * to record: a copy may be taken while its original still waits to be written.
 */
export function homeOf(node: Node): Home {
  node.home ??= { file: node.file, length: node.length }
  return node.home
}

/** The first entry whose key is not below `key`. */
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

/** Whether the entry there has this key, and not the next higher one. */
export function isAt(entries: readonly Entry[], index: number, key: ByteString): boolean {
  return index < entries.length && entries[index].key === key
}

/** How many neighbours of the last new entry are looked at: less than half of what a search does. */
const NEIGHBOURS = 3

/**
 * The same in a leaf that is loaded. Keys that come one after the other mostly lie side by side, and what lies there was
 * touched a moment ago: so it looks around the last new one first.
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

/** Which child may hold `key`. */
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

/** The shortest key above `left` and not above `right`: what an inner node needs to tell them apart. */
export function separator(left: ByteString, right: ByteString): ByteString {
  let common = 0
  while (common < left.length && left.charCodeAt(common) === right.charCodeAt(common)) common++
  return right.slice(0, common + 1)
}
