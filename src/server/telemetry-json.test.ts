import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { jsonProblem, parseLargeTelemetry, parseTelemetryJson } from './telemetry-json.ts'

describe('JSON of the telemetry service', () => {
  test('is parsed as by JSON.parse if no number is rounded', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom(undefined, 2), (value, indent) => {
        const text = JSON.stringify(value, null, indent)
        expect(parseTelemetryJson(text)).toEqual(JSON.parse(text))
      }),
      { numRuns: 500 },
    )
  })

  test.each([
    '9007199254740993',
    '-9007199254740993',
    '1763177400123456789',
    '1e400',
    '-1E999',
    '1'.repeat(400),
  ])('the number %s would be rounded at any position, and is accepted in a string', async number => {
    const long = JSON.stringify('x'.repeat(70_000))
    for (const text of [number, `[1, ${number}]`, `{"a": {"b\\"": [${number}]}}`]) {
      expect(jsonProblem(parseTelemetryJson(text))).toContain('would be rounded')
      for (const large of [`[${long}, ${text}]`, `[${text}, ${long}]`]) {
        const found = (await parseLargeTelemetry(Buffer.from(large))) as unknown[]
        expect(jsonProblem(found)).toContain('would be rounded')
        expect(found).toHaveLength(2)
      }
    }
    expect(
      jsonProblem(parseTelemetryJson(`{"a": "${number}", "${number}": "\\" ${number}"}`)),
    ).toBeUndefined()
  })

  test.each([
    '9007199254740992',
    '1152921504606846976',
    '1e3',
    '1.5e300',
    '0.12345678901234567',
    '12345678901234.5e-1',
  ])('the number %s is exact enough', async number => {
    expect(parseTelemetryJson(`[${number}]`)).toEqual([Number(number)])
    expect(await parseLargeTelemetry(Buffer.from(`[${number}]`))).toEqual([Number(number)])
  })

  test.each(['', '{', '"a', '[1,]', '01', `${'['.repeat(100_000)}`, '"\\', `${'"\\"'.repeat(10_000)}`])(
    '%j is not JSON',
    async text => {
      expect(() => parseTelemetryJson(text)).toThrow('not JSON')
      await expect(parseLargeTelemetry(Buffer.from(text))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    },
  )

  test('parsing long texts with escapes, quotes and digits takes linear time', () => {
    const mib = 1024 * 1024
    for (const piece of ['x', '\\"', '\\\\', '1234567890123456 ']) {
      const text = `{"n": 9007199254740993, "s": "${piece.repeat(Math.floor(mib / piece.length))}"}`
      const since = performance.now()
      expect(jsonProblem(parseTelemetryJson(text))).toContain('would be rounded')
      expect(performance.now() - since).toBeLessThan(2_000)
    }
  })
})
