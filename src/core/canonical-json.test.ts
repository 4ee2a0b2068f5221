import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BYTES_MAX, canonicalJson, DEPTH_MAX } from './canonical-json.ts'
import { AnnalsError } from './errors.ts'
import { GIVEN_LAYOUTS, SORTED_LAYOUTS } from './key-layout.ts'

const refusal = (value: unknown): AnnalsError => {
  try {
    canonicalJson(value)
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('it was accepted')
}

const double = (hex: string): number => Buffer.from(hex, 'hex').readDoubleBE()

describe('RFC 8785, appendix B: numbers', () => {
  test.each([
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['8000000000000001', '-5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['ffefffffffffffff', '-1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['c340000000000000', '-9007199254740992'],
    ['4430000000000000', '295147905179352830000'],
    ['44b52d02c7e14af5', '9.999999999999997e+22'],
    ['44b52d02c7e14af6', '1e+23'],
    ['44b52d02c7e14af7', '1.0000000000000001e+23'],
    ['444b1ae4d6e2ef4e', '999999999999999700000'],
    ['444b1ae4d6e2ef4f', '999999999999999900000'],
    ['444b1ae4d6e2ef50', '1e+21'],
    ['3eb0c6f7a0b5ed8c', '9.999999999999997e-7'],
    ['3eb0c6f7a0b5ed8d', '0.000001'],
    ['41b3de4355555553', '333333333.3333332'],
    ['41b3de4355555554', '333333333.33333325'],
    ['41b3de4355555555', '333333333.3333333'],
    ['41b3de4355555556', '333333333.3333334'],
    ['41b3de4355555557', '333333333.33333343'],
    ['becbf647612f3696', '-0.0000033333333333333333'],
    ['43143ff3c1cb0959', '1424953923781206.2'],
  ])('%s is %s', (hex, text) => {
    expect(canonicalJson(double(hex))).toBe(text)
  })

  test.each(['7fffffffffffffff', '7ff0000000000000', 'fff0000000000000'])('%s is refused', hex => {
    expect(refusal(double(hex)).code).toBe('INVALID_ARGUMENT')
  })
})

describe('RFC 8785, section 3.2', () => {
  test('the example of 3.2.2 and 3.2.4, byte by byte', () => {
    const value: unknown = JSON.parse(`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\"\\/",
      "literals": [null, true, false]
    }`)
    const text = canonicalJson(value)
    expect(text).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    )
    expect(Buffer.from(text).toString('hex')).toBe(
      '7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a' +
        '5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d3237' +
        '5d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d',
    )
  })

  test('keys are sorted by UTF-16 code units: 3.2.3, a surrogate pair before U+FB33', () => {
    const value = {
      '€': 'Euro Sign',
      '\r': 'Carriage Return',
      '\ufb33': 'Hebrew Letter Dalet With Dagesh',
      '1': 'One',
      '😀': 'Emoji: Grinning Face',
      '\u0080': 'Control',
      ö: 'Latin Small Letter O With Diaeresis',
    }
    expect(Object.values(JSON.parse(canonicalJson(value)) as object)).toEqual([
      // Parsed objects have integer-like keys first. In the text, only the carriage return comes before "1".
      'One',
      'Carriage Return',
      'Control',
      'Latin Small Letter O With Diaeresis',
      'Euro Sign',
      'Emoji: Grinning Face',
      'Hebrew Letter Dalet With Dagesh',
    ])
    expect(canonicalJson(value).startsWith('{"\\r":"Carriage Return","1":"One","\u0080":')).toBe(true)
  })

  test('integer-like keys are sorted as texts, not as JavaScript orders them', () => {
    expect(canonicalJson({ 10: 'b', 9: 'c', 1: 'a', x: 0 })).toBe('{"1":"a","10":"b","9":"c","x":0}')
  })

  test('control characters are escaped as the RFC says, others not at all', () => {
    expect(canonicalJson('\b\t\n\f\r"\\/\u0000\u001f\u007f\u2028')).toBe(
      '"\\b\\t\\n\\f\\r\\"\\\\/\\u0000\\u001f\u007f\u2028"',
    )
  })
})

describe('canonical JSON', () => {
  test('a JSON value reads back the same, and encoding it again gives the same text', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 6 }), value => {
        const text = canonicalJson(value)
        expect(canonicalJson(JSON.parse(text))).toBe(text)
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
      { numRuns: 2000 },
    )
  })

  test('the order in which keys were written makes no difference', () => {
    const entries = fc.uniqueArray(fc.tuple(fc.string({ unit: 'binary' }), fc.integer()), {
      selector: e => e[0],
    })
    fc.assert(
      fc.property(
        entries.chain(list =>
          fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
        ),
        ([one, other]) => {
          expect(canonicalJson(Object.fromEntries(one))).toBe(canonicalJson(Object.fromEntries(other)))
        },
      ),
      { numRuns: 1000 },
    )
  })

  test('strings are written as JSON.stringify writes them', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), text => {
        expect(canonicalJson(text)).toBe(JSON.stringify(text))
      }),
      { numRuns: 2000 },
    )
  })

  test.each<[string, unknown, string]>([
    ['undefined', undefined, '$'],
    ['a function', { f() {} }, '$.f'],
    ['a symbol', [Symbol('x')], '$[0]'],
    ['a bigint', { a: 1n }, '$.a'],
    ['bytes', { a: new Uint8Array(1) }, '$.a'],
    ['NaN', { a: [0, Number.NaN] }, '$.a[1]'],
    ['a date', { 'a b': new Date(0) }, '$["a b"]'],
    ['a lone surrogate', ['\ud800'], '$[0]'],
    ['a lone surrogate in a key', { a: { '\udfff': 1 } }, '$.a'],
  ])('%s is refused, and the error says where', (_, value, path) => {
    expect(refusal(value)).toMatchObject({ code: 'INVALID_ARGUMENT', details: { path } })
  })

  test(`${DEPTH_MAX} nested containers are accepted, and one more is refused`, () => {
    let value: unknown = 1
    for (let i = 0; i < DEPTH_MAX; i++) value = i % 2 === 0 ? [value] : { a: value }
    expect(canonicalJson(value)).toContain('[1]')
    expect(refusal([value]).message).toContain('nested')
  })

  test('a small object graph with an endless text is refused quickly', () => {
    let value: unknown = 'x'.repeat(1000)
    for (let i = 0; i < 60; i++) value = [value, value]
    expect(refusal(value).message).toContain('bytes')
  })

  test('the limit counts UTF-8 bytes, not characters', () => {
    const chars = (BYTES_MAX - 2) / 2
    expect(canonicalJson('é'.repeat(chars)).length).toBe(chars + 2)
    expect(refusal('é'.repeat(chars + 1)).message).toContain('bytes')
  })
})

describe('key layouts', () => {
  test('the cache returns the layout of exactly these keys, however many layouts there are', () => {
    // Far more layouts than the cache holds, with few different first keys.
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 2000; i++) {
        const keys = [`k${i % 3}`, `b${i % 7}`, `a${i}`]
        expect(SORTED_LAYOUTS.of(keys, BYTES_MAX)?.keys).toEqual(keys)
        expect(SORTED_LAYOUTS.of(keys, BYTES_MAX)?.ordered).toEqual([...keys].sort())
        expect(GIVEN_LAYOUTS.of(keys, BYTES_MAX)?.ordered).toEqual(keys)
      }
    }
  })
})
