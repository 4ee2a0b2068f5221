import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import { decodeChange, type LoggedChange } from './wal-frame.ts'

/** The newest change of each key of one tree. */
export type RecoveredChanges = Map<ByteString, LoggedChange>

/**
 * What the log holds beyond the trees, found when a store is opened. It is only
 * indexed then, not decoded and not applied: so opening after a crash takes as
 * long as reading the log. A tree takes its changes in when it has to.
 */
export class RecoveredTail {
  readonly #trees = new Map<ByteString, Map<number, RecoveredChanges>>()
  #scope: ByteString | undefined
  #tag = -1
  #changes: RecoveredChanges = new Map()

  /** In the order of the log: a later change replaces an earlier one. An arrow, so that it can be handed on as it is. */
  readonly add: (scope: ByteString, tag: number, key: ByteString, change: LoggedChange) => void = (
    scope,
    tag,
    key,
    change,
  ) => {
    if (scope !== this.#scope || tag !== this.#tag) {
      const tags = this.#trees.get(scope) ?? new Map<number, RecoveredChanges>()
      this.#trees.set(scope, tags)
      this.#changes = tags.get(tag) ?? new Map()
      tags.set(tag, this.#changes)
      this.#scope = scope
      this.#tag = tag
    }
    this.#changes.set(key, change)
  }

  /** Hands over the changes of a tree, once. */
  take(scope: ByteString, tag: number): RecoveredChanges | undefined {
    const tags = this.#trees.get(scope)
    const changes = tags?.get(tag)
    if (tags === undefined || changes === undefined) return undefined
    tags.delete(tag)
    if (tags.size === 0) this.#trees.delete(scope)
    return changes
  }

  /** A tree whose changes nobody has asked for yet. */
  next(): { readonly scope: ByteString; readonly tag: number } | undefined {
    for (const [scope, tags] of this.#trees) for (const tag of tags.keys()) return { scope, tag }
    return undefined
  }
}

export function recoveredEntry(changes: RecoveredChanges, key: ByteString): Entry | undefined {
  const change = changes.get(key)
  return change === undefined ? undefined : decodeChange(change)
}

/** Takes the changes out one by one; what is left stays valid in between. */
export function* drain(changes: RecoveredChanges): Generator<Entry, void, void> {
  for (const [key, change] of changes) {
    yield decodeChange(change)
    changes.delete(key)
  }
}
