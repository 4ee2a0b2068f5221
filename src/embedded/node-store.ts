import type { ByteString } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import type { Entry } from '../engine/storage.ts'
import type { DataFiles } from './data-files.ts'
import { corrupt, fileName } from './format.ts'
import { merge } from './leaf-changes.ts'
import { entryBytes, type Home, homeOf, Inner, LEAF_BYTES_MAX, Leaf, type Node } from './node.ts'
import { blockBytes, findInBlock, readInner, readLeaf, writeLeaf } from './node-codec.ts'
import { Slabs } from './slabs.ts'
import type { NodeKeeper } from './tree.ts'

/** While the cache is full, one of this many leaves that scans read enters the cache. */
const PASSED_PER_KEPT = 8
/** The cache is full if it has less room than this. Most leaves need less; only leaves with large entries need more. */
const ROOM_BYTES = 5 * LEAF_BYTES_MAX

/**
 * Decides which nodes are in memory. Clean nodes share a cache with a limit. Its clock algorithm unloads nodes that were
 * not used since the clock hand's last visit. Dirty nodes can't be unloaded; checkpoints bound their number. A node that
 * a checkpoint wrote enters the cache only if it is read before the next checkpoint, because most events of runs are
 * never read.
 */
export class NodeStore implements NodeKeeper {
  generation = 1
  /** The approximate size of dirty nodes. A checkpoint resets it. */
  dirtyBytes = 0
  /** The size of loaded clean nodes. */
  cachedBytes = 0
  /** The homes of nodes that were freed since the last checkpoint began. The next one releases their bytes. */
  freed: Home[] = []
  /** How many lookups have read a leaf from disk without loading it. */
  diskFinds = 0
  readonly #data: DataFiles | undefined
  readonly #limitBytes: number
  readonly #ring: Node[] = []
  readonly #slabs = new Slabs()
  #hand = 0
  #passed = 0
  /** Nodes that the last checkpoint wrote, children before parents, and that are not in the cache yet. */
  #written: Node[] = []
  /** Places of leaves that had a lookup recently while not loaded. `#missedBefore` is the older generation. */
  #missed = new Set<number>()
  #missedBefore = new Set<number>()
  readonly #missesMax: number

  /** Without data files the store is in memory: no node ever becomes clean, so none is ever unloaded. */
  constructor(data: DataFiles | undefined, limitBytes: number) {
    this.#data = data
    this.#limitBytes = limitBytes
    this.#missesMax = limitBytes / LEAF_BYTES_MAX
  }

  get hasFiles(): boolean {
    return this.#data !== undefined
  }

  load(node: Node): void {
    if (node instanceof Leaf) {
      const isSealed = node.block !== undefined
      node.entries = this.#read(node)
      node.block = undefined
      node.delta = undefined
      node.bytes = bytesOf(node.entries)
      // A sealed leaf was counted when its entries were added.
      if (node.dirty && !isSealed) this.grew(node.memoryBytes())
    } else {
      const { bytes, view } = this.#blockOf(node)
      if (!readInner(node, bytes, view, node.length))
        throw corrupt(fileName('D', node.file), node.offset, 'an inner node is invalid')
    }
    if (node.dirty) return
    node.used = true
    this.cachedBytes += node.memoryBytes()
    if (!node.cached) this.#enter(node)
  }

  /** The entries of an unloaded leaf, with its delta applied. */
  #read(leaf: Leaf): Entry[] {
    const { bytes, view } = this.#blockOf(leaf)
    const entries = readLeaf(bytes, view, leaf.length)
    if (entries === undefined) throw corrupt(fileName('D', leaf.file), leaf.offset, 'a leaf is invalid')
    return leaf.delta === undefined ? entries : merge(entries, leaf.delta)
  }

  /**
   * A repeated scan over more data than the cache holds would evict each leaf before it needs it again. So while the
   * cache is full, only some of the leaves enter it, and each repetition finds more of them there.
   */
  passing(leaf: Leaf, once: boolean): readonly Entry[] {
    if (once) return this.#read(leaf)
    // Loading a sealed leaf brings its entries back into the heap, so only the second scan does it.
    if (leaf.block !== undefined && !leaf.used) {
      leaf.used = true
      return this.#read(leaf)
    }
    const isFull = this.cachedBytes + ROOM_BYTES > this.#limitBytes
    if (isFull && ++this.#passed % PASSED_PER_KEPT !== 0) return this.#read(leaf)
    this.load(leaf)
    return leaf.entries as Entry[]
  }

  /**
   * True at the second recent lookup in a leaf that is not loaded. Otherwise reading single entries all over a large
   * store would fill the cache with their neighbours.
   */
  isWanted(leaf: Leaf): boolean {
    if (leaf.block !== undefined) return false
    const place = leaf.file * 2 ** 32 + leaf.offset
    if (this.#missed.has(place) || this.#missedBefore.has(place)) return true
    if (this.#missed.size >= this.#missesMax) {
      this.#missedBefore = this.#missed
      this.#missed = new Set()
    }
    this.#missed.add(place)
    return false
  }

  findOnDisk(leaf: Leaf, key: ByteString): Entry | undefined {
    if (leaf.block === undefined) this.diskFinds++
    const { bytes, view } = this.#blockOf(leaf)
    return findInBlock(bytes, view, leaf.length, key)
  }

  #blockOf(node: Node): { readonly bytes: Buffer; readonly view: DataView } {
    invariant(this.#data !== undefined, 'a store in memory has no unloaded nodes')
    return this.#data.read(node)
  }

  /**
   * Encodes the leaf's block outside of the heap and releases its entries. Otherwise the garbage collector would move them
   * to the old generation before the checkpoint writes them. Reads use the block.
   */
  seal(leaf: Leaf): void {
    // A store in memory has no checkpoints, which write sealed blocks.
    if (this.#data === undefined) return
    const { entries } = leaf
    const bytes = blockBytes(leaf)
    leaf.block = this.#slabs.cut(bytes, (into, view, at) => writeLeaf(entries as Entry[], into, view, at))
    if (leaf.block === undefined) return
    // The home must record the old length, so it is created before the length changes.
    homeOf(leaf)
    leaf.length = bytes
    leaf.entries = undefined
    leaf.bytes = 0
    leaf.used = false
    // If the leaf is loaded again, it was sealed too early, so its count starts anew.
    leaf.lastNew = -1
    leaf.inRow = 0
  }

  dirty(node: Node): void {
    homeOf(node)
    if (node.loaded) this.cachedBytes -= node.memoryBytes()
    this.grew(node.memoryBytes())
    node.dirty = true
  }

  free(node: Node): void {
    // A store in memory has no places on disk, and no checkpoint would empty the list.
    if (this.#data !== undefined) this.freed.push(homeOf(node))
  }

  grew(bytes: number): void {
    this.dirtyBytes += bytes
  }

  /** Counts a node as clean, after a checkpoint has written it. */
  settle(node: Node): void {
    if (!node.loaded) return
    this.cachedBytes += node.memoryBytes()
    if (!node.cached) this.#written.push(node)
  }

  /**
   * Moves the written nodes that were read since into the cache, and unloads the others. Called before the next
   * checkpoint, and when memory is short.
   */
  retireWritten(): void {
    for (const node of this.#written) {
      if (node.dirty || node.cached || !node.loaded) continue
      if (node.used || isParentInUse(node)) this.#enter(node)
      else this.#unload(node)
    }
    this.#written = []
  }

  #enter(node: Node): void {
    node.cached = true
    this.#ring.push(node)
  }

  trim(): void {
    if (this.cachedBytes <= this.#limitBytes) return
    this.retireWritten()
    const ring = this.#ring
    // After two rounds every mark is cleared, and the nodes that are left can't be unloaded.
    for (let steps = ring.length * 2; steps > 0 && this.cachedBytes > this.#limitBytes; steps--) {
      if (this.#hand >= ring.length) this.#hand = 0
      const node = ring[this.#hand]
      if (node.dirty) this.#dismiss(node)
      else if (node.used) {
        node.used = false
        this.#hand++
      } else if (isParentInUse(node)) {
        this.#hand++
      } else {
        this.#unload(node)
        this.#dismiss(node)
      }
    }
  }

  /** Ends the current generation and returns its number. Existing nodes no longer change, so snapshots can share them. */
  freeze(): number {
    return this.generation++
  }

  #unload(node: Node): void {
    this.cachedBytes -= node.memoryBytes()
    if (node instanceof Leaf) {
      node.entries = undefined
      node.bytes = 0
    } else {
      node.keys = undefined
      node.children = []
      node.places = undefined
    }
  }

  #dismiss(node: Node): void {
    node.cached = false
    const last = this.#ring.pop() as Node
    if (last !== node) this.#ring[this.#hand] = last
  }
}

/** Whether an inner node has children in memory. Such a node can't be unloaded before them. */
function isParentInUse(node: Node): boolean {
  return node instanceof Inner && node.children.some(isInUse)
}

function isInUse(child: Node | undefined): boolean {
  return child !== undefined && (child.dirty || child.loaded)
}

function bytesOf(entries: readonly Entry[]): number {
  let bytes = 0
  for (const entry of entries) bytes += entryBytes(entry)
  return bytes
}
