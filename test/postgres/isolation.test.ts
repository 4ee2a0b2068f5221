import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, describe, expect, test } from 'vitest'
import { Database } from '../../src/engine/database.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { seedOfRun } from '../../src/testing/random.ts'
import { checkHistory } from '../isolation/cycle-checker.ts'
import type { TransactionRecord } from '../isolation/history.ts'
import { runListAppend } from '../isolation/list-append-workload.ts'
import { rounds } from '../rounds.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const WORKER = fileURLToPath(new URL('./isolation-worker.mjs', import.meta.url))
const order = (): number => Number(process.hrtime.bigint())

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')(
  'P12: concurrent transactions on PostgreSQL are serializable, and strictly so',
  () => {
    const seed = seedOfRun()
    const schemas: string[] = []
    const schemaOfTest = (): string => {
      const schema = newSchema()
      schemas.push(schema)
      return schema
    }
    afterAll(async () => {
      for (const schema of schemas) await dropSchema(schema)
    })

    test(`one process, 16 clients: no anomaly (ANNALS_SEED=${seed})`, async () => {
      const transactions = rounds(800, 20_000)
      const records = await history(schemaOfTest(), { seed, transactions, clients: 16, order })
      expectSerializable('one process', records, transactions)
    }, 120_000)

    test(`four processes at once: no anomaly (ANNALS_SEED=${seed})`, async () => {
      const transactions = rounds(250, 5_000)
      const records = await historyOfFour(schemaOfTest(), seed, transactions)
      expectSerializable('four processes', records, 5 * transactions)
    }, 120_000)

    for (const { bug, sound, broken } of PLANTED) {
      test(`four processes on a server where ${bug}: the checker finds it (ANNALS_SEED=${seed})`, async () => {
        const records = await historyOfFour(schemaOfTest(), seed, 250, schema => plant(schema, sound, broken))
        const { anomalies } = checkHistory(records)
        console.log(`cycle checker, postgres, ${bug}: ${anomalies.length} anomalies`)
        expect(anomalies.length).toBeGreaterThan(0)
      }, 120_000)
    }
  },
)

/** Bugs that the checker must find: the line of `commit_batch` and its broken form. */
const PLANTED = [
  {
    bug: 'ranges are not validated',
    sound: 'IF checked.digest <> (',
    broken: 'IF false AND checked.digest <> (',
  },
  { bug: 'points are not validated', sound: 'IF changed IS NOT NULL THEN', broken: 'IF false THEN' },
]

async function plant(schema: string, sound: string, broken: string): Promise<void> {
  const { rows } = await sql(
    `SELECT pg_get_functiondef(p.oid) AS text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = '${schema}' AND p.proname = 'commit_batch'`,
  )
  const text: string = rows[0].text
  expect(text.split(sound), 'the place that the bug is planted at').toHaveLength(2)
  await sql(text.replace(sound, broken))
}

/** The history of four processes at once, followed by one more over the same lists, whose last read ends the history. */
async function historyOfFour(
  schema: string,
  seed: number,
  transactions: number,
  prepare: (schema: string) => Promise<void> = async () => undefined,
): Promise<TransactionRecord[]> {
  // Creates the schema, so that the processes compete in transactions and not in migrations.
  await history(schema, { seed, transactions: 0, clients: 1, order })
  await prepare(schema)
  const parts = await Promise.all(
    Array.from({ length: 4 }, (_, i) =>
      workerHistory({ schema, name: `P${i}-`, seed: seed + i, transactions }),
    ),
  )
  const last = await history(schema, { seed: seed + 4, transactions, clients: 4, name: 'L-', order })
  return [...parts.flat(), ...last]
}

async function history(
  schema: string,
  options: Parameters<typeof runListAppend>[1],
): Promise<TransactionRecord[]> {
  const storage = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
  try {
    return await runListAppend(new Database(storage), options)
  } finally {
    await storage.close()
  }
}

async function workerHistory(options: object): Promise<TransactionRecord[]> {
  const argument = JSON.stringify({ connectionString: CONNECTION_STRING, ...options })
  const { stdout } = await promisify(execFile)(process.execPath, [WORKER, argument], {
    maxBuffer: 256 * 1024 * 1024,
  })
  return JSON.parse(stdout) as TransactionRecord[]
}

function expectSerializable(name: string, records: readonly TransactionRecord[], transactions: number): void {
  const { anomalies, ...report } = checkHistory(records)
  console.log(`cycle checker, postgres, ${name}: ${JSON.stringify(report)}`)
  expect(anomalies.slice(0, 3)).toEqual([])
  expect(report.committed).toBeGreaterThan(transactions / 2)
  // A history without conflicts proves nothing.
  expect(report.aborted).toBeGreaterThan(transactions / 20)
}
