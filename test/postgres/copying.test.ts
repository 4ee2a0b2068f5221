import { afterAll, describe, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import { openPostgres } from '../../src/postgres.ts'
import { contentsOf, fill, goOn, verify } from '../copying/everything.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('copying between engines', () => {
  const schema = newSchema()
  afterAll(() => dropSchema(schema))

  test('a copy from files to PostgreSQL and back keeps every record, hash and version', async () => {
    const tenant = 'acme'
    await using embedded = await open({ memory: true, tenant })
    await using server = await openPostgres({ connectionString: CONNECTION_STRING, schema, tenant })
    await using back = await open({ memory: true, tenant })
    await fill(embedded)
    const contents = await contentsOf(embedded)
    await verify(embedded)

    const there = await embedded.copyTo(server)
    expect(await contentsOf(server)).toEqual(contents)
    await verify(server)

    expect(await server.copyTo(back)).toEqual(there)
    expect(await contentsOf(back)).toEqual(contents)
    await verify(back)

    await goOn(server)
    await goOn(back)
  })
})
