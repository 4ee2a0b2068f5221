import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open, openOn } from '../annals.ts'
import { openEmbedded } from '../embedded/open.ts'
import { Database } from '../engine/database.ts'
import { TAGS } from '../engine/keys.ts'
import { deriveIdempotencyKey } from '../ledger/idempotency-key.ts'
import { createServer, type Server } from './server.ts'

let db: Annals
let server: Server
beforeEach(async () => {
  db = await open({ memory: true })
  server = createServer(db)
})
afterEach(() => db.close())

async function page(
  path: string,
  after?: string,
): Promise<{ readonly next?: string; readonly [list: string]: unknown }> {
  const search = after === undefined ? '' : `&after=${encodeURIComponent(after)}`
  const answer = await server.fetch(new Request(`http://localhost${path}?limit=2${search}`))
  expect(answer.status).toBe(200)
  return (await answer.json()) as { next?: string }
}

describe('a list continues after an item that was deleted meanwhile', () => {
  test('runs', async () => {
    for (let i = 0; i < 5; i++) await db.runs.create({ runId: `run-${i}` })
    const expected = await db.runs.list()
    const first = await page('/v1/runs')
    const seen = (first['runs'] as { runId: string }[]).map(({ runId }) => runId)
    expect(seen).toEqual(expected.slice(0, 2))
    await db.runs.delete(seen[1])
    const all = new Set(seen)
    for (let { next } = first; next !== undefined; ) {
      const more = await page('/v1/runs', next)
      for (const { runId } of more['runs'] as { runId: string }[]) all.add(runId)
      next = more.next
    }
    expect([...all].sort()).toEqual([...expected].sort())
  })

  test('cells', async () => {
    for (const name of ['a', 'b', 'c', 'd']) await db.cells.init('run', name, 1)
    const { next } = await page('/v1/runs/run/cells')
    await db.cells.delete('run', next as string)
    expect(await page('/v1/runs/run/cells', next)).toEqual({ cells: ['c', 'd'] })
  })

  test('tokens', async () => {
    for (let i = 0; i < 4; i++) await server.tokens.create({ role: 'reader', name: `${i}` })
    const first = await page('/v1/tokens')
    const [, second] = first['tokens'] as { id: string }[]
    await server.tokens.revoke(second.id)
    expect((await page('/v1/tokens', first.next))['tokens']).toHaveLength(2)
  })

  test('an invalid cursor is refused', async () => {
    for (const path of ['/v1/tokens', '/v1/alerts', '/v1/tombstones', '/v1/runs/run/traces']) {
      const answer = await server.fetch(new Request(`http://localhost${path}?after=nonsense`))
      expect(answer.status, path).toBe(400)
    }
  })
})

/** A long list whose last entry can't be decoded, so reading the whole list for one page would fail. */
describe('reading a page does not read the rest of the list', () => {
  const COUNT = 60
  let database: Database

  beforeEach(async () => {
    await db.close()
    const storage = await openEmbedded({})
    database = new Database(storage)
    db = await openOn(storage)
    server = createServer(db)
  })

  /** Damages the last entry of a kind, in the order of the list. */
  async function spoilLast(tag: number, kind: string, isReverse = false): Promise<void> {
    const found = []
    for (const scope of await database.scopes({ limit: 1_000 })) {
      const entries = await database.scan({ scope, tag, from: kind, reverse: isReverse })
      found.push(
        ...entries
          .filter(({ key, value }) => key.startsWith(kind) && value !== '')
          .map(({ key }) => ({ scope, key })),
      )
    }
    expect(found.length).toBeGreaterThanOrEqual(COUNT)
    const { scope, key } = found[found.length - 1]
    await database.write([{ op: 'put', scope, tag, key, value: 'spoilt' }])
  }

  test('traces, by time and by tag', async () => {
    for (let i = 0; i < COUNT; i++) {
      const id = `trace-${i + 100}`
      await db.traces.record('run', { type: 'Thought', content: 'hm' }, { id, tags: ['some'] })
    }
    const first = await page('/v1/runs/run/traces')
    await spoilLast(TAGS.trace, 'r')
    expect(await page('/v1/runs/run/traces')).toEqual(first)
    expect((await page('/v1/runs/run/traces', first.next))['traces']).toMatchObject([
      { id: 'trace-102' },
      { id: 'trace-103' },
    ])
    const answer = await server.fetch(new Request('http://localhost/v1/runs/run/traces?tag=some&limit=1'))
    expect(await answer.json()).toMatchObject({ traces: [{ id: 'trace-100' }] })
  })

  test('tombstones, newest first', async () => {
    for (let i = 0; i < COUNT; i++) {
      await db.runs.create({ runId: `run-${i}` })
      await db.runs.delete(`run-${i}`)
    }
    await spoilLast(TAGS.run, 'x', true)
    const first = await page('/v1/tombstones')
    const second = await page('/v1/tombstones', first.next)
    expect([...(first['tombstones'] as []), ...(second['tombstones'] as [])]).toMatchObject(
      [59, 58, 57, 56].map(i => ({ runId: `run-${i}` })),
    )
  })

  test('tokens', async () => {
    for (let i = 0; i < 2 * COUNT; i++) await server.tokens.create({ role: 'reader' })
    await spoilLast(TAGS.kv, '')
    const first = await page('/v1/tokens')
    const ids = [first, await page('/v1/tokens', first.next)].flatMap(
      ({ tokens }) => tokens as { id: string }[],
    )
    expect(ids).toEqual([...ids].sort((a, b) => (a.id < b.id ? -1 : 1)))
    expect(ids).toHaveLength(4)
  })

  test('alerts, of a run and of all', async () => {
    for (let i = 1; i <= COUNT; i++) {
      const fields = {
        runId: 'run',
        eventType: 'RunResumed',
        logicalAttemptId: i,
        planId: 'plan',
        planVersion: '1',
      }
      await db.ledger.appendEvent({
        ...fields,
        eventId: randomUUID(),
        emittedAt: '2025-06-15T15:06:40.000Z',
        tenantId: 'acme',
        projectId: 'shop',
        environmentId: 'test',
        engineAttemptId: 1,
        idempotencyKey: deriveIdempotencyKey(fields),
      })
    }
    await db.ledger.projectSnapshot('run')
    await spoilLast(TAGS.projection, 'a')
    const first = await page('/v1/alerts')
    const second = await page('/v1/alerts', first.next)
    expect([first, second].flatMap(({ alerts }) => alerts as { runSeq: number }[])).toMatchObject(
      [1, 2, 3, 4].map(runSeq => ({ runSeq })),
    )
    const ofRun = await server.fetch(new Request('http://localhost/v1/alerts?runId=run&limit=1'))
    expect(await ofRun.json()).toMatchObject({ alerts: [{ runSeq: 1 }] })
  })
})
