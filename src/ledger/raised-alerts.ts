import { fromU64, u64 } from '../core/bytes.ts'
import type { Entry, Place, Put } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import type { LedgerAlert } from './run-events.ts'
import { ALERT_COUNT_KEY, alertedPlace, alertPuts, placeOf, putAt } from './stored.ts'

/**
 * Stores new alerts. The commit that stores an alert gives it the tenant's next number. So a reader that continues after the
 * last number it has seen misses no alert, even if a record is projected late or by another process.
 */

/** An alert that is not stored yet, with the time at which its record was persisted. */
export interface PendingAlert {
  readonly alert: LedgerAlert
  readonly time: number
}

/** The places that `raise` needs to read: the number of alerts, and for each event whether it already has one. */
export function alertReads(scope: string, shared: string, pending: readonly PendingAlert[]): Place[] {
  if (pending.length === 0) return []
  return [placeOf(shared, ALERT_COUNT_KEY), ...pending.map(({ alert }) => alertedPlace(scope, alert.eventId))]
}

/** Returns the writes that store a run's alerts, one per event id (L30). `found` holds the entries at `alertReads`. */
export function raise(
  scope: string,
  shared: string,
  pending: readonly PendingAlert[],
  found: readonly (Entry | undefined)[],
): { readonly writes: readonly Put[]; readonly raised: number } {
  const writes: Put[] = []
  const puts = raisedPuts(scope, shared, pending, found)
  for (;;) {
    const put = puts.next()
    if (put.done === true) return { writes, raised: put.value }
    writes.push(put.value)
  }
}

/** Yields the same writes one by one, and returns the number of alerts raised. */
export function* raisedPuts(
  scope: string,
  shared: string,
  pending: readonly PendingAlert[],
  [counted, ...alerted]: readonly (Entry | undefined)[],
): Generator<Put, number, void> {
  const first = countIn(counted)
  let count = first
  const seen = new Set<string>()
  for (const [i, { alert, time }] of pending.entries()) {
    const mark = alertedPlace(scope, alert.eventId)
    if (alerted[i] !== undefined || seen.has(mark.key)) continue
    seen.add(mark.key)
    yield putAt(mark, '')
    yield* alertPuts(scope, shared, alert, time, ++count)
  }
  if (count > first) yield putAt(placeOf(shared, ALERT_COUNT_KEY), u64(count))
  return count - first
}

function countIn(entry: Entry | undefined): number {
  return entry === undefined ? 0 : fromU64(entry.value)
}

/** The number of alerts raised for the tenant so far, which is the number of the newest alert. */
export async function alertCount({ database, shared }: LedgerContext): Promise<number> {
  const { scope, tag, key } = placeOf(shared, ALERT_COUNT_KEY)
  return countIn(await database.get(scope, tag, key))
}
