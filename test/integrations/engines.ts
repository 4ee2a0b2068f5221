import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { openPostgres } from '../../src/postgres.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from '../postgres/schema.ts'

/** Declares the tests of an engine. `db` may be called while they run. */
type Tests = (db: () => Annals, engine: 'memory' | 'disk' | 'postgres') => void

/** Declares tests for a database in memory, one on disk and one on PostgreSQL. */
export function onEveryEngine(tests: Tests): void {
  describe('in memory', () => {
    tests(
      opened(() => open({ memory: true })),
      'memory',
    )
  })
  describe('on disk', () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-integrations-'))
    afterAll(() => rmSync(path, { recursive: true, force: true }))
    tests(
      opened(() => open({ path, durability: 'relaxed' })),
      'disk',
    )
  })
  // reason: needs PostgreSQL; the global setup prints why there is none
  describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
    const schema = newSchema()
    afterAll(() => dropSchema(schema))
    tests(
      opened(() => openPostgres({ connectionString: CONNECTION_STRING, schema })),
      'postgres',
    )
  })
}

/** Opens a database before the tests and closes it after them. */
function opened(openStore: () => Promise<Annals>): () => Annals {
  let db: Annals
  beforeAll(async () => {
    db = await openStore()
  })
  afterAll(() => db.close())
  return () => db
}
