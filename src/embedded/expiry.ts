import { type ByteString, fromU64, u64 } from '../core/bytes.ts'
import { parseStorageKey, storageKey } from '../engine/keys.ts'
import type { Entry, Place } from '../engine/storage.ts'
import type { Forest, Tree } from './forest.ts'

/**
 * Which entries expire, in order of time: a tree of the engine's own, so that
 * removing them later needs no search. An entry reads as absent from its time
 * on, whether it was removed yet or not.
 */
const SCOPE = ''
const TAG = 0xff

export function expiryTree(forest: Forest): Tree {
  return forest.tree(SCOPE, TAG)
}

/** Belongs into the commit that writes the entry: one day it will have to go. */
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

export interface Due extends Place {
  readonly reminder: ByteString
  readonly expiresAt: number
}

/** The oldest reminders whose time has come. */
export function due(forest: Forest, now: number, limit: number): Due[] {
  const span = { from: undefined, to: u64(now + 1), reverse: false, limit, now }
  return forest.scan(expiryTree(forest), span).map(({ key }) => {
    return { reminder: key, expiresAt: fromU64(key), ...parseStorageKey(key.slice(8)) }
  })
}

/** When the next entry after `now` will have to go; infinity if none. */
export function nextExpiry(forest: Forest, now: number): number {
  const span = { from: u64(now + 1), to: undefined, reverse: false, limit: 1, now: 0 }
  const [first] = forest.scan(expiryTree(forest), span)
  return first === undefined ? Number.POSITIVE_INFINITY : fromU64(first.key)
}
