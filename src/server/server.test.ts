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

/** A request whose body is still on its way. */
async function halfSent(): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  const head =
    'PUT /v1/runs/run/kv/key HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n'
  // It is under way once the server has asked for the rest.
  socket.write(`${head.replace('\r\n\r\n', '\r\nExpect: 100-continue\r\n\r\n')}`)
  await once(socket, 'data')
  socket.write('"ha')
  return socket
}

describe('closing', () => {
  test('lets a request that is under way finish, and takes no new ones', async () => {
    const socket = await halfSent()
    const closed = server.close()
    await expect(fetch(`http://127.0.0.1:${port}/ready`)).rejects.toThrow()
    const answer = once(socket, 'data')
    socket.write('lf"')
    expect(String((await answer)[0])).toMatch(/^HTTP\/1\.1 200 /)
    await closed
    expect(await db.kv.get('run', 'key')).toBe('half')
  })

  test('cuts off a request that takes too long', async () => {
    const socket = await halfSent()
    const cut = once(socket, 'close')
    await server.close()
    await cut
    expect(await db.kv.exists('run', 'key')).toBe(false)
  })

  test('twice is fine, and the database stays open', async () => {
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

  test('the same request with the same key is done once, however often and at once it is sent', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => create('key', { tags: ['a'] })))
    const bodies = new Set(await Promise.all(answers.map(answer => answer.text())))
    expect(bodies.size).toBe(1)
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 201))
    expect(answers.filter(({ headers }) => headers.get('Idempotent-Replay') === 'true')).toHaveLength(9)
    expect(await db.runs.list()).toHaveLength(1)
  })

  test('another request with the same key is refused, and one that was refused may be tried again', async () => {
    expect((await create('key', { runId: 'a' })).status).toBe(201)
    expect((await create('key', { runId: 'b' })).status).toBe(400)
    expect((await create('other', { runId: 'child', parentRun: 'parent' })).status).toBe(404)
    await db.runs.create({ runId: 'parent' })
    expect((await create('other', { runId: 'child', parentRun: 'parent' })).status).toBe(201)
    expect((await create('é', {}).catch(() => ({ status: 400 }))).status).toBe(400)
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
