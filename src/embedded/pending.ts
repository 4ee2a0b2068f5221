import type { ByteString } from '../core/bytes.ts'
import type { Entry } from '../engine/storage.ts'

/**
 * The newest entry of each key that waits for its batch. Mostly it is one: then it stands for itself, as a map costs more
 * than the entry.
 */
export type Pending = Entry | Map<ByteString, Entry>

export function pendingUnder(pending: Pending | undefined, key: ByteString): Entry | undefined {
  if (pending instanceof Map) return pending.get(key)
  return pending?.key === key ? pending : undefined
}

export function withPending(pending: Pending | undefined, entry: Entry): Pending {
  if (pending instanceof Map) return pending.set(entry.key, entry)
  if (pending === undefined || pending.key === entry.key) return entry
  return new Map([
    [pending.key, pending],
    [entry.key, entry],
  ])
}

/** A later one under the same key stays. */
export function withoutPending(pending: Pending | undefined, entry: Entry): Pending | undefined {
  if (!(pending instanceof Map)) return pending === entry ? undefined : pending
  if (pending.get(entry.key) !== entry) return pending
  // To empty a map makes a new table for it.
  if (pending.size === 1) return undefined
  pending.delete(entry.key)
  return pending
}

export function allPending(pending: Pending | undefined): readonly Entry[] {
  if (pending === undefined) return []
  return pending instanceof Map ? [...pending.values()] : [pending]
}
