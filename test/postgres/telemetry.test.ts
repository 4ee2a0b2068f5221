import { describe } from 'vitest'
import { openPostgres } from '../../src/postgres.ts'
import { testTelemetry } from '../server/telemetry-suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from './schema.ts'

// reason: without a server there is nothing to test; the setup has said so
describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
  testTelemetry(
    'PostgreSQL',
    async () => {
      const schema = newSchema()
      const db = await openPostgres({ connectionString: CONNECTION_STRING, schema })
      return {
        db,
        async close() {
          await db.close()
          await dropSchema(schema)
        },
      }
    },
    { kind: 'postgres', synchronous: 'durable' },
  )
})
