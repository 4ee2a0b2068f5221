import type { ByteString } from '../core/bytes.ts'
import { dedupeTag, feedTag, isDedupeTag, isLogTag, storageKey } from '../engine/keys.ts'
import type { Append, Operation, PointRead, TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'

/**
 * What the commits of a batch write, to be asked whether somebody reads it.
 * Most of those who append look at entries alone, and no append changes those:
 * so what appends write is made out only when somebody asks for logs.
 */
export class Written {
  readonly #keys = new Set<ByteString>()
  readonly #trees = new Set<ByteString>()
  readonly #scopes = new Set<ByteString>()
  /** Not made out yet. */
  readonly #appends: Append[] = []

  add(operation: Operation): void {
    if (operation.op === 'append') this.#appends.push(operation)
    else if (operation.op === 'drop') this.#scopes.add(operation.scope)
    else {
      this.#trees.add(treeKey(operation))
      this.#keys.add(storageKey(operation.scope, operation.tag, operation.key))
    }
  }

  hasPoint({ scope, tag, key, version }: PointRead): boolean {
    // A record that is there stays as it is, whatever is appended behind it.
    if (isLogTag(tag) && version > 0) return this.#scopes.has(scope)
    const isEntry = treeAddress({ scope, tag }).kind === 0
    // A log is one thing with its head; a dedupe key is changed by an append with that key alone.
    if (!isEntry && !isDedupeTag(tag)) return this.hasTree({ scope, tag })
    if (!isEntry) this.#makeOutAppends()
    return this.#scopes.has(scope) || this.#keys.has(storageKey(scope, tag, key))
  }

  hasTree(tree: TreeId): boolean {
    this.#makeOutAppends()
    return this.#scopes.has(tree.scope) || this.#trees.has(treeKey(tree))
  }

  #makeOutAppends(): void {
    for (const append of this.#appends.splice(0)) {
      const { scope, tag, dedupe, feed } = append
      this.#trees.add(treeKey(append))
      if (dedupe !== undefined) this.#keys.add(storageKey(scope, dedupeTag(tag), dedupe.key))
      if (feed !== undefined) this.#trees.add(treeKey({ scope: feed, tag: feedTag(tag) }))
    }
  }
}

/** A log, its head and its dedupe keys are one tree on the server. */
function treeKey(tree: TreeId): ByteString {
  const { scope, tag } = treeAddress(tree)
  return storageKey(scope, tag, '')
}
