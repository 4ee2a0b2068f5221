import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'

/**
 * A change to one tree: a put or a removal. A put is the entry itself, because the tree stores it as it is. A removal is never
 * stored in a tree.
 */
export interface Change extends Entry {
  /** `entry` removes the entry under the key, `tree` removes all entries of the tree. Absent from a put. */
  readonly removes?: 'entry' | 'tree'
}

/** A change that removes the entry under a key. */
export function removalOf(key: ByteString, version: number, time: number): Change {
  return { key, value: '', version, time, expiresAt: 0, removes: 'entry' }
}

/** A change that removes all entries of a tree. */
export function dropOf(version: number, time: number): Change {
  return { key: '', value: '', version, time, expiresAt: 0, removes: 'tree' }
}

/** Whether readers find nothing under the key, because the newest change is a removal or its entry has expired. */
export function isGone({ removes, expiresAt }: Change, now: number): boolean {
  return removes !== undefined || (expiresAt !== 0 && expiresAt <= now)
}
