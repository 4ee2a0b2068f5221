import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeValue, encodeValue, type Value } from './value.ts'
import { fromJson, toJson } from './value-json.ts'

const leaf = fc.oneof(
  fc.constantFrom<Value>(
    null,
    true,
    false,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    -0,
  ),
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

describe('values as JSON', () => {
  test('every value is read back unchanged', () => {
    fc.assert(
      fc.property(value, given => {
        // Encoded bytes also differ where toEqual sees no difference.
        expect(encodeValue(fromJson(JSON.parse(JSON.stringify(toJson(given)))))).toBe(encodeValue(given))
      }),
    )
  })

  test('the store decodes the text to the same value', () => {
    fc.assert(
      fc.property(value, given => {
        const text = Buffer.from(JSON.stringify(toJson(given)), 'utf8').toString('latin1')
        expect(encodeValue(decodeValue(text))).toBe(encodeValue(given))
      }),
    )
  })

  test.each([
    ['undefined', undefined],
    ['a function', () => 1],
    ['a date', new Date(0)],
    ['a large bigint', 2n ** 63n],
    ['undefined in an object', { a: undefined }],
    ['a hole', new Array(1)],
  ])('an invalid value is refused: %s', (_, given) => {
    expect(() => toJson(given)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })

  test.each([
    '"\\u0000"',
    '"\\u0000x1"',
    '"\\u0000i01"',
    '"\\u0000i9223372036854775808"',
    '"\\u0000b*"',
    '"\\u0000sx"',
    '1e400',
    '"\\ud800"',
  ])('JSON that encodes no value is refused: %s', text => {
    expect(() => fromJson(JSON.parse(text))).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })
})
