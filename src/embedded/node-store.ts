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

/** Of the leaves that a scan reads while memory is full, one in so many stays. */
const PASSED_PER_KEPT = 8
/** Memory with less room than this is full; a leaf takes as much at most, unless it has very large entries. */
const ROOM_BYTES = 5 * LEAF_BYTES_MAX

/**
 * Which nodes are in memory. Clean nodes stay under a limit: a clock hand goes
 * round them and unloads those that were not used since its last visit. Dirty
 * nodes can't be unloaded; the checkpoint bounds them. What was written
 * and nobody reads before the next checkpoint is not worth the memory: most of
 * what runs log is never looked at.
 */
export class NodeStore implements NodeKeeper {
  generation = 1
  /** Of dirty nodes, roughly; the checkpoint takes it back to zero. */
  dirtyBytes = 0
  /** Of clean nodes that are loaded. */
  cachedBytes = 0
  /** Since the last checkpoint began: what the next one may release. */
  freed: Home[] = []
  /** How often `findOnDisk` was asked. */
  diskFinds = 0
  readonly #data: DataFiles | undefined
  readonly #limitBytes: number
  readonly #ring: Node[] = []
  readonly #slabs = new Slabs()
  #hand = 0
  #passed = 0
  /** By the last checkpoint, children before their parents; those that are read will come to the clock. */
  #written: Node[] = []
  /** Leaves in which somebody looked for something lately, while they were not loaded. */
  #missed = new Set<number>()
  #missedBefore = new Set<number>()
  readonly #missesMax: number

  /** Without data files nothing is ever clean, so nothing is ever loaded: a store in memory. */
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
      // What is sealed was counted when it was written.
      if (node.dirty && !isSealed) this.grew(node.memoryBytes())
    } else {
      const { bytes, view } = this.#blockOf(node)
      if (!readInner(node, bytes, view, node.length))
        throw corrupt(fileName('D', node.file), node.offset, 'an inner node makes no sense')
    }
    if (node.dirty) return
    node.used = true
    this.cachedBytes += node.memoryBytes()
    if (!node.cached) this.#enter(node)
  }

  /** What the leaf holds, changes that wait included. */
  #read(leaf: Leaf): Entry[] {
    const { bytes, view } = this.#blockOf(leaf)
    const entries = readLeaf(bytes, view, leaf.length)
    if (entries === undefined) throw corrupt(fileName('D', leaf.file), leaf.offset, 'a leaf makes no sense')
    return leaf.delta === undefined ? entries : merge(entries, leaf.delta)
  }

  /**
   * A scan over more than memory may hold would throw out each leaf before it comes round to it again. So once memory is
   * full, most leaves are let go of at once, and some stay: whoever scans the same again finds more and more of it.
   */
  passing(leaf: Leaf, once: boolean): readonly Entry[] {
    if (once) return this.#read(leaf)
    // To load what waits to be written brings it back into the heap: for who comes a second time.
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
   * A leaf is loaded at the second miss, if the first one was not long ago: to read single entries all over a large
   * store must not fill the memory with their neighbours.
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
    invariant(this.#data !== undefined, 'in memory nothing is unloaded')
    return this.#data.read(node)
  }

  /**
   * Puts the leaf's block together now, while its entries are at hand, and lets go of them: till the checkpoint they would only grow
   * old. Reads find them in the block.
   */
  seal(leaf: Leaf): void {
    // In memory nothing is ever written.
    if (this.#data === undefined) return
    const { entries } = leaf
    const bytes = blockBytes(leaf)
    leaf.block = this.#slabs.cut(bytes, (into, view, at) => writeLeaf(entries as Entry[], into, view, at))
    if (leaf.block === undefined) return
    // Before it has another length: one without a home has never been anywhere.
    homeOf(leaf)
    leaf.length = bytes
    leaf.entries = undefined
    leaf.bytes = 0
    leaf.used = false
    // Should it be loaded again, it was sealed too early.
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
    // In memory nothing has a place, and no checkpoint would ever ask.
    if (this.#data !== undefined) this.freed.push(homeOf(node))
  }

  grew(bytes: number): void {
    this.dirtyBytes += bytes
  }

  /** A node was written, and is clean now. */
  settle(node: Node): void {
    if (!node.loaded) return
    this.cachedBytes += node.memoryBytes()
    if (!node.cached) this.#written.push(node)
  }

  /** Before another checkpoint, or when memory is short: what nobody has read by now goes. */
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
    // Two rounds clear every mark; what is left then can't go.
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

  /** From now on nothing that exists may change in place: a snapshot is about to share it. */
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

/** It can't go before its children. */
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
