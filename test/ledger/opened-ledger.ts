import type { Annals } from '../../src/annals.ts'
import type { OpenedLedger } from '../../src/testing/ledger-suite.ts'

/** What the suite of ledgers asks for, of any database. */
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
