import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import type { PostgresStore } from '../../src/postgres/postgres-store.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const TAG = 1
const SCOPE = 'sweep'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('expired entries are removed from PostgreSQL', () => {
  const schemas: string[] = []
  afterAll(async () => {
    for (const schema of schemas) await dropSchema(schema)
  })

  async function opened(
    options: { clock?: () => number; sweepMs?: number } = {},
  ): Promise<{ storage: PostgresStore; schema: string }> {
    const schema = newSchema()
    schemas.push(schema)
    return {
      schema,
      storage: await openPostgresStorage({ connectionString: CONNECTION_STRING, schema, ...options }),
    }
  }

  const put = (storage: PostgresStore, key: string, expiresAt: number, value = 'value'): Promise<unknown> =>
    storage.commit({ operations: [{ op: 'put', scope: SCOPE, tag: TAG, key, value, expiresAt }] })
  const keysIn = async (schema: string): Promise<string[]> => {
    const { rows } = await sql(`SELECT convert_from(key, 'UTF8') AS key FROM ${schema}.entries ORDER BY key`)
    return rows.map(({ key }) => key as string)
  }

  test('a sweep removes at most the given number of expired entries, and no others', async () => {
    let now = 1_000
    const { storage, schema } = await opened({ clock: () => now })
    for (let i = 0; i < 5; i++) await put(storage, `old-${i}`, 2_000 + i)
    await put(storage, 'later', 9_000)
    await put(storage, 'never', 0)
    expect(await storage.sweep(10)).toBe(0)
    await put(storage, 'now', 0)
    now = 5_000
    expect(await storage.sweep(2)).toBe(2)
    expect(await keysIn(schema)).toEqual(['later', 'never', 'now', 'old-2', 'old-3', 'old-4'])
    expect(await storage.sweep(10)).toBe(3)
    expect(await storage.sweep(10)).toBe(0)
    expect(await keysIn(schema)).toEqual(['later', 'never', 'now'])
    await storage.close()
  })

  test('a snapshot taken before the sweep still sees the entries', async () => {
    let now = 1_000
    const { storage } = await opened({ clock: () => now })
    await put(storage, 'old', 2_000)
    const snapshot = await storage.snapshot()
    now = 3_000
    await put(storage, 'other', 0)
    expect(await storage.sweep(10)).toBe(1)
    expect((await snapshot.get(SCOPE, TAG, 'old'))?.value).toBe('value')
    expect(await storage.get(SCOPE, TAG, 'old')).toBeUndefined()
    snapshot.release()
    await storage.close()
  })

  test('a sweep skips a row that is being written', async () => {
    let now = 1_000
    const { storage, schema } = await opened({ clock: () => now })
    await put(storage, 'rewritten', 2_000)
    await put(storage, 'old', 2_000)
    now = 3_000
    await put(storage, 'other', 0)
    const writer = new pg.Client({ connectionString: CONNECTION_STRING })
    await writer.connect()
    await writer.query('BEGIN')
    await writer.query(`UPDATE ${schema}.entries SET expires_at = 9000 WHERE key = 'rewritten'`)
    expect(await storage.sweep(10)).toBe(1)
    await writer.query('COMMIT')
    await writer.end()
    expect(await storage.sweep(10)).toBe(0)
    expect(await keysIn(schema)).toEqual(['other', 'rewritten'])
    await storage.close()
  })

  test('no answered write is lost beside writers that renew the same keys', async () => {
    const { storage, schema } = await opened()
    const other = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
    const end = Date.now() + 1_500
    let [rounds, swept] = [0, 0]
    const writing = Array.from({ length: 8 }, async (_, lane) => {
      while (Date.now() < end) {
        rounds++
        await put(storage, `key-${lane}`, Date.now() - 1)
        await put(storage, `key-${lane}`, Date.now() + 600_000, `${rounds}`)
        const found = await storage.get(SCOPE, TAG, `key-${lane}`)
        if (found === undefined) expect.fail('an entry that has not expired is gone')
      }
    })
    const sweeping = [storage, other].map(async each => {
      while (Date.now() < end) swept += await each.sweep(10)
    })
    await Promise.all([...writing, ...sweeping])
    expect(rounds).toBeGreaterThan(50)
    expect(swept).toBeGreaterThan(0)
    await Promise.all([storage.close(), other.close()])
  })

  test('an open store sweeps by itself', async () => {
    let now = 1_000
    const { storage, schema } = await opened({ clock: () => now, sweepMs: 20 })
    await put(storage, 'old', 2_000)
    now = 3_000
    await put(storage, 'other', 0)
    await expect.poll(() => keysIn(schema)).toEqual(['other'])
    await storage.close()
  })
})
