import { expect, it } from 'vitest'
import type { Annals, Value } from '../../index.ts'
import { bad, expectFrozen, nested, RUN, refused, type Suite } from './suite.ts'

const PROTO_KEY: Value = JSON.parse('{"__proto__":{"polluted":true},"constructor":1,"":2}')

/** Values that a careless encoding would change. */
const VALUES: Readonly<Record<string, Value>> = {
  null: null,
  booleans: [true, false],
  numbers: [0, -1, 1.5, Number.MAX_VALUE, Number.MIN_VALUE, Number.MAX_SAFE_INTEGER, 1e21, 5e-324],
  'numbers that JSON lacks': [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0],
  'minus zero alone': -0,
  bigints: [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 9007199254740993n],
  'empty things': ['', [], {}, new Uint8Array()],
  'strings with U+0000': ['\0', '\0s', '\0i5', '\0bAAAA', '\0n', 'a\0b', '\0\0'],
  'strings of all kinds': ['é', '🙂', '\ufffd', '\uffff', '\u2028', '"\\\n\t\x07\x7f', 'null', '{}'],
  bytes: new Uint8Array(Array.from({ length: 256 }, (_, i) => i)),
  'a part of a buffer': new Uint8Array([9, 1, 2, 9]).subarray(1, 3),
  'keys with a meaning': PROTO_KEY,
  'keys of all kinds': { '\0': 1, é: 2, '🙂': 3, '1': 4, '10': 5, a: 6, toString: 7, hasOwnProperty: 8 },
  mixed: { a: [1n, { b: new Uint8Array([0, 255]), c: Number.NaN }], d: { e: null } },
}

/** The ways to write a value and read it back. */
const WAYS: Readonly<Record<string, (db: Annals, value: Value) => Promise<Value | undefined>>> = {
  'kv.put': async (db, value) => {
    await db.kv.put(RUN, 'k', value)
    return db.kv.get(RUN, 'k')
  },
  'a transaction that reads what it put': (db, value) =>
    db.transaction(RUN, async tx => {
      await tx.kv.put('k', value)
      return tx.kv.get('k')
    }),
  'events.append': async (db, value) => {
    const { sequence } = await db.events.append(RUN, 'note', value)
    return (await db.events.read(RUN, sequence))?.payload
  },
  'cells.set': async (db, value) => {
    await db.cells.set(RUN, 'c', value)
    return (await db.cells.read(RUN, 'c'))?.value
  },
  'cells.transition': async (db, value) => {
    await db.cells.set(RUN, 'c', 0)
    return (await db.cells.transition(RUN, 'c', () => ({ value, result: 0 }))).value
  },
  'a custom trace': async (db, value) => {
    const id = await db.traces.record(RUN, { type: 'Custom', traceType: 'x', data: value })
    const trace = (await db.traces.get(RUN, id))?.trace
    return trace?.type === 'Custom' ? trace.data : undefined
  },
  'the metadata of a trace': async (db, value) => {
    const id = await db.traces.record(RUN, { type: 'Thought', content: '' }, { metadata: value })
    return (await db.traces.get(RUN, id))?.metadata
  },
  'the metadata of a run': async (db, value) => {
    const { runId } = await db.runs.create({ metadata: value })
    return (await db.runs.get(runId))?.metadata
  },
}

/** Members that are not in the order of their names, on several levels. Built from text, so that `__proto__` is a key. */
const UNSORTED: Value = JSON.parse(
  '{"z":1,"a":{"é":[{"y":1,"x":2}],"b":null,"B":"\\u0000"},"10":1,"9":2,"__proto__":{"b":1,"a":2},"":0}',
)
/** The same members in the order of `Object.keys`, which puts integer-like names first. */
const UNSORTED_JSON =
  '{"9":2,"10":1,"z":1,"a":{"é":[{"y":1,"x":2}],"b":null,"B":"\\u0000"},"__proto__":{"b":1,"a":2},"":0}'
const SORTED_JSON =
  '{"":0,"10":1,"9":2,"__proto__":{"a":2,"b":1},"a":{"B":"\\u0000","b":null,"é":[{"x":2,"y":1}]},"z":1}'

/** Many members, which are encoded and decoded in slices. */
const MANY_MEMBERS: Value = Object.fromEntries(
  Array.from({ length: 20_000 }, (_, i) => [`member ${(i * 7919) % 20_000}`, i]),
)

/** Bytes of every length around the sizes at which the encoding changes its way. */
const BYTE_LENGTHS: readonly number[] = [0, 1, 255, 256, 16_384, 131_072, 131_073, 1_000_000]

function bytesOf(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 255)
}

const LONE_SURROGATE = 'a\ud800b'

class Instance {
  readonly x = 1
}

const NO_VALUES: Readonly<Record<string, unknown>> = {
  undefined: undefined,
  'a function': () => 1,
  'a symbol': Symbol('s'),
  'a date': new Date(),
  'a map': new Map(),
  'a class instance': new Instance(),
  'an error': new Error('e'),
  'another typed array': new Uint16Array(1),
  'a buffer without a view': new ArrayBuffer(1),
  'a bigint of 65 bits': 2n ** 63n,
  'a negative bigint of 65 bits': -(2n ** 63n) - 1n,
  'a lone surrogate': LONE_SURROGATE,
  'a lone surrogate in a key': { [LONE_SURROGATE]: 1 },
  'a hole in an array': new Array(2),
  'undefined in an object': { a: undefined },
  'undefined in an array': [undefined],
  'a symbol as a key': { [Symbol('s')]: 1 },
  'an accessor': Object.defineProperty({}, 'a', { get: () => 1, enumerable: true }),
  'a function deep inside': { a: [{ b: () => 1 }] },
  'a circle': circle(),
  '65 nested containers': nested(65),
}

/** P17: valid and invalid values. */
export function testValues(suite: Suite): void {
  for (const [way, roundTrip] of Object.entries(WAYS)) {
    suite.holds(`every value is read back as it was written: ${way}`, async db => {
      for (const [name, value] of Object.entries(VALUES)) {
        const found = await roundTrip(db, value)
        // toStrictEqual distinguishes -0 from 0, and an undefined key from an absent one.
        expect(found, name).toStrictEqual(value)
        expectFrozen(found)
      }
      expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
    })

    const isHashed = way === 'events.append'
    suite.holds(
      isHashed
        ? 'P29: members of a payload come back sorted by name, because it is hashed'
        : `P29: members come back in the order in which they were given: ${way}`,
      async db => {
        const found = await roundTrip(db, UNSORTED)
        // JavaScript has integer-like names first, whatever the order of the text.
        const sorted = JSON.stringify(JSON.parse(SORTED_JSON))
        expect(JSON.stringify(found)).toBe(isHashed ? sorted : UNSORTED_JSON)
        const names = Object.keys(MANY_MEMBERS as object)
        expect(Object.keys((await roundTrip(db, MANY_MEMBERS)) as object)).toEqual(
          isHashed ? names.sort() : names,
        )
      },
    )

    suite.holds(`P28: bytes of any length come back, beside others and beside text: ${way}`, async db => {
      for (const length of BYTE_LENGTHS) {
        const bytes = bytesOf(length)
        expectBytes(await roundTrip(db, bytes), bytes)
        const value = {
          first: bytes,
          text: 'é\0"',
          list: [Uint8Array.of(0, 34, 92), -0],
          last: Uint8Array.of(1),
        }
        const { first, ...rest } = (await roundTrip(db, value)) as typeof value
        expectBytes(first, bytes)
        expect(rest).toStrictEqual({ text: value.text, list: value.list, last: value.last })
      }
    })

    suite.holds(`an invalid value is refused, and leaves nothing: ${way}`, async db => {
      for (const [name, value] of Object.entries(NO_VALUES)) {
        // Metadata is optional.
        if (value === undefined && way.includes('metadata')) continue
        await refused(roundTrip(db, bad(value)), 'INVALID_ARGUMENT', name)
      }
      expect(await db.kv.list(RUN)).toEqual([])
      expect(await db.events.length(RUN)).toBe(0)
      expect(await db.traces.count(RUN)).toBe(0)
      expect(await db.runs.list()).toEqual([])
      expect((await db.cells.read(RUN, 'c'))?.value ?? 0).toBe(0)
    })

    suite.holds(`P17: 64 nested containers are accepted: ${way}`, async db => {
      expect(await roundTrip(db, nested(64))).toStrictEqual(nested(64))
    })
  }

  suite.holds('the key __proto__ is an ordinary key, and sets no prototype', async db => {
    await db.kv.put(RUN, 'k', PROTO_KEY)
    const found = (await db.kv.get(RUN, 'k')) as Record<string, Value>
    expect(Object.keys(found).sort()).toEqual(['', '__proto__', 'constructor'])
    expect(Object.getPrototypeOf(found)).toBe(Object.prototype)
    expect('polluted' in found).toBe(false)
  })

  suite.holds('every read returns a new copy of bytes', async db => {
    await db.kv.put(RUN, 'k', new Uint8Array([1, 2, 3]))
    const first = (await db.kv.get(RUN, 'k')) as Uint8Array
    expect(Object.getPrototypeOf(first)).toBe(Uint8Array.prototype)
    first.fill(9)
    expect(await db.kv.get(RUN, 'k')).toEqual(new Uint8Array([1, 2, 3]))
    await db.cells.set(RUN, 'c', new Uint8Array([4]))
    ;((await db.cells.read(RUN, 'c'))!.value as Uint8Array)[0] = 9
    expect((await db.cells.read(RUN, 'c'))!.value).toEqual(new Uint8Array([4]))
    await db.events.append(RUN, 'e', new Uint8Array([5]))
    ;((await db.events.read(RUN, 0))!.payload as Uint8Array)[0] = 9
    expect((await db.events.read(RUN, 0))!.payload).toEqual(new Uint8Array([5]))
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 1 })
  })

  it('the table of test values is correct', () => {
    expect(Object.is(VALUES['minus zero alone'], -0)).toBe(true)
    expect(Object.hasOwn(PROTO_KEY as object, '__proto__')).toBe(true)
    expect(LONE_SURROGATE.isWellFormed()).toBe(false)
  })
}

/** Comparing a million elements with `toEqual` would take seconds. */
function expectBytes(found: Value | undefined, expected: Uint8Array): void {
  expect(found).toBeInstanceOf(Uint8Array)
  expect(Buffer.compare(found as Uint8Array, expected)).toBe(0)
}

function circle(): unknown {
  const value: unknown[] = []
  value.push(value)
  return value
}
