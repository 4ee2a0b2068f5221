/**
 * What concurrent transactions did and saw: they read lists and append
 * elements, each of which nobody else appends. Plain data, so that parts
 * recorded by several processes can be put together.
 */
export interface TransactionRecord {
  readonly id: string
  /** `unknown`: the answer was lost; it counts as committed if somebody has seen its elements. */
  readonly outcome: 'committed' | 'aborted' | 'unknown'
  /** Places in one common order of events; leave them out where there is none. */
  readonly begunAt?: number
  readonly endedAt?: number
  readonly steps: readonly HistoryStep[]
  /** It ran after all others, so what it doesn't find in a list that it read is lost. */
  readonly isFinal?: boolean
}

export type HistoryStep = ListRead | ListScan | ListAppend

export interface ListRead {
  readonly kind: 'read'
  readonly list: string
  readonly elements: readonly string[]
}

/** All lists whose names are in the range, its ends included, were read; those not found were empty. */
interface ListScan {
  readonly kind: 'scan'
  readonly first: string
  readonly last: string
  readonly found: readonly { readonly list: string; readonly elements: readonly string[] }[]
}

interface ListAppend {
  readonly kind: 'append'
  readonly list: string
  readonly element: string
  /** Later reads of the same transaction don't show it. */
  readonly isBlind?: boolean
}
