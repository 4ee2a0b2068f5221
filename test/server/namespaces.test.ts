import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type AnnalsClient, createClient } from '../../src/client.ts'
import { type Annals, agentShared, namespace, open, verifyBundle } from '../../src/index.ts'
import { createServer, type Server } from '../../src/server.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'

const RUN = 'run-1'
/** Names with characters that have a meaning in a path. */
const THERE = namespace({ tenant: '~:acme', app: 'a:b/c', agent: '%3A..', run: RUN })

let db: Annals
let server: Server
let client: AnnalsClient
let token: string
beforeEach(async () => {
  db = await open({ memory: true })
  server = createServer(db)
  token = (await server.tokens.create({ tenant: '~:acme', role: 'admin' })).token
  client = createClient({ url: 'http://localhost', token, fetch: (url, init) => ask(url, init) })
})
afterEach(() => db.close())

function ask(url: string, init: RequestInit = {}): Promise<Response> {
  return Promise.resolve(server.fetch(new Request(url, init)))
}

async function answer(path: string, init: RequestInit = {}): Promise<{ status: number; json: unknown }> {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }
  const response = await ask(`http://localhost${path}`, { headers, ...init })
  return { status: response.status, json: await response.json() }
}

/** A cursor that a server could have returned for another scope. */
function cursorLike(place: string): string {
  return Buffer.from(JSON.stringify([place])).toString('base64url')
}

describe('P27, P32: runs in namespaces over HTTP', () => {
  test('a client accepts a namespace wherever it accepts a run id, as the database does', async () => {
    const acme = db.forTenant('~:acme')
    const created = await client.runs.create({ runId: THERE, metadata: { n: 1n }, tags: ['t'] })
    expect(created).toMatchObject({ runId: RUN, app: 'a:b/c', agent: '%3A..' })
    expect(created).toEqual(await acme.runs.get(RUN))
    await expect(client.runs.create({ runId: RUN })).rejects.toMatchObject({ code: 'RUN_EXISTS' })
    expect(await client.runs.ensure(THERE)).toEqual(created)
    const child = await client.runs.create({ runId: 'child', parentRun: THERE })
    await client.kv.put(THERE, 'k', 'there')
    await client.cells.init(THERE, 'c', 1)
    await client.traces.record(THERE, { type: 'Thought', content: 'hm' })
    await acme.events.append(THERE, 'note', 'there')
    await client.ledger.appendEvent(newEvent({ tenantId: '~:acme' }))
    for (const run of [RUN, THERE]) {
      expect(await client.runs.get(run)).toEqual(created)
      expect(await client.runs.children(run)).toEqual([child])
      expect(await client.ledger.fetchEvents(run)).toEqual(await acme.ledger.fetchEvents(THERE))
      expect(await client.ledger.projectSnapshot(run)).toMatchObject({ status: 'RUNNING' })
      expect(await client.ledger.verifyRun(run)).toEqual({ isValid: true, events: 1 })
      expect(await client.ledger.alerts({ runId: run })).toEqual([])
      expect(await verifyBundle(client.exportRun(run))).toMatchObject({
        isValid: true,
        app: 'a:b/c',
        events: 1,
      })
      const stream = client.ledger.subscribe({ runId: run })
      expect((await stream.next()).value).toMatchObject({ runSeq: 1 })
      await stream.return()
    }
    expect(await acme.kv.get(THERE, 'k')).toBe('there')
    expect(await client.kv.get(RUN, 'k')).toBeUndefined()
    expect(await client.cells.read(THERE, 'c')).toMatchObject({ value: 1 })
    expect(await client.traces.list(THERE)).toHaveLength(1)
    expect(await client.events.verifyChain(THERE)).toEqual({ isValid: true, length: 1 })
    expect(await client.events.verifyChain(RUN)).toEqual({ isValid: true, length: 0 })
    const left = await client.runs.delete(THERE, { purgeLedger: true, reason: 'done' })
    expect(left).toMatchObject({ app: 'a:b/c', agent: '%3A..', events: 1 })
    expect(await client.runs.tombstones()).toEqual([left])
    expect(await acme.kv.get(THERE, 'k')).toBeUndefined()
  })

  test('a namespace without that run, of another tenant, or with a wrong format is refused', async () => {
    await client.runs.create({ runId: THERE })
    const elsewhere = namespace({ tenant: '~:acme', app: 'other', agent: 'x', run: RUN })
    expect(await client.runs.get(elsewhere)).toBeUndefined()
    expect(await client.runs.children(elsewhere)).toEqual([])
    expect(await client.ledger.alerts({ runId: elsewhere })).toEqual([])
    for (const attempt of [
      () => client.runs.complete(elsewhere),
      () => client.runs.create({ parentRun: elsewhere }),
      () => client.runs.query({ after: elsewhere }),
    ]) {
      await expect(attempt()).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' })
    }
    const foreign = namespace({ tenant: 'default', app: 'a', agent: 'b', run: 'r' })
    const shared = agentShared({ tenant: '~:acme', app: 'a', agent: 'b' })
    for (const attempt of [
      () => client.runs.get(foreign),
      () => client.runs.create({ runId: foreign }),
      () => client.kv.put(foreign, 'k', 1),
      () => client.runs.get(shared),
      () => client.runs.get(null as never),
      () => client.runs.get({} as never),
    ]) {
      await expect(attempt()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
    // A scope that runs share accepts data.
    await client.kv.put(shared, 'k', 1)
    expect(await client.kv.get(shared, 'k')).toBe(1)
    for (const path of ['~:', '~:a', '~:a:b:c:d:e', '~:%25:b:c:d', '~:a::c:d', `~:${'x'.repeat(4_000)}`]) {
      expect(await answer(`/v1/runs/${path}`), path).toMatchObject({ status: 400 })
    }
    expect(await db.runs.query()).toEqual([])
  })

  test('scopes without a run are listed page by page and dropped, as in the database', async () => {
    const acme = db.forTenant('~:acme')
    await client.runs.create({ runId: THERE })
    await client.kv.put(THERE, 'k', 1)
    const shared = agentShared({ tenant: '~:acme', app: 'a:b', agent: '%' })
    const elsewhere = namespace({ tenant: '~:acme', app: 'other', agent: 'x', run: RUN })
    for (const scope of [shared, elsewhere, '.', '~~']) await client.kv.put(scope, 'k', 1)
    // More than one page of the list.
    await Promise.all(Array.from({ length: 130 }, (_, i) => acme.kv.put(`scratch-${i}`, 'k', i)))
    await db.kv.put('of another tenant', 'k', 1)
    const found = await client.scopes()
    expect(found.map(String)).not.toContain(THERE.toString())
    expect(found).toHaveLength(134)
    expect(found).toEqual((await acme.scopes()).map(scope => ({ ...scope })))
    const scratch = await client.scopes({ prefix: 'scratch-' })
    expect(scratch).toHaveLength(130)
    await expect(client.drop(THERE)).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
    const writer = createClient({
      url: 'http://localhost',
      token: (await server.tokens.create({ tenant: '~:acme', role: 'writer' })).token,
      fetch: (url, init) => ask(url, init),
    })
    await expect(writer.drop(shared)).rejects.toMatchObject({ code: 'FORBIDDEN' })
    for (const scope of [...scratch, shared, elsewhere, '.', '~~']) await client.drop(scope)
    expect(await acme.scopes()).toEqual([])
    expect(await acme.kv.get(elsewhere, 'k')).toBeUndefined()
    expect(await acme.kv.get(THERE, 'k')).toBe(1)
    expect(await db.kv.get('of another tenant', 'k')).toBe(1)
    for (const wrong of ['x', cursorLike('x'), cursorLike('default:a:b:c')]) {
      expect(await answer(`/v1/scopes?after=${wrong}`), wrong).toMatchObject({ status: 400 })
    }
    await expect(client.drop({} as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(client.scopes({ app: 'x' } as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('a request may have app and agent besides the id', async () => {
    const body = JSON.stringify({ runId: 'by-hand', app: 'research' })
    const made = await answer('/v1/runs', { method: 'POST', body })
    expect(made).toMatchObject({ status: 201, json: { runId: 'by-hand', app: 'research' } })
    expect(made.json).not.toHaveProperty('agent')
    const named = JSON.stringify({ agent: 'critic' })
    expect(await answer('/v1/runs', { method: 'POST', body: named })).toMatchObject({
      status: 201,
      json: { agent: 'critic' },
    })
    expect(await answer('/v1/runs/by-hand')).toEqual({ status: 200, json: made.json })
    const again = await answer('/v1/runs/by-hand', { method: 'PUT', body: '{}' })
    expect(again).toEqual({ status: 200, json: made.json })
    expect((await answer('/v1/runs')).json).toMatchObject({
      runs: [{ agent: 'critic' }, { app: 'research' }],
    })
    expect(await client.stats()).toMatchObject({ tenant: '~:acme' })
  })
})
