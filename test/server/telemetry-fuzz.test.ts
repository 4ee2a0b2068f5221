import fc from 'fast-check'
import { expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import { createApp } from '../../src/server/app.ts'
import { type NewRun, RECORD_FIELDS } from '../../src/telemetry/run-record.ts'
import { seedOfRun } from '../../src/testing/random.ts'
import { newRun } from './telemetry-suite/service.ts'

/** Every request gets an answer that the contract allows, and refused requests change nothing. */

const RUNS = 1_500
/** The minimum numbers of stored and changed runs. Every seed reaches far more, unless the fuzzer reaches nothing. */
const STORED_MIN = 200
const CHANGED_MIN = 30

const STORED = newRun({ event_id: '7c9e6679-7425-40de-944b-e07fc1f90ae8', status: 'running' })
const NAMES = [...RECORD_FIELDS, 'commit_hash', 'commit_source', '__proto__', 'constructor']
const anything = fc.oneof(
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
/** Fields with valid values. */
const fitting = fc.record(
  {
    status: fc.constantFrom('running', 'success', 'partial', 'timeout', 'cancelled'),
    end_time: fc.constantFrom('2026-11-15T03:30:00Z', '2026-11-15T03:30:00.5+02:00'),
    duration_ms: fc.nat(),
    items_failed: fc.nat(),
    error_summary: fc.string(),
    metrics_json: fc.dictionary(fc.string(), fc.nat(), { maxKeys: 3 }),
  },
  { requiredKeys: [] },
)
const changes = fc.oneof(
  { weight: 1, arbitrary: fitting },
  { weight: 3, arbitrary: fc.dictionary(fc.constantFrom(...NAMES), anything, { maxKeys: 4 }) },
)
const run = fc
  .tuple(fc.uuid({ version: 4 }), changes)
  .map(([event_id, fields]) => ({ ...newRun({ event_id }), ...fields }))
const runs = fc.array(run, { maxLength: 4 })
const json = (value: unknown): string => JSON.stringify(value)
const nonsense = fc.oneof(
  fc.string(),
  fc.constantFrom('['.repeat(70_000), '{"a":'.repeat(9_000), '{"metrics_json":{"a":1e400}}', '"\\ud800"'),
)
const body = fc.oneof(
  { weight: 5, arbitrary: run.map(json) },
  { weight: 2, arbitrary: changes.map(json) },
  { weight: 2, arbitrary: runs.map(json) },
  { weight: 2, arbitrary: nonsense },
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
type Asked = readonly [method: string, path: string, body: string]
/** Half of the requests can succeed, the others are arbitrary. */
const asked: fc.Arbitrary<Asked> = fc.oneof(
  fc.tuple(fc.constant('POST'), fc.constant('/api/v1/runs'), run.map(json)),
  fc.tuple(fc.constant('POST'), fc.constant('/api/v1/runs/batch'), runs.map(json)),
  fc.tuple(fc.constant('PATCH'), fc.constant(`/api/v1/runs/${STORED.event_id}`), changes.map(json)),
  { weight: 3, arbitrary: fc.tuple(fc.constantFrom('GET', 'POST', 'PATCH', 'PUT'), path, body) },
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

test('TD4, TD5: any request is answered as the contract requires, never with a 5xx, and a refused one changes nothing', async () => {
  const seed = seedOfRun()
  console.log(`telemetry fuzz: ANNALS_SEED=${seed}`)
  await using db = await open({ memory: true })
  const app = createApp(db)
  await db.telemetry.insert([STORED as unknown as NewRun])
  let stored = 1
  let changed = 0
  await fc.assert(
    fc.asyncProperty(asked, query, async ([method, at, text], parameters) => {
      const search = new URLSearchParams(parameters as Record<string, string>)
      const url = `http://localhost${at}?${search}`
      // Paths with `..` may lead to other parts of the server.
      fc.pre(/^\/(api\/v1\/|telemetry\/|metrics$|health$)/.test(new URL(url).pathname))
      const before = db.stats().version
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
      // The same version means that there was no commit, so nothing has changed.
      if (response.status >= 400 || method === 'GET') expect(db.stats().version).toBe(before)
      const { total_runs: now } = await db.telemetry.totals()
      if (method !== 'POST') expect(now).toBe(stored)
      stored = now
      if (method === 'PATCH' && response.ok) changed++
    }),
    { numRuns: RUNS, seed },
  )
  console.log(`telemetry fuzz: ${stored} stored, ${changed} changed`)
  expect(stored).toBeGreaterThan(STORED_MIN)
  expect(changed).toBeGreaterThan(CHANGED_MIN)
  expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
})
