import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { fromUtf8, utf8 } from './bytes.ts'
import { BYTES_MAX, canonicalJson } from './canonical-json.ts'
import { AnnalsError, type ErrorCode } from './errors.ts'
import { decodeValue, encodeCanonical, encodeRecord, encodeValue, joinFields, type Value } from './value.ts'

const errorOf = (action: () => unknown): AnnalsError => {
  try {
    action()
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('nothing was thrown')
}
const codeOf = (action: () => unknown): ErrorCode => errorOf(action).code

/** All kinds of strings, often unusual ones. Objects are made from entries, so that `__proto__` is an ordinary key. */
const awkwardText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '',
    '\0',
    '\0s',
    '\0n',
    '\0\0',
    '\0i1',
    '\0b',
    '__proto__',
    'constructor',
    'toJSON',
    '0',
    '10',
    '\\u0000',
    'é',
  ),
  fc.string({ unit: 'binary' }).map(text => `\0${text}`),
)
const { value: anyValue } = fc.letrec<{ value: Value }>(tie => ({
  value: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    fc.oneof(
      fc.constant(null),
      fc.boolean(),
      fc.double(),
      fc.integer(),
      fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      awkwardText,
      fc.uint8Array({ maxLength: 20 }),
    ),
    fc.array(tie('value'), { maxLength: 5 }),
    fc
      .array(fc.tuple(awkwardText, tie('value')), { maxLength: 5 })
      .map(entries => Object.fromEntries(entries)),
  ),
}))

/** Whether two values are equal, in the order of their members too. Needed because `toEqual` ignores `__proto__` keys. */
function same(a: Value, b: Value): boolean {
  return equal(a, b) && JSON.stringify(orderOf(a)) === JSON.stringify(orderOf(b))
}

function orderOf(value: Value): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return null
  return Object.entries(value).map(([key, part]) => [key, orderOf(part)])
}

function equal(a: Value, b: Value): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return Object.is(a, b)
  if (a instanceof Uint8Array || b instanceof Uint8Array) {
    return a instanceof Uint8Array && b instanceof Uint8Array && Buffer.compare(a, b) === 0
  }
  if (Array.isArray(a) !== Array.isArray(b)) return false
  const keys = Object.keys(a).sort()
  if (JSON.stringify(keys) !== JSON.stringify(Object.keys(b).sort())) return false
  return keys.every(key => {
    const one = Object.getOwnPropertyDescriptor(a, key)?.value as Value
    return equal(one, Object.getOwnPropertyDescriptor(b, key)?.value as Value)
  })
}

function isDeeplyFrozen(value: Value): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return true
  return Object.isFrozen(value) && Object.values(value).every(isDeeplyFrozen)
}

const rebuilt = (value: Value): Value => {
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Uint8Array) return Uint8Array.from(value)
  if (Array.isArray(value)) return value.map(rebuilt)
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, part]) => [key, rebuilt(part)]),
  )
}

describe('values', () => {
  test('P29: every value is read back unchanged, with the order of its members, and deeply frozen', () => {
    fc.assert(
      fc.property(anyValue, value => {
        const bytes = encodeValue(value)
        expect(/^[\0-\xff]*$/.test(bytes)).toBe(true)
        const back = decodeValue(bytes)
        expect(same(back, value)).toBe(true)
        expect(isDeeplyFrozen(back)).toBe(true)
        expect(encodeValue(back)).toBe(bytes)
      }),
      { numRuns: 5000 },
    )
  })

  test('equal values have equal canonical bytes, different values different ones', () => {
    fc.assert(
      fc.property(anyValue, anyValue, (one, other) => {
        expect(encodeCanonical(rebuilt(one))).toBe(encodeCanonical(one))
        expect(encodeCanonical(one) === encodeCanonical(other)).toBe(equal(one, other))
        expect(encodeValue(one) === encodeValue(other)).toBe(same(one, other))
        expect(equal(decodeValue(encodeCanonical(one)), one)).toBe(true)
      }),
      { numRuns: 5000 },
    )
  })

  test('a plain JSON value is encoded as its JSON, canonically as its canonical JSON', () => {
    const plain = fc.jsonValue({ maxDepth: 4 }).map(value => JSON.parse(JSON.stringify(value)) as Value)
    fc.assert(
      fc.property(plain, value => {
        const bytes = encodeCanonical(value)
        // Only strings that start with U+0000 are encoded differently.
        if (fromUtf8(bytes).includes('\\u0000')) return
        expect(bytes).toBe(utf8(canonicalJson(value)))
        expect(encodeValue(value)).toBe(utf8(JSON.stringify(value)))
      }),
      { numRuns: 2000 },
    )
    expect(encodeValue({ b: [1, 'é'], a: null })).toBe('{"b":[1,"Ã©"],"a":null}')
    expect(encodeCanonical({ b: [1, 'é'], a: null })).toBe('{"a":null,"b":[1,"Ã©"]}')
  })

  test.each<[string, Value, string]>([
    ['NaN', Number.NaN, '"\\u0000n"'],
    ['Infinity', Number.POSITIVE_INFINITY, '"\\u0000p"'],
    ['-Infinity', Number.NEGATIVE_INFINITY, '"\\u0000m"'],
    ['-0', -0, '"\\u0000z"'],
    ['a bigint', -(2n ** 63n), '"\\u0000i-9223372036854775808"'],
    ['bytes', Uint8Array.of(0, 255), '\0\0\0\0\x0a"\\u0000r2"\0\xff'],
    [
      'several bytes',
      { b: [Uint8Array.of(1)], a: Uint8Array.of(2, 3) },
      '\0\0\0\0\x21{"b":["\\u0000r1"],"a":"\\u0000r2"}\x01\x02\x03',
    ],
    ['no bytes', new Uint8Array(0), '"\\u0000r0"'],
    ['a string that looks like NaN', '\0n', '"\\u0000s\\u0000n"'],
    ['U+0000 later in a string', 'a\0n', '"a\\u0000n"'],
    ['a key that starts with U+0000', { '\0n': 1 }, '{"\\u0000n":1}'],
  ])('the encoding of %s is fixed', (_, value, bytes) => {
    expect(encodeValue(value)).toBe(bytes)
    expect(same(decodeValue(bytes), value)).toBe(true)
  })

  test.each<[string, Value, string]>([
    ['bytes', Uint8Array.of(0, 255), '"\\u0000bAP8="'],
    ['no bytes', new Uint8Array(0), '"\\u0000b"'],
    ['-0 and a bigint', { b: -0, a: 5n }, '{"a":"\\u0000i5","b":"\\u0000z"}'],
  ])('the canonical encoding of %s is fixed', (_, value, bytes) => {
    expect(encodeCanonical(value)).toBe(bytes)
    expect(equal(decodeValue(bytes), value)).toBe(true)
  })

  test('P29: integer-like names come first in ascending order, as JavaScript has them', () => {
    const value = { b: 1, 10: 2, a: { 2: 0, c: 0, 1: 0 }, 9: 3 }
    expect(encodeValue(value)).toBe('{"9":3,"10":2,"b":1,"a":{"1":0,"2":0,"c":0}}')
    expect(same(decodeValue(encodeValue(value)), value)).toBe(true)
  })

  test('P28: bytes take as many bytes as they have, and a few more', () => {
    for (const length of [1, 1000, 100_000]) {
      const bytes = new Uint8Array(length).fill(128)
      expect(encodeValue(bytes).length).toBeLessThan(length + 24)
    }
  })

  test('`__proto__` is an ordinary key and changes no prototype', () => {
    const value = JSON.parse('{"__proto__":{"polluted":1},"a":"\\u0000"}') as Value
    const back = decodeValue(encodeValue(value)) as Record<string, Value>
    expect(Object.keys(back).sort()).toEqual(['__proto__', 'a'])
    expect(Object.getPrototypeOf(back)).toBe(Object.prototype)
    expect((back as { polluted?: unknown }).polluted).toBeUndefined()
  })

  test('bytes are read back as a copy with its own memory', () => {
    const given = Uint8Array.of(1, 2, 3)
    const bytes = encodeValue({ given })
    given[0] = 9
    const one = (decodeValue(bytes) as { given: Uint8Array }).given
    expect([...one]).toEqual([1, 2, 3])
    expect(one.buffer.byteLength).toBe(3)
    expect(one.constructor).toBe(Uint8Array)
    one[0] = 7
    expect([...(decodeValue(bytes) as { given: Uint8Array }).given]).toEqual([1, 2, 3])
    expect(encodeValue(Buffer.from([1, 2, 3]).subarray(1))).toBe(encodeValue(Uint8Array.of(2, 3)))
  })

  test('an object without a prototype is accepted', () => {
    expect(encodeValue(Object.assign(Object.create(null), { a: 1 }))).toBe('{"a":1}')
  })
})

describe('an invalid value is refused, and the error has its path', () => {
  class Point {
    x = 1
  }
  const withSymbol = { a: 1, [Symbol('s')]: 2 }
  const withGetter = Object.defineProperty({ a: 1 }, 'b', { get: () => 2, enumerable: true })
  const withSetter = Object.defineProperty({ a: 1 }, 'b', { set() {}, enumerable: true })
  const withHidden = Object.defineProperty({ a: 1 }, 'b', { value: 2, enumerable: false })
  const cycle: { next?: unknown } = {}
  cycle.next = cycle

  test.each<[string, unknown, string]>([
    ['undefined', undefined, '$'],
    ['undefined in an object', { a: undefined }, '$.a'],
    ['undefined in an array', [[1, undefined]], '$[0][1]'],
    ['a function', { a: { b: () => 1 } }, '$.a.b'],
    ['toJSON', { toJSON: () => 1 }, '$.toJSON'],
    ['a symbol', [Symbol('x')], '$[0]'],
    ['a date', { at: new Date(0) }, '$.at'],
    ['a map', { at: new Map() }, '$.at'],
    ['a set', [new Set()], '$[0]'],
    ['a regular expression', /x/, '$'],
    ['a promise', { p: Promise.resolve() }, '$.p'],
    ['an error', { e: new Error('x') }, '$.e'],
    ['a class instance', { p: new Point() }, '$.p'],
    ['a boxed string', { s: Object('x') }, '$.s'],
    ['an object with another prototype', Object.create({ a: 1 }), '$'],
    ['an array of a class', new (class extends Array {})(), '$'],
    ['a hole', Object.assign([1], { 2: 3 }), '$[1]'],
    ['an array with a key', Object.assign([1], { index: 0 }), '$'],
    ['an empty array with a key', Object.assign([], { index: 0 }), '$'],
    ['an array with a symbol', Object.assign([1], { [Symbol('s')]: 0 }), '$'],
    ['an empty array with a symbol', Object.assign([], { [Symbol('s')]: 0 }), '$'],
    ['a symbol as a key', { in: withSymbol }, '$.in'],
    ['a getter', withGetter, '$.b'],
    ['a setter', withSetter, '$.b'],
    ['a hidden key', withHidden, '$'],
    ['a lone surrogate', { a: 'x\ud800' }, '$.a'],
    ['a lone surrogate after U+0000', { a: '\0\udc00' }, '$.a'],
    ['a lone surrogate in a key', { a: { '\ud800': 1 } }, '$.a'],
    ['2^63', { n: 2n ** 63n }, '$.n'],
    ['-2^63 - 1', { n: -(2n ** 63n) - 1n }, '$.n'],
    ['Int8Array', new Int8Array(1), '$'],
    ['a DataView', { v: new DataView(new ArrayBuffer(1)) }, '$.v'],
    ['an ArrayBuffer', { v: new ArrayBuffer(1) }, '$.v'],
  ])('%s', (_, value, path) => {
    expect(errorOf(() => encodeValue(value))).toMatchObject({ code: 'INVALID_ARGUMENT', details: { path } })
  })

  test('a cycle, because it is too deep', () => {
    expect(errorOf(() => encodeValue(cycle)).message).toContain('64 nested containers')
  })

  test('a getter is never called', () => {
    let calls = 0
    const value = Object.defineProperty({}, 'a', { get: () => ++calls, enumerable: true })
    expect(codeOf(() => encodeValue(value))).toBe('INVALID_ARGUMENT')
    expect(calls).toBe(0)
  })

  test('64 nested containers are accepted, 65 are not, and nothing deeper is read', () => {
    const nest = (depth: number): unknown => {
      let value: unknown = 'core'
      for (let i = 0; i < depth; i++) value = i % 2 === 0 ? { a: value } : [value]
      return value
    }
    expect(same(decodeValue(encodeValue(nest(64))), nest(64) as Value)).toBe(true)
    expect(codeOf(() => encodeValue(nest(65)))).toBe('INVALID_ARGUMENT')
    expect(codeOf(() => encodeValue(nest(100_000)))).toBe('INVALID_ARGUMENT')
  })

  test('a record is encoded like any object, and its fields keep their own limits', () => {
    const record = { id: 'x', tags: ['é', '\0'], metadata: { b: 1n, a: -0 }, at: 5, error: '"' }
    expect(encodeRecord(record)).toBe(encodeValue(record))
    const bytes = { a: Uint8Array.of(1, 2), b: { c: [Uint8Array.of(3)], d: new Uint8Array(0) }, e: 1 }
    expect(encodeRecord(bytes)).toBe(encodeValue(bytes))
    const inner = joinFields({ x: encodeValue(Uint8Array.of(7, 0)), y: encodeValue('é') })
    const outer = joinFields({ z: encodeValue(Uint8Array.of(0)), inner, t: encodeValue(Uint8Array.of(9)) })
    expect(decodeValue(outer)).toEqual({
      z: Uint8Array.of(0),
      inner: { x: Uint8Array.of(7, 0), y: 'é' },
      t: Uint8Array.of(9),
    })
    let deepest: Value = []
    for (let i = 1; i < 64; i++) deepest = [deepest]
    expect(decodeValue(encodeRecord({ metadata: deepest }))).toEqual({ metadata: deepest })
    expect(codeOf(() => encodeRecord({ metadata: [deepest] }))).toBe('INVALID_ARGUMENT')
    expect(errorOf(() => encodeRecord({ metadata: { a: [Symbol()] } })).details['path']).toBe(
      '$.metadata.a[0]',
    )
  })

  test('16 MiB of encoded bytes are accepted, and one more is refused', () => {
    const fill = 'x'.repeat(BYTES_MAX - 2)
    expect(encodeValue(fill).length).toBe(BYTES_MAX)
    expect(codeOf(() => encodeValue(`${fill}x`))).toBe('INVALID_ARGUMENT')
    expect(codeOf(() => encodeValue(['x'.repeat(BYTES_MAX / 2), 'x'.repeat(BYTES_MAX / 2)]))).toBe(
      'INVALID_ARGUMENT',
    )
    expect(codeOf(() => encodeValue(`${'é'.repeat(BYTES_MAX / 2)}`))).toBe('INVALID_ARGUMENT')
    expect(codeOf(() => encodeCanonical(new Uint8Array(BYTES_MAX)))).toBe('INVALID_ARGUMENT')
    expect(encodeValue(new Uint8Array(BYTES_MAX)).length).toBeLessThan(BYTES_MAX + 32)
    expect(codeOf(() => encodeValue(new Uint8Array(BYTES_MAX + 1)))).toBe('INVALID_ARGUMENT')
    expect(codeOf(() => encodeValue([new Uint8Array(BYTES_MAX), new Uint8Array(1)]))).toBe('INVALID_ARGUMENT')
    expect(codeOf(() => encodeValue([new Uint8Array(BYTES_MAX), 'x'.repeat(70_000)]))).toBe(
      'INVALID_ARGUMENT',
    )
    expect(codeOf(() => encodeValue(new Array(2 ** 32 - 1)))).toBe('INVALID_ARGUMENT')
  })

  test('an error in one value does not affect the next', () => {
    expect(codeOf(() => encodeValue({ a: ['é', undefined] }))).toBe('INVALID_ARGUMENT')
    expect(encodeValue({ a: ['b', 1] })).toBe('{"a":["b",1]}')
  })
})

describe('a malformed encoding is CORRUPT', () => {
  test.each([
    ['nothing', ''],
    ['half a text', '{"a":'],
    ['no JSON', 'undefined'],
    ['bytes that are no UTF-8', '"\xff"'],
    ['an unknown letter', '"\\u0000x"'],
    ['U+0000 alone', '"\\u0000"'],
    ['a name of Object.prototype', '"\\u0000toString"'],
    ['a bigint with a leading zero', '"\\u0000i01"'],
    ['minus zero as a bigint', '"\\u0000i-0"'],
    ['a bigint out of range', '"\\u0000i9223372036854775808"'],
    ['an empty bigint', '"\\u0000i"'],
    ['base64 without padding', '"\\u0000bAA"'],
    ['base64 with stray bits', '"\\u0000bAB=="'],
    ['fewer bytes than their number', '\0\0\0\0\x0a"\\u0000r2"\0'],
    ['more bytes than their number', '\0\0\0\0\x0a"\\u0000r2"\0\0\0'],
    ['bytes that no leaf stands for', '\0\0\0\0\x011\0'],
    ['a number of bytes without bytes', '"\\u0000r1"'],
    ['a negative number of bytes', '\0\0\0\0\x1a["\\u0000r-1","\\u0000r2"]  \0'],
    ['a number of bytes with a leading zero', '\0\0\0\0\x0b"\\u0000r02"\0\0'],
    ['a number of bytes beyond 2^53', '\0\0\0\0\x1b"\\u0000r9007199254740993000"\0'],
    ['a text longer than the value', '\0\0\0\xff\xff1\0'],
    ['a text as long as the value', '\0\0\0\0\x011'],
    ['no text before the bytes', '\0\0\0\0\0\0'],
    ['a half length', '\0\0\0'],
    ['a zero byte', '\0'],
    ['a needless s', '"\\u0000sx"'],
    ['a lone surrogate', '"\\ud800"'],
    ['a lone surrogate in a key', '{"\\ud800":1}'],
    ['67 containers: a value of 64 in a record in a record has 66', `${'['.repeat(67)}${']'.repeat(67)}`],
    ['67 containers around a leaf of its own', `${'['.repeat(67)}"\\u0000n"${']'.repeat(67)}`],
    ['a million containers', `${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`],
  ])('%s', (_, bytes) => {
    expect(codeOf(() => decodeValue(bytes))).toBe('CORRUPT')
  })

  test('P28: any bytes decode to a value or are CORRUPT', () => {
    const bytes = fc.oneof(
      fc.string({ unit: fc.integer({ min: 0, max: 255 }).map(code => String.fromCharCode(code)) }),
      fc
        .tuple(fc.nat(12), fc.constantFrom('"\\u0000r2"', '["\\u0000r1","\\u0000r3"]', '1'), fc.string())
        .map(([length, text, rest]) => `\0\0\0\0${String.fromCharCode(length)}${text}${rest}`),
    )
    fc.assert(
      fc.property(bytes, stored => {
        try {
          expect(isDeeplyFrozen(decodeValue(stored))).toBe(true)
        } catch (error) {
          expect((error as AnnalsError).code).toBe('CORRUPT')
        }
      }),
      { numRuns: 5000 },
    )
  })

  test('an encoding with one wrong byte decodes to a value or is CORRUPT', () => {
    fc.assert(
      fc.property(anyValue, fc.nat(), fc.nat(255), (value, at, byte) => {
        const bytes = encodeValue(value)
        const i = at % bytes.length
        try {
          decodeValue(bytes.slice(0, i) + String.fromCharCode(byte) + bytes.slice(i + 1))
        } catch (error) {
          expect((error as AnnalsError).code).toBe('CORRUPT')
        }
      }),
      { numRuns: 5000 },
    )
  })
})
