import { afterEach, describe, expect, test } from 'vitest'
import { TAGS } from '../../src/engine/keys.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { expectError } from '../../src/testing/storage-suite/suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('migrations on PostgreSQL', () => {
  const schemas: string[] = []
  const schemaOfTest = (name = newSchema()): string => {
    schemas.push(name)
    return name
  }
  afterEach(async () => {
    for (const schema of schemas.splice(0)) await dropSchema(schema)
  })
  const open = (schema: string): ReturnType<typeof openPostgresStorage> =>
    openPostgresStorage({ connectionString: CONNECTION_STRING, schema })

  test('if eight processes open an empty database at once, one migrates and all work', async () => {
    const schema = schemaOfTest()
    const storages = await Promise.all(Array.from({ length: 8 }, () => open(schema)))
    await Promise.all(
      storages.map((storage, i) =>
        storage.commit({ operations: [{ op: 'put', scope: 's', tag: TAGS.kv, key: `${i}`, value: '' }] }),
      ),
    )
    expect(await storages[0].scan({ scope: 's', tag: TAGS.kv })).toHaveLength(8)
    for (const storage of storages) await storage.close()
    const { rows } = await sql(
      `SELECT number, count(DISTINCT applied_at) FROM ${schema}.migrations GROUP BY 1`,
    )
    expect(rows.length).toBeGreaterThan(2)
    const { rows: moments } = await sql(`SELECT DISTINCT applied_at FROM ${schema}.migrations`)
    expect(moments).toHaveLength(1)
  })

  test('opening a current schema changes nothing', async () => {
    const schema = schemaOfTest()
    await (await open(schema)).close()
    const before = await sql(`SELECT * FROM ${schema}.migrations ORDER BY number`)
    await (await open(schema)).close()
    expect((await sql(`SELECT * FROM ${schema}.migrations ORDER BY number`)).rows).toEqual(before.rows)
  })

  test('a schema newer than this version is FORMAT_TOO_NEW and stays unchanged', async () => {
    const schema = schemaOfTest()
    await (await open(schema)).close()
    await sql(`INSERT INTO ${schema}.migrations (number, name, hash) VALUES (9999, '9999_future.sql', 'x')`)
    await expectError(open(schema), 'FORMAT_TOO_NEW')
    expect((await sql(`SELECT * FROM ${schema}.migrations WHERE number = 9999`)).rows).toHaveLength(1)
  })

  test('a migration that differs from the applied one is CORRUPT', async () => {
    const schema = schemaOfTest()
    await (await open(schema)).close()
    await sql(`UPDATE ${schema}.migrations SET hash = 'other' WHERE number = 1`)
    await expectError(open(schema), 'CORRUPT')
  })

  test('a migration that fails leaves nothing behind', async () => {
    const schema = schemaOfTest()
    // The view has the name of a table.
    await sql(`CREATE SCHEMA ${schema}; CREATE VIEW ${schema}.events AS SELECT 1`)
    await expectError(open(schema), 'IO_ERROR')
    const { rows } = await sql(`SELECT relname FROM pg_class WHERE relnamespace = '${schema}'::regnamespace`)
    expect(rows).toEqual([{ relname: 'events' }])
  })

  test('a schema may have any name', async () => {
    const schema = schemaOfTest(`an "odd" Name's ${Date.now()}`)
    const storage = await open(schema)
    await storage.commit({ operations: [{ op: 'put', scope: 's', tag: TAGS.kv, key: 'k', value: '1' }] })
    expect((await storage.get('s', TAGS.kv, 'k'))?.value).toBe('1')
    await storage.close()
  })

  test('two schemas of one database are two stores', async () => {
    const [a, b] = [await open(schemaOfTest()), await open(schemaOfTest())]
    await a.commit({ operations: [{ op: 'put', scope: 's', tag: TAGS.kv, key: 'k', value: '1' }] })
    expect(await b.get('s', TAGS.kv, 'k')).toBeUndefined()
    await a.close()
    await b.close()
  })
})
