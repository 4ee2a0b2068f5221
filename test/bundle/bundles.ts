import { setTimeout as sleep } from 'node:timers/promises'
import { type Annals, createProducer, type RunHeading, type Scope } from '../../src/index.ts'

/** Runs for bundles. */

const HEADING: Omit<RunHeading, 'runId'> = {
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  planId: 'nightly',
  planVersion: '3',
}

/** Creates a run with an index entry, an event log, steps, a failure and an invalid event. */
export async function addRun(db: Annals, run: Scope, steps = 1): Promise<void> {
  await db.runs.create({ runId: run, tags: ['nightly'], metadata: { big: 2n ** 60n, nothing: Number.NaN } })
  await db.events.append(run, 'note', { text: 'ünïcödé \u0000', bytes: new Uint8Array([1, 2, 3]) })
  await db.events.append(run, 'nöte', null)
  await addRecords(db, typeof run === 'string' ? run : run.run, steps)
}

export async function addRecords(db: Annals, runId: string, steps: number): Promise<void> {
  const producer = createProducer({ ...HEADING, store: db.ledger, registry: db.ledger.registry, runId })
  await producer.runStarted({ ключ: ['v', { deep: true }] })
  for (let n = 0; n < steps; n++) {
    await producer.stepStarted(`step-${n}`)
    await producer.stepFailed(`step-${n}`, { code: 'BAD', message: 'no', retryable: true })
    // The records must not all have the same millisecond.
    if (n < 3) await sleep(2)
    await producer.stepStarted(`step-${n}`)
    await producer.stepCompleted(`step-${n}`, { rows: n })
  }
  await producer.runCompleted()
  await db.ledger.projectSnapshot(runId)
}

export async function bytesOf(bundle: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of bundle) chunks.push(chunk)
  return Buffer.concat(chunks)
}

export async function* chunked(bytes: Uint8Array, size = 1_000): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

export async function auditedIds(
  db: Annals,
  from = 0,
  to: number = Number.MAX_SAFE_INTEGER,
): Promise<readonly string[]> {
  const ids: string[] = []
  for await (const { runId, runSeq } of db.ledger.audit({ from, to })) ids.push(`${runId}/${runSeq}`)
  return ids
}
