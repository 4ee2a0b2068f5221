import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sha256 } from '../../src/core/hash.ts'
import { feedTag, TAGS } from '../../src/engine/keys.ts'
import { feedKey, parseLogEntry } from '../../src/engine/log.ts'
import type { Append, Appended } from '../../src/engine/storage.ts'
import { CommitBatch } from '../../src/postgres/commit-batch.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import type { PostgresStore } from '../../src/postgres/postgres-store.ts'
import { STATEMENTS } from '../../src/postgres/statements.ts'
import { eventually } from '../../src/testing/storage-suite/suite.ts'
import { CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const TAG = TAGS.ledger
const FEED = 'default:_shared:_shared:_shared'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('appends in one call to PostgreSQL', () => {
  const schema = newSchema()
  let storage: PostgresStore
  beforeAll(async () => {
    storage = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
  })
  afterAll(async () => {
    await storage?.close()
    await dropSchema(schema)
  })

  const append = (run: string, key: string): Append => ({
    op: 'append',
    scope: `default:default:default:${run}`,
    tag: TAG,
    body: key,
    bodyHash: sha256(key),
    dedupe: { key, memo: `memo of ${key}` },
    feed: FEED,
  })
  const appendAll = (appends: readonly (readonly [string, string])[]): Promise<Appended[]> =>
    Promise.all(
      appends.map(async ([run, key]) => {
        const outcome = await storage.commit({ operations: [append(run, key)] })
        if (outcome.status !== 'committed') throw new Error('an append conflicts with nothing')
        return outcome.appended[0]
      }),
    )
  const bodiesOf = async (run: string): Promise<string[]> => {
    const entries = await storage.scan({ scope: `default:default:default:${run}`, tag: TAG })
    const records = entries.map(parseLogEntry)
    records.forEach(({ sequence, prevHash }, i) => {
      expect(sequence).toBe(i)
      if (i > 0) expect(prevHash).toBe(records[i - 1].hash)
    })
    return records.map(({ body }) => body)
  }

  test('several appends to existing and new logs keep their order', async () => {
    await appendAll([['there', 'first']])
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
    const sent = keys.flatMap(key => [['there', key] as const, ['new', key] as const])
    const answers = await appendAll(sent)
    expect(answers.some(({ duplicate }) => duplicate)).toBe(false)
    expect(answers.map(({ memo }) => memo)).toEqual(sent.map(([, key]) => `memo of ${key}`))
    expect(await bodiesOf('there')).toEqual(['first', ...keys])
    expect(await bodiesOf('new')).toEqual(keys)
    expect(answers.filter((_, i) => i % 2 === 0).map(({ sequence }) => sequence)).toEqual(
      keys.map((_, i) => i + 1),
    )
  })

  test('known keys among new ones are answered with the existing events and leave no gap', async () => {
    const first = await appendAll(Array.from({ length: 10 }, (_, i) => ['some', `old${i}`] as const))
    for (let round = 0; round < 3; round++) {
      const sent = Array.from({ length: 10 }, (_, i) => [
        ['some', `old${i}`] as const,
        ['some', `new${round}-${i}`] as const,
        ['others', `new${round}-${i}`] as const,
        // The same key twice in one call.
        ['others', `new${round}-${i}`] as const,
      ]).flat()
      const answers = await appendAll(sent)
      expect(answers.map(({ duplicate }) => duplicate)).toEqual(
        sent.map((_, i) => i % 4 === 0 || i % 4 === 3),
      )
      answers.forEach((answer, i) => {
        if (i % 4 === 0) expect(answer).toEqual({ ...first[i / 4], duplicate: true })
        if (i % 4 === 3) expect(answer).toEqual({ ...answers[i - 1], duplicate: true })
      })
    }
    expect(await bodiesOf('some')).toHaveLength(40)
    expect(await bodiesOf('others')).toHaveLength(30)
  })

  test('an insertion that a known key has undone leaves nothing in the feed', async () => {
    const listed = await storage.scan({ scope: FEED, tag: feedTag(TAG) })
    const { rows } = await sql(`SELECT count(*)::integer AS count FROM ${schema}.events`)
    expect(listed).toHaveLength((rows[0] as { count: number }).count)
  })

  test('a step that reads a place of the feed waits for an append that another process has not committed yet', async () => {
    const other = new pg.Client({ connectionString: CONNECTION_STRING })
    await other.connect()
    await other.query(`SET search_path = ${schema}; BEGIN`)
    const batch = new CommitBatch()
    batch.add({ operations: [append('elsewhere', 'under way')] })
    await other.query(STATEMENTS.commitBatch.text, batch.parameters({}, true))
    const place = { scope: FEED, tag: feedTag(TAG), key: feedKey(0, 0) }
    let isThrough = false
    const waiting = storage
      .update([place], () => ({ operations: [], result: undefined }))
      .then(() => {
        isThrough = true
      })
    const locked = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%wait_for_writers%'`
    await expect.poll(async () => (await sql(locked)).rowCount).toBeGreaterThan(0)
    expect(isThrough).toBe(false)
    await other.query('COMMIT')
    await other.end()
    await waiting
    expect(await bodiesOf('elsewhere')).toEqual(['under way'])
  })

  // After 300 ms the first call still waits for the lock. After 700 ms the commits are being sent again, one by one.
  // After 1,500 ms the tenant has its own connection.
  test.each([300, 700, 1_500])(
    'appends keep their order while another process holds their run for %s ms',
    async ms => {
      const run = `held-${ms}`
      const other = new pg.Client({ connectionString: CONNECTION_STRING })
      await other.connect()
      await other.query(`SET search_path = ${schema}; BEGIN`)
      const batch = new CommitBatch()
      batch.add({ operations: [append(run, 'first')] })
      await other.query(STATEMENTS.commitBatch.text, batch.parameters({}, true))
      const released = new Promise(resolve => setTimeout(resolve, ms)).then(() => other.query('COMMIT'))
      let isReleased = false
      const keys: string[] = []
      const answers: Promise<Appended[]>[] = []
      while (!isReleased || keys.length < 50) {
        const key = `k${keys.length}`
        keys.push(key)
        answers.push(appendAll([[run, key]]))
        // Other callers arrive while a call is being built and after one was sent.
        isReleased = await Promise.race([
          released.then(() => true),
          new Promise<boolean>(resolve => setTimeout(() => resolve(false), 10)),
        ])
      }
      await Promise.all(answers)
      await other.end()
      expect(await bodiesOf(run)).toEqual(['first', ...keys])
    },
  )

  test('a patient subscriber hears of its own process at once and of others in time, without notifications', async () => {
    const other = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
    let calls = 0
    const tree = { scope: FEED, tag: feedTag(TAG) }
    const leave = await storage.subscribe(tree, () => calls++, { othersWithinMs: 60_000 })
    const held = await sql(`SELECT count(*)::integer AS count FROM ${schema}.listeners`)
    expect((held.rows[0] as { count: number }).count).toBe(0)
    await appendAll([['heard', 'own']])
    expect(calls).toBe(1)
    await appendAll([['heard', 'own']])
    leave()
    let late = 0
    const leaveLate = await storage.subscribe(tree, () => late++, { othersWithinMs: 20 })
    await other.commit({ operations: [append('heard', 'of another')] })
    const seen = late
    await eventually(() => late > seen)
    leaveLate()
    await other.close()
  })
})
