import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'
import { decodeChange, type FrameVisitor } from './wal-frame.ts'

/** The newest change of each key of one tree, by its number in the tail. */
export type RecoveredChanges = Map<ByteString, number>

interface LogBytes {
  readonly bytes: Buffer
  readonly view: DataView
}

/**
 * What the log holds beyond the trees, found when a store is opened. It is only
 * indexed then, not decoded and not applied: so opening after a crash takes as
 * long as reading the log. A tree takes its changes in when it has to.
 *
 * Numbers in arrays instead of an object for each change: tens of thousands of
 * objects that all survive are what costs most (a third of the time, measured).
 */
export class RecoveredTail implements FrameVisitor {
  readonly #trees = new Map<ByteString, Map<number, RecoveredChanges>>()
  readonly #segments: LogBytes[] = []
  // For each commit.
  readonly #versions: number[] = []
  readonly #times: number[] = []
  readonly #segmentOf: number[] = []
  // For each change.
  readonly #offsets: number[] = []
  readonly #commitOf: number[] = []
  #scope: ByteString | undefined
  #tag = -1
  #changes: RecoveredChanges = new Map()

  /** The commits that follow are in these bytes. */
  segment(bytes: Buffer, view: DataView): void {
    this.#segments.push({ bytes, view })
  }

  commit(version: number, time: number): void {
    this.#versions.push(version)
    this.#times.push(time)
    this.#segmentOf.push(this.#segments.length - 1)
  }

  /** In the order of the log: a later change replaces an earlier one. */
  change(scope: ByteString, tag: number, key: ByteString, offset: number): void {
    if (scope !== this.#scope || tag !== this.#tag) {
      const tags = this.#trees.get(scope) ?? new Map<number, RecoveredChanges>()
      this.#trees.set(scope, tags)
      this.#changes = tags.get(tag) ?? new Map()
      tags.set(tag, this.#changes)
      this.#scope = scope
      this.#tag = tag
    }
    this.#changes.set(key, this.#offsets.length)
    this.#offsets.push(offset)
    this.#commitOf.push(this.#versions.length - 1)
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

  entry(number: number): Entry {
    const commit = this.#commitOf[number]
    const { bytes, view } = this.#segments[this.#segmentOf[commit]]
    return decodeChange(bytes, view, this.#offsets[number], this.#versions[commit], this.#times[commit])
  }

  /** Takes the changes out one by one; what is left stays valid in between. */
  *drain(changes: RecoveredChanges): Generator<Entry, void, void> {
    for (const [key, number] of changes) {
      yield this.entry(number)
      changes.delete(key)
    }
  }
}
