import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { parseStorageKey, storageKey } from '../engine/keys.ts'
import type { Entry, Place } from '../engine/storage.ts'
import type { Forest, Tree } from './forest.ts'

/**
 * The engine's own tree of reminders: one for each expiring entry, in order of time, so that expired entries are found without a
 * search. Readers treat an entry as absent from its time on, even if it is not removed yet.
 */
const SCOPE = ''
const TAG = 0xff

/** The tree of reminders. */
export function expiryTree(forest: Forest): Tree {
  return forest.tree(SCOPE, TAG)
}

/** The reminder for an expiring entry. It must be in the commit that puts the entry. */
export function reminder(
  tree: Tree,
  key: ByteString,
  expiresAt: number,
  version: number,
  time: number,
): Entry {
  const place = u64(expiresAt) + storageKey(tree.scope, tree.tag, key)
  return { key: place, value: '', version, time, expiresAt: 0 }
}

/** A reminder that is due: its key, and the entry to remove. */
export interface Due extends Place {
  readonly reminder: ByteString
  readonly expiresAt: number
}

/** The oldest reminders that are due at `now`, at most `limit`. */
export function due(forest: Forest, now: number, limit: number): Due[] {
  const span = { from: undefined, to: u64(now + 1), reverse: false, limit, now }
  return forest.scan(expiryTree(forest), span).map(({ key }) => {
    return { reminder: key, expiresAt: fromU64(key), ...parseStorageKey(key.slice(8)) }
  })
}

/** The time of the first reminder after `now`, or infinity. */
export function nextExpiry(forest: Forest, now: number): number {
  const span = { from: u64(now + 1), to: undefined, reverse: false, limit: 1, now: 0 }
  const [first] = forest.scan(expiryTree(forest), span)
  return first === undefined ? Number.POSITIVE_INFINITY : fromU64(first.key)
}
