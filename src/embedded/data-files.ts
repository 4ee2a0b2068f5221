import { crc32 } from 'node:zlib'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { type Disk, type DiskFile, lackOfDescriptors, syncOrFail, viewOf, writeAll } from '../disk/disk.ts'
import type { Entry } from '../engine/storage.ts'
import { corrupt, fileName, HEADER_BYTES, header, readHeader } from './format.ts'
import { type Home, homeOf, Leaf, type Node } from './node.ts'
import { BLOCK_BYTES_MAX, blockBytes, mergeLeaf, writeInner, writeLeaf } from './node-codec.ts'

const CHUNK_BYTES = 1024 * 1024
const HANDLES_MAX = 256

/** A data file in the manifest: its first `size` bytes are in use, and trees refer to `live` of them. */
export interface FileUse {
  readonly id: number
  size: number
  live: number
}

/**
 * The append-only files with the tree nodes. Blocks are collected in a chunk, and their places are final when `flush` returns. Live
 * bytes are counted per file. The count is never too low, so a file with the count 0 can be removed.
 */
export class DataFiles {
  readonly uses: Map<number, FileUse> = new Map()
  nextId = 1
  readonly #disk: Disk
  readonly #storeId: string
  readonly #readOnly: boolean
  readonly #fileBytes: number
  readonly #handles = new Map<number, DiskFile>()
  readonly #unsynced = new Set<number>()
  /** Files whose sync is running or has failed. */
  readonly #unconfirmed = new Set<number>()
  #folderUnsynced = false
  #current: FileUse | undefined
  #chunk = Buffer.allocUnsafe(0)
  #chunkView = viewOf(this.#chunk)
  #chunkUsed = 0
  #chunkNodes: Node[] = []
  #placed: Node[] = []
  /** Functions that restore the old blocks and deltas of the chunk's leaves. */
  #undo: (() => void)[] = []
  #scratch = Buffer.allocUnsafeSlow(64 * 1024)
  #scratchView = viewOf(this.#scratch)

  constructor(disk: Disk, storeId: string, readOnly: boolean, fileBytes: number) {
    this.#disk = disk
    this.#storeId = storeId
    this.#readOnly = readOnly
    this.#fileBytes = fileBytes
  }

  /** Takes over the files of a manifest. Throws `CORRUPT` if one is missing or too short. */
  adopt(uses: readonly FileUse[], nextId: number): void {
    for (const use of uses) {
      this.uses.set(use.id, { ...use })
      const handle = this.#handle(use.id)
      const size = handle.size()
      if (size < use.size) {
        throw corrupt(fileName('D', use.id), size, `it ends early: ${use.size} bytes were written`)
      }
    }
    this.nextId = nextId
    const last = uses.at(-1)
    if (last !== undefined && last.size < this.#fileBytes) this.#current = this.uses.get(last.id)
  }

  /** The block of an unloaded node: its sealed block, or the bytes on disk after checking the checksum. Valid until the next call. */
  read(node: Node): { readonly bytes: Buffer; readonly view: DataView } {
    if (node instanceof Leaf && node.block !== undefined) {
      return { bytes: node.block, view: viewOf(node.block) }
    }
    const { length } = node
    invariant(node.file !== 0, 'an unloaded node is on disk')
    const file = fileName('D', node.file)
    if (length > BLOCK_BYTES_MAX) throw corrupt(file, node.offset, 'a block is longer than allowed')
    if (length > this.#scratch.length) {
      this.#scratch = Buffer.allocUnsafeSlow(length)
      this.#scratchView = viewOf(this.#scratch)
    }
    const bytes = this.#scratch
    const block = bytes.subarray(0, length)
    const got = this.#readAt(node.file, block, node.offset)
    if (got < length) throw this.#damage(node, 'it ends within a block')
    if ((crc32(block) | 0) !== node.crc) throw this.#damage(node, 'a block fails its checksum')
    const view = this.#scratchView
    // The buffer of one large value must not stay in memory.
    if (bytes.length > CHUNK_BYTES) {
      this.#scratch = Buffer.allocUnsafeSlow(64 * 1024)
      this.#scratchView = viewOf(this.#scratch)
    }
    return { bytes, view }
  }

  /** The error for an unreadable block. After a failed sync the system may have dropped the block, but the log has its data. */
  #damage({ file, offset }: Node, why: string): AnnalsError {
    const name = fileName('D', file)
    if (!this.#unconfirmed.has(file)) return corrupt(name, offset, why)
    const message = `${name} cannot be read, and the disk has not confirmed its last write. Reopen the store to recover the data from the log`
    return new AnnalsError('IO_ERROR', message, { file: name, offset, why })
  }

  #readAt(id: number, block: Buffer, offset: number): number {
    try {
      return this.#handle(id).read(block, offset)
    } catch (error) {
      if (error instanceof AnnalsError) throw error
      const file = fileName('D', id)
      throw new AnnalsError('IO_ERROR', `cannot read ${file}: ${error}`, { file, offset }, error)
    }
  }

  /** Gives a dirty node with clean children its place. Before other code runs, call `flush` or `abandon`, and then `takePlaced`. */
  append(node: Node): void {
    if (!node.loaded) {
      this.#appendUnloaded(node as Leaf)
      return
    }
    const at = this.#room(blockBytes(node))
    if (node instanceof Leaf) writeLeaf(node.entries as Entry[], this.#chunk, this.#chunkView, at)
    else writeInner(node, this.#chunk, this.#chunkView, at)
    this.#place(node, at, blockBytes(node))
  }

  /** Appends an unloaded leaf without loading it: copies its block, merged with its delta if it has one. */
  #appendUnloaded(leaf: Leaf): void {
    const { block, length } = leaf
    if (block === undefined || leaf.delta !== undefined) {
      this.#appendMerged(leaf)
      return
    }
    const at = this.#room(length)
    block.copy(this.#chunk, at)
    this.#place(leaf, at, length)
  }

  #appendMerged(leaf: Leaf): void {
    const { file, offset, length, crc, bytes } = leaf
    const delta = leaf.delta ?? new Map<never, never>()
    const at = this.#room(length + bytes)
    const source = this.read(leaf)
    const merged = mergeLeaf(source.bytes, source.view, length, delta, this.#chunk, this.#chunkView, at)
    if (merged === undefined) throw corrupt(fileName('D', file), offset, 'a leaf cannot be decoded')
    this.#undo.push(() => Object.assign(leaf, { file, offset, length, crc, bytes, delta }))
    leaf.delta = undefined
    leaf.bytes = 0
    this.#place(leaf, at, merged)
  }

  /** Makes room for a block in the chunk. Returns its offset there. */
  #room(length: number): number {
    invariant(length <= BLOCK_BYTES_MAX, 'a node fits a block')
    if (this.#chunkUsed + length > this.#chunk.length) {
      this.flush()
      this.#reserve(length)
    }
    this.#writable()
    return this.#chunkUsed
  }

  #place(node: Node, at: number, length: number): void {
    const current = this.#writable()
    // `homeOf` must run before the node gets its new place. A home made later would refer to that place, which is not written yet.
    homeOf(node)
    node.file = current.id
    node.offset = current.size + at
    node.length = length
    node.crc = crc32(this.#chunk.subarray(at, at + length)) | 0
    node.dirty = false
    this.#chunkUsed += length
    this.#chunkNodes.push(node)
  }

  /** Makes appended nodes that are not written yet dirty again. */
  abandon(): void {
    for (const node of this.#chunkNodes.splice(0)) node.dirty = true
    for (const restore of this.#undo.splice(0)) restore()
    this.#chunkUsed = 0
  }

  /** Returns the nodes that were written since the last call. Their places are final. */
  takePlaced(): readonly Node[] {
    return this.#placed.splice(0)
  }

  /** Writes the appended nodes to the file. */
  flush(): void {
    if (this.#chunkUsed === 0) return
    const current = this.#writable()
    const chunk = this.#chunk.subarray(0, this.#chunkUsed)
    writeAll(this.#handle(current.id), chunk, current.size)
    this.#chunkUsed = 0
    this.#undo = []
    this.#unsynced.add(current.id)
    for (const node of this.#chunkNodes.splice(0)) {
      if (node.home !== undefined) this.release(node.home)
      const home = homeOf(node)
      home.file = node.file
      home.length = node.length
      current.live += node.length
      if (node instanceof Leaf) node.block = undefined
      this.#placed.push(node)
    }
    current.size += chunk.length
    if (current.size >= this.#fileBytes) this.#current = undefined
  }

  /** Subtracts a block from the live bytes, because the tree that is being written does not refer to it. */
  release(home: Home): void {
    if (home.file === 0) return
    const use = this.uses.get(home.file)
    invariant(use !== undefined && use.live >= home.length, 'live bytes are counted right')
    use.live -= home.length
    home.file = 0
  }

  /** Syncs all written files. When it resolves, everything written before survives a power cut. */
  async sync(): Promise<void> {
    const ids = [...this.#unsynced]
    this.#unsynced.clear()
    for (const id of ids) {
      this.#unconfirmed.add(id)
      await syncOrFail(this.#handle(id))
      this.#unconfirmed.delete(id)
    }
    if (this.#folderUnsynced) {
      this.#folderUnsynced = false
      this.#disk.syncFolder()
    }
  }

  /** The files for the manifest: all files with live bytes, and the one that is being written. */
  listed(): FileUse[] {
    // The current file has only garbage. The next block begins a new file, so that this one can be removed.
    if (this.#current?.live === 0 && this.#current.size > HEADER_BYTES) this.#current = undefined
    return [...this.uses.values()]
      .filter(use => use.live > 0 || use === this.#current)
      .map(use => ({ ...use }))
      .sort((a, b) => a.id - b.id)
  }

  /** Removes a file that neither manifest names. */
  async remove(id: number): Promise<void> {
    this.#handles.get(id)?.close()
    this.#handles.delete(id)
    this.uses.delete(id)
    await this.#disk.removeLater(fileName('D', id))
  }

  /** Files that are less than half live, those with the most garbage first, up to `bytesMax` live bytes but at least one file. */
  sparse(bytesMax: number): Set<number> {
    const chosen = new Set<number>()
    let total = 0
    const candidates = [...this.uses.values()]
      .filter(use => use !== this.#current && use.live > 0 && use.live * 2 < use.size)
      .sort((a, b) => a.live / a.size - b.live / b.size)
    for (const use of candidates) {
      if (chosen.size > 0 && total + use.live > bytesMax) break
      chosen.add(use.id)
      total += use.live
    }
    return chosen
  }

  get totalBytes(): number {
    let total = 0
    for (const use of this.uses.values()) total += use.size
    return total
  }

  get liveBytes(): number {
    let total = 0
    for (const use of this.uses.values()) total += use.live
    return total
  }

  close(): void {
    for (const handle of this.#handles.values()) handle.close()
    this.#handles.clear()
  }

  #reserve(length: number): void {
    const size = Math.max(CHUNK_BYTES, length)
    if (this.#chunk.length === size) return
    this.#chunk = Buffer.allocUnsafeSlow(size)
    this.#chunkView = viewOf(this.#chunk)
  }

  /** The file that takes the next block. Creates one if there is none. */
  #writable(): FileUse {
    if (this.#current !== undefined) return this.#current
    const id = this.nextId
    const handle = this.#open(fileName('D', id), 'create')
    try {
      writeAll(handle, header('D', id, { storeId: this.#storeId, previous: 0 }), 0)
    } catch (error) {
      handle.close()
      this.#disk.remove(fileName('D', id))
      throw error
    }
    this.nextId++
    this.#keep(id, handle)
    // The header must be synced even if no block follows, because the next manifest names the file.
    this.#unsynced.add(id)
    this.#folderUnsynced = true
    this.#current = { id, size: HEADER_BYTES, live: 0 }
    this.uses.set(id, this.#current)
    return this.#current
  }

  #handle(id: number): DiskFile {
    const open = this.#handles.get(id)
    if (open !== undefined) return open
    const name = fileName('D', id)
    let handle: DiskFile
    try {
      handle = this.#open(name, this.#readOnly ? 'read' : 'write')
    } catch (error) {
      if ((error as { code?: string }).code === 'ENOENT') {
        this.#disk.check()
        throw corrupt(name, 0, 'the file is missing')
      }
      throw error
    }
    try {
      const first = Buffer.alloc(HEADER_BYTES)
      readHeader('D', id, first.subarray(0, handle.read(first, 0)), this.#storeId)
    } catch (error) {
      handle.close()
      throw error
    }
    this.#keep(id, handle)
    return handle
  }

  /** Opens a file. If no descriptor is left, closes one of ours, because a commit that is in the log must be able to read its tree. */
  #open(name: string, mode: 'read' | 'write' | 'create'): DiskFile {
    try {
      return this.#disk.open(name, mode)
    } catch (error) {
      if (lackOfDescriptors(error) === undefined || !this.#closeOldest()) throw error
      return this.#disk.open(name, mode)
    }
  }

  #keep(id: number, handle: DiskFile): void {
    while (this.#handles.size >= HANDLES_MAX && this.#closeOldest());
    this.#handles.set(id, handle)
  }

  /** Closes the oldest handle, except those with unsynced writes. A new descriptor might not report that such a write failed. */
  #closeOldest(): boolean {
    for (const [oldest, old] of this.#handles) {
      if (oldest === this.#current?.id || this.#unsynced.has(oldest)) continue
      old.close()
      this.#handles.delete(oldest)
      return true
    }
    return false
  }
}
