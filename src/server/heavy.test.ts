import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import type { LaunchRegistry } from './launch-registry.ts'
import type { ServerOptions } from './options.ts'
import { createServer, type Server } from './server.ts'

const MIB = 1024 * 1024
let db: Annals
beforeAll(async () => {
  db = await open({ memory: true })
})
afterAll(() => db.close())

/** A registry whose `state` lasts until the test ends it, for heavy requests to `GET /v1/launches/{runId}`. */
class HeldLaunches implements LaunchRegistry {
  readonly #waiting = new Map<string, () => void>()
  readonly #begun = new Map<string, () => void>()

  list = async (): Promise<readonly string[]> => []
  resume = async (): Promise<void> => undefined
  cancel = async (): Promise<void> => undefined

  async state(runId: string): Promise<never> {
    const gate = new Promise<void>(resolve => this.#waiting.set(runId, resolve))
    this.#begun.get(runId)?.()
    await gate
    return { run_id: runId, run_state: 'Completed' } as never
  }

  /** Resolves when the request for this run has begun. */
  begun(runId: string): Promise<void> {
    if (this.#waiting.has(runId)) return Promise.resolve()
    return new Promise(resolve => this.#begun.set(runId, resolve))
  }

  end(runId: string): void {
    this.#waiting.get(runId)?.()
  }
}

function serverWith(options: ServerOptions): { server: Server; launches: HeldLaunches } {
  const launches = new HeldLaunches()
  return { server: createServer(db, { launches, ...options }), launches }
}

const get = (server: Server, path: string, init: RequestInit = {}): Promise<Response> =>
  server.fetch(new Request(`http://localhost${path}`, init))

/** The value of a metric. */
async function metric(server: Server, name: string): Promise<number> {
  const text = await (await get(server, '/metrics/prometheus')).text()
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1])
}

describe('heavy requests', () => {
  test('one that gets no slot in time is refused with 429 and Retry-After and does not affect others', async () => {
    const { server, launches } = serverWith({ heavyPerTenant: 1, heavyMax: 1, heavyWaitMs: 30 })
    const first = get(server, '/v1/launches/a')
    await launches.begun('a')
    const refused = await get(server, '/v1/runs/run/verification')
    expect(refused.status).toBe(429)
    expect(Number(refused.headers.get('Retry-After'))).toBeGreaterThan(0)
    expect(await refused.json()).toMatchObject({ code: 'RATE_LIMITED' })
    expect((await get(server, '/v1/runs')).status).toBe(200)
    expect(await metric(server, 'annals_http_heavy_requests')).toBe(1)
    expect(await metric(server, 'annals_http_heavy_requests_refused_total')).toBe(1)
    launches.end('a')
    expect((await first).status).toBe(200)
    expect(await metric(server, 'annals_http_heavy_requests')).toBe(0)
    expect((await get(server, '/v1/runs/run/verification')).status).toBe(404)
  })

  test('those of one tenant wait for each other until slots are free', async () => {
    const { server, launches } = serverWith({ heavyPerTenant: 2 })
    const answers = ['a', 'b', 'c'].map(id => get(server, `/v1/launches/${id}`))
    await Promise.all([launches.begun('a'), launches.begun('b')])
    expect(await metric(server, 'annals_http_heavy_requests_waiting')).toBe(1)
    launches.end('a')
    await launches.begun('c')
    expect(await metric(server, 'annals_http_heavy_requests_waiting')).toBe(0)
    for (const id of ['b', 'c']) launches.end(id)
    for (const answer of answers) expect((await answer).status).toBe(200)
  })

  test('a slow page of a tenant does not take the slots of another', async () => {
    const { server, launches } = serverWith({ heavyPerTenant: 1, heavyMax: 2, heavyWaitMs: 5_000 })
    const { token } = await server.tokens.create({ tenant: 'other', role: 'reader' })
    const mine = ['a', 'b', 'c'].map(id => get(server, `/v1/launches/${id}`))
    await launches.begun('a')
    const theirs = get(server, '/v1/runs/none/verification', {
      headers: { Authorization: `Bearer ${token}` },
    })
    expect((await theirs).status).toBe(404)
    for (const id of ['a', 'b', 'c']) {
      await launches.begun(id)
      launches.end(id)
    }
    for (const answer of mine) expect((await answer).status).toBe(200)
  })

  test('a caller that closes its connection while waiting frees its place', async () => {
    const { server, launches } = serverWith({ port: 0, heavyPerTenant: 1 })
    const { port } = await server.listen()
    const first = get(server, '/v1/launches/a')
    await launches.begun('a')
    const socket = connect(port, '127.0.0.1', () => {
      socket.write('GET /v1/launches/b HTTP/1.1\r\nHost: localhost\r\n\r\n')
    })
    const waiting = (): Promise<number> => metric(server, 'annals_http_heavy_requests_waiting')
    await expect.poll(waiting).toBe(1)
    socket.destroy()
    await expect.poll(waiting).toBe(0)
    launches.end('a')
    await first
    expect(await metric(server, 'annals_http_heavy_requests')).toBe(0)
    await server.close()
  })

  test.each([
    [{ heavyMax: 0 }, 'heavyMax'],
    [{ heavyPerTenant: 1.5 }, 'heavyPerTenant'],
    [{ heavyMax: 2, heavyPerTenant: 3 }, 'heavyPerTenant'],
    [{ heavyWaitMs: -1 }, 'heavyWaitMs'],
    [{ bodyBytesPerTenant: MIB }, 'bodyBytesPerTenant'],
    [{ bodyBytesMax: 20 * MIB, bodyBytesPerTenant: 21 * MIB }, 'bodyBytesPerTenant'],
  ])('the options %j are refused by name', (options, name) => {
    expect(() => createServer(db, options)).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT', details: { name } }),
    )
  })
})

describe('large bodies', () => {
  /** A body that the test ends when it likes. */
  function slowBody(bytes: number): { readonly init: RequestInit; end(): void } {
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined
    const body = new ReadableStream<Uint8Array>({
      start(given) {
        controller = given
        given.enqueue(Buffer.from(`"${'x'.repeat(bytes - 3)}`))
      },
    })
    const headers = { 'Content-Type': 'application/json', 'Content-Length': `${bytes}` }
    return {
      init: { method: 'PUT', headers, body, duplex: 'half' } as RequestInit,
      end() {
        controller?.enqueue(Buffer.from('x"'))
        controller?.close()
      },
    }
  }

  test('a body waits until there is room for its bytes, and is refused after a time', async () => {
    const { server } = serverWith({ heavyWaitMs: 30, bodyBytesPerTenant: 18 * MIB })
    const first = slowBody(10 * MIB)
    const answer = get(server, '/v1/runs/run/kv/a', first.init)
    await expect.poll(() => metric(server, 'annals_http_body_bytes')).toBe(10 * MIB)
    const second = slowBody(9 * MIB)
    second.end()
    expect((await get(server, '/v1/runs/run/kv/b', second.init)).status).toBe(429)
    const small = { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '1' }
    expect((await get(server, '/v1/runs/run/kv/c', small)).status).toBe(200)
    first.end()
    expect((await answer).status).toBe(200)
    expect(await db.kv.get('run', 'a')).toHaveLength(10 * MIB - 2)
    expect(await metric(server, 'annals_http_body_bytes')).toBe(0)
    expect(await metric(server, 'annals_http_bodies_refused_total')).toBe(1)
  })

  test('a large body without a length reserves room for the longest body', async () => {
    const { server } = serverWith({})
    const slow = slowBody(100_000)
    const { 'Content-Length': _, ...headers } = slow.init.headers as Record<string, string>
    const answer = get(server, '/v1/runs/run/kv/d', { ...slow.init, headers })
    await expect.poll(() => metric(server, 'annals_http_body_bytes')).toBe(16 * MIB)
    slow.end()
    expect((await answer).status).toBe(200)
    expect(await metric(server, 'annals_http_body_bytes')).toBe(0)
  })

  test('an interrupted or refused body releases its bytes', async () => {
    const { server } = serverWith({ port: 0 })
    const { port } = await server.listen()
    const socket = connect(port, '127.0.0.1', () => {
      const head = `PUT /v1/runs/run/kv/e HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`
      socket.write(`${head}Content-Length: ${5 * MIB}\r\n\r\n"xxx`)
    })
    await expect.poll(() => metric(server, 'annals_http_body_bytes')).toBe(5 * MIB)
    socket.destroy()
    await expect.poll(() => metric(server, 'annals_http_body_bytes')).toBe(0)
    const init = { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '['.repeat(MIB) }
    expect((await get(server, '/v1/runs/run/kv/e', init)).status).toBe(400)
    expect(await metric(server, 'annals_http_body_bytes')).toBe(0)
    await server.close()
  })
})
