import { afterAll, describe } from 'vitest'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from '../../test/postgres/schema.ts'
import { testStorage } from '../testing/storage-suite.ts'
import { openPostgresStorage } from './open.ts'

// reason: without a server there is nothing to test; the setup has said so
describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
  const schema = newSchema()
  afterAll(() => dropSchema(schema))

  // A schema is made once and emptied for each test: making it takes longer than most tests.
  testStorage(
    'postgres',
    async options => {
      const storage = await openPostgresStorage({
        connectionString: CONNECTION_STRING,
        schema,
        snapshotConnections: 20,
        clock: options?.clock,
      })
      await empty(schema)
      return storage
    },
    { programs: 60 },
  )
})

async function empty(schema: string): Promise<void> {
  await sql(`SET search_path = ${schema};
    DELETE FROM entries;
    INSERT INTO deletions SELECT tree_id, scope, tag, length, hash, 0, 0, 'test', pg_current_xact_id() FROM trees WHERE length > 0;
    DELETE FROM events;
    DELETE FROM trees;
    SELECT setval('clock', 0)`)
}
