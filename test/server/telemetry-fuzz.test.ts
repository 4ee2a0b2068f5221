import fc from 'fast-check'
import { expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import { createApp } from '../../src/server/app.ts'
import { type NewRun, RECORD_FIELDS } from '../../src/telemetry/run-record.ts'
import { newRun } from './telemetry-suite.ts'

/** Whatever is sent, the answer is one that the contract knows, and what was refused has changed nothing. */

const STORED = newRun({ status: 'running' })
const NAMES = [...RECORD_FIELDS, 'commit_hash', 'commit_source', '__proto__', 'constructor']
const value = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom(
    null,
    '',
    'running',
    'failed',
    '2026-11-15T03:30:00Z',
    '2026-02-30T00:00:00Z',
    -1,
    2 ** 53,
    'abcdef1',
  ),
  fc.string({ unit: 'binary' }),
)
const changes = fc.dictionary(fc.constantFrom(...NAMES), value, { maxKeys: 4 })
const body = fc.oneof(
  { weight: 5, arbitrary: changes.map(fields => JSON.stringify({ ...newRun(), ...fields })) },
  { weight: 2, arbitrary: changes.map(fields => JSON.stringify(fields)) },
  {
    weight: 2,
    arbitrary: fc
      .array(changes, { maxLength: 4 })
      .map(all => JSON.stringify(all.map(fields => ({ ...newRun(), ...fields })))),
  },
  { weight: 1, arbitrary: fc.string() },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '['.repeat(70_000),
      '{"a":'.repeat(9_000),
      '{"metrics_json":{"a":1e400}}',
      '"\\ud800"',
    ),
  },
)
const segment = fc.oneof(
  fc.string().map(encodeURIComponent),
  fc.constantFrom('%', '%zz', '%00', '%2e%2e', '..', '%c3%28', STORED.event_id),
)
const path = fc.oneof(
  fc.constantFrom('/api/v1/runs', '/api/v1/runs/batch', '/api/v1/metadata', '/metrics', '/health'),
  fc
    .tuple(segment, fc.constantFrom('', '/associate-commit', '/commit-url', '/repo-url'))
    .map(([id, end]) => `/api/v1/runs/${id}${end}`),
  segment.map(id => `/telemetry/${id}`),
)
/** Most of them where something can come of it. */
const target = fc.oneof(
  fc.constantFrom<[string, string]>(
    ['POST', '/api/v1/runs'],
    ['POST', '/api/v1/runs/batch'],
    ['PATCH', `/api/v1/runs/${STORED.event_id}`],
    ['GET', '/api/v1/runs'],
  ),
  fc.tuple(fc.constantFrom('GET', 'POST', 'PATCH', 'PUT'), path),
)
const query = fc.dictionary(
  fc.constantFrom(
    'agent_name',
    'job_type',
    'status',
    'run_id',
    'created_after',
    'start_time_to',
    'limit',
    'offset',
    'x',
  ),
  fc.oneof(
    fc.string(),
    fc.constantFrom('1', '-1', '1e3', '99999999999999999999', '2026-01-01T00:00:00Z', '\0'),
  ),
  { maxKeys: 3 },
)
const KNOWN = [200, 201, 400, 404, 405, 422]

test('TD4, TD5: anything that is sent is answered as the contract says, never with a 5xx; what is refused changes nothing', async () => {
  await using db = await open({ memory: true })
  const app = createApp(db)
  await db.telemetry.insert([STORED as unknown as NewRun])
  let stored = 1
  let changed = 0
  await fc.assert(
    fc.asyncProperty(target, query, body, async ([method, at], asked, text) => {
      const search = new URLSearchParams(asked as Record<string, string>)
      const url = `http://localhost${at}?${search}`
      // Steps upwards lead to other parts of the server.
      fc.pre(/^\/(api\/v1\/|telemetry\/|metrics$|health$)/.test(new URL(url).pathname))
      const response = await app.request(url, {
        method,
        ...(method === 'GET' ? {} : { headers: { 'content-type': 'application/json' }, body: text }),
      })
      const answer = (await response.json()) as Record<string, unknown>
      expect(KNOWN, `${method} ${url} ${text.slice(0, 200)}`).toContain(response.status)
      if (response.status >= 400) {
        const keys =
          at.startsWith('/telemetry/') && response.status === 404
            ? [['detail'], ['error', 'run_id']]
            : [['detail']]
        expect(keys).toContainEqual(Object.keys(answer))
      }
      const { total_runs: now } = await db.telemetry.totals()
      if (response.status >= 400 || method !== 'POST') expect(now).toBe(stored)
      stored = now
      if (method === 'PATCH' && response.ok) changed++
    }),
    { numRuns: 1_500 },
  )
  expect(stored).toBeGreaterThan(5)
  expect(changed).toBeGreaterThan(0)
  expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
})
