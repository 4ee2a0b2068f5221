import type { Annals } from '../../src/annals.ts'
import type { OpenedLedger } from '../../src/testing/ledger-suite.ts'

/** The view of a database that the ledger suite tests. */
export function openedOf(db: Annals): OpenedLedger {
  return {
    ledger: db.ledger,
    runs: db.runs,
    registry: db.ledger.registry,
    forTenant: tenant => db.forTenant(tenant).ledger,
    stats: async () => db.stats().ledger,
    close: () => db.close(),
  }
}
