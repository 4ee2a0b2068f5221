import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/annals.ts'
import { newId } from '../../src/core/id.ts'
import { createApp } from '../../src/server/app.ts'

/** Every endpoint of the telemetry service with what it takes and refuses, on any engine. */

type Json = Record<string, unknown>
type App = ReturnType<typeof createApp>

export function newRun(fields: Json = {}): Json & { readonly event_id: string } {
  return {
    event_id: newId(),
    run_id: 'r',
    agent_name: 'agent',
    job_type: 'job',
    start_time: '2026-11-15T03:30:00Z',
    ...fields,
  }
}

interface Asked {
  readonly method?: string
  readonly body?: unknown
  /** Instead of a body in JSON. */
  readonly text?: string
  readonly bytes?: Uint8Array
  readonly headers?: Record<string, string>
}

async function ask(
  app: App,
  path: string,
  asked: Asked = {},
): Promise<{ status: number; body: Json; headers: Headers }> {
  const { body, bytes, text, headers = {} } = asked
  const hasBody = body !== undefined || text !== undefined || bytes !== undefined
  const response = await app.request(`http://localhost${path}`, {
    method: asked.method ?? (hasBody ? 'POST' : 'GET'),
    headers: { ...(hasBody ? { 'content-type': 'application/json' } : {}), ...headers },
    ...(hasBody ? { body: bytes ?? text ?? JSON.stringify(body) } : {}),
  })
  const answer = await response.text()
  return {
    status: response.status,
    body: answer === '' ? {} : (JSON.parse(answer) as Json),
    headers: response.headers,
  }
}

const RUNS = '/api/v1/runs'
const without = (field: string): Json => {
  const { [field]: _, ...rest } = newRun() as Json
  return rest
}

/** A field, a value that breaks its rule, and what the answer says of it. */
const BROKEN: readonly (readonly [field: string, value: unknown, type: string])[] = [
  ['event_id', 'no-uuid', 'value_error'],
  ['event_id', '2d5a6c1e-9f3b-1c1a-8f5d-0a1b2c3d4e5f', 'value_error'],
  ['event_id', 7, 'type_error'],
  ['run_id', '', 'value_error'],
  ['agent_name', '', 'value_error'],
  ['job_type', '', 'value_error'],
  ['run_id', 'a\0b', 'value_error'],
  ['run_id', 'x'.repeat(1025), 'value_error'],
  ['agent_name', '\ud800', 'value_error'],
  ['parent_run_id', '', 'value_error'],
  ['start_time', '2026-11-15T03:30:00', 'value_error'],
  ['start_time', '2026-02-30T03:30:00Z', 'value_error'],
  ['start_time', 1_700_000_000, 'type_error'],
  ['created_at', '2026-11-15', 'value_error'],
  ['end_time', 'now', 'value_error'],
  ['api_posted_at', '0000-01-01T00:00:00+01:00', 'value_error'],
  ['status', 'done', 'value_error'],
  ['status', 1, 'type_error'],
  ['items_discovered', -1, 'value_error'],
  ['items_succeeded', 1.5, 'value_error'],
  ['items_failed', '3', 'type_error'],
  ['duration_ms', -0.1, 'value_error'],
  ['api_retry_count', -1, 'value_error'],
  ['api_posted', 'yes', 'type_error'],
  ['output_summary', 7, 'type_error'],
  ['error_details', '\udfff', 'value_error'],
  ['metrics_json', [], 'value_error'],
  ['metrics_json', '[1]', 'value_error'],
  ['metrics_json', 'no json', 'value_error'],
  ['context_json', 7, 'value_error'],
  ['context_json', { deep: '\ud800' }, 'value_error'],
  ['context_json', '{"a": 1e400}', 'value_error'],
]

const STATUSES = ['running', 'success', 'failure', 'partial', 'timeout', 'cancelled']
const ALIASES: readonly (readonly [string, string])[] = [
  ['failed', 'failure'],
  ['completed', 'success'],
  ['succeeded', 'success'],
]

/** Every optional field of a POST, as sent and as it comes back. */
const OPTIONAL: Readonly<Record<string, readonly [sent: unknown, shown: unknown]>> = {
  created_at: ['2026-11-15T03:30:00+02:00', '2026-11-15T01:30:00.000Z'],
  end_time: ['2026-11-15T03:31:00.123456Z', '2026-11-15T03:31:00.123Z'],
  api_posted_at: ['2026-11-15T03:31:00-00:30', '2026-11-15T04:01:00.000Z'],
  status: ['partial', 'partial'],
  metrics_json: ['{"tokens": 3, "__proto__": 1}', JSON.parse('{"tokens": 3, "__proto__": 1}') as unknown],
  context_json: [{ nested: { list: [1, null, 'é'] } }, { nested: { list: [1, null, 'é'] } }],
  api_posted: [true, true],
  ...Object.fromEntries(
    [
      'items_discovered',
      'items_succeeded',
      'items_failed',
      'items_skipped',
      'duration_ms',
      'api_retry_count',
    ].map((field, i) => [field, [i, i]]),
  ),
  ...Object.fromEntries(
    `product product_family platform subdomain website website_section item_name input_summary output_summary source_ref
     target_ref error_summary error_details git_repo git_branch git_commit_hash git_run_tag host environment trigger_type
     insight_id parent_run_id`
      .split(/\s+/)
      .map(field => [field, [`${field} ✓`, `${field} ✓`]]),
  ),
}

export interface SuiteOptions {
  readonly kind: string
  readonly synchronous: string
}

export function testTelemetry(
  name: string,
  open: () => Promise<{ db: Annals; close: () => Promise<void> }>,
  { kind, synchronous }: SuiteOptions,
): void {
  describe(`the telemetry service on ${name}`, () => {
    let app: App
    let db: Annals
    let close: () => Promise<void>
    beforeAll(async () => {
      ;({ db, close } = await open())
      app = createApp(db)
    })
    afterAll(() => close())

    const get = (path: string): ReturnType<typeof ask> => ask(app, path)
    const post = (path: string, body: unknown): ReturnType<typeof ask> => ask(app, path, { body })
    const patch = (path: string, body: unknown): ReturnType<typeof ask> =>
      ask(app, path, { method: 'PATCH', body })
    const posted = async (fields: Json = {}): Promise<string> => {
      const run = newRun(fields)
      expect((await post(RUNS, run)).status).toBe(201)
      return run.event_id
    }
    const list = async (query: string): Promise<Json[]> => {
      const { status, body } = await get(`${RUNS}?${query}`)
      expect(status).toBe(200)
      return body as unknown as Json[]
    }

    test('TD7: /health names the kind of store, never a path', async () => {
      const { status, body } = await get('/health')
      expect(status).toBe(200)
      expect(body).toEqual({
        status: 'ok',
        version: expect.stringMatching(/^\d+\.\d+\.\d+/),
        db_path: kind,
        journal_mode: 'wal',
        synchronous,
      })
    })

    describe('POST /api/v1/runs', () => {
      test('TD5: what is required is enough; the rest is null, the status running, created_at now', async () => {
        const before = Date.now() - 60_000
        const run = newRun()
        const answer = await post(RUNS, run)
        expect([answer.status, answer.body]).toEqual([
          201,
          { status: 'created', event_id: run.event_id, run_id: 'r' },
        ])
        const { body } = await get(`${RUNS}/${run.event_id}`)
        expect(body).toMatchObject({ ...run, start_time: '2026-11-15T03:30:00.000Z', status: 'running' })
        expect(Date.parse(String(body['created_at']))).toBeGreaterThan(before)
        for (const field of Object.keys(OPTIONAL)) {
          if (field !== 'status' && field !== 'created_at') expect(body[field]).toBeNull()
        }
      })

      test('TD5: every field comes back: times in UTC with milliseconds, JSON as objects', async () => {
        const sent = Object.fromEntries(Object.entries(OPTIONAL).map(([field, [value]]) => [field, value]))
        const shown = Object.fromEntries(Object.entries(OPTIONAL).map(([field, [, value]]) => [field, value]))
        const id = await posted(sent)
        const { body } = await get(`${RUNS}/${id}`)
        expect(body).toMatchObject(shown)
        expect(JSON.stringify(body['metrics_json'])).toContain('__proto__')
      })

      test('the same event_id again is a duplicate and changes nothing, in whatever case', async () => {
        const run = newRun()
        await post(RUNS, run)
        const other = { ...run, agent_name: 'other', event_id: run.event_id.toUpperCase() }
        const { status, body } = await post(RUNS, other)
        expect(status).toBe(200)
        expect(body).toEqual({ status: 'duplicate', event_id: other.event_id, message: expect.any(String) })
        expect((await get(`${RUNS}/${run.event_id}`)).body).toMatchObject({ agent_name: 'agent' })
      })

      test.each(['event_id', 'run_id', 'agent_name', 'job_type', 'start_time'])(
        'TD5: without %s, or with null for it, it is 422',
        async field => {
          for (const body of [without(field), newRun({ [field]: null })]) {
            const answer = await post(RUNS, body)
            expect([answer.status, answer.body]).toEqual([
              422,
              { detail: [{ loc: ['body', field], msg: 'required', type: 'missing' }] },
            ])
          }
        },
      )

      test.each(BROKEN)('TD4, TD5: %s must not be %j: 422', async (field, value, type) => {
        const { status, body } = await post(RUNS, newRun({ [field]: value }))
        expect(status).toBe(422)
        expect(body).toEqual({ detail: [{ loc: ['body', field], msg: expect.any(String), type }] })
      })

      test('TD5: unknown fields are ignored, null is absent', async () => {
        const id = await posted({ unknown: 1, git_commit_author: 'me', status: null, end_time: null })
        const { body } = await get(`${RUNS}/${id}`)
        expect(body).toMatchObject({ status: 'running', end_time: null, git_commit_author: null })
        expect(body).not.toHaveProperty('unknown')
      })

      test.each([...STATUSES.map(status => [status, status] as const), ...ALIASES])(
        'the status %s is stored as %s',
        async (sent, stored) => {
          expect((await get(`${RUNS}/${await posted({ status: sent })}`)).body['status']).toBe(stored)
        },
      )

      test.each([
        ['not JSON', { text: '{"event_id":' }, 400],
        ['an empty body', { text: '' }, 400],
        ['no UTF-8', { bytes: Buffer.from('{"a": "\xff"}', 'latin1') }, 400],
        ['another type', { text: '{}', headers: { 'content-type': 'text/plain' } }, 415],
        ['a form', { text: 'a=b', headers: { 'content-type': 'application/x-www-form-urlencoded' } }, 415],
        ['more than a mebibyte', { body: { x: 'x'.repeat(1024 * 1024) } }, 413],
        ['nesting without end', { text: '['.repeat(100_000) }, 400],
        ['a list', { body: [] }, 422],
        ['a text', { body: 'x' }, 422],
        ['null', { body: null }, 422],
      ] as const)('TD4: %s is %j: %i', async (_, asked, status) => {
        const answer = await ask(app, RUNS, { method: 'POST', ...asked })
        expect(answer.status).toBe(status)
        expect(Object.keys(answer.body)).toEqual(['detail'])
      })
    })

    describe('POST /api/v1/runs/batch', () => {
      const BATCH = `${RUNS}/batch`

      test('TD1: items are checked one by one: good ones are stored, duplicates counted, bad ones listed', async () => {
        const [first, second] = [newRun(), newRun()]
        await post(RUNS, second)
        const items = [first, newRun({ status: 'odd' }), second, first, 7, newRun({ status: 'failed' })]
        const { status, body } = await post(BATCH, items)
        expect(status).toBe(200)
        expect(body).toEqual({
          inserted: 2,
          duplicates: 2,
          errors: [
            {
              index: 1,
              detail: [{ loc: ['body', 1, 'status'], msg: expect.any(String), type: 'value_error' }],
            },
            { index: 4, detail: [{ loc: ['body', 4], msg: 'must be an object', type: 'type_error' }] },
          ],
          total: 6,
        })
        expect((await get(`${RUNS}/${first.event_id}`)).status).toBe(200)
      })

      test('TD1, TD5: a number that would be rounded is a fault of its field alone', async () => {
        const items = [newRun(), newRun(), newRun(), newRun({ unknown: 1 })]
        const numbers = [
          '"a":1',
          '"duration_ms":9007199254740993',
          '"metrics_json":{"at_ns":1763177400123456789}',
          '"x":1e400',
        ]
        const text = `[${items.map((item, i) => JSON.stringify(item).replace(/}$/, `,${numbers[i]}}`)).join(',')}]`
        const { status, body } = await ask(app, BATCH, { text })
        const msg = expect.stringContaining('would be rounded')
        expect([status, body]).toEqual([
          200,
          {
            inserted: 2,
            duplicates: 0,
            errors: [
              { index: 1, detail: [{ loc: ['body', 1, 'duration_ms'], msg, type: 'value_error' }] },
              { index: 2, detail: [{ loc: ['body', 2, 'metrics_json'], msg, type: 'value_error' }] },
            ],
            total: 4,
          },
        ])
        const asText = await post(RUNS, newRun({ context_json: '{"at_ns": 1763177400123456789}' }))
        expect(asText.body).toEqual({ detail: [{ loc: ['body', 'context_json'], msg, type: 'value_error' }] })
        const inText = JSON.stringify(newRun()).replace(/}$/, ',"output_summary":9007199254740993}')
        expect((await ask(app, RUNS, { text: inText })).body).toMatchObject({
          detail: [{ loc: ['body', 'output_summary'], msg }],
        })
        expect((await post(RUNS, newRun({ metrics_json: { at_ns: '1763177400123456789' } }))).status).toBe(
          201,
        )
      })

      test('TD1: 1000 are taken, all bad ones too', async () => {
        const items = Array.from({ length: 1000 }, () => newRun({ agent_name: 'batch' }))
        expect((await post(BATCH, items)).body).toEqual({
          inserted: 1000,
          duplicates: 0,
          errors: [],
          total: 1000,
        })
        expect((await post(BATCH, items)).body).toMatchObject({ inserted: 0, duplicates: 1000 })
        expect((await post(BATCH, [{}])).body).toMatchObject({
          inserted: 0,
          errors: [{ index: 0 }],
          total: 1,
        })
        expect(await list('agent_name=batch&limit=1000')).toHaveLength(1000)
      })

      test.each([
        ['no array', {}],
        ['an array of none', []],
        ['more than 1000', Array.from({ length: 1001 }, () => 0)],
      ])('TD1: %s is 422', async (_, body) => {
        const answer = await post(BATCH, body)
        expect(answer.status).toBe(422)
        expect(answer.body).toEqual({
          detail: [{ loc: ['body'], msg: expect.any(String), type: 'value_error' }],
        })
      })

      test('TD4: what is not JSON is 400, another type 415', async () => {
        expect((await ask(app, BATCH, { text: '[' })).status).toBe(400)
        expect((await ask(app, BATCH, { text: '[]', headers: { 'content-type': 'text/csv' } })).status).toBe(
          415,
        )
      })
    })

    describe('GET /api/v1/runs', () => {
      const at = (second: number): string => `2026-01-01T00:00:0${second}.000Z`
      const ids: string[] = []
      beforeAll(async () => {
        for (const second of [1, 2, 3, 3]) {
          const status = second === 2 ? 'success' : 'running'
          const parent_run_id = second === 1 ? 'listed-parent' : 'other-parent'
          const run_id = `listed-${ids.length}`
          const fields = { agent_name: 'listed', status, parent_run_id, run_id, start_time: at(5 - second) }
          ids.push(await posted({ ...fields, created_at: at(second), job_type: `job-${second}` }))
        }
      })
      const order = async (query: string): Promise<number[]> =>
        (await list(`agent_name=listed&${query}`)).map(run => ids.indexOf(String(run['event_id'])))

      test.each([
        ['', [3, 2, 1, 0]],
        ['limit=2', [3, 2]],
        ['limit=2&offset=1', [2, 1]],
        ['offset=4', []],
        ['status=success', [1]],
        ['status=completed', [1]],
        ['status=succeeded', [1]],
        ['status=failed', []],
        ['job_type=job-3', [3, 2]],
        ['parent_run_id=listed-parent', [0]],
        ['run_id=listed-2', [2]],
        ['run_id=listed-2&status=success', []],
        [`created_after=${at(2)}`, [3, 2]],
        [`created_before=${at(2)}`, [0]],
        [`created_after=${at(1)}&created_before=${at(3)}`, [1]],
        [`start_time_from=${at(3)}`, [1, 0]],
        [`start_time_to=${at(3)}`, [3, 2, 1]],
        [`start_time_from=${at(3)}&start_time_to=${at(3)}`, [1]],
        [`created_after=2026-01-01T02:00:02%2B02:00`, [3, 2]],
        ['job_type=', []],
        ['job_type=%00', []],
        ['unknown=1', [3, 2, 1, 0]],
      ])(
        'TD5: ?%s is in the order of created_at, newest first, the later insert first',
        async (query, expected) => {
          expect(await order(query)).toEqual(expected)
        },
      )

      test('limit is 100 unless it is said', async () => {
        await post(
          `${RUNS}/batch`,
          Array.from({ length: 101 }, () => newRun({ agent_name: 'many' })),
        )
        expect(await list('agent_name=many')).toHaveLength(100)
        expect(await list('agent_name=many&limit=1000')).toHaveLength(101)
      })

      test.each([
        'status=odd',
        'status=',
        'created_after=yesterday',
        'created_before=2026-01-01T00:00:00',
        'start_time_from=2026-02-30T00:00:00Z',
        'start_time_to=2026-01-01T00:00:00+01:00',
      ])('TD5: ?%s is 400', async query => {
        const { status, body } = await get(`${RUNS}?${query}`)
        expect([status, body]).toEqual([400, { detail: expect.any(String) }])
      })

      test.each([
        'limit=0',
        'limit=1001',
        'limit=x',
        'limit=',
        'limit=1.5',
        'offset=-1',
        'offset=x',
        'limit=1&limit=2',
      ])('TD4: ?%s is 422', async query => {
        const { status, body } = await get(`${RUNS}?${query}`)
        const loc = ['query', query.split('=')[0]]
        expect([status, body]).toEqual([
          422,
          { detail: [{ loc, msg: expect.any(String), type: 'value_error' }] },
        ])
      })
    })

    describe('one run', () => {
      const PATHS = ['', '/commit-url', '/repo-url']

      test.each(PATHS)('GET …%s of a run that is not there is 404', async path => {
        for (const id of [newId(), 'nonsense', '%00', '%2e%2e']) {
          const { status, body } = await get(`${RUNS}/${id}${path}`)
          expect([status, body]).toEqual([404, { detail: expect.any(String) }])
        }
      })

      test('GET takes the id in any case', async () => {
        const id = await posted()
        expect((await get(`${RUNS}/${id.toUpperCase()}`)).body).toMatchObject({ event_id: id })
      })

      test('TD5: PATCH replaces each field as a whole, ignores nulls and what nobody knows', async () => {
        const id = await posted({ metrics_json: { a: 1 }, output_summary: 'x' })
        const change = {
          status: 'success',
          end_time: '2026-11-15T04:30:00+01:00',
          duration_ms: 5,
          items_succeeded: 1,
          items_failed: 2,
          items_skipped: 3,
          error_summary: 's',
          error_details: 'd',
          metrics_json: { b: 2 },
          context_json: '{"c": 3}',
          git_commit_source: 'ci',
          git_commit_author: 'me',
          git_commit_timestamp: '2026-11-15T03:30:00Z',
        }
        const { status, body } = await patch(`${RUNS}/${id}`, {
          ...change,
          output_summary: null,
          agent_name: 'y',
          api_posted: false,
        })
        expect(status).toBe(200)
        expect(body).toEqual({ event_id: id, updated: true, fields_updated: expect.any(Array) })
        expect([...(body['fields_updated'] as string[])].sort()).toEqual(Object.keys(change).sort())
        expect((await get(`${RUNS}/${id}`)).body).toMatchObject({
          ...change,
          end_time: '2026-11-15T03:30:00.000Z',
          git_commit_timestamp: '2026-11-15T03:30:00.000Z',
          context_json: { c: 3 },
          output_summary: 'x',
          agent_name: 'agent',
          api_posted: null,
        })
        expect(await list(`run_id=r&status=success&limit=1000`)).toContainEqual(
          expect.objectContaining({ event_id: id }),
        )
      })

      test.each([{}, { status: null }, { unknown: 1 }, { agent_name: 'x' }])(
        'TD4: PATCH with %j has nothing to update: 400',
        async body => {
          const answer = await patch(`${RUNS}/${await posted()}`, body)
          expect([answer.status, answer.body]).toEqual([400, { detail: 'nothing to update' }])
        },
      )

      test.each([
        ['status', 'failed'],
        ['status', 'completed'],
        ['status', 'succeeded'],
        ['status', 'odd'],
        ['end_time', '2026-11-15T03:30:00'],
        ['duration_ms', -1],
        ['items_failed', 'x'],
        ['metrics_json', []],
        ['git_commit_source', 'robot'],
        ['git_commit_timestamp', 'now'],
      ])('TD4: PATCH with %s %j is 422 and changes nothing', async (field, value) => {
        const id = await posted()
        const { status, body } = await patch(`${RUNS}/${id}`, { [field]: value, error_summary: 'changed' })
        expect(status).toBe(422)
        expect(body).toMatchObject({ detail: [{ loc: ['body', field] }] })
        expect((await get(`${RUNS}/${id}`)).body['error_summary']).toBeNull()
      })

      test('PATCH of a run that is not there is 404; of no JSON 400, of a list 422', async () => {
        expect((await patch(`${RUNS}/${newId()}`, { status: 'success' })).status).toBe(404)
        const path = `${RUNS}/${await posted()}`
        expect((await ask(app, path, { method: 'PATCH', text: 'x' })).status).toBe(400)
        expect((await patch(path, [])).status).toBe(422)
      })

      test('a commit is associated, and replaces the one before as a whole', async () => {
        const id = await posted({ git_repo: 'git@github.com:o/n.git', run_id: 'committed' })
        const path = `${RUNS}/${id}/associate-commit`
        const first = {
          commit_hash: 'abcdef1',
          commit_source: 'llm',
          commit_author: 'me',
          commit_timestamp: '2026-11-15T03:30:00+00:30',
        }
        const { status, body } = await post(path, first)
        expect([status, body]).toEqual([
          200,
          { status: 'success', event_id: id, run_id: 'committed', commit_hash: 'abcdef1' },
        ])
        expect((await get(`${RUNS}/${id}`)).body).toMatchObject({
          git_commit_hash: 'abcdef1',
          git_commit_source: 'llm',
          git_commit_author: 'me',
          git_commit_timestamp: '2026-11-15T03:00:00.000Z',
        })
        const hash = `${'ABCDEF'.repeat(6)}0123`
        expect((await post(path, { commit_hash: hash, commit_source: 'ci' })).status).toBe(200)
        expect((await get(`${RUNS}/${id}`)).body).toMatchObject({
          git_commit_hash: hash,
          git_commit_author: null,
        })
        expect((await get(`${RUNS}/${id}/commit-url`)).body).toEqual({
          commit_url: `https://github.com/o/n/commit/${hash}`,
        })
        expect((await get(`${RUNS}/${id}/repo-url`)).body).toEqual({ repo_url: 'https://github.com/o/n' })
      })

      test.each([
        [{ commit_source: 'ci' }, 'commit_hash'],
        [{ commit_hash: 'abcdef1' }, 'commit_source'],
        [{ commit_hash: 'abcdef', commit_source: 'ci' }, 'commit_hash'],
        [{ commit_hash: 'g'.repeat(8), commit_source: 'ci' }, 'commit_hash'],
        [{ commit_hash: 'a'.repeat(41), commit_source: 'ci' }, 'commit_hash'],
        [{ commit_hash: 'abcdef1', commit_source: 'robot' }, 'commit_source'],
        [{ commit_hash: 'abcdef1', commit_source: 'ci', commit_timestamp: 'now' }, 'commit_timestamp'],
      ])('TD4: the commit %j is 422', async (body, field) => {
        const answer = await post(`${RUNS}/${await posted()}/associate-commit`, body)
        expect(answer.status).toBe(422)
        expect(answer.body).toMatchObject({ detail: [{ loc: ['body', field] }] })
      })

      test('a commit of a run that is not there is 404', async () => {
        const commit = { commit_hash: 'abcdef1', commit_source: 'manual' }
        expect((await post(`${RUNS}/${newId()}/associate-commit`, commit)).status).toBe(404)
      })

      test('TD2: without a repository, a commit or a known host there is no URL', async () => {
        for (const fields of [{}, { git_repo: 'git@example.com:o/n.git', git_commit_hash: 'abcdef1' }]) {
          const id = await posted(fields)
          expect((await get(`${RUNS}/${id}/commit-url`)).body).toEqual({ commit_url: null })
          expect((await get(`${RUNS}/${id}/repo-url`)).body).toEqual({ repo_url: null })
        }
      })
    })

    test('TD3: /telemetry/{run_id} is the newest run with all its descendants by start_time', async () => {
      const start = (second: number): Json => ({ start_time: `2026-11-15T03:30:0${second}Z` })
      const root = 'trail / ü.1'
      await posted({ run_id: root, output_summary: 'old', ...start(0) })
      await posted({ run_id: 'trail-b', parent_run_id: root, ...start(2) })
      await posted({ run_id: 'trail-c', parent_run_id: 'trail-b', ...start(1) })
      await posted({ run_id: root, output_summary: 'new', ...start(3) })
      const { status, body } = await get(`/telemetry/${encodeURIComponent(root)}`)
      expect(status).toBe(200)
      expect(body['run']).toMatchObject({ run_id: root, output_summary: 'new' })
      expect((body['children'] as Json[]).map(child => child['run_id'])).toEqual(['trail-c', 'trail-b'])
      const missing = await get('/telemetry/no%20such%00run')
      expect([missing.status, missing.body]).toEqual([
        404,
        { error: expect.any(String), run_id: 'no such\0run' },
      ])
    })

    test('TD2: /api/v1/metadata lists names and counts them, from memory until something is written', async () => {
      await posted({ agent_name: 'meta-a', job_type: 'meta-j' })
      const first = (await get('/api/v1/metadata')).body
      expect(first['cache_hit']).toBe(false)
      expect(first['agent_names']).toContain('meta-a')
      expect(first['job_types']).toContain('meta-j')
      const { agent_names, job_types } = first as Record<string, unknown[]>
      expect(first['counts']).toEqual({ agent_names: agent_names.length, job_types: job_types.length })
      expect((await get('/api/v1/metadata')).body).toEqual({ ...first, cache_hit: true })
      const id = await posted({ agent_name: 'meta-b', job_type: 'meta-j' })
      const second = (await get('/api/v1/metadata')).body
      expect(second['agent_names']).toEqual([...agent_names, 'meta-b'].sort())
      expect(second['cache_hit']).toBe(false)
      expect((await get('/api/v1/metadata')).body['cache_hit']).toBe(true)
      await patch(`${RUNS}/${id}`, { status: 'success' })
      expect((await get('/api/v1/metadata')).body['cache_hit']).toBe(false)
    })

    test('TD5: /metrics counts all runs, by agent, and those of the last day by created_at', async () => {
      const before = (await get('/metrics')).body as Record<string, number>
      await posted({ agent_name: 'counted' })
      await posted({ agent_name: 'counted', created_at: '2020-01-01T00:00:00Z' })
      const { status, body } = await get('/metrics')
      expect(status).toBe(200)
      expect(body).toMatchObject({
        total_runs: before['total_runs'] + 2,
        recent_24h: before['recent_24h'] + 1,
        agents: { counted: 2 },
        performance: { requests: expect.any(Number), mean_ms: expect.any(Number) },
      })
      expect(Object.keys(body)).toEqual(['total_runs', 'agents', 'recent_24h', 'performance'])
    })

    test.each([
      ['PUT', RUNS, ['GET', 'POST']],
      ['DELETE', `${RUNS}/${newId()}`, ['GET', 'PATCH']],
      ['GET', `${RUNS}/${newId()}/associate-commit`, ['POST']],
      ['POST', `${RUNS}/${newId()}/commit-url`, ['GET']],
      ['POST', '/health', ['GET']],
      ['POST', '/metrics', ['GET']],
      ['POST', '/api/v1/metadata', ['GET']],
      ['POST', '/telemetry/x', ['GET']],
      ['PATCH', `${RUNS}`, ['GET', 'POST']],
    ])('TD4: %s %s is 405', async (method, path, allowed) => {
      const { status, body, headers } = await ask(app, path, {
        method,
        ...(method === 'GET' ? {} : { body: {} }),
      })
      expect([status, body]).toEqual([405, { detail: expect.any(String) }])
      expect((headers.get('allow') ?? '').split(', ')).toEqual(expect.arrayContaining(allowed))
    })

    test.each(['/api/v1', '/api/v1/nothing', '/telemetry/', '/telemetry/a/b'])(
      '%s is nothing: 404',
      async path => {
        expect((await get(path)).status).toBe(404)
      },
    )

    test('records, indexes and counts fit together after all this', async () => {
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
      const { total_runs, agents } = await db.telemetry.totals()
      expect(Object.values(agents).reduce((sum, count) => sum + count, 0)).toBe(total_runs)
    })
  })
}
