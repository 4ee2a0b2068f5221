import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { openPostgres } from '../../src/postgres.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent } from '../ledger/run-event.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('views for people', () => {
  const schema = newSchema()
  const role = `${schema}_reader`
  const random = new Random(1)
  let db: Annals

  beforeAll(async () => {
    db = await openPostgres({ connectionString: CONNECTION_STRING, schema, tenant: 'acme' })
    await sql(`CREATE ROLE ${role} LOGIN; SELECT ${schema}.grant_access('${role}', 'acme')`)
    for (const tenant of ['acme', 'other: 100%']) {
      const handle = db.forTenant(tenant)
      await handle.runs.create({ runId: 'run:1', tags: ['x'] })
      await handle.events.append('run:1', 'ping ü', { text: 'zero \0 and ü', n: 1 })
      await handle.events.append('run:1', 'pong', null)
      for (const eventType of ['RunQueued', 'RunStarted', 'RunStarted']) {
        await handle.ledger.appendEvent(
          newEvent(random, { tenantId: tenant, runId: 'run-2', eventType, payload: { eventType } }),
        )
      }
      await handle.ledger.projectSnapshot('run-2')
      await handle.traces.record('run:1', { type: 'Thought', content: 'hm' }, { id: 'trace-1' })
      const metadata = { z: Uint8Array.of(0, 255, 34), a: Uint8Array.of(10), text: 'ü' }
      await handle.traces.record('bytes', { type: 'Thought', content: 'ü' }, { id: 'trace-2', metadata })
      await handle.runs.create({ runId: 'bytes', metadata })
    }
  })
  afterAll(async () => {
    await db?.close()
    await dropSchema(schema)
    await sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  })

  const rowsOf = async (text: string, connectionString = CONNECTION_STRING): Promise<unknown[]> =>
    (
      (await sql(`SET search_path = ${schema}; ${text}`, connectionString)) as unknown as {
        rows: unknown[]
      }[]
    )[1].rows

  test('runs shows the tenant, the id and the status', async () => {
    expect(
      await rowsOf("SELECT tenant, run_id, status, record FROM runs WHERE run_id = 'run:1' ORDER BY tenant"),
    ).toMatchObject([
      { tenant: 'acme', run_id: 'run:1', record: { tags: ['x'] } },
      { tenant: 'other: 100%', run_id: 'run:1', record: { tags: ['x'] } },
    ])
  })

  test('logged_events shows the type, payload and hashes of the API', async () => {
    const rows = await rowsOf("SELECT * FROM logged_events WHERE tenant = 'acme' ORDER BY sequence")
    const events = await db.events.readRange('run:1', 0, 10)
    expect(rows).toMatchObject(
      events.map(({ sequence, type, payload, hash, prevHash }) => ({
        run_id: 'run:1',
        sequence: String(sequence),
        type,
        payload,
        hash,
        prev_hash: prevHash,
      })),
    )
  })

  test('run_events, snapshots and alerts show what the ledger stores', async () => {
    const records = await rowsOf("SELECT * FROM run_events WHERE tenant = 'acme' ORDER BY run_seq")
    expect(records).toMatchObject([
      { run_id: 'run-2', run_seq: '1', event_type: 'RunQueued', event: { planId: 'nightly' } },
      { run_id: 'run-2', run_seq: '2', event_type: 'RunStarted' },
    ])
    expect(await rowsOf("SELECT run_id, state FROM snapshots WHERE tenant = 'acme'")).toMatchObject([
      { run_id: 'run-2', state: { status: 'RUNNING' } },
    ])
  })

  test('traces shows recorded traces', async () => {
    expect(
      await rowsOf(
        "SELECT tenant, run_id, trace_id, trace FROM traces WHERE tenant = 'acme' AND run_id = 'run:1'",
      ),
    ).toMatchObject([{ run_id: 'run:1', trace_id: 'trace-1', trace: { trace: { content: 'hm' } } }])
  })

  test('P28: values with bytes are shown with the number of bytes', async () => {
    const shown = { z: '\0r3', a: '\0r1', text: 'ü' }
    const [{ trace }] = (await rowsOf(
      "SELECT trace FROM traces WHERE tenant = 'acme' AND run_id = 'bytes'",
    )) as [{ readonly trace: { readonly metadata: object } }]
    expect(trace).toMatchObject({ trace: { content: 'ü' }, metadata: shown })
    expect(Object.keys(trace.metadata)).toEqual(['z', 'a', 'text'])
    expect(await rowsOf("SELECT record FROM runs WHERE tenant = 'acme' AND run_id = 'bytes'")).toMatchObject([
      { record: { metadata: shown } },
    ])
    const damaged = ["'\\x00'", "'\\x0000000002'", "'\\x00ffffffff7b7d00'", "'\\x007fffffff7b7d00'", "''"]
    for (const bytes of damaged) {
      expect(await rowsOf(`SELECT as_json(${bytes}::bytea) AS json`)).toEqual([{ json: null }])
    }
  })

  test('every view shows a bound role only its own tenant', async () => {
    const url = new URL(CONNECTION_STRING)
    url.username = role
    for (const view of ['runs', 'run_events', 'logged_events', 'traces', 'snapshots', 'alerts']) {
      const all = await rowsOf(`SELECT DISTINCT tenant FROM ${view}`)
      const own = await rowsOf(`SELECT DISTINCT tenant FROM ${view}`, url.href)
      expect(own).toEqual(all.length === 0 ? [] : [{ tenant: 'acme' }])
    }
  })
})
