import { type Annals, open } from '../../src/annals.ts'
import type { ByteString } from '../../src/core/bytes.ts'
import { AnnalsError, type ErrorCode } from '../../src/core/errors.ts'
import type { Database } from '../../src/engine/database.ts'
import { resolveScope, tenantShared } from '../../src/engine/keys.ts'
import type { LedgerContext } from '../../src/ledger/context.ts'
import { LedgerMetrics } from '../../src/ledger/metrics.ts'
import { createProducer, type Producer, type ProducerOptions } from '../../src/ledger/producer.ts'
import { RunScopes } from '../../src/primitives/run-scopes.ts'
import { PLAN, RUN } from '../../src/testing/ledger-suite/events.ts'

/** Ledgers in memory, for unit tests of their parts. */

export async function withDb(work: (db: Annals) => Promise<void>): Promise<void> {
  await using db = await open({ memory: true })
  await work(db)
}

/** A producer for `RUN` that retries without a pause. */
export function producerOf(db: Annals, options: Partial<ProducerOptions> = {}): Producer {
  return createProducer({
    store: db.ledger,
    registry: db.ledger.registry,
    runId: RUN,
    ...PLAN,
    retry: { sleep: async () => {}, random: () => 0 },
    ...options,
  })
}

/** The event types of the records of `RUN`, in order. */
export async function typesIn(db: Annals): Promise<string[]> {
  return (await db.ledger.fetchEvents(RUN)).map(({ eventType }) => eventType)
}

/** The error code of a rejected promise; undefined if it is fulfilled. */
export async function codeOf(attempt: Promise<unknown>): Promise<ErrorCode | undefined> {
  return attempt.then(
    () => undefined,
    (error: unknown) => (error instanceof AnnalsError ? error.code : Promise.reject(error)),
  )
}

export function scopeOf(runId: string): ByteString {
  return resolveScope('default', runId)
}

/** The context of a ledger over this database. */
export function contextOver(database: Database): LedgerContext {
  return {
    database,
    tenant: 'default',
    shared: resolveScope('default', tenantShared({ tenant: 'default' })),
    scopes: new RunScopes('default', resolveScope('default', tenantShared({ tenant: 'default' })), scope =>
      resolveScope('default', scope),
    ),
    metrics: new LedgerMetrics(),
    validateTransitions: false,
  }
}
