import type { ByteString } from '../core/bytes.ts'
import type { Database } from '../engine/database.ts'
import type { RunScopes } from '../primitives/run-scopes.ts'
import type { LedgerMetrics } from './metrics.ts'
import type { LedgerAlert } from './run-events.ts'

/** A function that is called with each alert. If it throws or rejects, Annals emits a process warning. */
export type OnAlert = (alert: LedgerAlert) => unknown

/** The objects that the parts of a ledger share. */
export interface LedgerContext {
  readonly database: Database
  readonly tenant: string
  /** The scope that the tenant's runs share: it holds the index of runs and the feed. */
  readonly shared: ByteString
  /** Finds the scope in which a run lives. */
  readonly scopes: RunScopes
  readonly metrics: LedgerMetrics
  readonly validateTransitions: boolean
  /** Called for each alert that is raised while the store is open. */
  readonly onAlert?: OnAlert | undefined
}
