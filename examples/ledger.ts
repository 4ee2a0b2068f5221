/**
 * A nightly import that records its steps in the ledger. Its first run dies in the middle of a step. The second one finds the
 * run and continues, and no event is stored twice.
 *
 *   npm install annals
 *   node ledger.ts ./books               (Node 22.18 or later; before: npx tsx ledger.ts ./books)
 */
import { createProducer, deriveIdempotencyKey, open, type RunEventWrite } from 'annals'

const db = await open({ path: process.argv[2] ?? './books' })
const { ledger } = db
const runId = 'import-2025-06-15'
const plan = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'prod',
  planId: 'import',
  planVersion: '3',
}

// ── Does the run exist? ──────────────────────────────────────────────────────────────────────────────────────────────
const before = await ledger.getSnapshot(runId)
console.log(before === null ? 'a new run' : `a run that is ${before.status}`)

// ── A lease: one writer at a time. From here on, an earlier writer is refused ────────────────────────────────────────
const { epoch } = await ledger.acquireLease(runId, { owner: `worker-${process.pid}`, ttlMs: 30_000 })

// ── The producer makes ids and keys, keeps the order, and retries ────────────────────────────────────────────────────
// With `replay`, the program runs again from its beginning, and events that are stored already are not sent again.
const run = createProducer({ ...plan, store: ledger, registry: ledger.registry, runId, epoch, replay: true })
await run.runStarted({ source: 'orders.csv' })

for (const step of ['fetch', 'parse', 'store']) {
  const { idempotent } = await run.stepStarted(step)
  // ... the work of the step ...
  if (before === null && step === 'parse') {
    console.log('the process dies in the middle of parse')
    process.exit()
  }
  await run.stepCompleted(step)
  console.log(idempotent ? `${step} is done; it had started before` : `${step} is done`)
}
await run.runCompleted()

// ── An event that is sent twice is stored once ───────────────────────────────────────────────────────────────────────
const [first] = await ledger.fetchEvents(runId)
const { runSeq, persistedAt, ...sent } = first
const again = await ledger.appendEvent(sent)
console.log(`sent again: persisted is ${again.persisted}, the record is still number ${again.runSeq}`)

// ── Snapshots: the state of the run now, and after any record ────────────────────────────────────────────────────────
const snapshot = await ledger.projectSnapshot(runId)
console.log(
  `${snapshot.status}: ${snapshot.steps.map(({ stepId, status }) => `${stepId} ${status}`).join(', ')}`,
)
const earlier = await ledger.replaySnapshot(runId, { atSeq: 3 })
console.log(`after three records it was ${earlier.status}, with ${earlier.steps.length} step`)

// ── An event that no transition allows is stored, changes no state, and raises an alert ──────────────────────────────
const identity = { ...plan, runId, eventType: 'RunPaused', logicalAttemptId: 1 }
const bad: RunEventWrite = {
  ...identity,
  eventId: '6f1c2b7e-8d0f-4b7a-9f5e-2a1d3c4b5e6f',
  idempotencyKey: deriveIdempotencyKey(identity),
  engineAttemptId: 1,
  emittedAt: new Date().toISOString(),
}
await ledger.appendEvent(bad, { epoch })
const { status, consistency } = await ledger.projectSnapshot(runId)
console.log(`the run is ${status} and ${consistency}`)
for (const alert of await ledger.alerts({ runId }))
  console.log(`alert: ${alert.eventType}, but ${alert.reason}`)

// ── For the auditor: the records of a time window, and their verification ────────────────────────────────────────────
const day = 86_400_000
for await (const record of ledger.audit({ tenantId: 'acme', from: Date.now() - day, to: Date.now() + day })) {
  console.log(`  ${record.runSeq} ${record.eventType} ${record.stepId ?? ''} ${record.eventId}`)
}
const { isValid, events } = await ledger.verifyRun(runId)
console.log(isValid ? `the hash chain of ${events} records is intact` : 'the hash chain is broken')
await db.close()
