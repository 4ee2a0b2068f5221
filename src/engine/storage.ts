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
  /** A frozen view of everything committed so far; O(1). Release it, or space can't be reclaimed. */
  snapshot(): Promise<Snapshot>
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
   * Calls back after each commit (or several at once) that touched the tree, and at closing; now and then also for nothing.
   * Resolves once in force.
   */
  subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void>
  /** Scopes that hold something, in byte order. Expired entries may count. */
  scopes(range: ScopeRange): Promise<readonly ByteString[]>
  /** The time that a commit would get, in milliseconds since 1970: never before the time of a commit that a reader has seen. */
  now(): number
  /** The clock as it is now, in milliseconds since 1970. Lifetimes follow it. It goes back when somebody sets it back. */
  clock(): number
  /** Ends everything that is under way, then refuses with `CLOSED`. Closing twice is fine. */
  close(): Promise<void>
}

export interface Reader {
  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined>
  /**
   * Entries of one tree in byte order of their keys (descending with `reverse`), as of one moment. However many there are,
   * the event loop turns while they are read.
   */
  scan(range: Range): Promise<readonly Entry[]>
}

export interface Snapshot extends Reader {
  readonly version: number
  readonly time: number
  /** The engine's clock when the snapshot was taken: it shows no entry that had expired by then. */
  readonly clock: number
  release(): void
}

export interface Patience {
  /** What other processes have committed may be heard of so much later: then no commit of theirs has to tell of it. */
  readonly othersWithinMs: number
}

export interface TreeId {
  readonly scope: ByteString
  readonly tag: number
}

export interface Place extends TreeId {
  readonly key: ByteString
}

export interface Entry {
  readonly key: ByteString
  readonly value: ByteString
  /** Of the commit that wrote it. */
  readonly version: number
  /** Of the commit that wrote it, or as its `Put` said, and then not after the commit's; milliseconds since 1970. */
  readonly time: number
  /** The entry is absent once the engine's clock has reached this time; 0 means never. */
  readonly expiresAt: number
}

export interface Range extends TreeId {
  /** Inclusive; the tree's first key without it. */
  readonly from?: ByteString | undefined
  /** Exclusive; past the tree's last key without it. */
  readonly to?: ByteString | undefined
  readonly reverse?: boolean | undefined
  readonly limit?: number | undefined
  /** A hint: who reads it will not come back to it, so that to keep it at hand is not worth the memory. */
  readonly once?: boolean | undefined
}

export interface ScopeRange {
  /** Inclusive. */
  readonly from?: ByteString | undefined
  /** Exclusive. */
  readonly to?: ByteString | undefined
  readonly limit: number
}

/** A commit's operations take effect in their order. */
export type Operation = Put | Delete | Append | Drop

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

export interface Delete extends Place {
  readonly op: 'delete'
}

/** Removes everything in a scope, logs and their dedupe keys included, whatever its size in one step. */
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
   * Stamped instead of the commit's time. For a caller who had to know the hash beforehand and has read the log's head
   * in the same commit, or who copies a log: it must not be before the last entry's.
   */
  readonly time?: number | undefined
  readonly dedupe?: {
    readonly key: ByteString
    /** Given back with every later duplicate. */
    readonly memo?: ByteString | undefined
  }
  /**
   * A scope in which the engine also lists the append, in the order of commits, under `feedTag` of the log's tag (log.ts
   * has the layout): so that somebody can follow many logs at once. Nothing is ever listed before what was seen there.
   */
  readonly feed?: ByteString | undefined
}

export interface Appended {
  readonly sequence: number
  readonly hash: ByteString
  readonly time: number
  readonly duplicate: boolean
  /** That of the first append with this dedupe key; empty without one. */
  readonly memo: ByteString
}

/** A point read to validate: `version` as read, 0 if the key was absent. */
export interface PointRead extends Place {
  readonly version: number
}

/** A range read to validate: it found exactly these, in this order. */
export interface RangeRead extends Range {
  readonly found: readonly { readonly key: ByteString; readonly version: number }[]
}

export interface Commit {
  readonly points?: readonly PointRead[]
  readonly ranges?: readonly RangeRead[]
  readonly operations: readonly Operation[]
}

export interface Committed {
  readonly status: 'committed'
  readonly version: number
  readonly time: number
  /** One for each append, in order. */
  readonly appended: readonly Appended[]
}

export interface Conflict {
  readonly status: 'conflict'
  /** What had changed. */
  readonly on: TreeId & { readonly key?: ByteString }
}

export type CommitOutcome = Committed | Conflict

export type Step<T> = (found: readonly (Entry | undefined)[]) => {
  readonly operations: readonly Operation[]
  readonly result: T
}

export interface UpdateOptions {
  /**
   * A hint: the step usually returns appends and nothing else. Appends never conflict with each other, so an engine may run
   * such a step beside other steps on the same places instead of after them. A step that returns other operations after
   * all, or an append whose dedupe key the log knows, has the same outcome as without the hint.
   */
  readonly appends?: boolean | undefined
}

export interface Updated<T> extends Committed {
  readonly result: T
}
