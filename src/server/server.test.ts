import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import { createServer, type Server } from './server.ts'

let db: Annals
let server: Server
let port: number

beforeEach(async () => {
  db = await open({ memory: true })
  server = createServer(db, { port: 0, closeTimeoutMs: 300 })
  port = (await server.listen()).port
})
afterEach(async () => {
  await server.close()
  await db.close()
})

/** Sends a request with an incomplete body. */
async function halfSent(): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  const head =
    'PUT /v1/runs/run/kv/key HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n'
  // The request is in progress once the server has asked for the body.
  socket.write(`${head.replace('\r\n\r\n', '\r\nExpect: 100-continue\r\n\r\n')}`)
  await once(socket, 'data')
  socket.write('"ha')
  return socket
}

describe('closing', () => {
  test('lets an open request finish and accepts no new ones', async () => {
    const socket = await halfSent()
    const closed = server.close()
    await expect(fetch(`http://127.0.0.1:${port}/ready`)).rejects.toThrow()
    const answer = once(socket, 'data')
    socket.write('lf"')
    expect(String((await answer)[0])).toMatch(/^HTTP\/1\.1 200 /)
    await closed
    expect(await db.kv.get('run', 'key')).toBe('half')
  })

  test('aborts a request that takes too long', async () => {
    const socket = await halfSent()
    const cut = once(socket, 'close')
    await server.close()
    await cut
    expect(await db.kv.exists('run', 'key')).toBe(false)
  })

  test('may be called twice, and the database stays open', async () => {
    await Promise.all([server.close(), server.close()])
    await db.kv.put('run', 'key', 1)
    expect(await db.kv.get('run', 'key')).toBe(1)
    await expect(server.listen()).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
  })
})

describe('idempotent writes', () => {
  const create = (key: string, body: object): Promise<Response> =>
    server.fetch(
      new Request('http://localhost/v1/runs', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key },
        body: JSON.stringify(body),
      }),
    )

  test('the same request with the same key is done once, also if it is sent several times at once', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => create('key', { tags: ['a'] })))
    const bodies = new Set(await Promise.all(answers.map(answer => answer.text())))
    expect(bodies.size).toBe(1)
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 201))
    expect(answers.filter(({ headers }) => headers.get('Idempotent-Replay') === 'true')).toHaveLength(9)
    expect(await db.runs.list()).toHaveLength(1)
  })

  test('another request with the same key is refused, and a refused request may be repeated', async () => {
    expect((await create('key', { runId: 'a' })).status).toBe(201)
    expect((await create('key', { runId: 'b' })).status).toBe(400)
    expect((await create('other', { runId: 'child', parentRun: 'parent' })).status).toBe(404)
    await db.runs.create({ runId: 'parent' })
    expect((await create('other', { runId: 'child', parentRun: 'parent' })).status).toBe(201)
    expect((await create('é', {}).catch(() => ({ status: 400 }))).status).toBe(400)
  })

  test('two servers on one database do the write once', async () => {
    const other = createServer(db)
    const request = (): Request =>
      new Request('http://localhost/v1/runs', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'Idempotency-Key': 'shared' },
        body: '{}',
      })
    const answers = await Promise.all([server, other, server, other].map(one => one.fetch(request())))
    const bodies = new Set(await Promise.all(answers.map(answer => answer.text())))
    expect(bodies.size).toBe(1)
    expect(await db.runs.list()).toHaveLength(1)
  })

  test('a write is done once even if the server dies before it stores the answer', async () => {
    let now = 0
    const first = createServer(db, { clock: () => now })
    const kv = db.forTenant('_annals').kv
    const ask = (of: Server): Promise<Response> =>
      of.fetch(
        new Request('http://localhost/v1/runs', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', 'Idempotency-Key': 'lost' },
          body: '{}',
        }),
      )
    const { runId } = (await (await ask(first)).json()) as { runId: string }
    // As if the answer were never stored. Only the claim is.
    const [[name, answer]] = await kv.entries('answers')
    await kv.put('answers', name, { asked: (answer as { asked: string }).asked, claimedAt: 0 })
    now = 3_600_000
    const again = await ask(createServer(db, { clock: () => now }))
    expect([again.status, await again.json()]).toEqual([201, expect.objectContaining({ runId })])
    expect(await db.runs.list()).toEqual([runId])
  })

  test('the same key of another token is another key', async () => {
    const { token } = await server.tokens.create({ role: 'writer' })
    await create('key', {})
    const request = new Request('http://localhost/v1/runs', {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        'Idempotency-Key': 'key',
        Authorization: `Bearer ${token}`,
      },
      body: '{}',
    })
    expect((await server.fetch(request)).headers.get('Idempotent-Replay')).toBeNull()
    expect(await db.runs.list()).toHaveLength(2)
  })
})

describe('clients that do not read', () => {
  const open16 = (): Promise<number> => db.kv.put('run', 'large', 'x'.repeat(16 * 1024 * 1024 - 2))

  test('HEAD opens no stream', async () => {
    await db.runs.create({ runId: 'run' })
    for (const path of ['/v1/stream', '/v1/runs/run/stream', '/v1/runs/run/bundle']) {
      const answer = await server.fetch(new Request(`http://localhost${path}`, { method: 'HEAD' }))
      expect([answer.status, await answer.text()]).toEqual([200, ''])
    }
    const metrics = await server.fetch(new Request('http://localhost/metrics/prometheus'))
    expect(await metrics.text()).toMatch(/^annals_http_open_streams 0$/m)
  })

  test('a client that never reads its answer is disconnected', async () => {
    await open16()
    const impatient = createServer(db, { port: 0, streamStallMs: 200, heartbeatMs: 100 })
    const socket = connect((await impatient.listen()).port, '127.0.0.1')
    await once(socket, 'connect')
    socket.on('error', () => {})
    socket.pause()
    socket.write('GET /v1/runs/run/kv/large HTTP/1.1\r\nHost: localhost\r\n\r\n')
    let count = 1
    while (count > 0) {
      // The server does not announce when it releases a connection, so its count is polled.
      await new Promise(resolve => setTimeout(resolve, 50))
      count = await impatient.connections()
    }
    socket.destroy()
    await impatient.close()
  })

  test('a busy keep-alive connection ends when the server closes', async () => {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    // The connection may be closed while a request is being sent.
    socket.on('error', () => {})
    const ended = new Promise<void>(resolve => socket.once('close', () => resolve()))
    let answers = ''
    const ask = (): boolean => socket.write('GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n')
    socket.on('data', data => {
      answers += data
      if (socket.writable) ask()
    })
    ask()
    await once(socket, 'data')
    await server.close()
    await ended
    expect(answers).toMatch(/^HTTP\/1\.1 200 /)
  })
})
