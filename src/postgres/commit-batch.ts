import type { ByteString } from '../core/bytes.ts'
import { sha256 } from '../core/hash.ts'
import { commitTime } from '../engine/log.ts'
import type {
  Appended,
  Commit,
  CommitOutcome,
  Operation,
  PointRead,
  RangeRead,
  TreeId,
} from '../engine/storage.ts'
import {
  checkScope,
  feedOf,
  headOfKey,
  isEntryTag,
  type Kind,
  keyRangeOf,
  sequenceOfKey,
  tailOfKey,
  treeAddress,
} from './address.ts'
import { arrayOf, encoded } from './wire.ts'
import {
  BATCH_APPEND,
  BATCH_DROP,
  BATCH_POINT,
  BATCH_PUT,
  BATCH_RANGE,
  BATCH_TREE,
  type BatchAppend,
  type BatchAppended,
  type BatchDrop,
  type BatchOutcome,
  type BatchPoint,
  type BatchPut,
  type BatchRange,
  type BatchTree,
} from './wire-types.ts'
import { Written } from './written.ts'

/** A call gets a block of this many versions, one for each transaction. */
const TRANSACTIONS_MAX = 1_024
/** A call holds the locks of all its scopes, and other processes wait for them. */
const SCOPES_MAX = 256
const BYTES_MAX = 4 * 1024 * 1024

const TREES = arrayOf(BATCH_TREE)
const POINTS = arrayOf(BATCH_POINT)
const RANGES = arrayOf(BATCH_RANGE)
const DROPS = arrayOf(BATCH_DROP)
const PUTS = arrayOf(BATCH_PUT)
const APPENDS = arrayOf(BATCH_APPEND)

/** Times that a test sets instead of the server: the clock, and a lower bound of all commit times. */
export interface GivenTimes {
  readonly clockMs?: number
  readonly notBeforeMs?: number
}

/** A tree of the batch, as it is sent. The flags become true when a later operation needs them. */
type TouchedTree = BatchTree & {
  readonly kind: Kind
  isWritten: boolean
  isCreated: boolean
  /** The number of the tree in the batch, from 1. */
  readonly number: number
  /** The tree as the caller names it. */
  readonly id: TreeId
  /** The first point read of each key; undefined as long as nothing was read. */
  points: Map<ByteString, SharedPoint> | undefined
}

/** A point that one or more transactions rely on. */
type SharedPoint = BatchPoint & { readonly txs: number[] }

/**
 * Commits that go to the server in one call. The server validates all reads
 * first and then applies all commits without a conflict. This equals committing
 * one by one as long as no commit reads what an earlier one in the batch writes.
 * Such a commit has to wait for the next call.
 */
export class CommitBatch {
  /** The trees of each scope; mostly two or three. */
  readonly #scopes = new Map<ByteString, TouchedTree[]>()
  readonly #trees: TouchedTree[] = []
  readonly #points: SharedPoint[] = []
  readonly #ranges: BatchRange[] = []
  readonly #drops: BatchDrop[] = []
  readonly #puts: BatchPut[] = []
  readonly #appends: BatchAppend[] = []
  readonly #operations: Operation[] = []
  /** The number of appends before each transaction. */
  readonly #firstAppends: number[] = []
  /** Built when the first commit with reads is added. */
  #written: Written | undefined
  #bytes = 0
  #steps = 1

  /** The number of transactions. */
  get size(): number {
    return this.#firstAppends.length
  }

  /** Adds a commit. Returns false, and changes nothing, if the commit has to wait for the next call. */
  add(commit: Commit): boolean {
    const bytes = bytesOf(commit)
    const scopes = this.#newScopesMax(commit)
    if (this.size > 0) {
      if (this.size === TRANSACTIONS_MAX || this.#bytes + bytes > BYTES_MAX) return false
      if (this.#scopes.size + scopes > SCOPES_MAX || this.#readsWritten(commit)) return false
    }
    this.#bytes += bytes
    this.#addCommit(commit)
    return true
  }

  /**
   * The parameters of the statement, in its order. `areNew` says that all dedupe keys are probably new. Without a `turn` the
   * server does not check that the calls of the session come in order.
   */
  parameters({ clockMs, notBeforeMs = 0 }: GivenTimes, areNew: boolean, turn?: number): unknown[] {
    return [
      clockMs,
      commitTime(this.#operations, notBeforeMs),
      turn,
      this.#steps,
      areNew,
      encoded(TREES, this.#trees),
      encoded(POINTS, this.#points),
      encoded(RANGES, this.#ranges),
      encoded(DROPS, this.#drops),
      encoded(PUTS, this.#puts),
      encoded(APPENDS, this.#appends),
    ]
  }

  /** The parameters of `commit_held`: the trees, puts and deletes. */
  heldParameters(): unknown[] {
    return [encoded(TREES, this.#trees), encoded(PUTS, this.#puts)]
  }

  /** The outcome of each transaction. */
  outcomes({ version, committedAt, conflicts = [], appended = [] }: BatchOutcome): CommitOutcome[] {
    const answers = new Array<Appended>(this.#appends.length)
    for (const answer of appended) {
      answers[answer.place] = appendedOf(answer, this.#appends[answer.place].memo)
    }
    const outcomes = this.#firstAppends.map(
      (first, tx): CommitOutcome => ({
        status: 'committed',
        version: version + tx,
        time: committedAt,
        appended: answers.slice(first, this.#firstAppends[tx + 1]),
      }),
    )
    for (const { tx, point, range } of conflicts) {
      outcomes[tx] = { status: 'conflict', on: this.#changed(point, range) }
    }
    return outcomes
  }

  /** The point or range with this number, as the caller names it. */
  #changed(point: number | undefined, range: number | undefined): TreeId & { readonly key?: ByteString } {
    if (point === undefined) return this.#trees[this.#ranges[range! - 1].tree - 1].id
    const { tree, key, tail } = this.#points[point - 1]
    return { ...this.#trees[tree - 1].id, key: key + tail }
  }

  #addCommit({ points = [], ranges = [], operations }: Commit): void {
    const tx = this.size
    this.#firstAppends.push(this.#appends.length)
    for (const point of points) this.#addPoint(tx, point)
    for (const range of ranges) {
      const tree = this.#tree(range).number
      this.#ranges.push({ tx, tree, range: keyRangeOf(range), digest: digestOf(range) })
    }
    for (const operation of operations) {
      this.#addOperation(tx, operation)
      this.#operations.push(operation)
      this.#written?.add(operation)
    }
  }

  #addPoint(tx: number, read: PointRead): void {
    const tree = this.#tree(read)
    const { key, version } = read
    tree.points ??= new Map()
    const known = tree.points.get(key)
    if (known?.version === version) {
      known.txs.push(tx)
      return
    }
    const { kind, number } = tree
    const point = {
      tree: number,
      kind,
      key: headOfKey(key),
      tail: tailOfKey(key),
      sequence: sequenceOfKey(kind, key),
      version,
      txs: [tx],
    }
    if (known === undefined) tree.points.set(key, point)
    this.#points.push(point)
  }

  #addOperation(tx: number, operation: Operation): void {
    if (operation.op === 'drop') {
      const tree = this.#writtenTree({ scope: operation.scope, tag: WHOLE_SCOPE }, false)
      this.#steps++
      this.#drops.push({ tx, step: this.#steps, tree })
    } else if (operation.op === 'append') this.#addAppend(tx, operation)
    else {
      const { key } = operation
      const isPut = operation.op === 'put'
      this.#puts.push({
        tx,
        step: this.#steps,
        tree: this.#writtenTree(operation, isPut),
        key: headOfKey(key),
        tail: tailOfKey(key),
        value: isPut ? operation.value : undefined,
        expiresAt: isPut ? (operation.expiresAt ?? 0) : 0,
        time: isPut ? operation.time : undefined,
      })
    }
  }

  #addAppend(tx: number, append: Extract<Operation, { op: 'append' }>): void {
    const { time, bodyHash, body, dedupe, feed } = append
    const place = this.#appends.length
    this.#appends.push({
      place,
      tx,
      step: this.#steps,
      tree: this.#writtenTree(append, true),
      time,
      bodyHash,
      body,
      dedupe: dedupe && headOfKey(dedupe.key),
      dedupeTail: dedupe === undefined ? '' : tailOfKey(dedupe.key),
      memo: dedupe?.memo ?? '',
      feed: feed === undefined ? undefined : this.#writtenTree(feedOf(append, feed), true),
      feedCount: place - this.#firstAppends[tx],
    })
  }

  /** The number of a tree whose scope is written. */
  #writtenTree(id: TreeId, isCreated: boolean): number {
    const tree = this.#tree(id)
    tree.isWritten = true
    if (isCreated) tree.isCreated = true
    return tree.number
  }

  #tree({ scope, tag }: TreeId): TouchedTree {
    let trees = this.#scopes.get(scope)
    if (trees === undefined) {
      trees = []
      this.#scopes.set(scope, trees)
    }
    for (const known of trees) if (known.id.tag === tag) return known
    const address = treeAddress({ scope, tag })
    const tree: TouchedTree = {
      scope,
      tag: address.tag,
      kind: address.kind,
      isWritten: false,
      isCreated: false,
      number: this.#trees.length + 1,
      id: { scope, tag },
      points: undefined,
    }
    this.#trees.push(tree)
    trees.push(tree)
    return tree
  }

  /** The most scopes that a commit would add. Throws for an invalid scope, before anything has changed. */
  #newScopesMax({ points = [], ranges = [], operations }: Commit): number {
    let added = 0
    let last: ByteString | undefined
    const look = (scope: ByteString): void => {
      // Most of a commit is about one scope.
      if (scope === last || this.#scopes.has(scope)) return
      last = scope
      checkScope(scope)
      added++
    }
    for (const { scope } of points) look(scope)
    for (const { scope } of ranges) look(scope)
    for (const operation of operations) {
      look(operation.scope)
      if (operation.op === 'append' && operation.feed !== undefined) look(operation.feed)
    }
    return added
  }

  #readsWritten({ points = [], ranges = [] }: Commit): boolean {
    if (points.length + ranges.length === 0) return false
    const areOnlyAppends = this.#puts.length + this.#drops.length === 0
    if (areOnlyAppends && ranges.length === 0 && points.every(({ tag }) => isEntryTag(tag))) return false
    if (this.#written === undefined) {
      this.#written = new Written()
      for (const operation of this.#operations) this.#written.add(operation)
    }
    const written = this.#written
    return points.some(point => written.hasPoint(point)) || ranges.some(range => written.hasTree(range))
  }
}

/** `sentMemo` is the memo that the append brought along, which the server does not send back. */
export function appendedOf(
  { sequence, time, hash, isDuplicate, memo }: BatchAppended,
  sentMemo: ByteString,
): Appended {
  return { sequence, hash, time, duplicate: isDuplicate, memo: memo ?? sentMemo }
}

/** The tag that stands for a whole scope. */
const WHOLE_SCOPE = 0

/** The hash of the keys and versions that a range read found. `commit_batch` computes the same hash. */
function digestOf({ found }: RangeRead): ByteString {
  const buffer = Buffer.allocUnsafe(found.reduce((sum, { key }) => sum + 12 + key.length, 0))
  let at = 0
  for (const { key, version } of found) {
    at = buffer.writeBigInt64BE(BigInt(version), at)
    at = buffer.writeInt32BE(key.length, at)
    at += buffer.latin1Write(key, at, key.length)
  }
  return sha256(buffer.latin1Slice())
}

function bytesOf({ operations }: Commit): number {
  let bytes = 0
  for (const operation of operations) {
    if (operation.op === 'append') bytes += operation.body.length
    else if (operation.op === 'put') bytes += operation.value.length
  }
  return bytes
}
