import type { ByteString } from '../core/bytes.ts'
import { HEAD_KEY, headTag, isLogTag } from '../engine/keys.ts'
import { headAfter, headValue, parseLogEntry } from '../engine/log.ts'
import type { Entry } from '../engine/storage.ts'
import type { Change } from './change.ts'
import { decodeChange, type FrameVisitor } from './wal-frame.ts'

/**
 * Maps each key of a tree to the number of its newest change in the tail. A drop comes first, under `DROP_KEY`. Heads of
 * logs are not stored in the tail. A head has the bitwise complement of the number of the append that it derives from.
 */
export type RecoveredChanges = Map<ByteString, number>

/** The key of a drop. Keys of entries are never empty. */
export const DROP_KEY: ByteString = ''

interface LogBytes {
  readonly bytes: Buffer
  readonly view: DataView
}

/**
 * An index of the commits in the log that the last checkpoint does not contain. Opening only builds the index, so it takes
 * as long as reading the log. A tree decodes and applies its changes later, when it needs them.
 *
 * Changes are numbers in arrays. An object for each change took a third of the recovery time, because all of the objects
 * survive garbage collection.
 */
export class RecoveredTail implements FrameVisitor {
  readonly #trees = new Map<ByteString, Map<number, RecoveredChanges>>()
  readonly #segments: LogBytes[] = []
  // These have an element for each commit.
  readonly #versions: number[] = []
  readonly #times: number[] = []
  readonly #segmentOf: number[] = []
  // These have an element for each change.
  readonly #offsets: number[] = []
  readonly #commitOf: number[] = []
  /** The tree of the last change, and its changes. */
  #scope: ByteString | undefined
  #tag = -1
  #changes: RecoveredChanges = new Map()
  /** The changes of the tree with its head, if it is a log. */
  #heads: RecoveredChanges | undefined

  /** Begins a segment, which contains the following commits. */
  segment(bytes: Buffer, view: DataView): void {
    this.#segments.push({ bytes, view })
  }

  /** Begins a commit, to which the following changes belong. */
  commit(version: number, time: number): void {
    this.#versions.push(version)
    this.#times.push(time)
    this.#segmentOf.push(this.#segments.length - 1)
  }

  /** Adds a change. Calls come in log order, so a later change of a key replaces an earlier one. */
  change(scope: ByteString, tag: number, key: ByteString, offset: number): void {
    if (scope !== this.#scope || tag !== this.#tag) {
      this.#changes = this.#changesOf(scope, tag)
      this.#heads = isLogTag(tag) ? this.#changesOf(scope, headTag(tag)) : undefined
      this.#scope = scope
      this.#tag = tag
    }
    const number = this.#offsets.length
    if (key === DROP_KEY) this.#changes.clear()
    else this.#heads?.set(HEAD_KEY, ~number)
    this.#changes.set(key, number)
    this.#offsets.push(offset)
    this.#commitOf.push(this.#versions.length - 1)
  }

  #changesOf(scope: ByteString, tag: number): RecoveredChanges {
    const tags = this.#trees.get(scope) ?? new Map<number, RecoveredChanges>()
    this.#trees.set(scope, tags)
    const changes: RecoveredChanges = tags.get(tag) ?? new Map()
    tags.set(tag, changes)
    return changes
  }

  /** Removes the changes of a tree from the tail, and returns them. */
  take(scope: ByteString, tag: number): RecoveredChanges | undefined {
    const tags = this.#trees.get(scope)
    const changes = tags?.get(tag)
    if (tags === undefined || changes === undefined) return undefined
    tags.delete(tag)
    if (tags.size === 0) this.#trees.delete(scope)
    return changes
  }

  /** A tree whose changes were not taken yet. */
  next(): { readonly scope: ByteString; readonly tag: number } | undefined {
    for (const [scope, tags] of this.#trees) for (const tag of tags.keys()) return { scope, tag }
    return undefined
  }

  /** Decodes a change. */
  changeOf(number: number): Change {
    if (number < 0) return headEntry(this.changeOf(~number))
    const commit = this.#commitOf[number]
    const { bytes, view } = this.#segments[this.#segmentOf[commit]]
    return decodeChange(bytes, view, this.#offsets[number], this.#versions[commit], this.#times[commit])
  }

  /** Decodes and removes the changes one by one. A change is removed only after the caller has applied it. */
  *drain(changes: RecoveredChanges): Generator<Change, void, void> {
    for (const [key, number] of changes) {
      yield this.changeOf(number)
      changes.delete(key)
    }
  }
}

function headEntry(event: Entry): Entry {
  return { ...event, key: HEAD_KEY, value: headValue(headAfter(parseLogEntry(event))) }
}
