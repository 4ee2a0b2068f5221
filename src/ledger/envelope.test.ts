import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { toBuffer } from '../core/bytes.ts'
import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { Envelope } from './envelope.ts'
import { deriveIdempotencyKey } from './idempotency-key.ts'

const IDENTITY = {
  runId: 'run-1',
  eventType: 'StepStarted',
  stepId: 'fetch',
  logicalAttemptId: 1,
  planId: 'plan',
  planVersion: '1',
}
const GOOD = {
  ...IDENTITY,
  eventId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
  emittedAt: '2025-06-15T15:06:40Z',
  tenantId: 'acme',
  projectId: 'shop',
  environmentId: 'test',
  engineAttemptId: 1,
  idempotencyKey: deriveIdempotencyKey(IDENTITY),
}
const REQUIRED = Object.keys(GOOD)
const TEXTS = [
  'runId',
  'eventType',
  'stepId',
  'planId',
  'planVersion',
  'tenantId',
  'projectId',
  'environmentId',
]

function refusalOf(event: unknown): AnnalsError {
  try {
    new Envelope(event)
  } catch (error) {
    if (error instanceof AnnalsError) return error
    throw error
  }
  throw new Error('the event was accepted')
}

function expectFault(event: unknown, field: string): void {
  const { code, details, message } = refusalOf(event)
  expect(code, message).toBe('INVALID_ENVELOPE')
  expect(details).toMatchObject({ field })
  expect(message).toContain(field)
}

describe('LD9: every fault is INVALID_ENVELOPE with the field in its details', () => {
  test('LD9: a valid event is accepted', () => {
    expect(new Envelope(GOOD)).toMatchObject({ runId: 'run-1', stepId: 'fetch' })
  })

  test.each(REQUIRED)('LD9, L12: an event without %s is refused', field => {
    const { [field as 'runId']: _, ...rest } = GOOD
    expectFault(rest, field)
    expectFault({ ...GOOD, [field]: undefined }, field)
  })

  test.each(REQUIRED)('LD9: a value of the wrong type for %s is refused', field => {
    const isNumber = field.endsWith('AttemptId')
    for (const value of [null, true, [], {}, Symbol('x'), () => 'x', 1n, isNumber ? '1' : 1]) {
      expectFault({ ...GOOD, [field]: value }, field)
    }
  })

  test.each([...TEXTS, 'eventId', 'emittedAt', 'idempotencyKey'])(
    'LD9: an empty %s, or one with U+0000 or a lone surrogate, is refused',
    field => {
      for (const value of ['', '\0', 'a\0b', '\ud83d', 'a\ude80b']) {
        expectFault({ ...GOOD, [field]: value }, field)
      }
    },
  )

  test.each(['runId', 'eventType', 'stepId', 'planId', 'planVersion'])(
    'LD9, L20: %s with a | is refused',
    field => {
      expectFault({ ...GOOD, [field]: 'a|b' }, field)
    },
  )

  test.each(TEXTS)('LD9: %s that is too long is refused', field => {
    const bytesMax = field === 'runId' || field === 'eventType' ? 256 : 4096
    const fits = { ...GOOD, [field]: 'x'.repeat(bytesMax) }
    const key = deriveIdempotencyKey(fits)
    expect(() => new Envelope({ ...fits, idempotencyKey: key })).not.toThrow()
    expectFault({ ...GOOD, [field]: 'x'.repeat(bytesMax + 1) }, field)
    expectFault({ ...GOOD, [field]: 'ä'.repeat(bytesMax / 2 + 1) }, field)
  })

  test.each(['runSeq', 'persistedAt', 'occurredAt', 'colour', '__proto__', 'constructor', 'Runid', ''])(
    'L1, L11, LD9: the field %j is refused, even if its value is undefined',
    field => {
      for (const value of [1, undefined]) {
        const event = JSON.parse(JSON.stringify(GOOD)) as object
        Object.defineProperty(event, field, { value, enumerable: true })
        expectFault(event, field)
      }
    },
  )

  test.each([null, undefined, 'x', 7, [], [GOOD], () => GOOD])('LD9: %s is refused as an event', event => {
    expectFault(event, 'event')
  })

  test('LD9: emittedAt may have a fraction of any length up to a limit', () => {
    const emittedAt = `2025-06-15T15:06:40.${'1'.repeat(1_000)}Z`
    expect(() => new Envelope({ ...GOOD, emittedAt })).not.toThrow()
    expectFault({ ...GOOD, emittedAt: `2025-06-15T15:06:40.${'1'.repeat(5_000)}Z` }, 'emittedAt')
  })

  test('LD7: a wrong key is refused with IDEMPOTENCY_KEY_MISMATCH, which names it', () => {
    const { code, details } = refusalOf({ ...GOOD, idempotencyKey: GOOD.idempotencyKey.toUpperCase() })
    expect(code).toBe('IDEMPOTENCY_KEY_MISMATCH')
    expect(details).toMatchObject({ expected: GOOD.idempotencyKey })
  })
})

function nested(depth: number): Record<string, unknown> {
  let value: Record<string, unknown> = {}
  for (let i = 1; i < depth; i++) value = { in: value }
  return value
}

/** A payload whose canonical JSON has exactly this many bytes. */
function sized(bytes: number): Record<string, unknown> {
  return { text: 'x'.repeat(bytes - '{"text":""}'.length) }
}

describe('LD9: payloads', () => {
  test.each<[string, unknown]>([
    ['undefined', { a: undefined }],
    ['undefined in a list', { a: [1, undefined] }],
    ['a hole', { a: new Array(1) }],
    ['a function', { a: () => 1 }],
    ['a symbol', { a: Symbol('x') }],
    ['a bigint', { a: 1n }],
    ['NaN', { a: Number.NaN }],
    ['Infinity', { a: Number.POSITIVE_INFINITY }],
    ['-Infinity', { a: [Number.NEGATIVE_INFINITY] }],
    ['a date', { a: new Date(0) }],
    ['a map', { a: new Map() }],
    ['bytes', { a: new Uint8Array(1) }],
    ['an Error', { error: new Error('x') }],
    ['a lone surrogate', { a: '\ud800' }],
    ['a key with a lone surrogate', { '\ud800': 1 }],
    ['a symbol as a key', { [Symbol('x')]: 1 }],
    ['65 containers', nested(65)],
    ['a byte too many', sized(1024 * 1024 + 1)],
    ['a list', []],
    ['null', null],
    ['a text', 'x'],
    ['an object of a class', new (class Payload {})()],
  ])('LD9: %s as or in a payload is refused, not silently dropped', (_, payload) => {
    expectFault({ ...GOOD, payload }, 'payload')
  })

  test('LD9: a cyclic payload is refused', () => {
    const payload: Record<string, unknown> = {}
    payload['self'] = payload
    expectFault({ ...GOOD, payload }, 'payload')
  })

  test.each<[string, Record<string, unknown>]>([
    ['nothing', {}],
    ['64 containers', nested(64)],
    ['1 MiB', sized(1024 * 1024)],
    ['U+0000', { 'a\0b': '\0' }],
    ['-0', { a: -0 }],
    ['no prototype', Object.create(null) as Record<string, unknown>],
  ])('LD9: a payload with %s is accepted', (_, payload) => {
    expect(() => new Envelope({ ...GOOD, payload })).not.toThrow()
  })

  test('LD9: __proto__ is a plain key', () => {
    const payload = JSON.parse('{"__proto__":{"x":1},"b":2}') as Record<string, unknown>
    const bytes = new Envelope({ ...GOOD, payload }).bytes
    expect(bytes).toContain('"payload":{"__proto__":{"x":1},"b":2}')
  })

  test('LD9: the error contains the path of the invalid value', () => {
    const { details } = refusalOf({ ...GOOD, payload: { list: [1, { when: 1n }] } })
    expect(details).toMatchObject({ field: 'payload', path: '$.list[1].when' })
  })

  test('L7: changes that the caller makes after the call have no effect', () => {
    const payload = { n: 1 }
    const event = { ...GOOD, payload }
    const envelope = new Envelope(event)
    payload.n = 2
    event.tenantId = 'other'
    expect(envelope.bytes).toContain('{"n":1}')
    expect(envelope.bytes).toContain('"tenantId":"acme"')
  })
})

test('L3, LD14: the hand-written encoder produces the canonical JSON of the event', () => {
  const text = fc
    .string({ unit: 'binary', minLength: 1, maxLength: 20 })
    .filter(value => !value.includes('\0') && !value.includes('|') && value !== 'RUN' && value !== '_shared')
  const events = fc.record(
    {
      eventId: fc.uuid({ version: 4 }).chain(id => fc.constantFrom(id, id.toUpperCase())),
      eventType: fc.oneof(
        fc.constantFrom('StepStarted', 'StepFailed'),
        text.map(value => `x${value}`),
      ),
      emittedAt: fc.constantFrom('2025-06-15T15:06:40Z', '2025-06-15T15:06:40.123456+00:00'),
      runId: text,
      tenantId: text,
      projectId: text,
      environmentId: text,
      planId: text,
      planVersion: text,
      engineAttemptId: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
      logicalAttemptId: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
      stepId: text,
      payload: fc.dictionary(fc.string({ unit: 'grapheme' }), fc.jsonValue({ maxDepth: 4 })),
    },
    {
      requiredKeys: [
        'eventId',
        'eventType',
        'emittedAt',
        'runId',
        'tenantId',
        'projectId',
        'environmentId',
        'planId',
        'planVersion',
        'engineAttemptId',
        'logicalAttemptId',
        'stepId',
      ],
    },
  )
  fc.assert(
    fc.property(events, fields => {
      const event = { ...fields, idempotencyKey: deriveIdempotencyKey(fields) }
      expect(toBuffer(new Envelope(event).bytes).toString('utf8')).toBe(canonicalJson(event))
    }),
  )
})

describe('an event of a run whose heading is cached', () => {
  const HEADING = ['tenantId', 'projectId', 'environmentId', 'planId', 'planVersion']
  const keyed = (fields: typeof GOOD): typeof GOOD => ({
    ...fields,
    idempotencyKey: deriveIdempotencyKey(fields),
  })

  test.each(HEADING)('L3: another %s is encoded as given', field => {
    for (const value of ['other', 'é"', GOOD.planId, 'l'.repeat(2_000)]) {
      for (const event of [GOOD, keyed({ ...GOOD, [field]: value }), GOOD]) {
        expect(toBuffer(new Envelope(event).bytes).toString('utf8')).toBe(canonicalJson(event))
      }
    }
  })

  test.each(HEADING)('LD9: an invalid %s is refused', field => {
    new Envelope(GOOD)
    for (const value of [undefined, '', 7, '\ud800']) expectFault({ ...GOOD, [field]: value }, field)
  })

  test('LD9: events are encoded correctly for more runs than the cache holds', () => {
    for (let i = 0; i < 2_500; i++) {
      const event = keyed({ ...GOOD, runId: `run-${i % 1_100}` })
      expect(new Envelope(event).bytes).toBe(canonicalJson(event))
    }
  })
})
