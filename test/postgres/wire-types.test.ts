import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { decoded, encoded, type RecordCodec } from '../../src/postgres/wire.ts'
import * as types from '../../src/postgres/wire-types.ts'
import { heldBytes } from '../server/held-memory.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const CODECS = Object.entries(types) as [string, RecordCodec<object>][]

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('composite types on PostgreSQL', () => {
  const schema = newSchema()
  beforeAll(async () => (await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })).close())
  afterAll(() => dropSchema(schema))

  test.each(CODECS)('%s has the fields of its type on the server, in the same order', async (name, codec) => {
    const { rows } = await sql(
      `SELECT attname AS name, atttypid::integer AS oid FROM pg_attribute
       WHERE attrelid = '${schema}.${name.toLowerCase()}'::regclass AND attnum > 0 ORDER BY attnum`,
    )
    const expected = Object.entries(codec.fields as Record<string, { oid: number }>)
    const snakeCase = (field: string): string => field.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
    expect(rows.map(row => row.name)).toEqual(expected.map(([field]) => snakeCase(field)))
    // The id of a composite type differs from schema to schema, and is sent as 0.
    const oids = rows.map(row => (row.oid < 16_384 ? row.oid : 0))
    expect(oids).toEqual(expected.map(([, { oid }]) => oid))
  })

  test('every type on the server has a codec', async () => {
    const { rows } = await sql(
      `SELECT relname AS name FROM pg_class WHERE relnamespace = '${schema}'::regnamespace AND relkind = 'c'`,
    )
    expect(rows.map(row => row.name).sort()).toEqual(CODECS.map(([name]) => name.toLowerCase()).sort())
  })
})

describe('the binary format', () => {
  test('a record with every kind of field comes back as it was sent', () => {
    const outcome = {
      version: 2 ** 53 - 1,
      committedAt: 1_700_000_000_000,
      conflicts: [{ tx: 3, point: undefined, range: 2 }],
      appended: [
        { place: 0, sequence: 0, time: 1, hash: '\x00\xff', isDuplicate: true, memo: '' },
        { place: 1, sequence: 2 ** 40, time: 0, hash: 'h', isDuplicate: false, memo: undefined },
      ],
    }
    const bytes = encoded(types.BATCH_OUTCOME, outcome).latin1Slice()
    expect(decoded(types.BATCH_OUTCOME, bytes)).toEqual(outcome)
    const empty = { version: 1, committedAt: 2, conflicts: undefined, appended: [] }
    expect(decoded(types.BATCH_OUTCOME, encoded(types.BATCH_OUTCOME, empty).latin1Slice())).toEqual(empty)
  })

  test('a parameter of any size comes back as it was sent', () => {
    const appended = Array.from({ length: 20_000 }, (_, i) => ({
      place: i,
      sequence: i * 7,
      time: i % 3,
      hash: 'h'.repeat(i % 70),
      isDuplicate: i % 2 === 0,
      memo: i % 5 === 0 ? undefined : 'm'.repeat(i % 31),
    }))
    const outcome = { version: 1, committedAt: 2, conflicts: undefined, appended }
    const bytes = encoded(types.BATCH_OUTCOME, outcome).latin1Slice()
    expect(decoded(types.BATCH_OUTCOME, bytes)).toEqual(outcome)
  })

  test('a large parameter stays as it was sent while others are encoded', () => {
    const append = { place: 0, sequence: 1, time: 2, hash: 'h', isDuplicate: true, memo: 'm'.repeat(2 ** 21) }
    const large = encoded(types.BATCH_APPENDED, append)
    for (let tx = 0; tx < 3; tx++) encoded(types.BATCH_CONFLICT, { tx, point: 2, range: undefined })
    expect(decoded(types.BATCH_APPENDED, large.latin1Slice())).toEqual(append)
  })

  test('the memory of a large parameter is released', () => {
    const memo = Buffer.alloc(2 ** 25, 'm').latin1Slice()
    const append = { place: 0, sequence: 1, time: 2, hash: 'h', isDuplicate: true, memo }
    const before = heldBytes()
    const encodedBytes = (): number => encoded(types.BATCH_APPENDED, append).length
    expect(encodedBytes()).toBeGreaterThan(memo.length)
    expect(heldBytes() - before).toBeLessThan(memo.length / 4)
  })

  test('a missing field that must be there is an error', () => {
    const point = encoded(types.BATCH_CONFLICT, { tx: undefined as never, point: 1, range: undefined })
    expect(() => decoded(types.BATCH_CONFLICT, point.latin1Slice())).toThrow('the server sent no tx')
  })
})
