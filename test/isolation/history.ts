/**
 * The reads and writes of one transaction in a concurrent history. Transactions read lists and append elements, each of
 * them unique. Records are plain data, so that histories of several processes can be merged.
 */
export interface TransactionRecord {
  readonly id: string
  /** `unknown` if the answer was lost. The transaction counts as committed if another one has read its elements. */
  readonly outcome: 'committed' | 'aborted' | 'unknown'
  /** Positions in a total order of events; undefined if there is none. */
  readonly begunAt?: number
  readonly endedAt?: number
  readonly steps: readonly HistoryStep[]
  /** Whether it ran after all others. Elements that are missing in its reads are lost. */
  readonly isFinal?: boolean
}

export type HistoryStep = ListRead | ListScan | ListAppend

export interface ListRead {
  readonly kind: 'read'
  readonly list: string
  readonly elements: readonly string[]
}

/** A read of all lists with names from `first` to `last`, both included. Lists that are not in `found` were empty. */
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
  /** Whether later reads in the same transaction do not show it. */
  readonly isBlind?: boolean
}
