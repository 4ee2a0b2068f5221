import type { ByteString } from '../core/bytes.ts'
import type { Change } from './change.ts'

/** The newest pending change of each key in a tree. A single change has no map, which would cost more than the change. */
export type Pending = Change | Map<ByteString, Change>

/** The pending change of a key. */
export function pendingUnder(pending: Pending | undefined, key: ByteString): Change | undefined {
  if (pending instanceof Map) return pending.get(key)
  return pending?.key === key ? pending : undefined
}

/** Adds a change, which replaces an earlier one of the same key. */
export function withPending(pending: Pending | undefined, change: Change): Pending {
  if (pending instanceof Map) return pending.set(change.key, change)
  if (pending === undefined || pending.key === change.key) return change
  return new Map([
    [pending.key, pending],
    [change.key, change],
  ])
}

/** Removes a change, unless a later change of the same key has replaced it. */
export function withoutPending(pending: Pending | undefined, change: Change): Pending | undefined {
  if (!(pending instanceof Map)) return pending === change ? undefined : pending
  if (pending.get(change.key) !== change) return pending
  // Deleting the last key would allocate a new table for the map.
  if (pending.size === 1) return undefined
  pending.delete(change.key)
  return pending
}

export function allPending(pending: Pending | undefined): readonly Change[] {
  if (pending === undefined) return []
  return pending instanceof Map ? [...pending.values()] : [pending]
}
