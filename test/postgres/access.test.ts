import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { fromBuffer } from '../../src/core/bytes.ts'
import { TAGS } from '../../src/engine/keys.ts'
import type { Commit, Storage } from '../../src/engine/storage.ts'
import { CommitBatch } from '../../src/postgres/commit-batch.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { STATEMENTS } from '../../src/postgres/statements.ts'
import { arrayOf, decoded, encoded } from '../../src/postgres/wire.ts'
import { BATCH_TREE } from '../../src/postgres/wire-types.ts'
import { openPostgres } from '../../src/postgres.ts'
import { expectError } from '../../src/testing/storage-suite/suite.ts'
import { as, CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const HASH = 'h'.repeat(32)
const TREES = arrayOf(BATCH_TREE)
/** The place of the trees among the parameters of the statement. */
const TREES_PARAMETER = 5
const scopeOf = (tenant: string, run = 'run'): string => `${tenant}:default:default:${run}`

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('access control on PostgreSQL', () => {
  const schema = newSchema()
  const roles = { a: `${schema}_a`, b: `${schema}_b`, all: `${schema}_all`, none: `${schema}_none` }
  let owner: Storage

  beforeAll(async () => {
    owner = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
    for (const role of Object.values(roles)) await sql(`CREATE ROLE ${role} LOGIN`)
    await sql(`SELECT ${schema}.grant_access('${roles.a}', 'a'), ${schema}.grant_access('${roles.b}', 'b'),
      ${schema}.grant_access('${roles.all}', NULL)`)
    for (const tenant of ['a', 'b', 'a%', 'ab']) {
      await owner.commit({
        operations: [
          { op: 'put', scope: scopeOf(tenant), tag: TAGS.kv, key: 'k', value: `of ${tenant}` },
          {
            op: 'append',
            scope: scopeOf(tenant),
            tag: TAGS.event,
            body: tenant,
            bodyHash: HASH,
            dedupe: { key: 'once' },
          },
        ],
      })
    }
  })
  afterAll(async () => {
    await owner?.close()
    await dropSchema(schema)
    for (const role of Object.values(roles)) await sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  })

  describe('events are immutable', () => {
    const CHANGES = {
      UPDATE: `UPDATE ${schema}.events SET body = 'x'`,
      'UPDATE of nothing': `UPDATE ${schema}.events SET body = 'x' WHERE false`,
      DELETE: `DELETE FROM ${schema}.events`,
      TRUNCATE: `TRUNCATE ${schema}.events`,
      'TRUNCATE of all': `TRUNCATE ${schema}.trees, ${schema}.events CASCADE`,
      'DELETE of one': `DELETE FROM ${schema}.events WHERE sequence = 0`,
      'UPDATE of the record of deletions': `UPDATE ${schema}.deletions SET length = 0`,
      'DELETE of the record of deletions': `DELETE FROM ${schema}.deletions`,
    }
    for (const [name, statement] of Object.entries(CHANGES)) {
      test(`${name} fails for the application's role, and for the owner`, async () => {
        await expect(sql(statement, as(roles.all))).rejects.toThrow(/permission denied/)
        await expect(sql(statement, as(roles.a))).rejects.toThrow(/permission denied/)
        await expect(sql(statement)).rejects.toThrow(/immutable|as a whole/)
      })
    }

    test('an application role can write only through the functions', async () => {
      for (const table of ['trees', 'entries', 'events', 'deletions', 'access', 'settings', 'migrations']) {
        for (const statement of [
          `INSERT INTO ${schema}.${table} DEFAULT VALUES`,
          `DELETE FROM ${schema}.${table}`,
        ]) {
          await expect(sql(statement, as(roles.all))).rejects.toThrow(/permission denied/)
        }
      }
      for (const call of ['drop_scope(NULL, 1, 1)', "grant_access('x', 'y')", 'tick(1, 1)']) {
        await expect(sql(`SELECT ${schema}.${call}`, as(roles.all))).rejects.toThrow(/permission denied/)
      }
    })

    test('deleting a whole log leaves a record of its length, its last hash and the role', async () => {
      const scope = scopeOf('c')
      const storage = await openPostgresStorage({ connectionString: as(roles.all), schema })
      const append = { op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: HASH } as const
      const outcome = await storage.commit({ operations: [append, append] })
      await storage.commit({ operations: [{ op: 'drop', scope }] })
      await storage.close()
      const { rows } = await sql(`SELECT * FROM ${schema}.deletions`)
      expect(rows).toHaveLength(1)
      expect(rows[0]).toMatchObject({ tag: 2, length: '2', role_name: roles.all })
      expect(rows[0].scope.toString('latin1')).toBe(scope)
      const [, last] = outcome.status === 'committed' ? outcome.appended : []
      expect(rows[0].hash.toString('latin1')).toBe(last.hash)
    })

    test('part of a log cannot be deleted, even with a record', async () => {
      const scope = scopeOf('d')
      const append = { op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: HASH } as const
      await owner.commit({ operations: [append, append] })
      const forged = `INSERT INTO ${schema}.deletions
        SELECT tree_id, scope, tag, length, hash, 0, 0, 'me', pg_current_xact_id() FROM ${schema}.trees WHERE scope = '${scope}'`
      await expect(sql(`${forged}; DELETE FROM ${schema}.events WHERE sequence = 1`)).rejects.toThrow(
        /as a whole/,
      )
      expect(await owner.scan({ scope, tag: TAGS.event })).toHaveLength(2)
    })
  })

  describe('a role that is bound to tenant a', () => {
    let db: Annals
    let storage: Storage
    beforeEach(async () => {
      db = await openPostgres({ connectionString: as(roles.a), schema, tenant: 'a' })
      storage = await openPostgresStorage({ connectionString: as(roles.a), schema })
    })
    afterEach(async () => {
      await db.close()
      await storage.close()
    })

    test('reads and writes data of its own tenant', async () => {
      expect((await storage.get(scopeOf('a'), TAGS.kv, 'k'))?.value).toBe('of a')
      await db.kv.put('mine', 'k', 1)
      expect(await db.kv.get('mine', 'k')).toBe(1)
      await db.events.append('mine', 'tick', null)
      expect((await db.events.verifyChain('mine')).isValid).toBe(true)
      await db.transaction('mine', async tx => {
        await tx.kv.put('k', ((await tx.kv.get('k')) as number) + 1)
      })
      expect(await db.kv.get('mine', 'k')).toBe(2)
    })

    test('reads no data of another tenant through the API', async () => {
      for (const tenant of ['b', 'a%', 'ab']) {
        const scope = scopeOf(tenant)
        expect(await storage.get(scope, TAGS.kv, 'k')).toBeUndefined()
        expect(await storage.get(scope, TAGS.event, '\0'.repeat(8))).toBeUndefined()
        for (const tag of [TAGS.kv, TAGS.event, TAGS.event | 0x80, TAGS.event | 0xc0]) {
          expect(await storage.scan({ scope, tag })).toEqual([])
        }
        const snapshot = await storage.snapshot()
        expect(await snapshot.get(scope, TAGS.kv, 'k')).toBeUndefined()
        expect(await snapshot.scan({ scope, tag: TAGS.event })).toEqual([])
        snapshot.release()
      }
      for (const scope of await storage.scopes({ limit: 100 })) expect(scope.startsWith('a:')).toBe(true)
    })

    test('cannot write, validate or subscribe to data of another tenant', async () => {
      const scope = scopeOf('b')
      await expectError(
        storage.commit({ operations: [{ op: 'put', scope, tag: TAGS.kv, key: 'k', value: 'x' }] }),
        'INVALID_ARGUMENT',
      )
      await expectError(
        storage.commit({ operations: [{ op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: HASH }] }),
        'INVALID_ARGUMENT',
      )
      await expectError(storage.commit({ operations: [{ op: 'drop', scope }] }), 'INVALID_ARGUMENT')
      await expectError(
        storage.commit({ points: [{ scope, tag: TAGS.kv, key: 'k', version: 0 }], operations: [] }),
        'INVALID_ARGUMENT',
      )
      await expectError(
        storage.subscribe({ scope, tag: TAGS.kv }, () => {}),
        'INVALID_ARGUMENT',
      )
      expect((await owner.get(scope, TAGS.kv, 'k'))?.value).toBe('of b')
      expect(await owner.scan({ scope, tag: TAGS.event })).toHaveLength(1)
    })

    test('cannot read, count or write data of another tenant by SQL, whatever it claims to be', async () => {
      const client = new pg.Client({ connectionString: as(roles.a) })
      await client.connect()
      await client.query(`SET search_path = ${schema}`)
      const count = async (text: string): Promise<number> =>
        Number((await client.query(`SELECT count(*) AS n FROM ${text}`)).rows[0].n)
      const own = "scope >= 'a:' AND scope < 'a;'"
      for (const setting of ['', "SET annals.tenant = 'b'", `SET row_security = on`]) {
        if (setting !== '') await client.query(setting)
        expect(await count(`trees WHERE NOT (${own})`)).toBe(0)
        expect(await count(`trees WHERE ${own}`)).toBeGreaterThan(0)
        expect(await count(`entries WHERE convert_from(value, 'UTF8') IN ('of b', 'of a%', 'of ab')`)).toBe(0)
        expect(await count(`events WHERE body IN ('b', 'ab', 'a%')`)).toBe(0)
        expect(await count('deletions')).toBe(0)
      }
      for (const text of [
        `SET ROLE ${roles.b}`,
        `SET SESSION AUTHORIZATION ${roles.b}`,
        'SELECT * FROM access',
        'SELECT * FROM settings',
        'SELECT last_value FROM versions',
        `UPDATE access SET tenant = 'b:'`,
      ]) {
        await expect(client.query(text), text).rejects.toThrow(/permission denied/)
      }
      // With row security off the server refuses the query instead of showing all rows.
      await client.query('SET row_security = off')
      await expect(client.query('SELECT * FROM events')).rejects.toThrow(/row-level security/)
      await client.end()
    })

    test('cannot write, drop or probe data of another tenant by a forged call', async () => {
      const scope = scopeOf('b')
      const forged: Record<string, Commit> = {
        put: { operations: [{ op: 'put', scope, tag: TAGS.kv, key: 'k', value: 'x' }] },
        append: { operations: [{ op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: HASH }] },
        drop: { operations: [{ op: 'drop', scope }] },
        probe: { points: [{ scope, tag: TAGS.kv, key: 'k', version: 0 }], operations: [] },
        feed: {
          operations: [
            { op: 'append', scope: scopeOf('a'), tag: TAGS.event, body: 'x', bodyHash: HASH, feed: scope },
          ],
        },
      }
      const client = new pg.Client({ connectionString: as(roles.a) })
      await client.connect()
      await client.query(`SET search_path = ${schema}`)
      for (const [name, commit] of Object.entries(forged)) {
        const batch = new CommitBatch()
        batch.add(commit)
        const parameters = batch.parameters({}, true)
        const trees = decoded(TREES, fromBuffer(parameters[TREES_PARAMETER] as Buffer))
        const claims = [
          trees,
          trees.map(tree => ({ ...tree, isWritten: false, isCreated: false })),
          [{ ...trees[0], scope: scopeOf('a') }, ...trees],
        ]
        for (const claimed of claims) {
          parameters[TREES_PARAMETER] = encoded(TREES, claimed)
          await expect(client.query(STATEMENTS.commitBatch.text, parameters), name).rejects.toThrow(
            /does not reach/,
          )
        }
        // Operations on trees that the call does not name have no effect.
        parameters[TREES_PARAMETER] = encoded(TREES, [])
        await client.query(STATEMENTS.commitBatch.text, parameters).catch((error: unknown) => {
          expect(String(error), name).toMatch(/null value|not-null/)
        })
      }
      await client.end()
      expect((await owner.get(scope, TAGS.kv, 'k'))?.value).toBe('of b')
      expect(await owner.scan({ scope, tag: TAGS.event })).toHaveLength(1)
    })

    test('an append without a time of its own gets the time of its commit', async () => {
      const append = {
        op: 'append',
        scope: scopeOf('a'),
        tag: TAGS.event,
        body: 'x',
        bodyHash: HASH,
      } as const
      const outcome = await storage.commit({ operations: [append] })
      expect(outcome.status === 'committed' && outcome.time).toBeLessThan(Date.now() + 5_000)
    })

    test('cannot set the clock, which all tenants share', async () => {
      const scope = scopeOf('a')
      const ahead = Date.now() + 3_600_000
      const append = { op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: HASH, time: ahead } as const
      const put = { op: 'put', scope, tag: TAGS.kv, key: 'mine', value: 'x' } as const
      const soon = (): number => Date.now() + 120_000
      for (const operations of [[append], [append, put]]) {
        const outcome = await storage.commit({ operations })
        expect(outcome).toMatchObject({ status: 'committed', appended: [{ time: ahead }] })
        expect(outcome.status === 'committed' && outcome.time).toBeLessThan(soon())
      }
      // The time of an entry is never in the future, because readers take it for a time in the past.
      await storage.commit({ operations: [{ ...put, time: ahead }] })
      expect((await owner.get(scope, TAGS.kv, 'mine'))?.time).toBeLessThan(soon())
      await storage.commit({ operations: [{ ...put, time: 1_000 }] })
      expect((await owner.get(scope, TAGS.kv, 'mine'))?.time).toBe(1_000)
      const client = new pg.Client({ connectionString: as(roles.a) })
      await client.connect()
      await client.query(`SET search_path = ${schema}`)
      const batch = new CommitBatch()
      batch.add({ operations: [put] })
      await client.query(
        STATEMENTS.commitBatch.text,
        batch.parameters({ clockMs: 8_000_000_000_000_000, notBeforeMs: 8_000_000_000_000_000 }, true),
      )
      await client.end()
      const other = await owner.commit({ operations: [{ ...put, scope: scopeOf('b') }] })
      expect(other.status === 'committed' && other.time).toBeLessThan(soon())
    })

    test('the same run id in two tenants is two runs', async () => {
      const other = await openPostgres({ connectionString: as(roles.b), schema, tenant: 'b' })
      await db.runs.create({ runId: 'same' })
      await other.runs.create({ runId: 'same' })
      await db.events.append('same', 'of', 'a')
      expect(await other.events.length('same')).toBe(0)
      await other.runs.delete('same')
      expect(await db.events.length('same')).toBe(1)
      await other.close()
    })

    test('a handle for another tenant finds nothing and writes nothing', async () => {
      const other = db.forTenant('b')
      expect(await other.kv.get('run', 'k')).toBeUndefined()
      await expectError(other.kv.put('run', 'k', 1), 'INVALID_ARGUMENT')
    })
  })

  test('a role without access gets INVALID_OPERATION', async () => {
    await expectError(openPostgresStorage({ connectionString: as(roles.none), schema }), 'INVALID_OPERATION')
  })

  test('a role whose access was revoked can neither read nor write', async () => {
    const role = `${schema}_gone`
    await sql(`CREATE ROLE ${role} LOGIN; SELECT ${schema}.grant_access('${role}', 'a')`)
    const storage = await openPostgresStorage({ connectionString: as(role), schema })
    expect((await storage.get(scopeOf('a'), TAGS.kv, 'k'))?.value).toBe('of a')
    await sql(`SELECT ${schema}.revoke_access('${role}')`)
    await expectError(storage.get(scopeOf('a'), TAGS.kv, 'k'), 'INVALID_OPERATION')
    await expectError(
      storage.commit({
        operations: [{ op: 'put', scope: scopeOf('a'), tag: TAGS.kv, key: 'k', value: 'x' }],
      }),
      'INVALID_OPERATION',
    )
    await storage.close()
    await sql(`DROP ROLE ${role}`)
  })
})
