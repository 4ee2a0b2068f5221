import type { ByteString } from '../core/bytes.ts'
import { storageKey } from './keys.ts'
import { checkCommitBytes, checkOperation } from './operations.ts'
import type { Append, Delete, Operation, Place, Put, Range, TreeId } from './storage.ts'

export type Write = Put | Delete

/**
 * What a transaction will write. The last put or delete of a key counts;
 * appends are kept in their order. Different keys don't depend on each other,
 * and a log takes appends only, so nothing else of the program's order matters.
 */
export class WriteSet {
  readonly #trees = new Map<ByteString, WrittenTree>()
  readonly #appends: Append[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#trees.size === 0 && this.#appends.length === 0
  }

  /** Refuses what the engine would refuse, at the call that is to blame. */
  add(operation: Operation): void {
    const bytes = this.#bytes + checkOperation(operation)
    if (operation.op === 'append') {
      checkCommitBytes(bytes)
      this.#appends.push(operation)
      this.#bytes = bytes
      return
    }
    const replaced = this.find(operation)
    const total = bytes - (replaced === undefined ? 0 : checkOperation(replaced))
    checkCommitBytes(total)
    const id = treeId(operation)
    const tree = this.#trees.get(id) ?? new WrittenTree()
    this.#trees.set(id, tree)
    tree.set(operation)
    this.#bytes = total
  }

  find(place: Place): Write | undefined {
    return this.#trees.get(treeId(place))?.get(place.key)
  }

  /** The writes to keys of the range, in the range's order; a copy, which later writes don't change. */
  inRange(range: Range): readonly Write[] {
    const writes = this.#trees.get(treeId(range))?.inRange(range) ?? []
    return range.reverse === true ? writes.reverse() : writes
  }

  operations(): readonly Operation[] {
    const operations: Operation[] = []
    // One by one: a call takes only so many arguments.
    for (const tree of this.#trees.values()) for (const write of tree.writes()) operations.push(write)
    return operations.concat(this.#appends)
  }
}

class WrittenTree {
  readonly #writes = new Map<ByteString, Write>()
  /** The keys in order; made when a range asks, dropped when a new key comes. */
  #sorted: ByteString[] | undefined

  get(key: ByteString): Write | undefined {
    return this.#writes.get(key)
  }

  set(write: Write): void {
    if (!this.#writes.has(write.key)) this.#sorted = undefined
    this.#writes.set(write.key, write)
  }

  inRange({ from, to }: Range): Write[] {
    // The default order of strings is that of their char codes, which here are bytes.
    this.#sorted ??= [...this.#writes.keys()].sort()
    const keys = this.#sorted
    const start = from === undefined ? 0 : lowerBound(keys, from)
    const end = to === undefined ? keys.length : lowerBound(keys, to)
    return keys.slice(start, end).map(key => this.#writes.get(key)!)
  }

  writes(): Iterable<Write> {
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
