import { afterAll, describe, expect, test } from 'vitest'
import { openOn } from '../../src/annals.ts'
import { open } from '../../src/index.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { openPostgres } from '../../src/postgres.ts'
import { addRecords, addRun, auditedIds, bytesOf } from '../bundle/bundles.ts'
import { testSameBundle } from '../bundle/same-bundle.ts'
import { CONNECTION_STRING, dropSchema, newSchema, SchemaPool } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('bundles', () => {
  const schema = newSchema()
  const schemas = new SchemaPool()
  afterAll(async () => {
    await dropSchema(schema)
    await schemas.drop()
  })

  describe('of the same run', () => {
    testSameBundle(3, async clock => {
      const taken = await schemas.take()
      const storage = await openPostgresStorage({
        connectionString: CONNECTION_STRING,
        schema: taken,
        clock,
      })
      const db = await openOn(storage)
      const close = async (): Promise<void> => {
        await db.close()
        schemas.giveBack(taken)
      }
      return { db, close }
    })
  })

  test('from files to PostgreSQL and back a run is the same bundle, byte for byte', async () => {
    await using embedded = await open({ memory: true })
    await using server = await openPostgres({ connectionString: CONNECTION_STRING, schema })
    await using back = await open({ memory: true })
    await addRecords(server, 'own', 1)
    await addRun(embedded, 'run-1', 3)
    const bundle = await bytesOf(embedded.exportRun('run-1'))
    await server.importRun(() => embedded.exportRun('run-1'))
    expect(await bytesOf(server.exportRun('run-1'))).toEqual(bundle)
    expect(await server.ledger.verifyRun('run-1')).toEqual({ isValid: true, events: 14 })
    expect(await server.importRun(() => embedded.exportRun('run-1'))).toMatchObject({ records: 0, events: 0 })
    expect(await auditedIds(server)).toHaveLength(20)
    await back.importRun(() => server.exportRun('run-1'))
    expect(await bytesOf(back.exportRun('run-1'))).toEqual(bundle)
  })
})
