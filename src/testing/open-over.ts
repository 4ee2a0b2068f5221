import type { Annals, OpenOptions } from 'annals'
import { openedOver } from '../annals.ts'
import type { Storage } from '../engine/storage.ts'

/**
 * Opens a database over a storage engine of your own, so that `testAnnals` and `testLedger` can run on it. Closing the
 * database closes the storage; if an option is invalid, the storage is closed too.
 */
export function openOver(
  storage: Storage,
  options: Pick<OpenOptions, 'guards' | 'tenant' | 'ledger' | 'verifyOnOpen'> = {},
): Promise<Annals> {
  return openedOver({ storage }, options)
}
