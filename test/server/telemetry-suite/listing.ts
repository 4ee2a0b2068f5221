import { beforeAll, expect, test } from 'vitest'
import { newRun, RUNS, type Service } from './service.ts'

/** GET /api/v1/runs. */
export function testListing({ get, post, posted, list }: Service): void {
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

  test('limit is 100 by default', async () => {
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
    expect([status, body]).toEqual([422, { detail: [{ loc, msg: expect.any(String), type: 'value_error' }] }])
  })
}
