import type { ByteString } from '../core/bytes.ts'
import type { Database } from '../engine/database.ts'
import type { RunScopes } from '../primitives/run-scopes.ts'
import type { LedgerMetrics } from './metrics.ts'
import type { LedgerAlert } from './run-events.ts'

/** Hears of each alert. What it throws, or rejects with, becomes a process warning. */
export type OnAlert = (alert: LedgerAlert) => unknown

/** What the parts of a ledger share. */
export interface LedgerContext {
  readonly database: Database
  readonly tenant: string
  /** What the tenant's runs share: the index of runs, and the feed. */
  readonly shared: ByteString
  /** Where its runs live. */
  readonly scopes: RunScopes
  readonly metrics: LedgerMetrics
  readonly validateTransitions: boolean
  /** Called for each alert that is raised while the store is open. */
  readonly onAlert?: OnAlert | undefined
}
