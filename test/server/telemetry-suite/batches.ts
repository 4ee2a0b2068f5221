import { expect, test } from 'vitest'
import { newRun, RUNS, type Service } from './service.ts'

const BATCH = `${RUNS}/batch`

/** POST /api/v1/runs/batch. */
export function testBatches({ ask, get, post, list }: Service): void {
  test('TD1: items are checked one by one: valid ones are stored, duplicates counted, invalid ones listed', async () => {
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

  test('TD1, TD5: a number that would be rounded is a problem of its field only', async () => {
    const items = [newRun(), newRun(), newRun(), newRun({ unknown: 1 })]
    const numbers = [
      '"a":1',
      '"duration_ms":9007199254740993',
      '"metrics_json":{"at_ns":1763177400123456789}',
      '"x":1e400',
    ]
    const text = `[${items.map((item, i) => JSON.stringify(item).replace(/}$/, `,${numbers[i]}}`)).join(',')}]`
    const { status, body } = await ask(BATCH, { text })
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
    expect((await ask(RUNS, { text: inText })).body).toMatchObject({
      detail: [{ loc: ['body', 'output_summary'], msg }],
    })
    expect((await post(RUNS, newRun({ metrics_json: { at_ns: '1763177400123456789' } }))).status).toBe(201)
  })

  test('TD1: 1000 runs are accepted, even if all are invalid', async () => {
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

  test('TD4: invalid JSON is 400, another media type 415', async () => {
    expect((await ask(BATCH, { text: '[' })).status).toBe(400)
    expect((await ask(BATCH, { text: '[]', headers: { 'content-type': 'text/csv' } })).status).toBe(415)
  })
}
