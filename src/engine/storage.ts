import type { ByteString } from '../core/bytes.ts'
import type { Capabilities } from './capabilities.ts'

/**
 * The storage port: all that Annals asks of an engine. Two engines implement
 * it; `annals/testing` holds the suite that a third would have to pass.
 *
 * Data live in trees, one for each (scope, tag); a tree maps keys to entries
 * in byte order. The contract:
 *
 * - **Atomic.** A commit is wholly in or wholly out, also after a crash.
 * - **Durable.** A promise of `commit` or `update` resolves once the commit
 *   will survive what the engine's durability setting promises; reads and
 *   subscribers never see a commit before that.
 * - **Ordered.** Commits are totally ordered. `version` grows by at least one
 *   from commit to commit, `time` never goes back, whatever the clock does.
 * - **Lifetimes follow the clock.** An entry is absent once the clock as it is
 *   now (`clock`) has reached its `expiresAt`, whatever times earlier commits
 *   have. So a clock that was wrong for a while does no lasting harm. If the clock
 *   is set back, an expired entry is there again, unless it was removed already.
 * - **Validated.** `commit` checks that each declared read would read the
 *   same again at the commit's own place in that order; if not, it answers
 *   `conflict` and changes nothing. Blind puts, deletes and appends never
 *   conflict.
 * - **Logs belong to the engine.** A tree whose tag is a log tag (keys.ts)
 *   takes appends only; a put or delete there is `INVALID_OPERATION`. Beside
 *   each log the engine keeps its head (log.ts), changed with every append: it
 *   is what tells that the last entries of a log are missing. Only `drop`
 *   takes a log away, and then all of it; what a feed lists of it stays listed.
 */
export interface Storage extends Reader, Capabilities {
  /** Returns a frozen view of everything committed so far, in O(1). Release it, or its space can't be reclaimed. */
  snapshot(): Promise<Snapshot>
  /** Validates the declared reads, then applies all operations or none. */
  commit(commit: Commit): Promise<CommitOutcome>
  /**
   * Runs one step over declared reads. `step` sees the newest entries, those
   * of commits that are not yet durable included, and no other commit comes
   * between its reads and its operations, so it never conflicts. The step must
   * be pure because it may run more than once. An error that it throws rejects
   * the promise and changes nothing. A step that reads a place of a feed runs
   * after every append under way that the feed will list, in any process.
   */
  update<T>(reads: readonly Place[], step: Step<T>, options?: UpdateOptions): Promise<Updated<T>>
  /**
   * Calls `listener` after commits that touched the tree, once for one or several of them, and at closing. A call may be
   * spurious. Resolves with the function that unsubscribes, once the subscription is active.
   */
  subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void>
  /** Lists the scopes that hold entries, in byte order. A scope whose entries have all expired may be listed. */
  scopes(range: ScopeRange): Promise<readonly ByteString[]>
  /** The time that a commit would get now, in milliseconds since 1970. Never before the time of a commit that was read. */
  now(): number
  /** The engine's clock in milliseconds since 1970, which lifetimes follow. It may go back. */
  clock(): number
  /** Waits for calls under way; later calls are refused with `CLOSED`. Closing twice is allowed. */
  close(): Promise<void>
}

/** Reads of one state: the newest durable one, or that of a snapshot. */
export interface Reader {
  /** The entry under a key; undefined if it is absent or has expired. */
  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined>
  /**
   * Entries of one tree in byte order of their keys (descending with `reverse`), as of one moment. A long scan does not
   * block the event loop.
   */
  scan(range: Range): Promise<readonly Entry[]>
}

/** A frozen view of all trees. */
export interface Snapshot extends Reader {
  /** The version of the newest commit in the view. */
  readonly version: number
  /** The time at which the view was taken, as `now` gives it. */
  readonly time: number
  /** The engine's clock when the snapshot was taken. Entries that had expired by then are absent. */
  readonly clock: number
  /** Ends the view; later reads are refused with `INVALID_OPERATION`. */
  release(): void
}

/** How late a subscriber may be notified. */
export interface Patience {
  /** Commits of other processes may be notified this much later, so that those processes need not send a notification. */
  readonly othersWithinMs: number
}

/** Names a tree. */
export interface TreeId {
  readonly scope: ByteString
  readonly tag: number
}

/** Names a key of a tree. */
export interface Place extends TreeId {
  readonly key: ByteString
}

/** A key with its value, as a commit wrote it. */
export interface Entry {
  readonly key: ByteString
  readonly value: ByteString
  /** The version of the commit that wrote the entry. */
  readonly version: number
  /** The time of that commit, or the earlier time that its `Put` gave; milliseconds since 1970. */
  readonly time: number
  /** The entry is absent once the engine's clock has reached this time; 0 means never. */
  readonly expiresAt: number
}

/** Keys of a tree from one bound to another. */
export interface Range extends TreeId {
  /** Inclusive; the tree's first key without it. */
  readonly from?: ByteString | undefined
  /** Exclusive; past the tree's last key without it. */
  readonly to?: ByteString | undefined
  readonly reverse?: boolean | undefined
  readonly limit?: number | undefined
  /** A hint that the entries will not be read again soon, so the engine need not cache them. */
  readonly once?: boolean | undefined
}

/** Scopes from one bound to another. */
export interface ScopeRange {
  /** Inclusive. */
  readonly from?: ByteString | undefined
  /** Exclusive. */
  readonly to?: ByteString | undefined
  readonly limit: number
}

/** A commit's operations take effect in their order. */
export type Operation = Put | Delete | Append | Drop

/** Writes an entry, and replaces the one under the same key. */
export interface Put extends Place {
  readonly op: 'put'
  readonly value: ByteString
  /** Milliseconds since 1970; 0 or absent means never. */
  readonly expiresAt?: number | undefined
  /**
   * The entry's time instead of the commit's, for a caller that copies entries. The commit's time is then not before it. An engine
   * that does not trust the caller may stamp the commit's time if that is earlier.
   */
  readonly time?: number | undefined
}

/** Removes an entry; allowed if there is none. */
export interface Delete extends Place {
  readonly op: 'delete'
}

/** Removes everything in a scope, logs and their dedupe keys included, in one step whatever its size. */
export interface Drop {
  readonly op: 'drop'
  readonly scope: ByteString
}

/**
 * Appends to a log. The engine assigns the sequence (0, 1, 2 …: the entry's
 * key, 8 bytes big-endian), stamps the time and links the hash; log.ts has the
 * entry's layout. A dedupe key that the log knows already answers with what is
 * there and appends nothing.
 */
export interface Append extends TreeId {
  readonly op: 'append'
  readonly body: ByteString
  /** 32 bytes; what of the body goes into the chain (see `linkHash`). */
  readonly bodyHash: ByteString
  /**
   * The entry's time instead of the commit's, for a caller that copies a log, or that had to know the hash beforehand and has
   * read the log's head in the same commit. It must not be before the last entry's time.
   */
  readonly time?: number | undefined
  readonly dedupe?: {
    readonly key: ByteString
    /** Returned with every later duplicate. */
    readonly memo?: ByteString | undefined
  }
  /**
   * A scope in which the engine also lists the append, in commit order, under `feedTag` of the log's tag (log.ts has the
   * layout), so that a reader can follow many logs at once. Nothing is ever listed before an entry that was read there.
   */
  readonly feed?: ByteString | undefined
}

/** What became of an append. */
export interface Appended {
  readonly sequence: number
  readonly hash: ByteString
  readonly time: number
  readonly duplicate: boolean
  /** The memo of the first append with this dedupe key; empty without one. */
  readonly memo: ByteString
}

/** A read of one key to validate: `version` as read, 0 if the key was absent. */
export interface PointRead extends Place {
  readonly version: number
}

/** A range read to validate, with the entries that it found, in order. */
export interface RangeRead extends Range {
  readonly found: readonly { readonly key: ByteString; readonly version: number }[]
}

/** Operations, and the reads that they depend on. */
export interface Commit {
  readonly points?: readonly PointRead[]
  readonly ranges?: readonly RangeRead[]
  readonly operations: readonly Operation[]
}

/** A commit that was applied. */
export interface Committed {
  readonly status: 'committed'
  readonly version: number
  readonly time: number
  /** One for each append, in order. */
  readonly appended: readonly Appended[]
}

/** A commit that changed nothing, because a read would give something else now. */
export interface Conflict {
  readonly status: 'conflict'
  /** The first read that no longer holds: a key, or a range without one. */
  readonly on: TreeId & { readonly key?: ByteString }
}

export type CommitOutcome = Committed | Conflict

/** Computes operations from the entries found, in the order of the declared reads. */
export type Step<T> = (found: readonly (Entry | undefined)[]) => {
  readonly operations: readonly Operation[]
  readonly result: T
}

/** What the caller knows about a step beforehand. */
export interface UpdateOptions {
  /**
   * A hint: the step usually returns appends and nothing else. Appends never conflict with each other, so an engine may run
   * such a step beside other steps on the same places instead of after them. A step that returns other operations after
   * all, or an append whose dedupe key the log knows, has the same outcome as without the hint.
   */
  readonly appends?: boolean | undefined
}

/** A step that was applied, with the result that it returned. */
export interface Updated<T> extends Committed {
  readonly result: T
}
