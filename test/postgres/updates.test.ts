import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { AnnalsError } from '../../src/core/errors.ts'
import { TAGS } from '../../src/engine/keys.ts'
import type { Operation, Storage, Updated } from '../../src/engine/storage.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { STATEMENTS } from '../../src/postgres/statements.ts'
import { arrayOf, bytea, encoded } from '../../src/postgres/wire.ts'
import { BATCH_PUT, BATCH_TREE, PLACE, TREE_RANGE } from '../../src/postgres/wire-types.ts'
import { expectError } from '../../src/testing/storage-suite/suite.ts'
import { CuttingProxy } from './proxy.ts'
import { as, CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'

const WORKER = fileURLToPath(new URL('./claim-worker.mjs', import.meta.url))
const tag = TAGS.kv
const jobName = (i: number): string => `${i}`.padStart(5, '0')
const allJobs = (count: number): string[] => Array.from({ length: count }, (_, i) => `taken/${jobName(i)}`)

async function fillQueue(storage: Storage, scope: string, jobs: number): Promise<void> {
  const operations = Array.from(
    { length: jobs },
    (_, i): Operation => ({ op: 'put', scope, tag, key: `ready/${jobName(i)}`, value: 'job' }),
  )
  await storage.commit({ operations })
}

/** Moves the first job of the queue to the worker. */
function claim(storage: Storage, scope: string, worker: string): Promise<Updated<string | undefined>> {
  return storage.update<string | undefined>(
    [],
    (_, [[first]]) => {
      if (first === undefined) return { operations: [], result: undefined }
      const key = `taken/${first.key.slice('ready/'.length)}`
      return {
        operations: [
          { op: 'delete', scope, tag, key: first.key },
          { op: 'put', scope, tag, key, value: worker },
        ],
        result: key,
      }
    },
    { ranges: [{ scope, tag, from: 'ready/', to: 'ready0', limit: 1 }] },
  )
}

async function takenBy(storage: Storage, scope: string): Promise<Map<string, string>> {
  const taken = await storage.scan({ scope, tag, from: 'taken/', to: 'taken0' })
  return new Map(taken.map(({ key, value }) => [key, value]))
}

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')('one-step updates of several processes', () => {
  const schema = newSchema()
  const open = (connectionString = CONNECTION_STRING): ReturnType<typeof openPostgresStorage> =>
    openPostgresStorage({ connectionString, schema, timeoutMs: 5_000 })
  let storage: Storage
  beforeAll(async () => {
    storage = await open()
  })
  afterAll(async () => {
    await storage?.close()
    await dropSchema(schema)
  })

  test.each([1, 4])(
    'P23: %i processes claim every entry of a queue exactly once',
    async processes => {
      const jobs = 1_000
      const scope = `queue-${processes}`
      await fillQueue(storage, scope, jobs)
      const workers = Array.from({ length: processes }, (_, i) => {
        const options = { connectionString: CONNECTION_STRING, schema, name: `P${i}`, scope, workers: 16 }
        const child = spawn(process.execPath, [WORKER, JSON.stringify(options)], {
          stdio: ['pipe', 'pipe', 'inherit'],
        })
        return { child, lines: createInterface({ input: child.stdout }) }
      })
      await Promise.all(workers.map(({ lines }) => once(lines, 'line')))
      const reports = await Promise.all(
        workers.map(async ({ child, lines }) => {
          const [line] = await Promise.all([once(lines, 'line'), child.stdin.write('go\n')])
          return JSON.parse(line[0]) as { claimed: string[]; ms: number }
        }),
      )
      const claimed = reports.map(report => report.claimed)
      const ms = Math.max(...reports.map(report => report.ms))
      console.log(
        `${processes} processes: ${Math.round((jobs / ms) * 1_000)} claims/s, each ${claimed.map(c => c.length).join(', ')}`,
      )
      expect(claimed.flat().sort()).toEqual(allJobs(jobs))
      const taken = await takenBy(storage, scope)
      for (const [i, keys] of claimed.entries()) for (const key of keys) expect(taken.get(key)).toBe(`P${i}`)
      expect(await storage.scan({ scope, tag, to: 'taken/' })).toEqual([])
    },
    60_000,
  )

  test('P23: on a server without the lock, entries are claimed twice', async () => {
    const planted = newSchema()
    const stores = await Promise.all(
      Array.from({ length: 2 }, () =>
        openPostgresStorage({ connectionString: CONNECTION_STRING, schema: planted }),
      ),
    )
    const { rows } = await sql(`SELECT pg_get_functiondef('${planted}.hold_and_read'::regproc) AS text`)
    const sound = /ok := lock_scopes\(.*\) IS NOT NULL;/
    expect(rows[0].text).toMatch(sound)
    await sql(rows[0].text.replace(sound, ''))
    let twice = 0
    for (let round = 0; round < 50 && twice === 0; round++) {
      const scope = `queue-${round}`
      await fillQueue(stores[0], scope, 20)
      const claims = await Promise.all(
        Array.from({ length: 20 }, (_, i) => claim(stores[i % 2], scope, `${i}`)),
      )
      twice = 20 - new Set(claims.map(({ result }) => result)).size
    }
    expect(twice).toBeGreaterThan(0)
    for (const store of stores) await store.close()
    await dropSchema(planted)
  })

  test('P12: increments of three processes, over places only, are all counted and never conflict', async () => {
    const scope = 'counter'
    const others = [storage, await open(), await open()]
    const increment = (from: Storage): Promise<Updated<number>> =>
      from.update([{ scope, tag, key: 'n' }], ([entry]) => {
        const next = Number(entry?.value ?? 0) + 1
        return { operations: [{ op: 'put', scope, tag, key: 'n', value: `${next}` }], result: next }
      })
    const counts = await Promise.all(
      Array.from({ length: 300 }, (_, i) => increment(others[i % 3]).then(({ result }) => result)),
    )
    expect(counts.sort((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, i) => i + 1))
    await others[1].close()
    await others[2].close()
  })

  test('P23: a commit of another process comes before or after a step, never in between', async () => {
    const scope = 'sums'
    const other = await open()
    const writes = Promise.all(
      Array.from({ length: 60 }, (_, i) =>
        other.commit({
          operations: ['a', 'b'].map((key): Operation => ({ op: 'put', scope, tag, key, value: `${i}` })),
        }),
      ),
    )
    for (let i = 0; i < 20; i++) {
      const { result } = await storage.update(
        [{ scope, tag, key: 'b' }],
        ([b], [[a]]) => ({
          operations: [{ op: 'put', scope, tag, key: 'seen', value: `${a?.value}` }],
          result: [a?.key === 'a' ? a.value : undefined, b?.value],
        }),
        { ranges: [{ scope, tag, limit: 1 }] },
      )
      expect(result[0]).toBe(result[1])
    }
    await writes
    await other.close()
  })

  test('P23: closing waits for updates under way, and refuses later ones', async () => {
    const scope = 'closing'
    await fillQueue(storage, scope, 30)
    const closing = await open()
    const claims = Array.from({ length: 30 }, (_, i) => claim(closing, scope, `${i}`))
    const closed = closing.close()
    await expectError(claim(closing, scope, 'late'), 'CLOSED')
    const claimed = (await Promise.all(claims)).map(({ result }) => `${result}`)
    expect(claimed.sort()).toEqual(allJobs(30))
    await closed
  })

  test('a process that stops between the two calls holds its locks for a limited time', async () => {
    const scope = 'stopped'
    await fillQueue(storage, scope, 1)
    const stopped = new pg.Client({ connectionString: CONNECTION_STRING })
    stopped.on('error', () => {})
    await stopped.connect()
    await stopped.query(`SET search_path = ${schema}`)
    const ended = new Promise(resolve => stopped.once('end', resolve))
    await stopped.query('BEGIN')
    await hold(stopped, scope, 300)
    const claimed = claim(storage, scope, 'next')
    await ended
    expect((await claimed).result).toBe('taken/00000')
  })

  describe('with cut connections', () => {
    let proxy: CuttingProxy
    let behind: Storage
    beforeAll(async () => {
      proxy = await CuttingProxy.start(CONNECTION_STRING)
      behind = await open(proxy.connectionString(CONNECTION_STRING))
    })
    afterAll(async () => {
      proxy?.plan(undefined)
      await behind?.close()
      await proxy?.close()
    })

    for (const when of ['before', 'during', 'after'] as const) {
      test(`P23: a connection cut ${when} the first call writes nothing, and the updates are sent again`, async () => {
        const scope = `first-${when}`
        await fillQueue(storage, scope, 60)
        let calls = 0
        let cuts = 0
        proxy.plan(chunk => {
          if (!chunk.includes('annals_hold_and_read') || calls++ % 3 !== 0) return undefined
          cuts++
          return when
        })
        for (let round = 0; round < 6; round++) {
          await Promise.all(Array.from({ length: 10 }, (_, i) => claim(behind, scope, `${i}`)))
        }
        proxy.plan(undefined)
        expect(cuts).toBeGreaterThan(2)
        expect([...(await takenBy(storage, scope)).keys()]).toEqual(allJobs(60))
      })

      test(`P23: a connection cut ${when} the second call leaves each claim wholly done or not done`, async () => {
        const scope = `second-${when}`
        const jobs = 200
        await fillQueue(storage, scope, jobs)
        let calls = 0
        proxy.plan(chunk => (chunk.includes('annals_commit_held') && calls++ % 3 === 0 ? when : undefined))
        const answered: string[] = []
        let unknown = 0
        for (let left = jobs; left > 0; ) {
          const claims = await Promise.allSettled(
            Array.from({ length: 8 }, () => claim(behind, scope, 'me').then(({ result }) => result)),
          )
          for (const each of claims) {
            if (each.status === 'fulfilled') {
              if (each.value !== undefined) answered.push(each.value)
            } else {
              expect(each.reason).toBeInstanceOf(AnnalsError)
              expect((each.reason as AnnalsError).code).toBe('OUTCOME_UNKNOWN')
              unknown++
            }
          }
          left = (await storage.scan({ scope, tag, to: 'taken/' })).length
        }
        proxy.plan(undefined)
        const taken = [...(await takenBy(storage, scope)).keys()]
        // No claim was lost, none was given twice, and an answered claim is stored.
        expect(taken).toEqual(allJobs(jobs))
        expect(new Set(answered).size).toBe(answered.length)
        expect(unknown).toBeGreaterThan(0)
        if (when === 'before') expect(answered).toHaveLength(jobs)
        else expect(answered.length + unknown).toBeGreaterThanOrEqual(jobs)
      })
    }
  })

  describe('by a role with SQL', () => {
    const roles = { a: `${schema}_a`, b: `${schema}_b` }
    let attacker: pg.Client
    beforeAll(async () => {
      for (const [tenant, role] of Object.entries(roles)) {
        await sql(`CREATE ROLE ${role} LOGIN; SELECT ${schema}.grant_access('${role}', '${tenant}')`)
      }
      attacker = new pg.Client({ connectionString: as(roles.a) })
      await attacker.connect()
      await attacker.query(`SET search_path = ${schema}`)
    })
    afterAll(async () => {
      await attacker?.end()
      for (const role of Object.values(roles)) await sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
    })

    const mine = 'a:default:default:run'
    const others = 'b:default:default:run'

    test('updates of a bound role work, in its tenant only', async () => {
      const bound = await open(as(roles.a))
      await fillQueue(bound, mine, 3)
      const claims = await Promise.all(Array.from({ length: 4 }, () => claim(bound, mine, 'me')))
      expect(claims.filter(({ result }) => result !== undefined)).toHaveLength(3)
      await expectError(claim(bound, others, 'me'), 'INVALID_ARGUMENT')
      await bound.close()
    })

    test('the first call reads and locks no other tenant, by whichever parameter it is named', async () => {
      for (const parameters of [
        holdParameters({ scopes: [others] }),
        holdParameters({ scopes: [mine], place: others }),
        holdParameters({ scopes: [mine], range: others }),
      ]) {
        await expect(attacker.query(STATEMENTS.holdAndRead.text, parameters)).rejects.toThrow(
          'does not reach',
        )
      }
    })

    test('the second call writes only a version that the first one gave to the same transaction', async () => {
      await attacker.query('BEGIN')
      const { token, version, time } = await hold(attacker, mine, 5_000)
      await expect(commitHeld(attacker, mine, token, version + 1024, time)).rejects.toThrow('must follow')
      await attacker.query('ROLLBACK; BEGIN')
      await expect(commitHeld(attacker, mine, token, version, time)).rejects.toThrow('must follow')
      await attacker.query('ROLLBACK; BEGIN')
      const held = await hold(attacker, mine, 5_000)
      await expect(commitHeld(attacker, others, held.token, held.version, held.time)).rejects.toThrow(
        'does not reach',
      )
      await attacker.query('ROLLBACK; BEGIN')
      const again = await hold(attacker, mine, 5_000)
      await commitHeld(attacker, mine, again.token, again.version, again.time)
      await attacker.query('COMMIT')
      expect(await storage.get(mine, tag, 'k')).toMatchObject({ value: 'v', version: again.version })
    })

    test('a transaction that it leaves open holds up its own tenant only', async () => {
      await fillQueue(storage, mine, 2)
      await fillQueue(storage, others, 50)
      await attacker.query('BEGIN')
      await hold(attacker, mine, 60_000)
      const blocked = claim(storage, mine, 'me')
      for (let i = 0; i < 10; i++) {
        await Promise.all(Array.from({ length: 5 }, () => claim(storage, others, 'me')))
      }
      expect((await takenBy(storage, others)).size).toBe(50)
      await attacker.query('ROLLBACK')
      expect((await blocked).result).toBe('taken/00000')
    })
  })
})

function holdParameters(named: {
  readonly scopes: readonly string[]
  readonly place?: string
  readonly range?: string
  readonly idleMs?: number
}): unknown[] {
  const { scopes, place, range, idleMs = 5_000 } = named
  const everything = {
    fromKey: '',
    fromTail: '',
    fromSequence: 0n,
    fromCount: 0,
    toKey: undefined,
    toTail: '',
    toSequence: 0n,
    toCount: 0,
    backwards: false,
    atMost: 1,
  }
  return [
    undefined,
    0,
    idleMs,
    encoded(arrayOf(bytea), scopes),
    encoded(
      arrayOf(PLACE),
      place === undefined ? [] : [{ scope: place, tag, kind: 0, key: 'k', tail: '', sequence: undefined }],
    ),
    encoded(
      arrayOf(TREE_RANGE),
      range === undefined ? [] : [{ scope: range, tag, kind: 0, range: everything }],
    ),
  ]
}

interface Held {
  readonly token: Buffer
  readonly version: number
  readonly time: number
}

/** Calls the first statement of an update without the library. */
async function hold(client: pg.Client, scope: string, idleMs: number): Promise<Held> {
  const { rows } = await client.query(
    STATEMENTS.holdAndRead.text,
    holdParameters({ scopes: [scope], idleMs }),
  )
  return { token: rows[0].key, version: Number(rows[0].version), time: Number(rows[0].committed_at) }
}

/** Calls the second statement of an update without the library. */
async function commitHeld(
  client: pg.Client,
  scope: string,
  token: Buffer,
  version: number,
  time: number,
): Promise<void> {
  const tree = { scope, tag, kind: 0, isWritten: true, isCreated: true }
  const put = { tx: 0, step: 1, tree: 1, key: 'k', tail: '', value: 'v', expiresAt: 0, time: undefined }
  await client.query(STATEMENTS.commitHeld.text, [
    token,
    version,
    time,
    encoded(arrayOf(BATCH_TREE), [tree]),
    encoded(arrayOf(BATCH_PUT), [put]),
  ])
}
