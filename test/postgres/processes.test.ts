import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { fromU64, u64 } from '../../src/core/bytes.ts'
import { linkHash, sha256, ZERO_HASH } from '../../src/core/hash.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { parseLogEntry } from '../../src/engine/log.ts'
import type { Storage } from '../../src/engine/storage.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { eventually } from '../../src/testing/storage-suite/suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const WORKER = fileURLToPath(new URL('./append-worker.mjs', import.meta.url))
const PROCESSES = 4
const RUNS = 100

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('several processes on one PostgreSQL', () => {
  const schema = newSchema()
  let storage: Storage
  beforeAll(async () => {
    storage = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
  })
  afterAll(async () => {
    await storage?.close()
    await dropSchema(schema)
  })

  test('four processes on the same 100 runs: no retry, no deadlock, contiguous sequences, valid chains', async () => {
    const appends = 2_000
    const before = await deadlocks()
    const reports = await Promise.all(
      Array.from({ length: PROCESSES }, async (_, i) => {
        const options = {
          connectionString: CONNECTION_STRING,
          schema,
          name: `P${i}`,
          runs: RUNS,
          appends,
          inFlight: 64,
        }
        const { stdout } = await promisify(execFile)(process.execPath, [WORKER, JSON.stringify(options)])
        return JSON.parse(stdout) as { conflicts: number; ms: number }
      }),
    )
    console.log(
      `four processes, ${PROCESSES * appends} appends: ${reports.map(({ ms }) => `${ms} ms`).join(', ')}`,
    )
    expect(reports.map(({ conflicts }) => conflicts)).toEqual(Array(PROCESSES).fill(0))
    expect(await deadlocks()).toBe(before)
    const keys = new Set<string>()
    for (let run = 0; run < RUNS; run++) {
      for (const body of await chainOf(storage, `default:default:default:run-${run}`)) keys.add(body)
    }
    expect(keys.size).toBe(PROCESSES * appends)
  }, 120_000)

  test('a subscriber sees the appends of all processes in order and without a gap', async () => {
    const scope = 'default:default:default:watched'
    const writers = await Promise.all(
      Array.from({ length: 3 }, () => openPostgresStorage({ connectionString: CONNECTION_STRING, schema })),
    )
    const total = 600
    const seen: number[] = []
    let isReading = false
    let isAgain = false
    const readOn = async (): Promise<void> => {
      isAgain = true
      if (isReading) return
      isReading = true
      while (isAgain) {
        isAgain = false
        const found = await storage.scan({ scope, tag: TAGS.event, from: u64(seen.length) })
        seen.push(...found.map(({ key }) => fromU64(key)))
      }
      isReading = false
    }
    const leave = await storage.subscribe({ scope, tag: TAGS.event }, () => void readOn())
    await Promise.all(
      Array.from({ length: total }, async (_, i) => {
        const body = `${i}`
        const elsewhere = `default:default:default:other-${i % 7}`
        await writers[i % 3].commit({
          operations: [scope, elsewhere].map(scope => ({
            op: 'append',
            scope,
            tag: TAGS.event,
            body,
            bodyHash: sha256(body),
          })),
        })
      }),
    )
    await eventually(() => seen.length === total)
    expect(seen).toEqual(Array.from({ length: total }, (_, i) => i))
    leave()
    for (const writer of writers) await writer.close()
  })

  test('a subscriber that starts among writers misses no append', async () => {
    const writer = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
    for (let round = 0; round < 40; round++) {
      const scope = `default:default:default:late-${round}`
      const append = { op: 'append', scope, tag: TAGS.event, body: 'x', bodyHash: sha256('x') } as const
      const listener = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
      let length = 0
      const look = async (): Promise<void> => {
        length = Math.max(length, (await listener.scan({ scope, tag: TAGS.event })).length)
      }
      const writing = Promise.all(Array.from({ length: 5 }, () => writer.commit({ operations: [append] })))
      const leave = await listener.subscribe({ scope, tag: TAGS.event }, () => {
        void look()
      })
      await look()
      await writing
      await eventually(() => length === 5)
      leave()
      await listener.close()
    }
    await writer.close()
  }, 120_000)
})

async function deadlocks(): Promise<number> {
  const { rows } = await sql('SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()')
  return Number(rows[0].deadlocks)
}

/** The bodies of a log, after recomputing its hash chain. */
async function chainOf(storage: Storage, scope: string): Promise<string[]> {
  let prevHash = ZERO_HASH
  return (await storage.scan({ scope, tag: TAGS.event })).map((entry, sequence) => {
    const event = parseLogEntry(entry)
    expect(event).toMatchObject({ sequence, prevHash })
    expect(event.hash).toBe(linkHash(prevHash, sequence, event.time, sha256(event.body)))
    prevHash = event.hash
    return event.body
  })
}
