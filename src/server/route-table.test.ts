import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import { newEvent, RUN } from '../testing/ledger-suite/events.ts'
import { PAGE_FILES } from './page-files.ts'
import { createServer, type Server } from './server.ts'
import type { Role } from './tokens.ts'

/**
 * Every route with every kind of credential. The routes come from the server itself. A route without a row in this
 * table fails.
 */

const TELEMETRY_ID = '7c9e6679-7425-40de-944b-e07fc1f90ae8'

function telemetryRun(event_id: string, agent_name = 'agent'): Record<string, string> {
  const start_time = '2026-11-15T03:30:00.000Z'
  return {
    event_id,
    run_id: agent_name === 'agent' ? 'other' : 'trail',
    agent_name,
    job_type: 'launch',
    start_time,
  }
}

interface Row {
  /** The path, with ids of the tenant `acme`. */
  readonly path: string
  readonly json?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly status: number
  /** Text that the answer must contain if access is allowed. */
  readonly holds?: string
}

const registration = { idempotencyKey: '0'.repeat(64), eventId: '7c9e6679-7425-40de-944b-e07fc1f90ae7' }

/** The requests by operation. */
const ROWS: Readonly<Record<string, Row>> = {
  queryRuns: { path: '/v1/runs', status: 200, holds: RUN },
  createRun: { path: '/v1/runs', json: { tags: ['made'] }, status: 201 },
  getRun: { path: `/v1/runs/${RUN}`, status: 200, holds: '"tags"' },
  ensureRun: { path: '/v1/runs/plain', json: {}, status: 200 },
  updateRunStatus: { path: '/v1/runs/plain/status', json: { status: 'Paused' }, status: 200 },
  addRunTags: { path: '/v1/runs/plain/tags', json: { tags: ['a'] }, status: 200 },
  updateRunMetadata: { path: '/v1/runs/plain/metadata', json: { a: 1 }, status: 200 },
  archiveRun: { path: '/v1/runs/plain/archive', status: 200 },
  deleteRun: { path: '/v1/runs/victim', status: 200 },
  listTombstones: { path: '/v1/tombstones', status: 200, holds: 'forgotten' },
  listScopes: { path: '/v1/scopes', status: 200, holds: 'scratch' },
  dropScope: { path: '/v1/scopes/scratch', status: 200 },
  stats: { path: '/v1/stats', status: 200 },
  store: { path: '/v1/store', status: 200 },
  appendEvent: { path: '/v1/events', json: newEvent({ eventType: 'One' }), status: 200 },
  appendEvents: { path: '/v1/events/batch', json: [newEvent({ eventType: 'Two' })], status: 200 },
  fetchAllEvents: { path: '/v1/events', status: 200, holds: 'secret payload' },
  fetchEvents: { path: `/v1/runs/${RUN}/events`, status: 200, holds: 'secret payload' },
  exportRun: { path: `/v1/runs/${RUN}/bundle`, status: 200, holds: 'secret payload' },
  acquireLease: { path: '/v1/runs/leased/lease', json: { owner: 'me', ttlMs: 1 }, status: 200 },
  releaseLease: { path: '/v1/runs/held/lease?epoch=1', status: 200 },
  claimEventId: { path: `/v1/runs/${RUN}/event-ids/claim`, json: registration, status: 200 },
  adoptEventId: { path: `/v1/runs/${RUN}/event-ids/adopt`, json: registration, status: 200 },
  audit: { path: '/v1/audit?from=0&to=9999-01-01T00:00:00Z', status: 200, holds: 'secret payload' },
  getSnapshot: { path: `/v1/runs/${RUN}/snapshot?fresh=true`, status: 200, holds: 'INCONSISTENT' },
  verifyRun: { path: `/v1/runs/${RUN}/verification`, status: 200 },
  alerts: { path: '/v1/alerts', status: 200, holds: 'INVALID_TRANSITION' },
  subscribeAlerts: { path: '/v1/alerts/stream', status: 200, holds: 'INVALID_TRANSITION' },
  subscribe: { path: `/v1/runs/${RUN}/stream`, status: 200, holds: 'secret payload' },
  subscribeAll: { path: '/v1/stream', status: 200, holds: 'secret payload' },
  listKv: { path: `/v1/runs/${RUN}/kv?values=true`, status: 200, holds: 'secret value' },
  getKv: { path: `/v1/runs/${RUN}/kv/key`, status: 200, holds: 'secret value' },
  putKv: { path: `/v1/runs/${RUN}/kv/new`, json: 1, status: 200 },
  deleteKv: { path: `/v1/runs/${RUN}/kv/gone`, status: 200, holds: 'true' },
  listCells: { path: `/v1/runs/${RUN}/cells`, status: 200, holds: '"cell"' },
  readCell: { path: `/v1/runs/${RUN}/cells/cell`, status: 200, holds: 'secret state' },
  writeCell: { path: `/v1/runs/${RUN}/cells/cell`, json: 2, headers: { 'If-Match': '"1"' }, status: 200 },
  deleteCell: { path: `/v1/runs/${RUN}/cells/gone`, status: 200, holds: 'true' },
  queryTraces: { path: `/v1/runs/${RUN}/traces`, status: 200, holds: 'secret thought' },
  recordTrace: {
    path: `/v1/runs/${RUN}/traces`,
    json: { trace: { type: 'Thought', content: 'x' } },
    status: 201,
  },
  getTrace: { path: `/v1/runs/${RUN}/traces/trace`, status: 200, holds: 'secret thought' },
  getTraceTree: { path: `/v1/runs/${RUN}/traces/trace/tree`, status: 200, holds: 'secret thought' },
  readLog: { path: `/v1/runs/${RUN}/log`, status: 200, holds: 'secret note' },
  verifyLog: { path: `/v1/runs/${RUN}/log/verification`, status: 200, holds: '"length":1' },
  // All launches belong to the server's own tenant.
  listLaunches: { path: '/v1/launches', status: 200 },
  getLaunch: { path: '/v1/launches/launch', status: 404 },
  resumeLaunch: { path: '/v1/launches/launch/resume', json: {}, status: 404 },
  cancelLaunch: { path: '/v1/launches/launch/cancel', json: {}, status: 404 },
  listTokens: { path: '/v1/tokens', status: 200, holds: 'acme' },
  createToken: { path: '/v1/tokens', json: { role: 'reader' }, status: 201 },
  revokeToken: { path: '/v1/tokens/{victimToken}', status: 200, holds: 'true' },
  health: { path: '/health', status: 200 },
  telemetryMetrics: { path: '/metrics', status: 200, holds: '"total_runs":1' },
  telemetryMetadata: { path: '/api/v1/metadata', status: 200, holds: 'secret agent' },
  postTelemetryRun: { path: '/api/v1/runs', json: telemetryRun(randomUUID()), status: 201 },
  postTelemetryRuns: { path: '/api/v1/runs/batch', json: [telemetryRun(randomUUID())], status: 200 },
  listTelemetryRuns: { path: '/api/v1/runs', status: 200, holds: 'secret agent' },
  getTelemetryRun: { path: `/api/v1/runs/${TELEMETRY_ID}`, status: 200, holds: 'secret agent' },
  patchTelemetryRun: { path: `/api/v1/runs/${TELEMETRY_ID}`, json: { status: 'success' }, status: 200 },
  associateCommit: {
    path: `/api/v1/runs/${TELEMETRY_ID}/associate-commit`,
    json: { commit_hash: 'abcdef1', commit_source: 'ci' },
    status: 200,
  },
  commitUrl: { path: `/api/v1/runs/${TELEMETRY_ID}/commit-url`, status: 200 },
  repoUrl: { path: `/api/v1/runs/${TELEMETRY_ID}/repo-url`, status: 200 },
  telemetryTrail: { path: '/telemetry/trail', status: 200, holds: 'secret agent' },
  prometheus: { path: '/metrics/prometheus', status: 200 },
  ready: { path: '/ready', status: 200 },
  openapi: { path: '/openapi.json', status: 200 },
  docs: { path: '/docs', status: 200 },
  docsScript: { path: '/page/docs.js', status: 200 },
  docsStyle: { path: '/page/docs.css', status: 200 },
  ...Object.fromEntries(PAGE_FILES.map(([path, , , id]) => [id, { path, status: 200 }])),
}

interface Operation {
  readonly id: string
  readonly method: string
  readonly path: string
  readonly role: Role | undefined
  readonly load: string | undefined
}

async function fill(db: Annals): Promise<void> {
  const { runs, ledger, kv, cells, traces, events, telemetry } = db.forTenant('acme')
  await telemetry.insert([telemetryRun(TELEMETRY_ID, 'secret agent') as never])
  await ledger.appendEvent(newEvent({ payload: { text: 'secret payload' } }))
  await ledger.appendEvent(newEvent({ eventType: 'RunStarted', planVersion: '2' }))
  await ledger.projectSnapshot(RUN)
  await ledger.acquireLease('held', { owner: 'me' })
  for (const runId of ['plain', 'victim', 'forgotten']) await runs.create({ runId })
  await runs.delete('forgotten')
  await kv.put(RUN, 'key', 'secret value')
  await kv.put(RUN, 'gone', 1)
  await kv.put('scratch', 'key', 'secret draft')
  await cells.init(RUN, 'cell', 'secret state')
  await cells.init(RUN, 'gone', 1)
  await traces.record(RUN, { type: 'Thought', content: 'secret thought' }, { id: 'trace' })
  await events.append(RUN, 'note', 'secret note')
}

/** All data that a request could have changed. */
async function fingerprint(db: Annals, server: Server): Promise<string> {
  const found = await Promise.all(
    ['acme', 'other', 'default'].map(async tenant => {
      const { runs, ledger, kv, cells, traces, telemetry } = db.forTenant(tenant)
      return [
        await telemetry.totals(),
        await telemetry.get(TELEMETRY_ID),
        await runs.query({ includeArchived: true }),
        await runs.tombstones(),
        await ledger.fetchAll(),
        await kv.entries(RUN),
        await kv.entries('scratch'),
        await Promise.all((await cells.list(RUN)).map(name => cells.read(RUN, name))),
        await traces.list(RUN),
      ]
    }),
  )
  return JSON.stringify([found, await server.tokens.list()])
}

/** Replaces the parts of an answer that differ each time, such as ids and times. */
function normal(text: string): string {
  return text
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'id')
    .replaceAll(/annals_[\w-]+/g, 'token')
    .replaceAll(/"id":"[0-9a-f]{16}"/g, '"id":"id"')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z|\b1[0-9]{12}\b/g, 'time')
    .replaceAll(/"(sumMs|count|leMs|version|uptime_s|requests|mean_ms|max_ms)":[\d.e-]+/g, '"$1":0')
}

let db: Annals
let emptyDb: Annals
let server: Server
let emptyServer: Server
const bearer: Record<string, string> = {}
let victimToken = ''
let operations: readonly Operation[] = []

beforeAll(async () => {
  let now = 1_000
  db = await open({ memory: true })
  emptyDb = await open({ memory: true })
  server = createServer(db, { auth: 'required', clock: () => now })
  emptyServer = createServer(emptyDb, { auth: 'required', clock: () => now })
  await fill(db)
  const { tokens } = server
  for (const role of ['reader', 'writer', 'admin'] as const) {
    bearer[role] = (await tokens.create({ tenant: 'acme', role })).token
  }
  bearer['expired'] = (await tokens.create({ tenant: 'acme', role: 'admin', ttlMs: 1 })).token
  const revoked = await tokens.create({ tenant: 'acme', role: 'admin' })
  bearer['revoked'] = revoked.token
  await tokens.revoke(revoked.id)
  bearer['foreign'] = (await tokens.create({ tenant: 'other', role: 'admin' })).token
  bearer['emptyForeign'] = (await emptyServer.tokens.create({ tenant: 'other', role: 'admin' })).token
  victimToken = (await tokens.create({ tenant: 'acme', role: 'reader' })).id
  now = 2_000
  operations = await operationsOf(server)
})

afterAll(async () => {
  for (const one of [server, emptyServer]) await one.close()
  for (const one of [db, emptyDb]) await one.close()
})

async function operationsOf(of: Server): Promise<readonly Operation[]> {
  const answer = await of.fetch(new Request('http://localhost/openapi.json'))
  const { paths } = (await answer.json()) as {
    paths: Record<
      string,
      Record<string, { operationId: string; security: { token: Role[] }[]; 'x-annals-load'?: string }>
    >
  }
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId, security, 'x-annals-load': load }]) => ({
      id: operationId,
      method: method.toUpperCase(),
      path,
      role: security[0]?.token[0],
      load,
    })),
  )
}

interface Answer {
  readonly status: number
  readonly text: string
  readonly headers: Headers
}

async function ask(of: Server, { id, method }: Operation, authorization?: string): Promise<Answer> {
  const { path, json, headers } = ROWS[id]
  const stop = new AbortController()
  const request = new Request(`http://localhost${path.replace('{victimToken}', victimToken)}`, {
    method,
    headers: {
      ...headers,
      ...(json === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...(authorization === undefined ? {} : { Authorization: authorization }),
    },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    signal: stop.signal,
  })
  const answer = await of.fetch(request)
  const isStream = answer.headers.get('Content-Type') === 'text/event-stream'
  const text = isStream ? await beginningOf(answer) : await answer.text()
  return { status: answer.status, text, headers: answer.headers }
}

/** The text that has arrived after 50 ms without more, because a stream never ends. */
async function beginningOf(answer: Response): Promise<string> {
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
  let text = ''
  for (;;) {
    const next = await Promise.race([
      reader.read(),
      new Promise<undefined>(resolve => setTimeout(() => resolve(undefined), 50)),
    ])
    if (next === undefined || next.done) break
    text += new TextDecoder().decode(next.value)
  }
  await reader.cancel()
  return text
}

/** The expected body of a refused request. The telemetry service has its own format. */
function refused(path: string, code: string): object {
  return /^\/(v1\/|metrics\/)/.test(path) ? { code } : { detail: expect.any(String) }
}

const WEAKER: Readonly<Record<Role, Role | undefined>> = {
  reader: undefined,
  writer: 'reader',
  admin: 'writer',
}

describe('every route, every credential', () => {
  test('every served route is documented and has a row', () => {
    const served = server.app.routes
      .filter(({ method }) => method !== 'ALL')
      .map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`)
    const documented = operations.map(({ method, path }) => `${method} ${path}`)
    expect([...new Set(served)].sort()).toEqual(documented.sort())
    expect(operations.map(({ id }) => id).filter(id => ROWS[id] === undefined)).toEqual([])
    expect(Object.keys(ROWS).length).toBe(operations.length)
  })

  test('every route has a load, and these are heavy', () => {
    const rest = operations.filter(({ load }) => load !== 'light')
    expect(Object.fromEntries(rest.map(({ id, load }) => [id, load]))).toEqual({
      alerts: 'heavy',
      audit: 'heavy',
      deleteRun: 'heavy',
      dropScope: 'heavy',
      exportRun: 'heavy',
      fetchAllEvents: 'depends',
      fetchEvents: 'depends',
      getLaunch: 'heavy',
      getSnapshot: 'depends',
      getTraceTree: 'heavy',
      listCells: 'heavy',
      listKv: 'depends',
      listScopes: 'heavy',
      listTelemetryRuns: 'heavy',
      queryTraces: 'heavy',
      stats: 'heavy',
      telemetryMetadata: 'heavy',
      telemetryMetrics: 'heavy',
      telemetryTrail: 'heavy',
      verifyLog: 'heavy',
      verifyRun: 'heavy',
    })
  })

  test.each(Object.keys(ROWS))('%s', async id => {
    const operation = operations.find(one => one.id === id) as Operation
    const { role, path } = operation
    const row = ROWS[id]
    if (role === undefined) {
      for (const token of [undefined, 'Bearer nonsense']) {
        expect((await ask(server, operation, token)).status).toBe(row.status)
      }
      return
    }
    const before = await fingerprint(db, server)
    for (const authorization of [
      undefined,
      'Bearer nonsense',
      'Bearer',
      `Basic ${btoa('a:b')}`,
      `Bearer ${bearer['admin'].slice(0, -1)}`,
      `Bearer ${bearer['expired']}`,
      `Bearer ${bearer['revoked']}`,
    ]) {
      const answer = await ask(server, operation, authorization)
      expect(answer.status, `${authorization}`).toBe(401)
      expect(answer.headers.get('WWW-Authenticate')).toBe('Bearer')
      expect(JSON.parse(answer.text)).toMatchObject(refused(path, 'UNAUTHENTICATED'))
    }
    const weaker = WEAKER[role]
    if (weaker !== undefined) {
      const answer = await ask(server, operation, `Bearer ${bearer[weaker]}`)
      expect(answer.status).toBe(403)
      expect(JSON.parse(answer.text)).toMatchObject(refused(path, 'FORBIDDEN'))
    }
    expect(await fingerprint(db, server), 'nothing has changed').toBe(before)

    // Another tenant gets the same answers as on an empty server, except for the counts of the whole server.
    const foreign = await ask(server, operation, `Bearer ${bearer['foreign']}`)
    const expected = await ask(emptyServer, operation, `Bearer ${bearer['emptyForeign']}`)
    expect(foreign.status).toBe(expected.status)
    if (id !== 'prometheus') expect(normal(foreign.text)).toBe(normal(expected.text))
    if (row.holds !== undefined && row.holds !== 'true') expect(foreign.text).not.toContain(row.holds)

    const right = await ask(server, operation, `Bearer ${bearer[role]}`)
    expect(right.status, right.text).toBe(row.status)
    expect(right.text).toContain(row.holds ?? '')
  })
})
