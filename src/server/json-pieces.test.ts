import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Value } from '../core/value.ts'
import { fromJson, fromLargeJson, toJson } from '../core/value-json.ts'
import { allPieces, JsonPieces } from './json-pieces.ts'

const leaf = fc.oneof(
  fc.constantFrom<Value>(null, true, false, Number.NaN, Number.POSITIVE_INFINITY, -Infinity, -0),
  fc.double(),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'binary' }).map(text => `\0${text}`),
  fc.uint8Array(),
)
const value = fc.letrec<{ value: Value }>(tie => ({
  value: fc.oneof(
    { depthSize: 'small' },
    leaf as fc.Arbitrary<Value>,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.oneof(fc.string({ unit: 'binary' }), fc.constant('__proto__')), tie('value'), {
      maxKeys: 4,
    }),
  ),
})).value

const written = async (given: unknown, kind: 'value' | 'plain'): Promise<string> =>
  (await allPieces(new JsonPieces(given, kind))).join('')

const LARGE: readonly (readonly [string, Value])[] = [
  ['a string', `${'ä🚀"\\\n'.repeat(50_000)}`],
  ['a string that begins with U+0000', `\0${'x🚀'.repeat(70_001)}`],
  ['bytes', new Uint8Array(200_001).map((_, i) => i * 31)],
  ['no bytes', new Uint8Array(0)],
  ['many items', Array.from({ length: 60_000 }, (_, i) => (i % 3 === 0 ? { i } : i / 7))],
]

test('any value is written in pieces and read in slices with the same result as at once', async () => {
  await fc.assert(
    fc.asyncProperty(value, async given => {
      const text = JSON.stringify(toJson(given))
      expect(await written(given, 'value')).toBe(text)
      const read = await fromLargeJson(JSON.parse(text))
      expect(JSON.stringify(toJson(read))).toBe(text)
    }),
  )
})

test.each(LARGE)('so is %s that is too long for one piece', async (_, given) => {
  const text = JSON.stringify(toJson(given))
  const pieces = await allPieces(new JsonPieces(given, 'value'))
  expect(pieces.join('')).toBe(text)
  expect(Math.max(...pieces.map(piece => piece.length))).toBeLessThan(512 * 1024)
  const read = await fromLargeJson(JSON.parse(text))
  expect(JSON.stringify(toJson(read)) === text).toBe(true)
  expect(typeof given === 'object' && given !== null && !(given instanceof Uint8Array)).toBe(
    Object.isFrozen(read) && typeof read === 'object',
  )
})

test('plain JSON is written as JSON.stringify writes it: U+0000 has no meaning, undefined is left out', async () => {
  const given = { a: '\0i1', b: undefined, c: [1, { d: null }], 'ä"': `\0${'y'.repeat(100_000)}` }
  expect(await written(given, 'plain')).toBe(JSON.stringify(given))
})

test.each([
  '"\\u0000x1"',
  '["\\u0000b*"]',
  `"\\u0000b${'A'.repeat(100_001)}"`,
  `"\\u0000b${'A'.repeat(100_001)}B=="`,
  `"\\u0000b${'A'.repeat(99_998)}B="`,
  `"\\u0000b${'A'.repeat(99_996)} A=="`,
  '{"a":"\\ud800"}',
])('JSON that encodes no value is refused, also when it is read in slices', async text => {
  expect(() => fromJson(JSON.parse(text))).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  await expect(fromLargeJson(JSON.parse(text))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
})
