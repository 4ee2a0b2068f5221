/**
 * A nightly import that keeps a ledger. Its power goes in the middle of a step;
 * started again, it finds its run and goes on, and no event is there twice.
 *
 *   npm install annals
 *   node ledger.ts ./books               (Node 22.18 or later; else: npx tsx ledger.ts ./books)
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

// ── Has it been here before? ─────────────────────────────────────────────────────────────────────────────────────────
const before = await ledger.getSnapshot(runId)
console.log(before === null ? 'a new run' : `a run that is ${before.status}`)

// ── One writer at a time: whoever had the run before is fenced off from here on ──────────────────────────────────────
const { epoch } = await ledger.acquireLease(runId, { owner: `worker-${process.pid}`, ttlMs: 30_000 })

// ── The producer: ids, keys, order, retries. With `replay` the program simply runs again from its beginning: ─────────
//    what the ledger knows already is answered from there.
const run = createProducer({ ...plan, store: ledger, registry: ledger.registry, runId, epoch, replay: true })
await run.runStarted({ source: 'orders.csv' })

for (const step of ['fetch', 'parse', 'store']) {
  const { idempotent } = await run.stepStarted(step)
  // ... the work itself ...
  if (before === null && step === 'parse') {
    console.log('the power goes, in the middle of parse')
    process.exit()
  }
  await run.stepCompleted(step)
  console.log(idempotent ? `${step} had begun before` : `${step} is done`)
}
await run.runCompleted()

// ── An event that is sent twice, by whomever, is stored once ─────────────────────────────────────────────────────────
const [first] = await ledger.fetchEvents(runId)
const { runSeq, persistedAt, ...sent } = first
const again = await ledger.appendEvent(sent)
console.log(`sent again: persisted is ${again.persisted}, and it is still number ${again.runSeq}`)

// ── What the events come to: now, and as of any of them ──────────────────────────────────────────────────────────────
const snapshot = await ledger.projectSnapshot(runId)
console.log(
  `${snapshot.status}: ${snapshot.steps.map(({ stepId, status }) => `${stepId} ${status}`).join(', ')}`,
)
const earlier = await ledger.replaySnapshot(runId, { atSeq: 3 })
console.log(`after three events it was ${earlier.status}, with ${earlier.steps.length} step`)

// ── An event that may not be: it is kept, changes nothing, and raises an alert ───────────────────────────────────────
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
console.log(`the run is ${status}, and ${consistency}`)
for (const alert of await ledger.alerts({ runId }))
  console.log(`alert: ${alert.eventType}, but ${alert.reason}`)

// ── For the auditor: everything that was stored within a time, and the proof that nobody touched it ──────────────────
const day = 86_400_000
for await (const record of ledger.audit({ tenantId: 'acme', from: Date.now() - day, to: Date.now() + day })) {
  console.log(`  ${record.runSeq} ${record.eventType} ${record.stepId ?? ''} ${record.eventId}`)
}
const { isValid, events } = await ledger.verifyRun(runId)
console.log(isValid ? `nobody touched these ${events} events` : 'somebody touched them')
await db.close()
