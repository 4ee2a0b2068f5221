import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { linkHash, ZERO_HASH } from '../core/hash.ts'
import { dedupeTag } from '../engine/keys.ts'
import type { Append, Appended, Commit, Conflict, Entry, Place, Range } from '../engine/storage.ts'
import type { Forest, LogHead, Tree } from './forest.ts'
import type { Span } from './tree.ts'

/** What a commit sees and continues: everything before it in order, durable or still pending. */

const HASH_BYTES = 32

/** Whether the entry counts as absent: it expired, or is a removal. */
export function isGone(entry: Entry, now: number): boolean {
  return entry.expiresAt !== 0 && entry.expiresAt <= now
}

export function newest(forest: Forest, { scope, tag, key }: Place, now: number): Entry | undefined {
  const tree = forest.treeIfAny(scope, tag)
  const entry = tree === undefined ? undefined : (tree.pending?.get(key) ?? forest.find(tree, key))
  return entry === undefined || isGone(entry, now) ? undefined : entry
}

export function spanOf(range: Range, now: number): Span {
  return {
    from: range.from,
    to: range.to,
    reverse: range.reverse === true,
    limit: range.limit ?? Number.POSITIVE_INFINITY,
    now,
  }
}

function newestRange(forest: Forest, tree: Tree, range: Range, now: number): Entry[] {
  const span = spanOf(range, now)
  const { pending } = tree
  if (pending === undefined) return forest.scan(tree, span)
  // A pending commit can hide as many durable entries as it has keys.
  const entries = new Map<ByteString, Entry>()
  for (const entry of forest.scan(tree, { ...span, limit: span.limit + pending.size })) {
    entries.set(entry.key, entry)
  }
  for (const entry of pending.values()) {
    const inside = (span.from ?? '') <= entry.key && (span.to === undefined || entry.key < span.to)
    if (!inside) continue
    if (isGone(entry, now)) entries.delete(entry.key)
    else entries.set(entry.key, entry)
  }
  const sorted = [...entries.values()].sort((a, b) => (a.key < b.key ? -1 : 1))
  if (span.reverse) sorted.reverse()
  return sorted.slice(0, span.limit)
}

/** The first declared read that would not read the same again. */
export function conflictOf(forest: Forest, commit: Commit, now: number): Conflict | undefined {
  for (const point of commit.points ?? []) {
    const { scope, tag, key } = point
    const current = newest(forest, point, now)?.version ?? 0
    if (current !== point.version) return { status: 'conflict', on: { scope, tag, key } }
  }
  for (const range of commit.ranges ?? []) {
    const { scope, tag, found } = range
    const tree = forest.treeIfAny(scope, tag)
    const entries = tree === undefined ? [] : newestRange(forest, tree, range, now)
    const same =
      entries.length === found.length &&
      entries.every((entry, i) => entry.key === found[i].key && entry.version === found[i].version)
    if (!same) return { status: 'conflict', on: { scope, tag } }
  }
  return undefined
}

/** The answer to an append whose dedupe key is known. */
export function duplicateOf(forest: Forest, append: Append, now: number): Appended | undefined {
  if (append.dedupe === undefined) return undefined
  const { scope, tag, dedupe } = append
  const entry = newest(forest, { scope, tag: dedupeTag(tag), key: dedupe.key }, now)
  if (entry === undefined) return undefined
  return {
    sequence: fromU64(entry.value),
    hash: entry.value.slice(8, 8 + HASH_BYTES),
    time: entry.time,
    duplicate: true,
    memo: entry.value.slice(8 + HASH_BYTES),
  }
}

export interface Linked {
  readonly event: Entry
  readonly dedupe: Entry | undefined
  readonly answer: Appended
}

/** Continues a log: the next sequence, linked to the hash before it. */
export function link(forest: Forest, log: Tree, append: Append, version: number, time: number): Linked {
  const head = log.head ?? headOf(forest, log)
  const sequence = head.sequence + 1
  const hash = linkHash(head.hash, sequence, time, append.bodyHash)
  const key = u64(sequence)
  log.head = { sequence, hash }
  const memo = append.dedupe?.memo ?? ''
  return {
    event: { key, value: head.hash + hash + append.body, version, time, expiresAt: 0 },
    dedupe:
      append.dedupe === undefined
        ? undefined
        : { key: append.dedupe.key, value: key + hash + memo, version, time, expiresAt: 0 },
    answer: { sequence, hash, time, duplicate: false, memo },
  }
}

function headOf(forest: Forest, log: Tree): LogHead {
  const [last] = forest.scan(log, { from: undefined, to: undefined, reverse: true, limit: 1, now: 0 })
  return last === undefined ? { sequence: -1, hash: ZERO_HASH } : headAt(last)
}

/** The head of a log whose last event this is. */
export function headAt(event: Entry): LogHead {
  return { sequence: fromU64(event.key), hash: event.value.slice(HASH_BYTES, 2 * HASH_BYTES) }
}
