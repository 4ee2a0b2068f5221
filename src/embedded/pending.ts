import type { ByteString } from '../core/bytes.ts'
import type { Change } from './change.ts'

/** The newest change of each key that waits for its batch. One change alone needs no map, which would cost more than the change. */
export type Pending = Change | Map<ByteString, Change>

export function pendingUnder(pending: Pending | undefined, key: ByteString): Change | undefined {
  if (pending instanceof Map) return pending.get(key)
  return pending?.key === key ? pending : undefined
}

export function withPending(pending: Pending | undefined, change: Change): Pending {
  if (pending instanceof Map) return pending.set(change.key, change)
  if (pending === undefined || pending.key === change.key) return change
  return new Map([
    [pending.key, pending],
    [change.key, change],
  ])
}

/** A later one under the same key stays. */
export function withoutPending(pending: Pending | undefined, change: Change): Pending | undefined {
  if (!(pending instanceof Map)) return pending === change ? undefined : pending
  if (pending.get(change.key) !== change) return pending
  // To empty a map makes a new table for it.
  if (pending.size === 1) return undefined
  pending.delete(change.key)
  return pending
}

export function allPending(pending: Pending | undefined): readonly Change[] {
  if (pending === undefined) return []
  return pending instanceof Map ? [...pending.values()] : [pending]
}
