import { expect, test } from 'vitest'
import { type Annals, open } from '../../src/index.ts'
import { createServer, type Server } from '../../src/server.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { rounds } from '../rounds.ts'
import { type ApiDescription, ApiRequests } from './api-requests.ts'
import { heldBytes } from './held-memory.ts'

const REQUESTS = rounds(15_000, 1_000_000)
/** This includes the data that successful requests have stored. */
const GROWTH_BYTES_MAX = 64 * 1024 * 1024

async function describedBy(server: Server): Promise<ApiDescription> {
  const answer = await server.fetch(new Request('http://localhost/openapi.json'))
  return (await answer.json()) as ApiDescription
}

/** Waits for the background projector, whose commits are not changes by the next request. Returns the version. */
async function settled(db: Annals, hasAppended = false): Promise<number> {
  // Within the same millisecond the projector does not report a lag yet.
  if (hasAppended) await new Promise(resolve => setTimeout(resolve, 3))
  while (db.stats().ledger.projector.lagMs > 0) await new Promise(resolve => setImmediate(resolve))
  return db.stats().version as number
}

/** The data that requests with an idempotency key can change. */
async function fingerprint(db: Annals): Promise<string> {
  const runs = await db.runs.query({ includeArchived: true, limit: 100 })
  const cells = await Promise.all(['run-1', 'run-2'].map(run => db.cells.list(run)))
  const traces = await Promise.all(['run-1', 'run-2'].map(run => db.traces.count(run)))
  const answers = await db.forTenant('_annals').kv.list('answers')
  return JSON.stringify([
    runs.map(({ runId, status, updatedAt }) => [runId, status, updatedAt]),
    cells,
    traces,
    answers,
  ])
}

test(
  `${REQUESTS} requests generated from the OpenAPI document: none is a 5xx, and a refused one changes nothing`,
  async () => {
    const seed = seedOfRun()
    console.log(`seed ${seed}`)
    const db = await open({ memory: true })
    const server = createServer(db)
    const requests = new ApiRequests(await describedBy(server), new Random(seed))
    const seen = new Map<string, Set<number>>()
    const undocumented = new Set<string>()
    const counts = { good: 0, refused: 0 }
    let heldAtFirst = 0
    const since = performance.now()
    let version = await settled(db)
    for (let i = 0; i < REQUESTS; i++) {
      const { name, request, documented, isAstray } = requests.next()
      const what = `seed ${seed}, request ${i}: ${request.method} ${request.url}`
      // An idempotency key is claimed before the request is checked, and released if the request is refused. This
      // commits, but changes no data.
      const before = request.headers.has('Idempotency-Key') ? await fingerprint(db) : undefined
      const answer = await server.fetch(request)
      const { status } = answer
      if (!isAstray && !documented.includes(`${status}`)) undocumented.add(`${name}: ${status}`)
      if (status >= 500) throw new Error(`${what}: ${status}: ${await answer.text()}`)
      if (status >= 400) {
        counts.refused++
        const now = await settled(db)
        // `expect` would cost more than the request.
        const isSame = before === undefined ? now === version : (await fingerprint(db)) === before
        if (!isSame) throw new Error(`${what}: ${status}, and something has changed`)
        version = now
      } else {
        counts.good++
        version = await settled(db, name.startsWith('appendEvent'))
      }
      await answer.body?.cancel()
      const statuses = seen.get(name) ?? new Set()
      seen.set(name, statuses.add(status))
      if (i === REQUESTS / 5) heldAtFirst = heldBytes()
    }
    const growth = heldBytes() - heldAtFirst
    const seconds = (performance.now() - since) / 1_000
    console.log(
      `${counts.good} answered, ${counts.refused} refused, ${seconds.toFixed(1)} s, held ${(growth / 1e6).toFixed(1)} MB`,
    )
    expect(growth).toBeLessThan(GROWTH_BYTES_MAX)
    // All status codes must be documented, including those of refused requests.
    expect([...undocumented].sort()).toEqual([])
    // Every operation was requested, and most of them also with success.
    expect(seen.size).toBe(requests.count)
    expect(
      [...seen.values()].filter(statuses => [...statuses].some(status => status < 300)).length,
    ).toBeGreaterThan(requests.count * 0.7)
    await server.close()
    await db.close()
  },
  Math.max(300_000, REQUESTS * 10),
)
