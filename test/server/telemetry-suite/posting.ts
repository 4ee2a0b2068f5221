import { expect, test } from 'vitest'
import { type Json, newRun, RUNS, type Service } from './service.ts'

const without = (field: string): Json => {
  const { [field]: _, ...rest } = newRun() as Json
  return rest
}

/** A field, an invalid value for it, and the type of the error. */
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

/** Every optional field of a POST, as it is sent and as it is returned. */
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

/** POST /api/v1/runs. */
export function testPosting({ ask, get, post, posted }: Service): void {
  test('TD5: the required fields are enough; others are null, status is running, created_at is now', async () => {
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

  test('TD5: every field is returned: times in UTC with milliseconds, JSON as objects', async () => {
    const sent = Object.fromEntries(Object.entries(OPTIONAL).map(([field, [value]]) => [field, value]))
    const shown = Object.fromEntries(Object.entries(OPTIONAL).map(([field, [, value]]) => [field, value]))
    const id = await posted(sent)
    const { body } = await get(`${RUNS}/${id}`)
    expect(body).toMatchObject(shown)
    expect(JSON.stringify(body['metrics_json'])).toContain('__proto__')
  })

  test('the same event_id again, in upper or lower case, is a duplicate and changes nothing', async () => {
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
    const answer = await ask(RUNS, { method: 'POST', ...asked })
    expect(answer.status).toBe(status)
    expect(Object.keys(answer.body)).toEqual(['detail'])
  })
}
