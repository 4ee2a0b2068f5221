import type { ByteString } from '../core/bytes.ts'
import { dedupeTag, feedTag, isDedupeTag, isLogTag, storageKey } from '../engine/keys.ts'
import type { Append, Operation, PointRead, TreeId } from '../engine/storage.ts'
import { treeAddress } from './address.ts'

/**
 * The places that the commits of a batch write, to find out whether a further
 * commit reads one of them. Most commits read only entries, which no append
 * changes. So the places that appends write are computed only when a commit reads
 * a log.
 */
export class Written {
  readonly #keys = new Set<ByteString>()
  readonly #trees = new Set<ByteString>()
  readonly #scopes = new Set<ByteString>()
  /** Appends whose places are not computed yet. */
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
    // Appends do not change an existing event.
    if (isLogTag(tag) && version > 0) return this.#scopes.has(scope)
    const isEntry = treeAddress({ scope, tag }).kind === 0
    // Every append changes the log and its head, but only an append with the same dedupe key changes that key.
    if (!isEntry && !isDedupeTag(tag)) return this.hasTree({ scope, tag })
    if (!isEntry) this.#addAppends()
    return this.#scopes.has(scope) || this.#keys.has(storageKey(scope, tag, key))
  }

  hasTree(tree: TreeId): boolean {
    this.#addAppends()
    return this.#scopes.has(tree.scope) || this.#trees.has(treeKey(tree))
  }

  #addAppends(): void {
    for (const append of this.#appends.splice(0)) {
      const { scope, tag, dedupe, feed } = append
      this.#trees.add(treeKey(append))
      if (dedupe !== undefined) this.#keys.add(storageKey(scope, dedupeTag(tag), dedupe.key))
      if (feed !== undefined) this.#trees.add(treeKey({ scope: feed, tag: feedTag(tag) }))
    }
  }
}

/** The same key for a log, its head and its dedupe keys, which are one tree on the server. */
function treeKey(tree: TreeId): ByteString {
  const { scope, tag } = treeAddress(tree)
  return storageKey(scope, tag, '')
}
