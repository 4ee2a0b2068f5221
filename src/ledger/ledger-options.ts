import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import type { Scope } from '../engine/keys.ts'

/** The options of the ledger's calls. */

const FETCH_MAX = 10_000

export interface AppendOptions {
  /** That of the lease under which is written. */
  readonly epoch?: number
}

export interface FetchOptions {
  /** Exclusive; from the start without it. */
  readonly afterSeq?: number
  /** 1 to 10,000; all records come without it. */
  readonly limit?: number
}

export interface IterateEventsOptions {
  /** Exclusive; from the start without it. */
  readonly afterSeq?: number
}

export interface FetchAllOptions {
  /** That of the last item that was taken care of; from the start without it. */
  readonly cursor?: string
  /** 1 to 10,000; 1,000 without it. */
  readonly limit?: number
}

export interface SubscribeOptions {
  readonly runId: Scope
  /** Exclusive; from the start without it. */
  readonly afterSeq?: number
  /** Aborting it ends the iteration, without an error. */
  readonly signal?: AbortSignal
}

export interface SubscribeAllOptions {
  /** That of the last item that was taken care of. */
  readonly cursor?: string
  readonly signal?: AbortSignal
}

export interface SubscribeAlertsOptions {
  /** That of the last item that was taken care of; from the first alert without it. */
  readonly cursor?: string
  readonly signal?: AbortSignal
}

export function checkFetchLimit(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 1 && limit <= FETCH_MAX) return limit
  const message = `limit must be a whole number from 1 to ${FETCH_MAX}`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'limit', value: limit })
}

export function epochOf(options: AppendOptions): number | undefined {
  checkOptions('an append', options, ['epoch'])
  const { epoch } = options
  return epoch === undefined ? undefined : checkWhole('epoch', epoch)
}
