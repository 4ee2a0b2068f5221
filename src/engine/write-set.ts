import type { ByteString } from '../core/bytes.ts'
import { storageKey } from './keys.ts'
import { checkCommitBytes, checkOperation } from './operations.ts'
import type { Append, Delete, Place, Put, Range, TreeId } from './storage.ts'

/** A write of one key, as opposed to an append. */
export type KeyWrite = Put | Delete

/**
 * The puts and deletes that a transaction will commit. Only the last write of a
 * key counts. The order of writes to different keys does not matter.
 */
export class WriteSet {
  readonly #trees = new Map<ByteString, WrittenTree>()
  #bytes = 0

  /**
   * Adds all operations or none. It refuses what the engine would refuse at commit, so that the error comes from the faulty
   * call. Appends only count towards the size.
   */
  add(operations: readonly (KeyWrite | Append)[]): void {
    let bytes = this.#bytes
    const keyed: KeyWrite[] = []
    for (const operation of operations) {
      bytes += checkOperation(operation)
      if (operation.op === 'append') continue
      keyed.push(operation)
      const replaced = this.find(operation)
      if (replaced !== undefined) bytes -= checkOperation(replaced)
    }
    checkCommitBytes(bytes)
    this.#bytes = bytes
    for (const write of keyed) {
      const id = treeId(write)
      const tree = this.#trees.get(id) ?? new WrittenTree()
      this.#trees.set(id, tree)
      tree.set(write)
    }
  }

  /** The write of a key; undefined if there is none. */
  find(place: Place): KeyWrite | undefined {
    return this.#trees.get(treeId(place))?.get(place.key)
  }

  /** A copy of the writes to keys of the range, in the range's order. */
  inRange(range: Range): readonly KeyWrite[] {
    const writes = this.#trees.get(treeId(range))?.inRange(range) ?? []
    return range.reverse === true ? writes.reverse() : writes
  }

  /** The puts and deletes to commit. */
  operations(): KeyWrite[] {
    const operations: KeyWrite[] = []
    // Not `push(...writes)`: a call has a limited number of arguments.
    for (const tree of this.#trees.values()) for (const write of tree.writes()) operations.push(write)
    return operations
  }
}

/** The writes to one tree. */
class WrittenTree {
  readonly #writes = new Map<ByteString, KeyWrite>()
  /** The sorted keys, computed by the first range read after a new key. */
  #sorted: ByteString[] | undefined

  get(key: ByteString): KeyWrite | undefined {
    return this.#writes.get(key)
  }

  set(write: KeyWrite): void {
    if (!this.#writes.has(write.key)) this.#sorted = undefined
    this.#writes.set(write.key, write)
  }

  inRange({ from, to }: Range): KeyWrite[] {
    // Strings sort by char code by default, and each char is a byte here.
    this.#sorted ??= [...this.#writes.keys()].sort()
    const keys = this.#sorted
    const start = from === undefined ? 0 : lowerBound(keys, from)
    const end = to === undefined ? keys.length : lowerBound(keys, to)
    return keys.slice(start, end).map(key => this.#writes.get(key)!)
  }

  writes(): Iterable<KeyWrite> {
    return this.#writes.values()
  }
}

function treeId({ scope, tag }: TreeId): ByteString {
  return storageKey(scope, tag, '')
}

/** The index of the first key that is not below `key`. */
function lowerBound(keys: readonly ByteString[], key: ByteString): number {
  let low = 0
  let high = keys.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (keys[middle] < key) low = middle + 1
    else high = middle
  }
  return low
}
