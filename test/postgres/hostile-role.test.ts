import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { sha256Hex } from '../../src/core/hash.ts'
import { feedTag, TAGS } from '../../src/engine/keys.ts'
import { feedKey } from '../../src/engine/log.ts'
import type { Commit, Storage } from '../../src/engine/storage.ts'
import { CommitBatch } from '../../src/postgres/commit-batch.ts'
import { openPostgresStorage } from '../../src/postgres/open.ts'
import { STATEMENTS } from '../../src/postgres/statements.ts'
import { openPostgres } from '../../src/postgres.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { as, CONNECTION_STRING, dropSchema, newSchema, sql } from './schema.ts'
import { TestServer } from './server.ts'

const HASH = 'h'.repeat(32)
/** Longer than any of these calls takes on a busy machine, and shorter than the time-out of a statement. */
const PROMPT_MS = 5_000
const scopeOf = (tenant: string, run = 'run'): string => `${tenant}:default:default:${run}`
const sharedOf = (tenant: string): string => `${tenant}:_shared:_shared:_shared`

/** Fails if the work takes so long that it must have been blocked. */
async function promptly<T>(what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} was held up`)), PROMPT_MS)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')("a tenant's role cannot block other tenants", () => {
  const schema = newSchema()
  const roles = { a: `${schema}_a`, b: `${schema}_b` }
  let owner: Storage
  let victim: Annals
  let attacker: pg.Client

  beforeAll(async () => {
    owner = await openPostgresStorage({ connectionString: CONNECTION_STRING, schema })
    for (const role of Object.values(roles)) await sql(`CREATE ROLE ${role} LOGIN`)
    await sql(`SELECT ${schema}.grant_access('${roles.a}', 'a'), ${schema}.grant_access('${roles.b}', 'b')`)
  })
  afterAll(async () => {
    await owner?.close()
    await dropSchema(schema)
    for (const role of Object.values(roles)) await sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  })
  beforeEach(async () => {
    victim = await openPostgres({ connectionString: as(roles.b), schema, tenant: 'b' })
    attacker = await connected(roles.a)
  })
  afterEach(async () => {
    await attacker.end()
    await victim.close()
  })

  async function connected(role: string): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: as(role) })
    await client.connect()
    await client.query(`SET search_path = ${schema}`)
    return client
  }

  /** Calls `commit_batch` without the library, as any role with SQL can. */
  async function commitBySql(client: pg.Client, commit: Commit): Promise<void> {
    const batch = new CommitBatch()
    batch.add(commit)
    await client.query(STATEMENTS.commitBatch.text, batch.parameters({}, true))
  }

  const put = (tenant: string, run?: string): Commit => ({
    operations: [{ op: 'put', scope: scopeOf(tenant, run), tag: TAGS.kv, key: 'k', value: 'v' }],
  })

  /** Runs every kind of write of another tenant, and the operations that wait for writes. */
  async function expectOthersProceed(run: string): Promise<void> {
    const write = async (): Promise<void> => {
      await victim.kv.put(run, 'k', 1)
      await victim.events.append(run, 'tick', null)
      await victim.transaction(run, async tx => {
        await tx.kv.put('k', ((await tx.kv.get('k')) as number) + 1)
        await tx.events.append('tock', null)
      })
      await victim.ledger.appendEvent(newEvent({ tenantId: 'b', runId: run }))
      await owner.commit(put('b', run))
      // A new tenant, whose locks do not exist yet.
      await owner.commit(put(`new-${run}`))
    }
    await promptly('a write', write())
    const many = Array.from({ length: 300 }, (_, i) => put('b', `${run}-${i}`).operations[0])
    await promptly('a commit to many scopes', owner.commit({ operations: many }))
    await promptly('an audit', audited(run))
    await promptly('a write after the audit', victim.kv.put(run, 'k', 3))
    const leave = await promptly(
      'a subscription',
      owner.subscribe({ scope: sharedOf('b'), tag: feedTag(TAGS.ledger) }, () => {}),
    )
    leave()
  }

  async function audited(run: string): Promise<void> {
    const records = []
    for await (const record of victim.ledger.audit({ from: -Infinity, to: Infinity }))
      if (record.runId === run) records.push(record)
    expect(records).toHaveLength(1)
  }

  /** Any role can take advisory locks, and `pg_locks` shows their keys to every role. */
  async function lockAllSeen(seen: ReadonlySet<string>): Promise<void> {
    for (const key of seen) await attacker.query(`SELECT pg_advisory_lock(${key})`)
  }

  const ADVISORY = `SELECT ((classid::bigint << 32) | objid::bigint)::text AS key FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

  test('by locks that it sees others take', async () => {
    const seen = new Set<string>()
    const held = await connected(roles.b)
    await held.query('BEGIN')
    await commitBySql(held, put('b', 'seen'))
    // Locks that are held only for a moment are seen by looking often.
    const look = async (): Promise<void> => {
      for (const { key } of (await attacker.query(ADVISORY)).rows) seen.add(key as string)
    }
    await look()
    await held.query('COMMIT')
    let isOver = false
    const writing = (async () => {
      while (!isOver) await victim.kv.put('seen', 'k', 1)
    })()
    for (let i = 0; i < 300; i++) await look()
    isOver = true
    await writing
    await lockAllSeen(seen)
    await expectOthersProceed('seen')
  })

  test('by the lock of migrations, which is the same everywhere', async () => {
    await attacker.query(`SELECT pg_advisory_lock(x'${sha256Hex('annals:migrations').slice(0, 16)}'::bigint)`)
    const other = newSchema()
    const opened = await promptly(
      'a migration',
      openPostgresStorage({ connectionString: CONNECTION_STRING, schema: other }),
    )
    await opened.close()
    await dropSchema(other)
  })

  const CALLS: Readonly<Record<string, (client: pg.Client) => Promise<unknown>>> = {
    'a put': client => commitBySql(client, put('a')),
    'an append that a feed lists': client =>
      commitBySql(client, {
        operations: [
          {
            op: 'append',
            scope: scopeOf('a'),
            tag: TAGS.ledger,
            body: 'x',
            bodyHash: HASH,
            feed: sharedOf('a'),
          },
        ],
      }),
    'puts to every scope that it likes': client =>
      commitBySql(client, {
        operations: Array.from({ length: 500 }, (_, i) => put('a', `run-${i}`).operations[0]),
      }),
    'waiting for writers': client => client.query('SELECT wait_for_writers($1, true)', [scopeOf('a')]),
    listening: client => client.query('SELECT listen_to($1, 1::smallint)', [scopeOf('a')]),
    sweeping: client => client.query('SELECT sweep_expired(1000)'),
    reading: client => client.query('SELECT count(*) FROM trees, entries, events, migrations'),
  }
  for (const [name, call] of Object.entries(CALLS)) {
    test(`by a transaction that it never ends after ${name}`, async () => {
      await attacker.query('BEGIN')
      await call(attacker)
      await expectOthersProceed(`after-${name.replaceAll(' ', '-')}`)
    })
  }

  test('that are served by the same process', async () => {
    const scope = scopeOf('a')
    const feed = { scope: sharedOf('a'), tag: feedTag(TAGS.ledger) }
    await attacker.query('BEGIN')
    await commitBySql(attacker, {
      operations: [
        ...put('a').operations,
        { op: 'append', scope, tag: TAGS.ledger, body: 'x', bodyHash: HASH, feed: sharedOf('a') },
      ],
    })
    // All of these wait for the attacker, and each would block everything behind it on its connection.
    const own = [
      ...Array.from({ length: 5 }, () => owner.commit(put('a'))),
      owner.subscribe(feed, () => {}),
      owner.update([{ ...feed, key: feedKey(0, 0) }], () => ({ operations: [], result: undefined })),
    ]
    const done = own.map(() => false)
    own.forEach((work, i) => {
      work.then(
        () => {
          done[i] = true
        },
        () => {},
      )
    })
    for (let round = 0; round < 3; round++) {
      // Together with the others, and alone.
      own.push(owner.commit(put('a')))
      await promptly('a write in the same process', owner.commit(put('b', 'beside')))
      await promptly('a read in the same process', owner.get(scopeOf('b', 'beside'), TAGS.kv, 'k'))
    }
    await expectOthersProceed('beside')
    expect(done).not.toContain(true)
    await attacker.query('ROLLBACK')
    await Promise.all(own)
    await promptly('a write of the tenant itself', owner.commit(put('a')))
  }, 30_000)

  test('by removing expired entries that others write again', async () => {
    const expired = { ...put('b', 'swept').operations[0], expiresAt: Date.now() - 1 }
    await owner.commit({ operations: [expired] } as Commit)
    await owner.commit(put('b', 'later'))
    await attacker.query('BEGIN')
    const { rows } = await attacker.query('SELECT sweep_expired(1000) AS swept')
    await promptly('a put to an expired key', owner.commit(put('b', 'swept')))
    expect(rows).toEqual([{ swept: 0 }])
  })

  test('by locks of tables or rows', async () => {
    const tables = await sql(`SELECT relname AS name FROM pg_class
      WHERE relnamespace = '${schema}'::regnamespace AND relkind IN ('r', 'v', 'S')`)
    expect(tables.rows.length).toBeGreaterThan(8)
    const relation = (name: string): string => `${schema}.${name}`
    for (const { name } of tables.rows as { name: string }[]) {
      for (const mode of ['ROW SHARE', 'ROW EXCLUSIVE', 'SHARE', 'EXCLUSIVE', 'ACCESS EXCLUSIVE']) {
        const statement = `BEGIN; LOCK TABLE ${relation(name)} IN ${mode} MODE; ROLLBACK`
        await expect(sql(statement, as(roles.a)), statement).rejects.toThrow(
          /permission denied|cannot lock relation|is not a table or view/,
        )
      }
      for (const strength of ['KEY SHARE', 'SHARE', 'NO KEY UPDATE', 'UPDATE']) {
        const statement = `SELECT * FROM ${relation(name)} FOR ${strength}`
        await expect(sql(statement, as(roles.a)), statement).rejects.toThrow(
          /permission denied|cannot lock rows/,
        )
      }
    }
  })
})

// reason: without a server of our own there is no queue to fill; the setup has said so
describe.skipIf(CONNECTION_STRING === '')('a role that has filled the notification queue', () => {
  test('blocks no writer, and subscribers hear of the writes later', async () => {
    const server = await TestServer.start(['fsync=off', 'max_notify_queue_pages=64'])
    const { connectionString } = server
    const clients = [new pg.Client({ connectionString }), new pg.Client({ connectionString })]
    const [holder, sender] = clients
    try {
      await using db = await openPostgres({ connectionString })
      const seen: unknown[] = []
      const end = new AbortController()
      const tail = (async () => {
        for await (const { payload } of db.events.tail('run', { signal: end.signal })) {
          seen.push(payload)
          if (payload === 'late') end.abort()
        }
      })()
      await db.events.append('run', 'tick', 'first')
      await expect.poll(() => seen).toEqual(['first'])
      for (const client of clients) await client.connect()
      // Notifications that a session in a transaction has not read stay in the queue.
      await holder.query('LISTEN crowded; BEGIN; SELECT 1')
      const fill = async (): Promise<void> => {
        for (let i = 0; ; i++)
          await sender.query(`SELECT pg_notify('crowded', '${String(i).padEnd(7_900, 'x')}')`)
      }
      await expect(fill()).rejects.toThrow(/NOTIFY queue/)
      await promptly('a write', db.events.append('run', 'tick', 'late'))
      await tail
      expect(seen).toEqual(['first', 'late'])
    } finally {
      for (const client of clients) await client.end()
      await server.remove()
    }
  }, 180_000)
})
