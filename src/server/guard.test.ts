import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import type { ServerOptions } from './options.ts'
import { createServer } from './server.ts'

let db: Annals
beforeAll(async () => {
  db = await open({ memory: true })
})
afterAll(() => db.close())

function ask(options: ServerOptions, path: string, init: RequestInit = {}): Promise<Response> {
  return createServer(db, options).fetch(new Request(`http://localhost:8765${path}`, init))
}

const write = { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } }
const from = (headers: Record<string, string>): RequestInit => ({
  ...write,
  headers: { ...write.headers, ...headers },
})

describe('access', () => {
  test.each([
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'evil.example:8765',
    '127.0.0.2',
    '[::2]',
    '',
  ])('on loopback, a request for the host %s is refused, whatever it asks', async host => {
    for (const path of ['/v1/runs', '/ready', '/openapi.json', '/health', '/nothing']) {
      const answer = await ask({}, path, { headers: { Host: host } })
      expect(answer.status, path).toBe(403)
    }
  })

  test.each(['localhost', 'LOCALHOST:1', '127.0.0.1:8765', '[::1]:8765'])(
    'the host %s is accepted',
    async host => {
      expect((await ask({}, '/v1/runs', { headers: { Host: host } })).status).toBe(200)
    },
  )

  test('behind a proxy, only the configured hosts are accepted', async () => {
    const hosts = ['Annals.example']
    expect((await ask({ hosts }, '/ready', { headers: { Host: 'annals.example' } })).status).toBe(200)
    expect((await ask({ hosts }, '/ready', { headers: { Host: 'localhost' } })).status).toBe(403)
  })

  test.each(['https://evil.example', 'null', 'http://localhost:1', 'http://localhost.evil:8765', 'file://'])(
    'a page of the origin %s may not write',
    async origin => {
      const count = (await db.runs.list()).length
      const answer = await ask({}, '/v1/runs', from({ Origin: origin, Host: 'localhost:8765' }))
      expect(answer.status).toBe(403)
      expect(answer.headers.get('Access-Control-Allow-Origin')).toBeNull()
      expect(await db.runs.list()).toHaveLength(count)
    },
  )

  test('pages of the server and of configured origins may write', async () => {
    const own = from({ Origin: 'http://localhost:8765', Host: 'localhost:8765' })
    expect((await ask({}, '/v1/runs', own)).status).toBe(201)
    const origins = ['https://console.example']
    const other = from({ Origin: 'https://console.example' })
    const answer = await ask({ origins }, '/v1/runs', other)
    expect(answer.status).toBe(201)
    expect(answer.headers.get('Access-Control-Allow-Origin')).toBe('https://console.example')
    const preflight = await ask({ origins }, '/v1/runs', {
      method: 'OPTIONS',
      headers: { Origin: 'https://console.example', 'Access-Control-Request-Method': 'POST' },
    })
    expect(preflight.status).toBe(204)
    expect(preflight.headers.get('Access-Control-Allow-Headers')).toContain('Authorization')
  })

  const SITES = ['cross-site', 'same-site', 'CROSS-SITE', 'same-origin, cross-site', '']
  test.each(SITES)(
    'a browser request with Sec-Fetch-Site: %s is refused, for reads and writes',
    async site => {
      const count = (await db.runs.list()).length
      const headers = { 'Sec-Fetch-Site': site, 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' }
      // Without an Origin, as forms and images of older browsers send requests.
      expect((await ask({}, '/v1/runs', from(headers))).status).toBe(403)
      expect(await db.runs.list()).toHaveLength(count)
      for (const path of ['/v1/runs', '/v1/stream', '/openapi.json', '/ready', '/', '/page/page.js']) {
        expect((await ask({}, path, { headers })).status, path).toBe(403)
      }
      // Links to data are refused too. Only the pages may be opened by a link.
      const link = { 'Sec-Fetch-Site': site, 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' }
      expect((await ask({}, '/v1/runs', { headers: link })).status).toBe(403)
      expect((await ask({}, '/', { method: 'POST', headers: link })).status).toBe(403)
      for (const page of ['/', '/docs']) {
        expect((await ask({}, page, { headers: link })).status, page).toBe(200)
        const framed = { ...link, 'Sec-Fetch-Dest': 'iframe' }
        expect((await ask({}, page, { headers: framed })).status, `${page} in a frame`).toBe(403)
      }
    },
  )

  test("the server's own page, a typed address and a configured origin are allowed", async () => {
    for (const site of ['same-origin', 'none']) {
      const headers = { 'Sec-Fetch-Site': site }
      expect((await ask({}, '/v1/runs', { headers })).status, site).toBe(200)
      expect((await ask({}, '/v1/runs', from(headers))).status, site).toBe(201)
    }
    const origins = ['https://console.example']
    const headers = { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://console.example' }
    expect((await ask({ origins }, '/v1/runs', { headers })).status).toBe(200)
    expect((await ask({ origins }, '/v1/runs', from(headers))).status).toBe(201)
    const other = { ...headers, Origin: 'https://evil.example' }
    expect((await ask({ origins }, '/v1/runs', { headers: other })).status).toBe(403)
  })

  test('a public address needs tokens, and a server without one does not start', async () => {
    expect(() => createServer(db, { host: '0.0.0.0', auth: 'off' })).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
    )
    const server = createServer(db, { host: '0.0.0.0', port: 0 })
    await expect(server.listen()).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
    expect((await ask({ host: '0.0.0.0' }, '/v1/runs')).status).toBe(401)
  })

  test('the static token may read and write but not administer', async () => {
    const staticToken = 'from-the-configuration'
    const headers = { Authorization: `Bearer ${staticToken}` }
    expect((await ask({ staticToken }, '/v1/runs')).status).toBe(401)
    expect((await ask({ staticToken }, '/v1/runs', { headers })).status).toBe(200)
    expect((await ask({ staticToken }, '/v1/tokens', { headers })).status).toBe(403)
  })

  test('TD6: a revoked token is refused by the telemetry service even if none is needed', async () => {
    const server = createServer(db)
    const { token, id } = await server.tokens.create({ role: 'reader' })
    await server.tokens.revoke(id)
    for (const [bearer, status] of [
      [token, 401],
      [`annals_${'0'.repeat(16)}_x`, 401],
      ['of-another-service', 200],
    ] as const) {
      const headers = { Authorization: `Bearer ${bearer}` }
      const answer = await server.fetch(new Request('http://localhost/api/v1/runs', { headers }))
      expect(answer.status, bearer).toBe(status)
    }
  })

  test('a server on another loopback address accepts that host', async () => {
    expect(
      (await ask({ host: '127.0.0.2' }, '/v1/runs', { headers: { Host: '127.0.0.2:8765' } })).status,
    ).toBe(200)
  })

  test('a wrong token is refused even if none is needed', async () => {
    expect((await ask({}, '/v1/runs', { headers: { Authorization: 'Bearer wrong' } })).status).toBe(401)
  })

  test('repeated Authorization or Host headers are refused, because a proxy may have checked the other one', async () => {
    const server = createServer(db, { port: 0 })
    const { port } = await server.listen()
    for (const twice of [
      'Host: localhost\r\nHost: evil.example\r\n',
      'Host: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n',
    ]) {
      const answer = await raw(port, `GET /v1/runs HTTP/1.1\r\n${twice}Connection: close\r\n\r\n`)
      expect(answer).toMatch(/^HTTP\/1\.1 400 /)
    }
    await server.close()
  })
})

describe('a request that names its host in the request line', () => {
  const ABSOLUTE: readonly (readonly [target: string, host: string, status: number])[] = [
    ['http://evil.example/v1/runs', 'localhost', 403],
    ['http://evil.example:8765/v1/runs', 'localhost', 403],
    ['http://localhost@evil.example/v1/runs', 'localhost', 403],
    ['https://evil.example/v1/runs', '127.0.0.1', 403],
    ['http://localhost/v1/runs', 'evil.example', 403],
    // Both hosts are allowed, but a proxy may have checked the other one.
    ['http://127.0.0.1/v1/runs', 'localhost', 400],
    ['http://localhost:1/v1/runs', 'localhost', 400],
    ['http://localhost/v1/runs', 'localhost', 200],
    ['http://LOCALHOST:80/v1/runs', 'localhost', 200],
  ]
  test.each(ABSOLUTE)('%s with Host: %s is answered with %i', async (target, host, status) => {
    const server = createServer(db, { port: 0 })
    const { port } = await server.listen()
    const answer = await raw(port, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    await server.close()
  })

  test('is refused behind a proxy too, if the two hosts differ', async () => {
    const server = createServer(db, { port: 0, hosts: ['a.example', 'b.example'] })
    const { port } = await server.listen()
    const get = (target: string): Promise<string> =>
      raw(port, `GET ${target} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n`)
    expect(await get('http://a.example/v1/runs')).toMatch(/^HTTP\/1\.1 200 /)
    expect(await get('http://b.example/v1/runs')).toMatch(/^HTTP\/1\.1 400 /)
    await server.close()
  })

  test('with an invalid Host header is refused, even if any host is accepted', async () => {
    const staticToken = 'from-the-configuration'
    const server = createServer(db, { host: '0.0.0.0', port: 0, staticToken })
    const { port } = await server.listen()
    const answer = await raw(
      port,
      'GET http://a.example/v1/runs HTTP/1.1\r\nHost: a b:x\r\nConnection: close\r\n\r\n',
    )
    expect(answer).toMatch(/^HTTP\/1\.1 400 /)
    await server.close()
  })
})

function raw(port: number, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.on('data', data => {
      answer += data
    })
    socket.on('end', () => resolve(answer))
    socket.on('error', reject)
  })
}

describe('the rate limit', () => {
  test('answers 429 with Retry-After beyond the limit, and counts each token separately', async () => {
    let now = 0
    const server = createServer(db, { rateLimit: { perMinute: 2 }, clock: () => now })
    const { token } = await server.tokens.create({ role: 'reader' })
    const get = (headers: Record<string, string> = {}): Promise<Response> =>
      server.fetch(new Request('http://localhost/v1/runs', { headers }))
    const remaining = async (answer: Promise<Response>): Promise<(string | number | null)[]> => [
      (await answer).status,
      (await answer).headers.get('X-RateLimit-Remaining'),
    ]
    expect(await remaining(get())).toEqual([200, '1'])
    expect(await remaining(get())).toEqual([200, '0'])
    const refused = await get()
    expect(refused.status).toBe(429)
    expect(refused.headers.get('Retry-After')).toBe('30')
    expect(refused.headers.get('X-RateLimit-Limit')).toBe('2')
    expect(await refused.json()).toMatchObject({ code: 'RATE_LIMITED' })
    expect(await remaining(get({ Authorization: `Bearer ${token}` }))).toEqual([200, '1'])
    now = 30_000
    expect(await remaining(get())).toEqual([200, '0'])
  })
})

describe('answers and log', () => {
  test('each request is one line in the log, with the request id of the answer', async () => {
    const lines: string[] = []
    const answer = await ask({ log: line => lines.push(line) }, '/v1/runs/nobody', {
      headers: { 'X-Request-Id': 'my-id' },
    })
    expect(answer.headers.get('X-Request-Id')).toBe('my-id')
    expect(await answer.json()).toMatchObject({ code: 'RUN_NOT_FOUND', requestId: 'my-id' })
    expect(lines.map(line => JSON.parse(line))).toEqual([
      {
        time: expect.any(String),
        requestId: 'my-id',
        method: 'GET',
        path: '/v1/runs/nobody',
        status: 404,
        ms: expect.any(Number),
        tenant: 'default',
        code: 'RUN_NOT_FOUND',
        error: expect.any(String),
      },
    ])
  })

  test('every answer has nosniff', async () => {
    const server = createServer(db)
    const { paths } = (await (await server.fetch(new Request('http://localhost/openapi.json'))).json()) as {
      paths: Record<string, Record<string, unknown>>
    }
    await db.kv.put('seen', 'bytes', new Uint8Array([1]))
    const asked = [
      ...Object.entries(paths).flatMap(([path, methods]) =>
        Object.keys(methods).map(method => [method.toUpperCase(), path.replace(/\{\w+\}/g, 'x')] as const),
      ),
      ['GET', '/v1/runs/seen/kv/bytes'],
      ['GET', '/nothing'],
      ['PATCH', '/v1/runs'],
      ['HEAD', '/v1/runs'],
    ] as const
    expect(asked.length).toBeGreaterThan(40)
    for (const [method, path] of asked) {
      const answer = await server.fetch(new Request(`http://localhost${path}`, { method }))
      expect(answer.headers.get('X-Content-Type-Options'), `${method} ${path}`).toBe('nosniff')
      await answer.body?.cancel()
    }
  })

  test('a request id that could forge a log line is not accepted', async () => {
    for (const id of ['a b', 'x'.repeat(65), '"}']) {
      const answer = await ask({}, '/v1/runs', { headers: { 'X-Request-Id': id } })
      expect(answer.headers.get('X-Request-Id')).toMatch(/^[0-9a-f-]{36}$/)
    }
  })

  test('an internal error reveals no stack, no path and no message', async () => {
    const lines: string[] = []
    const closed = await open({ memory: true })
    const server = createServer(closed, { log: line => lines.push(line) })
    // An error that a store might throw during a request.
    Object.defineProperty(closed.runs, 'query', {
      value: () => Promise.reject(new Error('SELECT secret FROM /var/lib/annals')),
    })
    const answer = await server.fetch(new Request('http://localhost/v1/runs'))
    expect(answer.status).toBe(500)
    const text = await answer.text()
    expect(text).not.toMatch(/secret|var|\.ts|at /)
    expect(JSON.parse(text)).toMatchObject({ code: 'INTERNAL' })
    expect(lines[0], 'but the log does').toContain('SELECT secret')
    await closed.close()
    expect((await server.fetch(new Request('http://localhost/v1/runs/x'))).status).toBe(503)
    expect((await server.fetch(new Request('http://localhost/ready'))).status).toBe(503)
  })
})
