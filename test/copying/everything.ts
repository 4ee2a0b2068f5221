import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import {
  type Annals,
  agentShared,
  createProducer,
  deriveIdempotencyKey,
  namespace,
  type RunEventRecord,
} from '../../src/index.ts'

/** Writes data of every kind that a store can hold. */
export async function fill(db: Annals): Promise<void> {
  const { tenant } = db
  await db.runs.create({ runId: 'parent', tags: ['x'], metadata: { deep: [1, { a: 2n }] } })
  await db.runs.create({ runId: 'child', parentRun: 'parent' })
  await db.runs.create({ runId: 'gone' })
  await db.runs.delete('gone', { reason: 'to leave a tombstone' })
  for (let i = 0; i < 50; i++) await db.kv.put('parent', `key-${i}`, { i, bytes: new Uint8Array([i]) })
  await db.kv.put('parent', 'short', 1, { ttlMs: 3_600_000 })
  await db.kv.put(agentShared({ tenant, app: 'app', agent: 'agent' }), 'shared', 'é')
  await db.kv.put(namespace({ tenant, app: 'a:b', agent: '%', run: 'r' }), 'k', null)
  for (let i = 0; i < 30; i++) await db.events.append('child', i % 2 === 0 ? 'even' : 'odd', { i })
  await db.cells.init('parent', 'cell', 1)
  for (let i = 0; i < 4; i++) await db.cells.set('parent', 'cell', i)
  await db.machines.define('parent', 'm', {
    initial: 'a',
    transitions: [{ from: 'a', event: 'go', to: 'b' }],
  })
  await db.machines.send('parent', 'm', 'go')
  const root = await db.traces.record('parent', { type: 'Thought', content: 'hm' }, { tags: ['t'] })
  await db.traces.recordChild('parent', root, {
    type: 'Query',
    queryType: 'sql',
    query: 'x',
    resultsCount: 1,
  })
  const ledger2 = namespace({ tenant, app: 'research', agent: 'critic', run: 'ledger-2' })
  await db.runs.create({ runId: ledger2, tags: ['elsewhere'] })
  await db.kv.put(ledger2, 'k', 'of the run')
  for (const runId of ['ledger-1', 'ledger-2', 'purged']) await tell(db, runId)
  await db.runs.delete('purged', { purgeLedger: true, reason: 'asked to' })
  await db.ledger.acquireLease('ledger-1', { owner: 'w', ttlMs: 1 })
}

async function tell(db: Annals, runId: string): Promise<void> {
  const heading = {
    tenantId: db.tenant,
    projectId: 'p',
    environmentId: 'e',
    planId: 'plan',
    planVersion: '1',
  }
  const producer = createProducer({ store: db.ledger, registry: db.ledger.registry, runId, ...heading })
  await producer.runStarted()
  for (const step of ['a', 'b', 'c']) {
    await producer.stepStarted(step)
    await producer.stepFailed(step, new Error('not yet'))
    await producer.stepStarted(step)
    await producer.stepCompleted(step, { output: randomUUID() })
  }
  await producer.runCompleted()
  // No transition allows this event, so it raises an alert.
  const [first] = await db.ledger.fetchEvents(runId)
  const { runSeq: _, persistedAt: __, ...again } = first
  const late = { ...again, eventId: randomUUID(), logicalAttemptId: 2 }
  await db.ledger.appendEvent({ ...late, idempotencyKey: deriveIdempotencyKey(late) })
}

/** All visible data, except the versions of entries. */
export async function contentsOf(db: Annals): Promise<unknown> {
  const { tenant } = db
  const audited: RunEventRecord[] = []
  for await (const record of db.ledger.audit({ from: 0, to: Date.now() + 60_000 })) audited.push(record)
  const ledgerRuns = ['ledger-1', 'ledger-2']
  const snapshots = []
  for (const runId of ledgerRuns) snapshots.push(await db.ledger.projectSnapshot(runId))
  // Queried after the projections, because they update the status.
  const runs = await db.runs.query({ includeArchived: true })
  return {
    runs,
    scopes: (await db.scopes()).map(String),
    elsewhere: await db.kv.entries(namespace({ tenant, app: 'research', agent: 'critic', run: 'ledger-2' })),
    tombstones: await db.runs.tombstones(),
    kv: await db.kv.entries('parent'),
    shared: await db.kv.entries(agentShared({ tenant, app: 'app', agent: 'agent' })),
    odd: await db.kv.entries(namespace({ tenant, app: 'a:b', agent: '%', run: 'r' })),
    events: await db.events.readRange('child', 0, Number.POSITIVE_INFINITY),
    updated: await updateTimes(db),
    cell: await db.cells.read('parent', 'cell'),
    machine: await db.machines.current('parent', 'm'),
    definition: await db.machines.definition('parent', 'm'),
    traces: await db.traces.queryByTime('parent', 0, Date.now() + 60_000),
    records: await Promise.all(ledgerRuns.map(runId => db.ledger.fetchEvents(runId))),
    snapshots,
    alerts: await db.ledger.alerts(),
    audited,
  }
}

/** The time of each key, as readers see it. */
async function updateTimes(db: Annals): Promise<unknown> {
  const times: Record<string, number | undefined> = {}
  for (const key of await db.kv.list('parent')) {
    times[key] = (await db.kv.getVersioned('parent', key))?.updatedAt
  }
  return times
}

/** Verifies all indexes and chains. */
export async function verify(db: Annals): Promise<void> {
  expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  expect(await db.events.verifyChain('child')).toEqual({ isValid: true, length: 30 })
  for (const runId of ['ledger-1', 'ledger-2']) {
    expect(await db.ledger.verifyRun(runId)).toEqual({ isValid: true, events: 15 })
  }
}

/** Checks that a copied store accepts more events and detects duplicates of copied ones. */
export async function goOn(db: Annals): Promise<void> {
  const [first] = await db.ledger.fetchEvents('ledger-1')
  const { runSeq, persistedAt, ...again } = first
  expect(await db.ledger.appendEvent(again)).toEqual({
    eventId: first.eventId,
    runSeq,
    persistedAt,
    idempotent: true,
    persisted: false,
  })
  expect((await db.events.append('child', 'more', 1)).sequence).toBe(30)
  expect(await db.cells.set('parent', 'cell', 9)).toBe(6)
}
