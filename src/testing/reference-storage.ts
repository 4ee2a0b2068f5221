import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { dedupeTag, feedTag, HEAD_KEY, headTag, parseStorageKey, storageKey } from '../engine/keys.ts'
import {
  commitTime,
  dedupeValue,
  feedKey,
  feedValue,
  headAfter,
  headValue,
  linkAppend,
  parseDedupe,
  parseHead,
} from '../engine/log.ts'
import {
  checkBoundedRanges,
  checkLimit,
  checkOperations,
  checkPlace,
  checkRange,
  checkTree,
} from '../engine/operations.ts'
import type {
  Append,
  Appended,
  Commit,
  CommitOutcome,
  Committed,
  Conflict,
  Entry,
  Operation,
  Place,
  Range,
  ScopeRange,
  Snapshot,
  Step,
  Storage,
  TreeId,
  Updated,
  UpdateOptions,
} from '../engine/storage.ts'

/**
 * The simplest implementation of the storage port: all data are one immutable value, and a commit makes the next one.
 * The suite compares engines with it, so it is the port's executable specification. It is slow and keeps all data in memory.
 */
export class ReferenceStorage implements Storage {
  readonly #clock: () => number
  readonly #listeners = new Set<{ readonly tree: ByteString; readonly call: () => void }>()
  #state: State = { version: 0, time: 0, trees: new Map() }
  /** The latest time that was returned. Later times are never before it, even if the clock goes back. */
  #latestTime = 0
  #closed = false

  /** An empty storage, with the clock of the machine unless another one is given. */
  constructor(options: { readonly clock?: (() => number) | undefined } = {}) {
    this.#clock = options.clock ?? Date.now
  }

  /** Reads the newest entry. */
  async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    this.#checkOpen()
    return getIn(this.#state, { scope, tag, key }, this.clock())
  }

  /** Reads a range of the newest state. */
  async scan(range: Range): Promise<readonly Entry[]> {
    this.#checkOpen()
    return scanIn(this.#state, range, this.clock())
  }

  /** Returns a view of the current state, which later commits don't change. */
  async snapshot(): Promise<Snapshot> {
    this.#checkOpen()
    const state = this.#state
    const time = this.now()
    const clock = this.clock()
    let released = false
    const check = (): void => {
      this.#checkOpen()
      if (released) throw new AnnalsError('INVALID_OPERATION', 'the snapshot has been released')
    }
    return {
      version: state.version,
      time,
      clock,
      async get(scope, tag, key) {
        check()
        return getIn(state, { scope, tag, key }, clock)
      },
      async scan(range) {
        check()
        return scanIn(state, range, clock)
      },
      release() {
        released = true
      },
    }
  }

  /** Validates the reads and applies the operations to a copy of the state. */
  async commit(commit: Commit): Promise<CommitOutcome> {
    this.#checkOpen()
    checkOperations(commit.operations)
    // A commit advances the time even if it conflicts.
    this.now()
    const conflict = findConflict(this.#state, commit, this.clock())
    return conflict ?? this.#apply(commit.operations)
  }

  /** Runs the step on the newest entries and applies its operations. */
  async update<T>(
    reads: readonly Place[],
    step: Step<T>,
    { ranges = [] }: UpdateOptions = {},
  ): Promise<Updated<T>> {
    this.#checkOpen()
    checkBoundedRanges(ranges)
    this.now()
    const found = reads.map(place => getIn(this.#state, place, this.clock()))
    const scanned = ranges.map(range => scanIn(this.#state, range, this.clock()))
    const { operations, result } = step(found, scanned)
    checkOperations(operations)
    return { ...this.#apply(operations), result }
  }

  /** Calls the listener after each commit to the tree. */
  async subscribe(tree: TreeId, listener: () => void): Promise<() => void> {
    this.#checkOpen()
    checkTree(tree)
    const entry = { tree: treeKey(tree), call: listener }
    this.#listeners.add(entry)
    return () => {
      this.#listeners.delete(entry)
    }
  }

  /** Lists the scopes that have an entry. */
  async scopes({ from, to, limit }: ScopeRange): Promise<readonly ByteString[]> {
    this.#checkOpen()
    checkLimit(limit)
    const scopes = new Set<ByteString>()
    for (const [tree, entries] of this.#state.trees) {
      const { scope } = parseStorageKey(tree)
      const inside = (from === undefined || scope >= from) && (to === undefined || scope < to)
      if (entries.length > 0 && inside) scopes.add(scope)
    }
    return [...scopes].sort().slice(0, limit)
  }

  /** The current time, but never before one that was already returned. */
  now(): number {
    this.#latestTime = Math.max(this.#latestTime, this.#clock())
    return this.#latestTime
  }

  /** The clock as it is now. */
  clock(): number {
    return this.#clock()
  }

  /** Refuses all later calls with `CLOSED`. */
  async close(): Promise<void> {
    this.#closed = true
    for (const listener of this.#listeners) queueMicrotask(listener.call)
    this.#listeners.clear()
  }

  #apply(operations: readonly Operation[]): Committed {
    const time = commitTime(operations, this.now())
    this.#latestTime = time
    if (operations.length === 0) {
      return { status: 'committed', version: this.#state.version, time, appended: [] }
    }
    const next = new NextState(this.#state, time)
    const appended: Appended[] = []
    for (const operation of operations) {
      if (operation.op === 'append') appended.push(next.append(operation))
      else if (operation.op === 'drop') next.drop(operation.scope)
      else if (operation.op === 'delete') next.set(operation, undefined)
      else next.set(operation, { ...operation, expiresAt: operation.expiresAt ?? 0 })
    }
    this.#state = next
    for (const listener of [...this.#listeners]) {
      if (next.touched.has(listener.tree)) queueMicrotask(listener.call)
    }
    return { status: 'committed', version: next.version, time, appended }
  }

  #checkOpen(): void {
    if (this.#closed) throw new AnnalsError('CLOSED', 'the storage is closed')
  }
}

interface State {
  readonly version: number
  readonly time: number
  /** Entries in the order of their keys. Expired entries stay, and reads leave them out. */
  readonly trees: ReadonlyMap<ByteString, readonly Entry[]>
}

/** The state after a commit. It copies the trees that change, so the previous state stays as it was. */
class NextState implements State {
  readonly version: number
  readonly time: number
  readonly trees: Map<ByteString, readonly Entry[]>
  readonly touched = new Set<ByteString>()
  #listed = 0

  constructor(before: State, time: number) {
    this.version = before.version + 1
    this.time = time
    this.trees = new Map(before.trees)
  }

  set(
    { scope, tag, key }: Place,
    content: { value: ByteString; expiresAt: number; time?: number | undefined } | undefined,
  ): void {
    const tree = treeKey({ scope, tag })
    const entries = [...(this.trees.get(tree) ?? [])]
    const index = lowerBound(entries, key)
    const isThere = index < entries.length && entries[index].key === key
    const entry = content && {
      key,
      value: content.value,
      expiresAt: content.expiresAt,
      version: this.version,
      time: content.time ?? this.time,
    }
    entries.splice(index, isThere ? 1 : 0, ...(entry === undefined ? [] : [entry]))
    this.trees.set(tree, entries)
    this.touched.add(tree)
  }

  append(append: Append): Appended {
    const { scope, tag, dedupe, feed } = append
    const seen = dedupe && getIn(this, { scope, tag: dedupeTag(tag), key: dedupe.key }, this.time)
    if (seen !== undefined) return parseDedupe(seen)

    const head = { scope, tag: headTag(tag), key: HEAD_KEY }
    const linked = linkAppend(parseHead(getIn(this, head, this.time)), append, this.time)
    this.set({ scope, tag, key: linked.key }, { value: linked.value, expiresAt: 0 })
    this.set(head, { value: headValue(headAfter(linked)), expiresAt: 0 })

    const memo = dedupe?.memo ?? ''
    if (dedupe !== undefined) {
      const place = { scope, tag: dedupeTag(tag), key: dedupe.key }
      this.set(place, { value: dedupeValue(linked, memo), expiresAt: 0 })
    }
    if (feed !== undefined) {
      const key = feedKey(this.version, this.#listed++)
      this.set({ scope: feed, tag: feedTag(tag), key }, { value: feedValue(linked, scope), expiresAt: 0 })
    }
    const { sequence, hash, time } = linked
    return { sequence, hash, time, memo, duplicate: false }
  }

  drop(scope: ByteString): void {
    for (const tree of this.trees.keys()) {
      if (parseStorageKey(tree).scope !== scope) continue
      this.trees.delete(tree)
      this.touched.add(tree)
    }
  }
}

function findConflict(state: State, { points = [], ranges = [] }: Commit, now: number): Conflict | undefined {
  for (const point of points) {
    const { scope, tag, key, version } = point
    if ((getIn(state, point, now)?.version ?? 0) !== version) {
      return { status: 'conflict', on: { scope, tag, key } }
    }
  }
  for (const range of ranges) {
    const found = scanIn(state, range, now)
    const isSame =
      found.length === range.found.length &&
      found.every(({ key, version }, i) => key === range.found[i].key && version === range.found[i].version)
    if (!isSame) return { status: 'conflict', on: { scope: range.scope, tag: range.tag } }
  }
  return undefined
}

function getIn(state: State, place: Place, now: number): Entry | undefined {
  checkPlace(place)
  const entries = state.trees.get(treeKey(place)) ?? []
  const entry = entries[lowerBound(entries, place.key)]
  return entry !== undefined && entry.key === place.key && isAlive(entry, now) ? entry : undefined
}

function scanIn(state: State, range: Range, now: number): readonly Entry[] {
  checkRange(range)
  const { from, to, reverse = false, limit } = range
  const entries = state.trees.get(treeKey(range)) ?? []
  const found = entries.filter(
    entry =>
      (from === undefined || entry.key >= from) &&
      (to === undefined || entry.key < to) &&
      isAlive(entry, now),
  )
  return (reverse ? found.reverse() : found).slice(0, limit)
}

function isAlive({ expiresAt }: Entry, now: number): boolean {
  return expiresAt === 0 || expiresAt > now
}

function treeKey({ scope, tag }: TreeId): ByteString {
  return storageKey(scope, tag, '')
}

function lowerBound(entries: readonly Entry[], key: ByteString): number {
  const index = entries.findIndex(entry => entry.key >= key)
  return index < 0 ? entries.length : index
}
