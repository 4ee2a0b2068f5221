import { expect, test } from 'vitest'
import { newId } from '../../../src/core/id.ts'
import { RUNS, type Service } from './service.ts'

/** Reading and changing one run by its id. */
export function testOneRun({ ask, get, patch, posted, list }: Service): void {
  const PATHS = ['', '/commit-url', '/repo-url']

  test.each(PATHS)('GET …%s of an unknown run is 404', async path => {
    for (const id of [newId(), 'nonsense', '%00', '%2e%2e']) {
      const { status, body } = await get(`${RUNS}/${id}${path}`)
      expect([status, body]).toEqual([404, { detail: expect.any(String) }])
    }
  })

  test('GET accepts the id in upper and lower case', async () => {
    const id = await posted()
    expect((await get(`${RUNS}/${id.toUpperCase()}`)).body).toMatchObject({ event_id: id })
  })

  test('TD5: PATCH replaces each field and ignores nulls and unknown fields', async () => {
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

  test('PATCH of an unknown run is 404, with invalid JSON 400, with a list 422', async () => {
    expect((await patch(`${RUNS}/${newId()}`, { status: 'success' })).status).toBe(404)
    const path = `${RUNS}/${await posted()}`
    expect((await ask(path, { method: 'PATCH', text: 'x' })).status).toBe(400)
    expect((await patch(path, [])).status).toBe(422)
  })
}
