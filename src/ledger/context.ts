import type { ByteString } from '../core/bytes.ts'
import type { Database } from '../engine/database.ts'
import type { LedgerMetrics } from './metrics.ts'

/** What the parts of a ledger share. */
export interface LedgerContext {
  readonly database: Database
  readonly tenant: string
  /** What the tenant's runs share: the index of runs, and the feed. */
  readonly shared: ByteString
  scopeOf(runId: string): ByteString
  readonly metrics: LedgerMetrics
  readonly validateTransitions: boolean
}
