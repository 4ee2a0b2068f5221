import type { ByteString } from '../core/bytes.ts'
import { storageKey } from './keys.ts'
import { checkCommitBytes, checkOperation } from './operations.ts'
import type { Append, Delete, Place, Put, Range, TreeId } from './storage.ts'

export type KeyWrite = Put | Delete

/**
 * What a transaction will write under keys. The last put or delete of a key
 * counts. Different keys don't depend on each other, and a log takes appends
 * only, so nothing else of the program's order matters.
 */
export class WriteSet {
  readonly #trees = new Map<ByteString, WrittenTree>()
  #bytes = 0

  /** All or none. Refuses what the engine would refuse, at the call that is to blame. */
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

  find(place: Place): KeyWrite | undefined {
    return this.#trees.get(treeId(place))?.get(place.key)
  }

  /** The writes to keys of the range, in the range's order; a copy, which later writes don't change. */
  inRange(range: Range): readonly KeyWrite[] {
    const writes = this.#trees.get(treeId(range))?.inRange(range) ?? []
    return range.reverse === true ? writes.reverse() : writes
  }

  /** Puts and deletes; appends have only been counted here. */
  operations(): KeyWrite[] {
    const operations: KeyWrite[] = []
    // One by one: a call takes only so many arguments.
    for (const tree of this.#trees.values()) for (const write of tree.writes()) operations.push(write)
    return operations
  }
}

class WrittenTree {
  readonly #writes = new Map<ByteString, KeyWrite>()
  /** The keys in order; made when a range asks, dropped when a new key comes. */
  #sorted: ByteString[] | undefined

  get(key: ByteString): KeyWrite | undefined {
    return this.#writes.get(key)
  }

  set(write: KeyWrite): void {
    if (!this.#writes.has(write.key)) this.#sorted = undefined
    this.#writes.set(write.key, write)
  }

  inRange({ from, to }: Range): KeyWrite[] {
    // The default order of strings is that of their char codes, which here are bytes.
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
