import { randomUUID } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { deriveIdempotencyKey } from '../../src/ledger/idempotency-key.ts'
import type { LedgerAlert } from '../../src/ledger/run-events.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from './schema.ts'

const EVENTS = 300

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('the ledgers of several processes on one PostgreSQL', () => {
  const schemas: string[] = []
  afterAll(async () => {
    for (const schema of schemas) await dropSchema(schema)
  })

  async function openTwo(): Promise<[Annals, Annals]> {
    const schema = newSchema()
    schemas.push(schema)
    const one = await openPostgres({ connectionString: CONNECTION_STRING, schema })
    return [one, await openPostgres({ connectionString: CONNECTION_STRING, schema })]
  }

  function append({ ledger }: Annals, runId: string, stepId?: string): Promise<unknown> {
    const kind = stepId === undefined ? { eventType: 'RunStarted' } : { eventType: 'StepStarted', stepId }
    const fields = {
      ...{ tenantId: 't', projectId: 'p', environmentId: 'e', planId: 'plan', planVersion: '1' },
      ...{ runId, logicalAttemptId: 1, engineAttemptId: 1, emittedAt: '2026-01-28T00:00:00.000Z' },
      ...kind,
    } as const
    const idempotencyKey = deriveIdempotencyKey(fields)
    return ledger.appendEvent({ ...fields, eventId: randomUUID(), idempotencyKey })
  }
  const projected = (db: Annals): number => db.stats().ledger.projector.projected
  const lastSeq = async (db: Annals, runId: string): Promise<number | undefined> =>
    (await db.ledger.getSnapshot(runId))?.lastEventSeq

  test('each record is projected once, by the process that appended it', async () => {
    const [writer, watcher] = await openTwo()
    await append(writer, 'run')
    // Both follow the feed from here on.
    await expect.poll(() => lastSeq(watcher, 'run')).toBe(1)
    for (let i = 0; i < EVENTS; i++) await append(writer, 'run', `step-${i}`)
    await expect.poll(() => lastSeq(watcher, 'run'), { timeout: 10_000 }).toBe(EVENTS + 1)
    expect(projected(writer) + projected(watcher)).toBe(EVENTS + 1)
    expect(projected(writer)).toBeGreaterThan(0.8 * EVENTS)
    await Promise.all([writer.close(), watcher.close()])
  }, 60_000)

  test('every process hears of every alert once and in the same order', async () => {
    const schema = newSchema()
    schemas.push(schema)
    const heard: string[][] = [[], []]
    const handles: Annals[] = []
    for (const own of heard) {
      const onAlert = ({ runId, stepId }: LedgerAlert): void => void own.push(`${runId}/${stepId}`)
      handles.push(await openPostgres({ connectionString: CONNECTION_STRING, schema, ledger: { onAlert } }))
    }
    const [one, other] = handles
    // A step cannot start before its run, so each of these raises an alert.
    const RUNS = 20
    for (let step = 0; step < 3; step++) {
      const appends = Array.from({ length: RUNS }, (_, i) =>
        append(i % 2 === 0 ? one : other, `run-${i}`, `s${step}`),
      )
      await Promise.all(appends)
      // Both at once, but only one of them can store the state of a run.
      await Promise.all(handles.map(db => db.ledger.projectSnapshot('run-0')))
    }
    for (const own of heard) await expect.poll(() => own.length, { timeout: 20_000 }).toBe(3 * RUNS)
    expect(heard[0]).toEqual(heard[1])
    expect(new Set(heard[0]).size).toBe(3 * RUNS)
    await Promise.all(handles.map(db => db.close()))
  }, 60_000)

  test('another process projects the records of one that has died', async () => {
    const [writer, watcher] = await openTwo()
    await append(writer, 'run')
    await expect.poll(() => lastSeq(watcher, 'run')).toBe(1)
    for (let i = 0; i < 10; i++) await append(writer, 'run', `step-${i}`)
    await writer.close()
    await expect.poll(() => lastSeq(watcher, 'run'), { timeout: 10_000 }).toBe(11)
    await watcher.close()
  }, 60_000)
})
