import { afterAll, describe } from 'vitest'
import { CONNECTION_STRING, SchemaPool } from '../../test/postgres/schema.ts'
import { testStorage } from '../testing/storage-suite.ts'
import { openPostgresStorage } from './open.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
  const schemas = new SchemaPool()
  afterAll(() => schemas.drop())

  testStorage(
    'postgres',
    async options => {
      const schema = await schemas.take()
      const storage = await openPostgresStorage({
        connectionString: CONNECTION_STRING,
        schema,
        snapshotConnections: 20,
        clock: options?.clock,
      })
      const close = storage.close.bind(storage)
      let isClosed = false
      storage.close = async () => {
        await close()
        if (!isClosed) schemas.giveBack(schema)
        isClosed = true
      }
      return storage
    },
    { programs: 60 },
  )
})
