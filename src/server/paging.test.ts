import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
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

describe('a list goes on behind what was deleted meanwhile', () => {
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

  test('a cursor that was never given is refused', async () => {
    for (const path of ['/v1/tokens', '/v1/alerts', '/v1/tombstones', '/v1/runs/run/traces']) {
      const answer = await server.fetch(new Request(`http://localhost${path}?after=nonsense`))
      expect(answer.status, path).toBe(400)
    }
  })
})
