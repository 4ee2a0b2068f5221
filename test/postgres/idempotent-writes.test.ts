import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openPostgres } from '../../src/postgres.ts'
import { createServer, type Server } from '../../src/server/server.ts'
import { CONNECTION_STRING, dropSchema, newSchema } from './schema.ts'

// reason: needs PostgreSQL; the global setup prints why there is none
describe.skipIf(CONNECTION_STRING === '')(
  'Idempotency-Key: two servers, each with its own connections to one PostgreSQL',
  () => {
    const schema = newSchema()
    const stores: Awaited<ReturnType<typeof openPostgres>>[] = []
    const servers: Server[] = []
    beforeAll(async () => {
      for (let i = 0; i < 2; i++) {
        stores.push(await openPostgres({ connectionString: CONNECTION_STRING, schema }))
        servers.push(createServer(stores[i]))
      }
    })
    afterAll(async () => {
      for (const server of servers) await server.close()
      for (const store of stores) await store.close()
      await dropSchema(schema)
    })

    const create = (server: Server, key: string, body: object = {}): Promise<Response> =>
      server.fetch(
        new Request('http://localhost/v1/runs', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key },
          body: JSON.stringify(body),
        }),
      )

    test('a request that both servers get at once is done once, and both give the same answer', async () => {
      const keys = Array.from({ length: 10 }, (_, i) => `at-once-${i}`)
      const runIds = await Promise.all(
        keys.map(async key => {
          const answers = await Promise.all([0, 1, 0, 1].map(i => create(servers[i], key)))
          expect(answers.map(({ status }) => status)).toEqual([201, 201, 201, 201])
          expect(answers.filter(({ headers }) => headers.get('Idempotent-Replay') === 'true')).toHaveLength(3)
          const bodies = new Set(await Promise.all(answers.map(answer => answer.text())))
          expect(bodies.size).toBe(1)
          return (JSON.parse([...bodies][0]) as { runId: string }).runId
        }),
      )
      expect(new Set(runIds).size).toBe(keys.length)
      for (const store of stores) expect([...(await store.runs.list())].sort()).toEqual([...runIds].sort())
    })

    test('a request that one server has done is answered by the other, and another request with its key is refused', async () => {
      const first = await create(servers[0], 'later', { runId: 'later' })
      const again = await create(servers[1], 'later', { runId: 'later' })
      expect([again.status, await again.text()]).toEqual([201, await first.text()])
      expect(again.headers.get('Idempotent-Replay')).toBe('true')
      expect((await create(servers[1], 'later', { runId: 'other' })).status).toBe(400)
      expect(await stores[0].runs.get('other')).toBeUndefined()
    })
  },
)
