import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/index.ts'
import { type OpenPostgresOptions, openPostgres } from '../../src/postgres.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { expectError } from '../../src/testing/storage-suite/suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const RUN = 'run'
const TENANT = 'acme'

async function fill(db: Annals): Promise<void> {
  await db.runs.create({ runId: RUN })
  await db.kv.put(RUN, 'k', 1)
  await db.events.append(RUN, 'tick', null)
  await db.cells.init(RUN, 'c', 1)
  await db.machines.define(RUN, 'm', { initial: 'a', transitions: [{ from: 'a', event: 'go', to: 'b' }] })
  await db.traces.record(RUN, { type: 'Thought', content: 'hm' }, { id: 't' })
  await db.ledger.appendEvent(newEvent({ runId: 'told' }))
  await db.ledger.settle()
}

const WRITES: Readonly<Record<string, (db: Annals) => Promise<unknown>>> = {
  'kv.put': db => db.kv.put(RUN, 'k', 2),
  'kv.delete': db => db.kv.delete(RUN, 'k'),
  'kv.delete of nothing': db => db.kv.delete(RUN, 'none'),
  'events.append': db => db.events.append(RUN, 'tick', null),
  'events.appendBatch of nothing': db => db.events.appendBatch(RUN, []),
  'cells.init': db => db.cells.init(RUN, 'new', 1),
  'cells.cas with a wrong version': db => db.cells.cas(RUN, 'c', 7, 2),
  'cells.transition': db => db.cells.transition(RUN, 'c', ({ value }) => ({ value, result: undefined })),
  'machines.send': db => db.machines.send(RUN, 'm', 'go'),
  'traces.record': db => db.traces.record(RUN, { type: 'Thought', content: 'no' }),
  'runs.create': db => db.runs.create({ runId: 'new' }),
  'runs.complete': db => db.runs.complete(RUN),
  'runs.delete': db => db.runs.delete(RUN),
  'ledger.appendEvent': db => db.ledger.appendEvent(newEvent({ runId: 'told', eventType: 'RunPaused' })),
  'a transaction': db => db.transaction(RUN, tx => tx.kv.put('k', 2)),
  importRun: async db => {
    const other = await open({ memory: true, tenant: TENANT })
    await fill(other)
    await other.runs.create({ runId: 'brought' })
    await db.importRun(() => other.exportRun('brought')).finally(() => other.close())
  },
}

/** Every kind of read. */
async function read(db: Annals): Promise<unknown> {
  const audited = []
  for await (const { eventId } of db.ledger.audit({ from: -Infinity, to: Infinity })) audited.push(eventId)
  return {
    kv: await db.kv.entries(RUN),
    events: (await db.events.readRange(RUN, 0, 10)).length,
    cell: (await db.cells.read(RUN, 'c'))?.version,
    machine: (await db.machines.current(RUN, 'm')).state,
    traces: await db.traces.list(RUN),
    runs: await db.runs.list(),
    snapshot: (await db.ledger.getSnapshot('told'))?.status,
    audited: audited.length,
    transaction: await db.transaction(RUN, tx => tx.kv.get('k'), { readOnly: true }),
    indices: (await db.verifyIndices()).ok,
  }
}

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('readOnly and verifyOnOpen mean the same on every engine', () => {
  const schema = newSchema()
  const schemas = [schema]
  const folder = mkdtempSync(join(tmpdir(), 'annals-read-only-'))
  const openOn = (options: Partial<OpenPostgresOptions> = {}): Promise<Annals> =>
    openPostgres({ connectionString: CONNECTION_STRING, schema, tenant: TENANT, ...options })
  const ENGINES = {
    embedded: (options: { readonly readOnly?: boolean; readonly verifyOnOpen?: boolean }) =>
      open({ path: folder, tenant: TENANT, ...options }),
    postgres: openOn,
  }
  afterAll(async () => {
    for (const each of schemas) await dropSchema(each)
    rmSync(folder, { recursive: true })
  })

  test('checkWritable rejects while the server is read-only', async () => {
    await (await openOn()).close()
    const onReadOnly = new URL(CONNECTION_STRING)
    onReadOnly.searchParams.set('options', '-c default_transaction_read_only=on')
    const db = await openOn({ connectionString: onReadOnly.href })
    await expectError(db.checkWritable(), 'READ_ONLY')
    await db.close()
  })

  for (const [engine, openStore] of Object.entries(ENGINES)) {
    test(`${engine}: a store that was opened with readOnly reads everything and refuses every write`, async () => {
      const writer = await openStore({})
      await fill(writer)
      const before = await read(writer)
      await writer.close()
      const db = await openStore({ readOnly: true })
      expect(await read(db)).toEqual(before)
      for (const [name, write] of Object.entries(WRITES)) {
        await expect(write(db), name).rejects.toMatchObject({ code: 'READ_ONLY' })
      }
      expect(await read(db)).toEqual(before)
      await db.close()
    })

    test(`${engine}: readOnly and verifyOnOpen must be true or false`, async () => {
      for (const name of ['readOnly', 'verifyOnOpen']) {
        await expectError(openStore({ [name]: 'yes' }), 'INVALID_ARGUMENT')
      }
    })
  }

  test('a reader sees the writes of others and is notified of them', async () => {
    const [reader, writer] = [await openOn({ readOnly: true }), await openOn()]
    const seen: unknown[] = []
    const end = new AbortController()
    const tail = (async () => {
      for await (const { payload } of reader.events.tail('live', { signal: end.signal })) {
        seen.push(payload)
        if (seen.length === 2) end.abort()
      }
    })()
    await writer.events.append('live', 'tick', 1)
    await writer.events.append('live', 'tick', 2)
    await tail
    expect(seen).toEqual([1, 2])
    await Promise.all([reader.close(), writer.close()])
  })

  test('an audit by a reader waits for an append that is under way elsewhere', async () => {
    const reader = await openOn({ readOnly: true })
    const holder = new pg.Client({ connectionString: CONNECTION_STRING })
    await holder.connect()
    // Takes the same lock as a commit to the feed.
    await holder.query(`SET search_path = ${schema}; BEGIN`)
    await holder.query('SELECT lock_scopes(ARRAY[($1::bytea, 0, 0, true, false)::batch_tree])', [
      Buffer.from(`${TENANT}:_shared:_shared:_shared`),
    ])
    let isThrough = false
    const audit = (async () => {
      for await (const _ of reader.ledger.audit({ from: -Infinity, to: Infinity })) isThrough = true
    })()
    const locked = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%wait_for_writers%'`
    await expect.poll(async () => (await sql(locked)).rowCount).toBeGreaterThan(0)
    expect(isThrough).toBe(false)
    await holder.end()
    await audit
    expect(isThrough).toBe(true)
    await reader.close()
  })

  test('a reader does not remove expired entries', async () => {
    const writer = await openOn()
    await writer.kv.put(RUN, 'old', 1, { ttlMs: 1 })
    await writer.close()
    const count = `SELECT count(*)::integer AS n FROM ${schema}.entries WHERE expires_at > 0`
    const reader = await openOn({ readOnly: true })
    expect(await reader.kv.get(RUN, 'old')).toBeUndefined()
    await reader.close()
    expect((await sql(count)).rows).toEqual([{ n: 1 }])
  })

  test('a missing schema is refused and not created', async () => {
    const missing = newSchema()
    schemas.push(missing)
    await expect(openOn({ schema: missing, readOnly: true })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      details: { schema: missing },
    })
    const { rows } = await sql(`SELECT nspname FROM pg_namespace WHERE nspname = '${missing}'`)
    expect(rows).toEqual([])
  })

  test('an old schema is refused and stays unchanged', async () => {
    const old = newSchema()
    schemas.push(old)
    await (await openOn({ schema: old })).close()
    await sql(`DELETE FROM ${old}.migrations WHERE number = (SELECT max(number) FROM ${old}.migrations)`)
    const before = await sql(`SELECT * FROM ${old}.migrations ORDER BY number`)
    await expectError(openOn({ schema: old, readOnly: true }), 'FORMAT_TOO_OLD')
    expect((await sql(`SELECT * FROM ${old}.migrations ORDER BY number`)).rows).toEqual(before.rows)
  })

  test('P13: verifyOnOpen finds an event that was changed directly in the table', async () => {
    const changed = newSchema()
    schemas.push(changed)
    const db = await openOn({ schema: changed })
    await fill(db)
    await db.close()
    await (await openOn({ schema: changed, verifyOnOpen: true })).close()
    // A superuser can bypass every trigger.
    await sql(
      `SET session_replication_role = replica; UPDATE "${changed}".events SET body = body || '\\x20'::bytea`,
    )
    for (const readOnly of [false, true]) {
      await expectError(openOn({ schema: changed, verifyOnOpen: true, readOnly }), 'EVENT_CHAIN_BROKEN')
    }
    await (await openOn({ schema: changed })).close()
  })
})
