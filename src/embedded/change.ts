import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'

/**
 * A change of one tree: an entry that is put, or a removal. A put is the entry itself, because it goes into the tree as it
 * is. A removal never does.
 */
export interface Change extends Entry {
  /** What a removal takes away: the entry under its key, or, without a key, all entries of the tree. Absent from a put. */
  readonly removes?: 'entry' | 'tree'
}

export function removalOf(key: ByteString, version: number, time: number): Change {
  return { key, value: '', version, time, expiresAt: 0, removes: 'entry' }
}

export function dropOf(version: number, time: number): Change {
  return { key: '', value: '', version, time, expiresAt: 0, removes: 'tree' }
}

/** Whether nothing is there for a reader: the entry has expired, or the newest change is a removal. */
export function isGone({ removes, expiresAt }: Change, now: number): boolean {
  return removes !== undefined || (expiresAt !== 0 && expiresAt <= now)
}
