import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { AnnalsError } from '../core/errors.ts'
import { Envelope } from './envelope.ts'
import {
  deriveIdempotencyKey,
  type IdempotencyFields,
  idempotencyPreimage,
  identityOf,
  keyOf,
} from './idempotency-key.ts'

interface Vector extends IdempotencyFields {
  readonly name: string
  readonly stepIdNormalized: string
  readonly preimage: string
  readonly expectedSha256Hex: string
}

const CONTRACTS = new URL('../../docs/contracts/', import.meta.url)
const read = (name: string): readonly Vector[] => JSON.parse(readFileSync(new URL(name, CONTRACTS), 'utf8'))
const GOLDEN = read('RunEvents.v2.0.1.idempotency_vectors.json')
const OWN = read('idempotency_vectors.annals.json')

test('L21: the golden vectors are the five of the contract', () => {
  const text = readFileSync(new URL('RunEvents.v2.0.1.idempotency_vectors.json', CONTRACTS))
  expect(GOLDEN).toHaveLength(5)
  expect(createHash('sha256').update(text).digest('hex')).toBe(
    '3367622188336259b6722c1f43a9d061392ebde4d142a277ed3cd6ea36cf7b7f',
  )
  expect(OWN.length).toBeGreaterThanOrEqual(10)
})

describe.each([...GOLDEN, ...OWN])('vector $name', vector => {
  test('L17, L18, L21: preimage, delimiter and digest are the expected ones', () => {
    const { runId, stepId, logicalAttemptId, eventType, planId, planVersion } = vector
    const step = stepId === undefined ? {} : { stepId }
    const fields = { runId, ...step, logicalAttemptId, eventType, planId, planVersion }
    expect(idempotencyPreimage(fields)).toBe(vector.preimage)
    const parts = [runId, vector.stepIdNormalized, `${logicalAttemptId}`, eventType, planId, planVersion]
    expect(vector.preimage.split('|')).toEqual(parts)
    expect(deriveIdempotencyKey(fields)).toBe(vector.expectedSha256Hex)
  })
})

/** Valid strings: well-formed, without U+0000 and `|`, and not `RUN`, which is no valid step id. */
const text = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 40 })
  .filter(value => !value.includes('\0') && !value.includes('|') && value !== 'RUN')
const fieldsArbitrary = fc.record({
  runId: text,
  stepId: text,
  logicalAttemptId: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
  eventType: fc.constantFrom('StepStarted', 'StepCompleted', 'StepFailed', 'StepSkipped'),
  planId: text,
  planVersion: text,
})

test('L17: the key is the SHA-256 of the six fields joined with |, for any fields', () => {
  fc.assert(
    fc.property(fieldsArbitrary, fields => {
      const { runId, stepId, logicalAttemptId, eventType, planId, planVersion } = fields
      const preimage = `${runId}|${stepId}|${BigInt(logicalAttemptId)}|${eventType}|${planId}|${planVersion}`
      expect(idempotencyPreimage(fields)).toBe(preimage)
      const digest = createHash('sha256').update(Buffer.from(preimage, 'utf8')).digest('hex')
      expect(deriveIdempotencyKey(fields)).toBe(digest)
    }),
  )
})

test('L17: two events with different fields have different keys', () => {
  fc.assert(
    fc.property(fieldsArbitrary, fieldsArbitrary, (a, b) => {
      const isSame = Object.entries(a).every(([name, value]) => b[name as keyof typeof b] === value)
      expect(deriveIdempotencyKey(a) === deriveIdempotencyKey(b)).toBe(isSame)
    }),
  )
})

test('L19, L21: tenant, project, environment, engine attempt, payload, id and time do not affect the key', () => {
  const others = fc.record({
    tenantId: text,
    projectId: text,
    environmentId: text,
    engineAttemptId: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    payload: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })),
    eventId: fc.uuid({ version: 4 }),
    emittedAt: fc
      .date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true })
      .map(date => date.toISOString()),
  })
  fc.assert(
    fc.property(fieldsArbitrary, others, (fields, other) => {
      const idempotencyKey = deriveIdempotencyKey(fields)
      const event = { ...other, ...fields }
      expect(deriveIdempotencyKey(event)).toBe(idempotencyKey)
      // The envelope derives the key with its own code.
      expect(new Envelope({ ...event, idempotencyKey }).idempotencyKey).toBe(idempotencyKey)
    }),
  )
})

const GOOD: IdempotencyFields = {
  runId: 'run-1',
  stepId: 'fetch',
  logicalAttemptId: 1,
  eventType: 'StepStarted',
  planId: 'plan',
  planVersion: '1',
}

test.each([
  ['runId', 'a|b'],
  ['stepId', '|'],
  ['eventType', 'Step|Started'],
  ['planId', '|plan'],
  ['planVersion', '1|'],
  ['runId', ''],
  ['runId', 'a\0'],
  ['planId', '\ud800'],
  ['stepId', undefined],
  ['stepId', ''],
  ['stepId', 'RUN'],
  ['logicalAttemptId', 0],
  ['logicalAttemptId', 1.5],
  ['logicalAttemptId', 2 ** 53],
  ['logicalAttemptId', '1'],
  ['planVersion', 2],
])('L18, L20: %s is refused if it is %j', (field, value) => {
  const fields = { ...GOOD, [field]: value } as IdempotencyFields
  for (const derive of [idempotencyPreimage, deriveIdempotencyKey]) {
    let thrown: unknown
    try {
      derive(fields)
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeInstanceOf(AnnalsError)
    expect(thrown).toMatchObject({ code: 'INVALID_ENVELOPE', details: { field } })
  }
})

test('L18: the preimage of a run event has RUN as its step', () => {
  const { stepId: _, ...rest } = GOOD
  expect(idempotencyPreimage({ ...rest, eventType: 'RunStarted' })).toBe('run-1|RUN|1|RunStarted|plan|1')
  expect(() => idempotencyPreimage({ ...GOOD, eventType: 'RunStarted' })).toThrow(AnnalsError)
})

test('LD7: the store derives the right key, whichever keys were derived before', () => {
  const fieldsOf = (i: number): IdempotencyFields => ({ ...GOOD, stepId: `step-${i}` })
  const bytesOf = (i: number): string =>
    keyOf('run-1', identityOf(`step-${i}`, 1, GOOD.eventType, 'plan', '1'))
  const expected = (i: number): string =>
    createHash('sha256').update(`run-1|step-${i}|1|${GOOD.eventType}|plan|1`).digest('hex')
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat({ max: 5 })), { maxLength: 40 }), calls => {
      for (const [makes, i] of calls) {
        expect(makes ? deriveIdempotencyKey(fieldsOf(i)) : bytesOf(i)).toBe(expected(i))
      }
    }),
  )
  // More keys than the cache holds.
  for (let i = 0; i < 3_000; i++) deriveIdempotencyKey(fieldsOf(i))
  for (let i = 0; i < 3_000; i++) expect(bytesOf(i)).toBe(expected(i))
})
