import type { ByteString } from '../core/bytes.ts'
import { HEAD_KEY, headTag, isLogTag } from '../engine/keys.ts'
import { headAfter, headValue, parseLogEntry } from '../engine/log.ts'
import type { Entry } from '../engine/storage.ts'
import type { Change } from './change.ts'
import { decodeChange, type FrameVisitor } from './wal-frame.ts'

/**
 * The newest change of each key of one tree, by its number in the tail; a drop comes first, under `DROP_KEY`. The head of
 * a log is not in the tail: it has the complement of the number of the append that it follows from.
 */
export type RecoveredChanges = Map<ByteString, number>

/** No key is empty. */
export const DROP_KEY: ByteString = ''

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
  /** Of the head, if that tree is a log. */
  #heads: RecoveredChanges | undefined

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

  changeOf(number: number): Change {
    if (number < 0) return headEntry(this.changeOf(~number))
    const commit = this.#commitOf[number]
    const { bytes, view } = this.#segments[this.#segmentOf[commit]]
    return decodeChange(bytes, view, this.#offsets[number], this.#versions[commit], this.#times[commit])
  }

  /** Takes the changes out one by one; what is left stays valid in between. */
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
