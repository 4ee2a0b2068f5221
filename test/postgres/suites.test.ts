import { afterAll, describe } from 'vitest'
import { type Annals, openOn } from '../../src/annals.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { openPostgres } from '../../src/postgres.ts'
import { testAnnals } from '../../src/testing/annals-suite.ts'
import { testLedger } from '../../src/testing/ledger-suite.ts'
import { openedOf } from '../ledger/opened-ledger.ts'
import { CONNECTION_STRING, SchemaPool } from './schema.ts'

type Options = Pick<Parameters<typeof openPostgres>[0], 'guards' | 'ledger'>

/** Opens a store as users do. A suite that needs a clock opens the storage directly, because `openPostgres` takes none. */
async function openIn(schema: string, clock: (() => number) | undefined, options: Options): Promise<Annals> {
  if (clock === undefined) return openPostgres({ connectionString: CONNECTION_STRING, schema, ...options })
  const storage = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema, clock })
  return openOn(storage, options)
}

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('on PostgreSQL', () => {
  const schemas = new SchemaPool()
  afterAll(() => schemas.drop())

  testAnnals('postgres', async ({ guards = {}, clock }) => {
    const schema = await schemas.take()
    const db = await openIn(schema, clock, { guards })
    let current = db
    return {
      db,
      async reopen() {
        await current.close()
        current = await openIn(schema, clock, { guards })
        return current
      },
      async close() {
        await current.close()
        schemas.giveBack(schema)
      },
    }
  })

  testLedger('postgres', async ({ clock, ...ledger }) => {
    const schema = await schemas.take()
    let current = await openIn(schema, clock, { ledger })
    return {
      ...openedOf(current),
      async reopen() {
        await current.close()
        current = await openIn(schema, clock, { ledger })
        return openedOf(current)
      },
      async close() {
        await current.close()
        schemas.giveBack(schema)
      },
    }
  })
})
