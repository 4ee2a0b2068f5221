import { once } from 'node:events'
import { request } from 'node:http'
import { connect } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Annals, open } from '../../src/annals.ts'
import { newId } from '../../src/core/id.ts'
import type { ServerOptions } from '../../src/server/options.ts'
import { createServer, type Server } from '../../src/server/server.ts'
import { telemetrySettings } from '../../src/server/telemetry-settings.ts'
import { newRun } from './telemetry-suite/service.ts'

/** Authentication and rate limits of the telemetry service, over a real socket. */

let db: Annals
let server: Server
let url: string

beforeEach(async () => {
  db = await open({ memory: true })
})
afterEach(async () => {
  await server.close()
  await db.close()
})

async function start(env: Record<string, string>, options: ServerOptions = {}): Promise<void> {
  server = createServer(db, { port: 0, ...telemetrySettings(env), ...options })
  ;({ url } = await server.listen())
}

const SECRET = 'a-secret-of-the-service'
const GUARDED = { TELEMETRY_API_AUTH_ENABLED: 'true', TELEMETRY_API_AUTH_TOKEN: SECRET }
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })

/** Every route with a valid request. */
const ROUTES: readonly (readonly [method: string, path: string, body?: unknown])[] = [
  ['GET', '/metrics'],
  ['GET', '/api/v1/metadata'],
  ['GET', '/api/v1/runs'],
  ['POST', '/api/v1/runs', newRun()],
  ['POST', '/api/v1/runs/batch', [newRun()]],
  ['GET', `/api/v1/runs/${newId()}`],
  ['PATCH', `/api/v1/runs/${newId()}`, { status: 'success' }],
  ['POST', `/api/v1/runs/${newId()}/associate-commit`, { commit_hash: 'abcdef1', commit_source: 'ci' }],
  ['GET', `/api/v1/runs/${newId()}/commit-url`],
  ['GET', `/api/v1/runs/${newId()}/repo-url`],
  ['GET', '/telemetry/r'],
]

function ask(
  [method, path, body]: (typeof ROUTES)[number],
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${url}${path}`, {
    method,
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
}

describe('tokens', () => {
  test('TD6: are not needed by default', async () => {
    await start({ TELEMETRY_API_AUTH_TOKEN: SECRET })
    for (const route of ROUTES) {
      expect((await ask(route)).status, route.join(' ')).not.toBe(401)
      expect((await ask(route, bearer('for-another-service'))).status).not.toBe(401)
    }
  })

  test.each(ROUTES.map(route => ({ name: route.slice(0, 2).join(' '), route })))(
    'TD6: $name needs the token once it is enabled',
    async ({ route }) => {
      await start(GUARDED)
      const own = await server.tokens.create({ role: 'admin', name: 'foreign', tenant: 'default' })
      await server.tokens.revoke(own.id)
      const refused = [
        {},
        bearer('wrong'),
        bearer(own.token),
        bearer(''),
        { authorization: `Basic ${SECRET}` },
      ]
      for (const headers of refused) {
        const response = await ask(route, headers)
        expect(response.status).toBe(401)
        expect(response.headers.get('www-authenticate')).toBe('Bearer')
        expect(await response.json()).toEqual({ detail: expect.any(String) })
      }
      const answer = await ask(route, bearer(SECRET))
      expect(answer.status).not.toBe(401)
      expect(answer.status).not.toBe(403)
    },
  )

  test('TD6: a token of the server works too, with the right role', async () => {
    await start(GUARDED)
    const reader = await server.tokens.create({ role: 'reader' })
    const writer = await server.tokens.create({ role: 'writer' })
    for (const route of ROUTES) {
      const [method] = route
      const asReader = (await ask(route, bearer(reader.token))).status
      if (method === 'GET') expect(asReader).not.toBe(403)
      else expect(asReader, route.join(' ')).toBe(403)
      const asWriter = (await ask(route, bearer(writer.token))).status
      expect([401, 403]).not.toContain(asWriter)
    }
    expect(await db.telemetry.totals()).toMatchObject({ total_runs: 2 })
  })

  test('TD6: a token does not see the records of another tenant', async () => {
    await start(GUARDED)
    const run = newRun()
    await ask(['POST', '/api/v1/runs', run], bearer(SECRET))
    const acme = await server.tokens.create({ role: 'admin', tenant: 'acme' })
    expect((await ask(['GET', `/api/v1/runs/${run.event_id}`], bearer(acme.token))).status).toBe(404)
    expect((await ask(['POST', '/api/v1/runs', run], bearer(acme.token))).status).toBe(201)
  })

  test('TD6: are not needed for /health', async () => {
    await start(GUARDED)
    expect((await ask(['GET', '/health'])).status).toBe(200)
  })

  test.each(['1', 'true', 'yes', 'on', 'TRUE', 'Yes'])(
    'TD6: are needed with TELEMETRY_API_AUTH_ENABLED=%s',
    async value => {
      await start({ ...GUARDED, TELEMETRY_API_AUTH_ENABLED: value })
      expect((await ask(ROUTES[0])).status).toBe(401)
    },
  )

  test.each(['', '0', 'false', 'no', 'off'])(
    'TD6: are not needed with TELEMETRY_API_AUTH_ENABLED=%j',
    async value => {
      await start({ ...GUARDED, TELEMETRY_API_AUTH_ENABLED: value })
      expect((await ask(ROUTES[0])).status).toBe(200)
    },
  )

  test('TD4: two Authorization headers are 400', async () => {
    await start(GUARDED)
    const raw = (lines: readonly string[]): Promise<string> => exchange(['GET /metrics HTTP/1.1', ...lines])
    const one = `Authorization: Bearer ${SECRET}`
    expect(await raw([one])).toMatch(/^HTTP\/1\.1 200 /)
    for (const lines of [[one, one], [one, 'authorization: Bearer wrong'], [`${one}, Bearer wrong`]]) {
      const answer = await raw(lines)
      expect(answer).toMatch(/^HTTP\/1\.1 400 /)
      expect(answer).toContain('{"detail":')
    }
  })
})

describe('a server that must not start', () => {
  beforeEach(() => start({}))

  test.each([
    [{ TELEMETRY_API_AUTH_ENABLED: '1' }],
    [{ TELEMETRY_API_AUTH_ENABLED: '1', TELEMETRY_API_AUTH_TOKEN: '' }],
    [{ TELEMETRY_API_AUTH_ENABLED: '1', TELEMETRY_API_AUTH_TOKEN: 'with space' }],
    [{ TELEMETRY_API_AUTH_ENABLED: 'ture', TELEMETRY_API_AUTH_TOKEN: SECRET }],
    [{ TELEMETRY_RATE_LIMIT_ENABLED: 'maybe' }],
    [{ TELEMETRY_RATE_LIMIT_ENABLED: '1', TELEMETRY_RATE_LIMIT_RPM: '0' }],
    [{ TELEMETRY_RATE_LIMIT_RPM: 'many' }],
  ])('TD6: %j is refused, and says which variable', env => {
    expect(() => telemetrySettings(env)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
    expect(() => telemetrySettings(env)).toThrow(/^TELEMETRY_/)
  })
})

describe('the rate limit', () => {
  const LIMITED = { TELEMETRY_RATE_LIMIT_ENABLED: 'on', TELEMETRY_RATE_LIMIT_RPM: '3' }
  const left = (response: Response): readonly (string | null)[] =>
    ['x-ratelimit-limit', 'x-ratelimit-remaining'].map(name => response.headers.get(name))

  test('TD6: is off by default, without headers', async () => {
    await start({ TELEMETRY_RATE_LIMIT_RPM: '1' })
    for (let i = 0; i < 5; i++) expect(left(await ask(ROUTES[0]))).toEqual([null, null])
  })

  test('TD6: is 60 requests a minute by default', async () => {
    await start({ TELEMETRY_RATE_LIMIT_ENABLED: '1' })
    expect(left(await ask(ROUTES[0]))).toEqual(['60', '59'])
  })

  test('TD6: further requests are 429 with Retry-After until time has passed', async () => {
    let now = Date.UTC(2026, 10, 15)
    await start(LIMITED, { clock: () => now })
    for (const remaining of ['2', '1', '0']) {
      expect(left(await ask(ROUTES[0]))).toEqual(['3', remaining])
    }
    const refused = await ask(ROUTES[0])
    expect(refused.status).toBe(429)
    expect(left(refused)).toEqual(['3', '0'])
    expect(await refused.json()).toEqual({ detail: expect.any(String) })
    const seconds = Number(refused.headers.get('retry-after'))
    expect(seconds).toBeGreaterThanOrEqual(1)
    expect(seconds).toBeLessThanOrEqual(60)
    now += seconds * 1000
    expect((await ask(ROUTES[0])).status).toBe(200)
  })

  test('TD6: counts each token separately, and requests without one by address', async () => {
    await start({ ...LIMITED, ...GUARDED })
    const reader = await server.tokens.create({ role: 'reader' })
    for (let i = 0; i < 3; i++) await ask(ROUTES[0], bearer(SECRET))
    expect((await ask(ROUTES[0], bearer(SECRET))).status).toBe(429)
    expect((await ask(ROUTES[0], bearer(reader.token))).status).toBe(200)
    // Wrong tokens count against the address, not each on its own.
    const guesses = []
    for (let i = 0; i < 4; i++) guesses.push((await ask(ROUTES[0], bearer(`guess-${i}`))).status)
    expect(guesses).toEqual([401, 401, 401, 429])
  })

  test('TD6: the headers are on every answer', async () => {
    await start({ ...LIMITED, TELEMETRY_RATE_LIMIT_RPM: '1000', ...GUARDED })
    const token = bearer(SECRET)
    const answers = [
      await ask(['GET', '/health']),
      await ask(ROUTES[0]),
      await ask(ROUTES[0], token),
      await ask(['GET', `/api/v1/runs/${newId()}`], token),
      await ask(['PUT', '/api/v1/runs', {}], token),
      await ask(['POST', '/api/v1/runs', {}], token),
      await ask(['POST', '/api/v1/runs', newRun()], token),
      await ask(['GET', '/telemetry/none'], token),
      await ask(['GET', '/api/v1/nothing'], token),
      await ask(['POST', '/api/v1/runs', newRun()], { ...token, origin: 'https://evil.example' }),
      await ask(
        ['POST', '/api/v1/runs', newRun()],
        bearer((await server.tokens.create({ role: 'reader' })).token),
      ),
      await ask(['GET', '/api/v1/runs'], token),
    ]
    const expected = [200, 401, 200, 404, 405, 422, 201, 404, 404, 403, 403, 200]
    expect(answers.map(({ status }) => status)).toEqual(expected)
    for (const answer of answers) expect(left(answer)).toEqual(['1000', expect.stringMatching(/^\d+$/)])
  })
})

test('TD4: every route is documented with all its responses', async () => {
  await start({})
  const { paths } = (await (await ask(['GET', '/openapi.json'])).json()) as {
    paths: Record<string, Record<string, { tags: string[]; responses: Record<string, unknown> }>>
  }
  const telemetry = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, route]) => ({ name: `${method} ${path}`, ...route })),
  )
  const own = telemetry.filter(({ tags }) => tags.includes('telemetry'))
  expect(own).toHaveLength(12)
  for (const { name, responses } of own) {
    const statuses = Object.keys(responses)
    expect(statuses, name).toEqual(expect.arrayContaining(['200', '403', '429', 'default']))
    if (!name.endsWith('/health')) expect(statuses, name).toContain('401')
    if (/^(post|patch)/.test(name))
      expect(statuses, name).toEqual(expect.arrayContaining(['400', '413', '415', '422']))
    if (name.includes('{')) expect(statuses, name).toContain('404')
  }
})

describe('hosts and origins', () => {
  test.each([
    ['Host', 'evil.example', 'GET'],
    ['Origin', 'https://evil.example', 'POST'],
    ['Origin', 'null', 'PATCH'],
  ])('TD4: a foreign %s, %s, is 403 on a %s', async (name, value, method) => {
    await start({})
    const path = method === 'PATCH' ? `/api/v1/runs/${newId()}` : '/api/v1/runs'
    const outgoing = request(`${url}${path}`, {
      method,
      headers: { 'content-type': 'application/json', [name]: value },
    })
    outgoing.end(method === 'GET' ? undefined : JSON.stringify(newRun()))
    const [response] = await once(outgoing, 'response')
    let text = ''
    for await (const piece of response) text += piece
    expect(response.statusCode).toBe(403)
    expect(JSON.parse(text)).toEqual({ detail: expect.any(String) })
    expect(await db.telemetry.totals()).toMatchObject({ total_runs: 0 })
  })
})

/** Sends a raw request, so that a header can occur twice. */
async function exchange(lines: readonly string[]): Promise<string> {
  const { host, port } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.write(`${[...lines, `Host: ${host}`, 'Connection: close'].join('\r\n')}\r\n\r\n`)
  let answer = ''
  for await (const piece of socket) answer += String(piece)
  return answer
}
