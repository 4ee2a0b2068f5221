import type { ByteString } from '../core/bytes.ts'
import { dedupeTag, HEAD_KEY, headTag } from '../engine/keys.ts'
import { type LogHead, parseDedupe, parseHead } from '../engine/log.ts'
import { overlaid } from '../engine/overlay.ts'
import type { Append, Appended, Commit, Conflict, Entry, Place, Range, TreeId } from '../engine/storage.ts'
import { type Change, isGone } from './change.ts'
import type { Forest, Tree } from './forest.ts'
import { allPending, pendingUnder } from './pending.ts'
import type { Span } from './tree.ts'

/** Reads for commits. A commit sees every commit before it, including those that are still pending. */

/** The newest entry at a place, unless it is removed or expired. */
export function newest(forest: Forest, { scope, tag, key }: Place, now: number): Entry | undefined {
  const tree = forest.treeIfAny(scope, tag)
  const entry = tree === undefined ? undefined : newestChange(forest, tree, key)
  return entry === undefined || isGone(entry, now) ? undefined : entry
}

/** The newest change of a key: an entry, possibly expired, or a removal. */
export function newestChange(forest: Forest, tree: Tree, key: ByteString): Change | undefined {
  const pending = pendingUnder(tree.pending, key)
  if (pending !== undefined) return pending
  // A pending drop hides all entries in the tree.
  return tree.drop === undefined ? forest.find(tree, key) : undefined
}

/** The span of a range, for entries that have not expired at `now`. */
export function spanOf(range: Range, now: number): Span {
  return {
    from: range.from,
    to: range.to,
    reverse: range.reverse === true,
    limit: range.limit ?? Number.POSITIVE_INFINITY,
    now,
    once: range.once === true,
  }
}

/** The newest entries of a range, pending ones included. */
export function newestRange(forest: Forest, range: Range, now: number): readonly Entry[] {
  const tree = forest.treeIfAny(range.scope, range.tag)
  if (tree === undefined) return []
  const span = spanOf(range, now)
  const { from = '', to, limit } = span
  const pending = allPending(tree.pending)
    .filter(({ key }) => key >= from && (to === undefined || key < to))
    .map(change => ({ key: change.key, entry: isGone(change, now) ? undefined : change }))
  if (pending.length === 0 && tree.drop === undefined) return forest.scan(tree, span)
  // Each pending change can hide one durable entry, so the scan reads that many more.
  const durable = tree.drop === undefined ? forest.scan(tree, { ...span, limit: limit + pending.length }) : []
  return overlaid(durable, pending, span)
}

/** A conflict for the first declared read whose result has changed since. */
export function conflictOf(forest: Forest, commit: Commit, now: number): Conflict | undefined {
  for (const point of commit.points ?? []) {
    const { scope, tag, key } = point
    const current = newest(forest, point, now)?.version ?? 0
    if (current !== point.version) return { status: 'conflict', on: { scope, tag, key } }
  }
  for (const range of commit.ranges ?? []) {
    const { scope, tag, found } = range
    const entries = newestRange(forest, range, now)
    const same =
      entries.length === found.length &&
      entries.every((entry, i) => entry.key === found[i].key && entry.version === found[i].version)
    if (!same) return { status: 'conflict', on: { scope, tag } }
  }
  return undefined
}

/** The result of an earlier append with the same dedupe key. `isAbsent`: the key did not exist before this commit. */
export function duplicateOf(
  forest: Forest,
  append: Append,
  now: number,
  isAbsent: boolean,
): Appended | undefined {
  if (append.dedupe === undefined) return undefined
  const { scope, tag, dedupe } = append
  const tree = forest.treeIfAny(scope, dedupeTag(tag))
  if (tree === undefined) return undefined
  // If the key did not exist before this commit, only the commit's own appends can have it, and they are pending.
  const entry = isAbsent ? pendingUnder(tree.pending, dedupe.key) : newestChange(forest, tree, dedupe.key)
  return entry === undefined || isGone(entry, now) ? undefined : parseDedupe(entry)
}

/** The length and last hash of a log, which the next append continues. */
export function headOf(forest: Forest, { scope, tag }: TreeId): LogHead {
  const known = forest.treeIfAny(scope, tag)?.head
  return known ?? parseHead(newest(forest, { scope, tag: headTag(tag), key: HEAD_KEY }, 0))
}
