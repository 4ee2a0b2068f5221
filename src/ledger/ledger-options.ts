import { invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import type { Scope } from '../engine/keys.ts'

const FETCH_MAX = 10_000

/** Options of `appendEvent` and `appendEvents`. */
export interface AppendOptions {
  /** The epoch of the lease that the writer holds. Without it, a run under a lease accepts only duplicates. */
  readonly epoch?: number
}

/** Options of `fetchEvents`. */
export interface FetchOptions {
  /** Returns only records after this `runSeq`. 0 by default. */
  readonly afterSeq?: number
  /** The largest number of records, 1 to 10,000. Without it, all records are returned. */
  readonly limit?: number
}

/** Options of `iterateEvents`. */
export interface IterateEventsOptions {
  /** Yields only records after this `runSeq`. 0 by default. */
  readonly afterSeq?: number
}

/** Options of `fetchAll`. */
export interface FetchAllOptions {
  /** The cursor of the last item that the reader has processed. Without it, reading starts at the first record. */
  readonly cursor?: string
  /** The largest number of items, 1 to 10,000. 1,000 by default. */
  readonly limit?: number
}

/** Options of `subscribe`. */
export interface SubscribeOptions {
  /** The run to follow, by id or namespace. It need not exist yet. */
  readonly runId: Scope
  /** Yields only records after this `runSeq`. 0 by default. */
  readonly afterSeq?: number
  /** Aborting it ends the iteration without an error. */
  readonly signal?: AbortSignal
}

/** Options of `subscribeAll`. */
export interface SubscribeAllOptions {
  /** The cursor of the last item that the reader has processed. Without it, reading starts at the first record. */
  readonly cursor?: string
  /** Aborting it ends the iteration without an error. */
  readonly signal?: AbortSignal
}

/** Options of `subscribeAlerts`. */
export interface SubscribeAlertsOptions {
  /** The cursor of the last alert that the reader has processed. Without it, reading starts at the first alert. */
  readonly cursor?: string
  /** Aborting it ends the iteration without an error. */
  readonly signal?: AbortSignal
}

/** Returns the limit, or throws `INVALID_ARGUMENT`. */
export function checkFetchLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 1 && limit <= FETCH_MAX) return limit
  throw invalidArgument('limit', `must be a whole number from 1 to ${FETCH_MAX}`, limit)
}

/** Returns the epoch of the options, checked. */
export function epochOf(options: AppendOptions): number | undefined {
  checkOptions('an append', options, ['epoch'])
  const { epoch } = options
  return epoch === undefined ? undefined : checkWhole('epoch', epoch)
}
