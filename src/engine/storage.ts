import type { ByteString } from '../core/bytes.ts'
import type { Capabilities } from './capabilities.ts'

/**
 * The storage port: everything that Annals needs from an engine. Annals has two
 * engines. Any other engine must pass the suite in `annals/testing`.
 *
 * Data is stored in trees, one for each (scope, tag). A tree maps keys to
 * entries, in byte order of the keys. The contract:
 *
 * - **Atomic.** A commit is applied completely or not at all, even if the
 *   process crashes.
 * - **Durable.** The promise of `commit` or `update` resolves once the commit
 *   survives what the engine's durability setting promises. Readers and
 *   subscribers never see a commit earlier.
 * - **Ordered.** Commits are totally ordered. `version` grows by at least one
 *   from commit to commit. `time` never decreases, even if the clock does.
 * - **Lifetimes follow the clock.** An entry is absent once `clock` has reached
 *   its `expiresAt`, whatever times earlier commits have. So a clock that was
 *   wrong for a while does no lasting harm. If the clock is set back, an expired
 *   entry reappears, unless the engine has removed it.
 * - **Validated.** `commit` checks that each declared read would return the
 *   same entries at the commit's position in that order. If not, it returns
 *   `conflict` and changes nothing. Operations without declared reads never
 *   conflict.
 * - **Logs are append-only.** A tree whose tag is a log tag (keys.ts) accepts
 *   only appends. A put or delete there is `INVALID_OPERATION`. The engine
 *   stores a head beside each log (log.ts) and updates it with every append,
 *   so that a log without its last entries is detected. Only `drop` removes a
 *   log, and always all of it. The feed still lists a dropped log's entries.
 */
export interface Storage extends Reader, Capabilities {
  /** Returns a frozen view of everything committed so far, in O(1). The caller must release it so that space is reclaimed. */
  snapshot(): Promise<Snapshot>
  /** Validates the declared reads, then applies all operations or none. */
  commit(commit: Commit): Promise<CommitOutcome>
  /**
   * Runs one step over declared places and ranges. `step` sees the newest entries,
   * including those of commits that are not durable yet. No other commit comes
   * between its reads and its operations, so it never conflicts. The step must
   * be pure because it may run more than once. An error that it throws rejects
   * the promise and changes nothing. A step that reads a place of a feed runs
   * after every append under way that the feed will list, in any process.
   */
  update<T>(reads: readonly Place[], step: Step<T>, options?: UpdateOptions): Promise<Updated<T>>
  /**
   * Calls `listener` after commits that changed the tree, and at closing. One call may stand for several commits, and a call
   * may be spurious. Once the subscription is active, resolves with the function that ends it.
   */
  subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void>
  /** Lists the scopes that hold entries, in byte order. A scope whose entries have all expired may be listed. */
  scopes(range: ScopeRange): Promise<readonly ByteString[]>
  /** The time that a commit would get now, in milliseconds since 1970. Never before the time of a commit that was read. */
  now(): number
  /** The engine's clock in milliseconds since 1970, which decides whether an entry has expired. It may go back. */
  clock(): number
  /** Waits for pending calls. Later calls are refused with `CLOSED`. Closing twice is allowed. */
  close(): Promise<void>
}

/** Reads one state of the store: the newest durable one, or that of a snapshot. */
export interface Reader {
  /** Returns the entry of a key; undefined if it is absent or has expired. */
  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined>
  /**
   * Returns entries of one tree as of one moment, in byte order of their keys (descending with `reverse`). A long scan does
   * not block the event loop.
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
  /** Ends the view. Later reads are refused with `INVALID_OPERATION`. */
  release(): void
}

/** How long the notification of a subscriber may be delayed. */
export interface Patience {
  /** Commits of other processes may be notified this much later, so that those processes need not send a notification. */
  readonly othersWithinMs: number
}

/** Identifies a tree. */
export interface TreeId {
  /** The owner of the data: a namespace as bytes, see `scopeOf`. */
  readonly scope: ByteString
  /** The kind of the data, 1 to 255, see `TAGS`. */
  readonly tag: number
}

/** Identifies a key of a tree. */
export interface Place extends TreeId {
  /** The key, 1 to 4,096 bytes. */
  readonly key: ByteString
}

/** A key with its value, as a commit wrote it. */
export interface Entry {
  /** The key within its tree. */
  readonly key: ByteString
  /** The stored bytes. */
  readonly value: ByteString
  /** The version of the commit that wrote the entry. */
  readonly version: number
  /** The time of that commit, or the earlier time that its `Put` gave, in milliseconds since 1970. */
  readonly time: number
  /** The entry is absent once the engine's clock has reached this time; 0 means never. */
  readonly expiresAt: number
}

/** A range of keys in a tree. */
export interface Range extends TreeId {
  /** The inclusive lower bound; the tree's first key by default. */
  readonly from?: ByteString | undefined
  /** The exclusive upper bound; no bound by default. */
  readonly to?: ByteString | undefined
  /** Returns the entries in descending order, starting below `to`. */
  readonly reverse?: boolean | undefined
  /** The most entries to return. */
  readonly limit?: number | undefined
  /** A hint that the entries will not be read again soon, so the engine need not cache them. */
  readonly once?: boolean | undefined
}

/** A range with a limit, so that one step can read it. */
export interface BoundedRange extends Range {
  /** The most entries to return. */
  readonly limit: number
}

/** A range of scopes. */
export interface ScopeRange {
  /** The inclusive lower bound. */
  readonly from?: ByteString | undefined
  /** The exclusive upper bound. */
  readonly to?: ByteString | undefined
  /** The most scopes to return. */
  readonly limit: number
}

/** One change of a commit. The operations of a commit take effect in their order. */
export type Operation = Put | Delete | Append | Drop

/** Writes an entry, and replaces an existing one with the same key. */
export interface Put extends Place {
  /** Identifies the operation. */
  readonly op: 'put'
  /** The bytes to store. */
  readonly value: ByteString
  /** When the entry expires, in milliseconds since 1970; 0 or absent means never. */
  readonly expiresAt?: number | undefined
  /**
   * The entry's time, if it differs from the commit's. A caller that copies entries gives it, and the commit's time is then not
   * before it. An engine that does not trust the caller may use the commit's time if that is earlier.
   */
  readonly time?: number | undefined
}

/** Removes an entry. Does nothing if it is absent. */
export interface Delete extends Place {
  /** Identifies the operation. */
  readonly op: 'delete'
}

/** Removes everything in a scope, logs and their dedupe keys included, in one step whatever its size. */
export interface Drop {
  /** Identifies the operation. */
  readonly op: 'drop'
  /** The scope to empty. */
  readonly scope: ByteString
}

/**
 * Appends to a log. The engine assigns the sequence (0, 1, 2 …), which is the
 * entry's key as 8 bytes big-endian. It also sets the time and links the hash;
 * log.ts has the entry's layout. If the log knows the dedupe key, the engine
 * appends nothing and returns the result of the first append with that key.
 */
export interface Append extends TreeId {
  /** Identifies the operation. */
  readonly op: 'append'
  /** The bytes to store. */
  readonly body: ByteString
  /** The hash of the body, 32 bytes, which goes into the chain (see `linkHash`). */
  readonly bodyHash: ByteString
  /**
   * The entry's time, if it differs from the commit's. A caller gives it to copy a log, or to know the hash before the commit,
   * which then also reads the log's head. It must not be before the last entry's time.
   */
  readonly time?: number | undefined
  /** Makes the append idempotent. */
  readonly dedupe?: {
    /** Identifies the append in its log. A later append with the same key is a duplicate. */
    readonly key: ByteString
    /** Bytes that the engine stores and returns with every duplicate. */
    readonly memo?: ByteString | undefined
  }
  /**
   * A scope in which the engine also lists the append, so that a reader can follow many logs at once. The list is in commit
   * order, under `feedTag` of the log's tag (log.ts has the layout). A new entry never comes before one that was read.
   */
  readonly feed?: ByteString | undefined
}

/** The result of an append: the new entry, or the existing one if the append was a duplicate. */
export interface Appended {
  /** The entry's position in its log, from 0. */
  readonly sequence: number
  /** The entry's hash, 32 bytes, which covers all entries before it. */
  readonly hash: ByteString
  /** The entry's time in milliseconds since 1970. */
  readonly time: number
  /** Whether the log knew the dedupe key already, so that nothing was appended. */
  readonly duplicate: boolean
  /** The memo of the first append with this dedupe key; empty if it had none. */
  readonly memo: ByteString
}

/** A read of one key, for validation. */
export interface PointRead extends Place {
  /** The version that was read; 0 if the key was absent. */
  readonly version: number
}

/** A read of a range, for validation. */
export interface RangeRead extends Range {
  /** The entries that the read found, in order. */
  readonly found: readonly { readonly key: ByteString; readonly version: number }[]
}

/** Operations, and the reads that they depend on. */
export interface Commit {
  /** Reads of single keys to validate. */
  readonly points?: readonly PointRead[]
  /** Reads of ranges to validate. */
  readonly ranges?: readonly RangeRead[]
  /** The changes to apply if every read is still valid. */
  readonly operations: readonly Operation[]
}

/** A commit that was applied. */
export interface Committed {
  /** Distinguishes the outcome from a conflict. */
  readonly status: 'committed'
  /** The commit's position in the order of all commits. */
  readonly version: number
  /** The commit's time in milliseconds since 1970. */
  readonly time: number
  /** The results of the appends, in order. */
  readonly appended: readonly Appended[]
}

/** A commit that changed nothing, because a declared read is no longer valid. */
export interface Conflict {
  /** Distinguishes the outcome from an applied commit. */
  readonly status: 'conflict'
  /** The first read that is no longer valid. `key` is absent if it was a range. */
  readonly on: TreeId & { readonly key?: ByteString }
}

/** The outcome of `commit`. */
export type CommitOutcome = Committed | Conflict

/**
 * A pure function that computes operations from the entries found. `found` has one item for each declared place, and `ranges`
 * has one list for each declared range, both in the order in which they were declared.
 */
export type Step<T> = (
  found: readonly (Entry | undefined)[],
  ranges: readonly (readonly Entry[])[],
) => {
  /** The changes to apply. */
  readonly operations: readonly Operation[]
  /** A value for the caller of `update`. */
  readonly result: T
}

/** Further reads of a step, and hints about it. */
export interface UpdateOptions {
  /** Ranges that the step reads besides its places. Their limits must not exceed 10,000 entries together. */
  readonly ranges?: readonly BoundedRange[] | undefined
  /**
   * Says that the step usually returns only appends. Appends never conflict with each other, so an engine may run such a step
   * concurrently with other steps on the same places. If the step returns other operations after all, or a duplicate append,
   * the outcome is the same as without the hint.
   */
  readonly appends?: boolean | undefined
}

/** A step that was applied, with the result that it returned. */
export interface Updated<T> extends Committed {
  /** The result that the step returned. */
  readonly result: T
}
