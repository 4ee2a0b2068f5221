import { inspect } from 'node:util'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { longestBlock } from '../../test/longest-block.ts'
import { AnnalsError } from './errors.ts'
import { writeLarge } from './large-write.ts'
import {
  CANONICAL,
  decodeLarge,
  decodeStored,
  decodeValue,
  encodeCanonical,
  encodeGiven,
  encodeGivenCanonical,
  encodeValue,
  storedForm,
} from './value.ts'

/** The encoded bytes, or the code and path of the error. */
function outcome(encode: () => string): string {
  try {
    return encode()
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    return `${error.code} ${error.details['path']}`
  }
}

function toEnd<T>(steps: Generator<void, T, void>): T {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** Encodes with a pause wherever one is possible. */
function inSmallParts(value: unknown, partBytes: number): string {
  return toEnd(writeLarge(value, storedForm(), undefined, partBytes))
}

function canonicalInSmallParts(value: unknown, partBytes: number): string {
  return toEnd(writeLarge(value, CANONICAL, undefined, partBytes))
}

const leaf = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'binary' }).map(text => `\0${text}`),
  fc.constantFrom('\ud83d\ude00'.repeat(20), 'a"\\\n'.repeat(20), '\ud800', 'x'.repeat(50)),
  fc.double(),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.uint8Array({ maxLength: 60 }),
  fc.constantFrom(null, true, false, undefined),
)
const values = fc.letrec(tie => ({
  value: fc.oneof({ maxDepth: 4 }, leaf, fc.array(tie('value')), fc.dictionary(fc.string(), tie('value'))),
})).value

describe('a large value, encoded with pauses', () => {
  test('P5: has the same bytes, or is refused at the same place', () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 32, max: 128 }), (value, partBytes) => {
        // Only long values are written in parts.
        const long = [value, 'x'.repeat(partBytes), { value }]
        expect(outcome(() => inSmallParts(long, partBytes))).toBe(outcome(() => encodeValue(long)))
        expect(outcome(() => canonicalInSmallParts(long, partBytes))).toBe(
          outcome(() => encodeCanonical(long)),
        )
      }),
      { numRuns: 2_000 },
    )
  })

  test('P5: refuses an invalid value at any position', () => {
    const sparse: unknown[] = [1, 2]
    sparse[3] = 4
    const cases: unknown[] = [
      sparse,
      Object.assign([1, 2], { own: 1 }),
      Object.assign([1, 2], { [Symbol('s')]: 1 }),
      {
        a: {
          get b(): number {
            return 1
          },
        },
      },
      Object.defineProperty({ a: 1 }, 'hidden', { value: 1 }),
      { [Symbol('s')]: 1 },
      { '\ud800': 1 },
      [new Date(0)],
      [new Float32Array(2)],
      { deep: Array.from({ length: 65 }).reduce<unknown>(inner => [inner], 1) },
    ]
    for (const value of cases) {
      const refusal = outcome(() => inSmallParts([value, 'x'.repeat(50)], 32))
      expect(refusal).toMatch(/^INVALID_ARGUMENT/)
      expect(refusal).toBe(outcome(() => encodeValue([value, 'x'.repeat(50)])))
    }
  })

  test('P29: more than 4,096 keys keep their order, and are sorted in a payload', () => {
    const object = Object.fromEntries(
      Array.from({ length: 20_000 }, (_, i) => [`k${(i * 7919) % 20_000}é`, i]),
    )
    const keys = Object.keys(object)
    expect(inSmallParts(object, 1024)).toBe(encodeValue(object))
    expect(Object.keys(decodeValue(encodeValue(object)) as object)).toEqual(keys)
    expect(canonicalInSmallParts(object, 1024)).toBe(encodeCanonical(object))
    expect(Object.keys(decodeValue(encodeCanonical(object)) as object)).toEqual(keys.sort())
  })

  test('P5: defaults that an application sets for `inspect` change nothing', async () => {
    const before = { ...inspect.defaultOptions }
    const many = Array.from({ length: 60_000 }, (_, i) => i)
    const own = Object.assign([...many], { own: 1 })
    try {
      for (const options of [
        { compact: false, showHidden: true, breakLength: 10 },
        { colors: true, sorted: true, getters: true, showProxy: true },
        { depth: null, maxArrayLength: null, maxStringLength: null, numericSeparator: true },
      ]) {
        Object.assign(inspect.defaultOptions, options)
        expect(await encodeGiven(many)).toBe(encodeValue(many))
        await expect((async () => encodeGiven(own))()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
        Object.assign(inspect.defaultOptions, before)
      }
    } finally {
      Object.assign(inspect.defaultOptions, before)
    }
  })

  test('P5: a key that is deleted meanwhile, or an array that is shortened, is reported as such', async () => {
    const reason = 'the value was changed while it was being stored'
    const object: Record<string, unknown> = { a: 'x'.repeat(5_000_000), b: 1 }
    const array = ['x'.repeat(5_000_000), 1, 2]
    const encoded = [encodeGiven(object), encodeGiven(array)]
    delete object['b']
    array.length = 1
    for (const [i, result] of (await Promise.allSettled(encoded)).entries()) {
      const details = { path: i === 0 ? '$.b' : '$[1]', reason }
      expect(result).toMatchObject({ reason: { code: 'INVALID_ARGUMENT', details } })
    }
  })

  test('P5: the limit of 16 MiB also applies in slices', async () => {
    const most = 'x'.repeat(16 * 1024 * 1024 - 2)
    expect(await encodeGiven(most)).toBe(`"${most}"`)
    const bytes = new Uint8Array(16 * 1024 * 1024)
    for (const value of [
      `${most}x`,
      [most],
      new Uint8Array(bytes.length + 1),
      [bytes, new Uint8Array(1)],
      [bytes, 'x'.repeat(70_000)],
      Array(9_000_000).fill(1),
    ]) {
      await expect((async () => encodeGiven(value))()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
    const tooMuch = new Uint8Array(13 * 1024 * 1024)
    await expect((async () => encodeGivenCanonical(tooMuch))()).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  })

  test('P28: 16 MiB of bytes are accepted, alone and in an object', async () => {
    const bytes = new Uint8Array(16 * 1024 * 1024).fill(200)
    bytes[12_345_678] = 0
    for (const value of [bytes, { name: 'x', bytes }]) {
      const stored = await encodeGiven(value)
      expect(stored).toBe(encodeValue(value))
      expect(stored.length).toBeLessThan(bytes.length + 64)
      expect(Buffer.compare(bytesIn(await decodeStored(stored)), bytes)).toBe(0)
      expect(Buffer.compare(bytesIn(decodeValue(stored)), bytes)).toBe(0)
    }
  })

  test('P28: bytes whose memory is resized meanwhile are refused', async () => {
    const buffer = new ArrayBuffer(5_000_000)
    const encoded = encodeGiven({ bytes: new Uint8Array(buffer) })
    structuredClone(buffer, { transfer: [buffer] })
    const details = { path: '$.bytes', reason: 'the value was changed while it was being stored' }
    await expect(encoded).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', details })
  })

  test('a short value is read before the call returns', () => {
    const value = { text: 'before' }
    const encoded = encodeGiven(value)
    value.text = 'after'
    expect(encoded).toBe('{"text":"before"}')
  })

  test('a value that changes meanwhile is encoded as it was or as it is, part by part', async () => {
    const value = Array.from({ length: 50_000 }, () => ({ text: 'before' }))
    const encoded = encodeGiven(value)
    expect(encoded).toBeInstanceOf(Promise)
    for (const part of value) part.text = 'after'
    const parts = JSON.parse(await encoded) as readonly { readonly text: string }[]
    expect(parts.length).toBe(50_000)
    expect(new Set(parts.map(({ text }) => text))).toEqual(new Set(['before', 'after']))
  })
})

function bytesIn(value: unknown): Uint8Array {
  return value instanceof Uint8Array ? value : (value as { readonly bytes: Uint8Array }).bytes
}

describe('a large value, decoded with pauses', () => {
  const isFrozen = (value: unknown): boolean =>
    typeof value !== 'object' ||
    value === null ||
    value instanceof Uint8Array ||
    (Object.isFrozen(value) && Object.values(value).every(isFrozen))

  test('P5: is the same value, deeply frozen', () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 64 }), (value, partBytes) => {
        const encoded = outcome(() => encodeValue(value))
        fc.pre(!encoded.startsWith('INVALID_ARGUMENT'))
        const decoded = toEnd(decodeLarge(encoded, partBytes))
        expect(decoded).toStrictEqual(decodeValue(encoded))
        expect(encodeValue(decoded)).toBe(encoded)
        expect(isFrozen(decoded)).toBe(true)
      }),
      { numRuns: 2_000 },
    )
  })

  test('P5: keys with a meaning in JavaScript, or that begin with U+0000, are ordinary keys', () => {
    const bytes = '{"\\u0000i":1,"\\u0000b":[2],"1":3,"__proto__":{"a":[4]},"toString":5}'
    for (const partBytes of [1, 4, 16]) {
      const decoded = toEnd(decodeLarge(bytes, partBytes))
      expect(decoded).toStrictEqual(decodeValue(bytes))
      expect(Object.getPrototypeOf(decoded)).toBe(Object.prototype)
    }
  })

  test('P5: damage to a name that is longer than a part is CORRUPT', () => {
    for (const damaged of ['{"a long name"}', '{"a long name":}', '{"a long name" "another":1}']) {
      expect(() => toEnd(decodeLarge(damaged, 3)), damaged).toThrow(/a stored value can't be read/)
    }
    const sound = encodeValue({ a: 1, 'a long "name"': [2], 'b\0 long name': 'a long text', c: 3 })
    for (let at = 0; at < sound.length; at++) {
      for (const piece of ['', ',', '"', ':1']) {
        const damaged = `${sound.slice(0, at)}${piece}${sound.slice(at + 1)}`
        const once = outcome(() => JSON.stringify(decodeValue(damaged)))
        expect(
          outcome(() => JSON.stringify(toEnd(decodeLarge(damaged, 3)))),
          damaged,
        ).toBe(once)
      }
    }
  })

  test('P5: a malformed encoding is CORRUPT, wherever the damage is', () => {
    const sound = encodeValue([
      { a: 'text"\\é\0', b: [1, [2, new Uint8Array(7)], { c: null }] },
      'x'.repeat(20),
      5n,
    ])
    for (let at = 0; at < sound.length; at++) {
      for (const damaged of [
        sound.slice(0, at),
        `${sound.slice(0, at)}${sound.slice(at + 1)}`,
        `${sound}${sound[at]}`,
      ]) {
        const once = outcome(() => JSON.stringify(decodeValue(damaged), plain))
        const inParts = outcome(() => JSON.stringify(toEnd(decodeLarge(damaged, 3)), plain))
        expect(inParts, damaged).toBe(once)
      }
    }
  })

  test('P5: one container too many is CORRUPT', () => {
    const deep = `${'['.repeat(80)}"${'x'.repeat(200_000)}"${']'.repeat(80)}`
    expect(outcome(() => String(decodeValue(deep)))).toMatch(/^CORRUPT/)
    expect(outcome(() => String(toEnd(decodeLarge(deep))))).toMatch(/^CORRUPT/)
  })

  test('P5: a value of many megabytes is read back unchanged', async () => {
    const value = {
      bytes: new Uint8Array(500_001).fill(7),
      list: Array.from({ length: 50_000 }, (_, i) => [i, `é${i}`]),
    }
    expect(await decodeStored(encodeValue(value))).toStrictEqual(value)
  })
})

describe('W15: the event loop turns', () => {
  const BOUND_MS = 20
  const QUOTES = '"'.repeat(4_000_000)
  const within = (value: unknown, arrays: number): unknown => {
    let whole = value
    for (let i = 0; i < arrays; i++) whole = [whole]
    return whole
  }

  test.each([
    ['a text', QUOTES],
    ['a text in 63 arrays', within(QUOTES, 63)],
    ['a key', { [QUOTES]: 1 }],
    ['a key in 62 arrays', within({ [QUOTES]: [1] }, 62)],
    ['16 MiB of bytes', new Uint8Array(16 * 1024 * 1024).fill(34)],
    ['many arrays of bytes', Array.from({ length: 50_000 }, () => new Uint8Array(100).fill(34))],
  ])('while %s, mostly quotes, is encoded and decoded', async (_, value) => {
    let bytes = ''
    const encode = async (): Promise<void> => {
      bytes = await encodeGiven(value)
    }
    expect(await longestBlock(encode, 5, BOUND_MS)).toBeLessThan(BOUND_MS)
    const decode = async (): Promise<unknown> => decodeStored(bytes)
    expect(await longestBlock(decode, 5, BOUND_MS)).toBeLessThan(BOUND_MS)
    expect(bytes).toBe(encodeValue(value))
    expect(encodeValue(await decode())).toBe(bytes)
  })
})

function plain(_: string, value: unknown): unknown {
  return typeof value === 'bigint' ? `${value}n` : value
}
