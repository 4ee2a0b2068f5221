import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { TAGS } from '../../src/engine/keys.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from '../postgres/schema.ts'
import { addRun, annals, newFolder } from './annals-command.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('a store on PostgreSQL', () => {
  const schema = newSchema()
  afterAll(() => dropSchema(schema))
  const store = ['--postgres', CONNECTION_STRING, '--schema', schema]

  test('supports reading, verifying, exporting and importing, as a folder does', async () => {
    const db = await openPostgres({ connectionString: CONNECTION_STRING, schema })
    await addRun(db, 'nightly-1')
    await db.close()
    const runs = await annals(['runs', ...store, '--json'])
    expect(JSON.parse(runs.stdout)).toMatchObject([{ runId: 'nightly-1', status: 'Completed' }])
    expect((await annals(['verify', ...store])).stdout).toBe('consistent  1 run\n')
    expect((await annals(['replay', 'nightly-1', ...store])).code).toBe(0)
    expect((await annals(['doctor', ...store])).code).toBe(0)
    const missing = await annals(['show', 'nightly-2', ...store])
    expect(missing.code).toBe(3)
    const bundle = `${newFolder()}.bundle`
    expect((await annals(['export', 'nightly-1', ...store, '-o', bundle])).code).toBe(0)
    const data = newFolder()
    expect((await annals(['import', bundle, '--data', data])).code).toBe(0)
    expect((await annals(['export', 'nightly-1', '--data', data])).stdout).toBe(
      (await annals(['export', 'nightly-1', ...store])).stdout,
    )
    expect((await annals(['import', bundle, ...store])).stdout).toContain('nothing to do')
  })

  test('reports a run as CHANGED after all its rows were deleted', async () => {
    const wiped = newSchema()
    const db = await openPostgres({ connectionString: CONNECTION_STRING, schema: wiped })
    await addRun(db, 'wiped-1')
    await db.close()
    const place = ['--postgres', CONNECTION_STRING, '--schema', wiped]
    expect((await annals(['verify', 'wiped-1', ...place])).code).toBe(0)
    // A superuser can bypass every trigger.
    await sql(`SET session_replication_role = replica; DELETE FROM "${wiped}".events`)
    const one = await annals(['verify', 'wiped-1', ...place])
    expect(one.code).toBe(1)
    expect(one.stdout).toContain('CHANGED  wiped-1: ledger')
    expect((await annals(['verify', ...place])).code).toBe(1)
    const doctor = await annals(['doctor', ...place])
    expect(doctor.code).toBe(1)
    expect(doctor.stdout).toContain('Changed: 1 of 1 run: wiped-1')
    await dropSchema(wiped)
  })

  test('gets a warning from doctor if a commit is ahead of the clock', async () => {
    const ahead = newSchema()
    const storage = await openPostgresStorage({
      connectionString: CONNECTION_STRING,
      schema: ahead,
      clock: () => Date.now() + 3_650 * 86_400_000,
    })
    await storage.commit({
      operations: [{ op: 'put', scope: 'default:default:default:r', tag: TAGS.kv, key: 'k', value: 'null' }],
    })
    await storage.close()
    const doctor = await annals(['doctor', '--postgres', CONNECTION_STRING, '--schema', ahead])
    expect(doctor.code).toBe(0)
    expect(doctor.stdout).toMatch(/warning {2}The newest commit, at .*, is 3649 d 23 h ahead of the clock\./)
    await dropSchema(ahead)
  })

  test('is not created by a command that only reads', async () => {
    const missing = newSchema()
    const place = ['--postgres', CONNECTION_STRING, '--schema', missing]
    for (const command of [['runs'], ['show', 'run-1'], ['verify'], ['export', 'run-1'], ['doctor']]) {
      const { code, stdout, stderr } = await annals([...command, ...place])
      expect(code, command[0]).toBe(command[0] === 'doctor' ? 1 : 4)
      expect(stdout + stderr).toContain(`there is no store in schema ${missing}`)
    }
    const { rows } = await sql(`SELECT nspname FROM pg_namespace WHERE nspname = '${missing}'`)
    expect(rows).toEqual([])
  })

  test('that cannot be reached exits with 4', async () => {
    const nobody = 'postgres://nobody@127.0.0.1:1/none'
    const { code, stderr } = await annals(['runs', '--postgres', nobody], { cwd: join(newFolder(), '..') })
    expect(code).toBe(4)
    expect(stderr).not.toContain('at ')
  })
})
