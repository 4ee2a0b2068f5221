import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from '../postgres/schema.ts'

/** Declares tests for a database in memory, one on disk and one on PostgreSQL. `db` may be called while they run. */
export function onEveryEngine(tests: (db: () => Annals) => void): void {
  describe('in memory', () => {
    declare(() => open({ memory: true }), tests)
  })
  describe('on disk', () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-integrations-'))
    afterAll(() => rmSync(path, { recursive: true, force: true }))
    declare(() => open({ path, durability: 'relaxed' }), tests)
  })
  // reason: needs PostgreSQL; the global setup prints why there is none
  describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
    const schema = newSchema()
    afterAll(() => dropSchema(schema))
    declare(() => openPostgres({ connectionString: CONNECTION_STRING, schema }), tests)
  })
}

/** Opens the database before the tests and closes it after them. */
function declare(openStore: () => Promise<Annals>, tests: (db: () => Annals) => void): void {
  let db: Annals
  beforeAll(async () => {
    db = await openStore()
  })
  afterAll(() => db.close())
  tests(() => db)
}
