import { describe, expect, test } from 'vitest'
import { Annals } from '../annals.ts'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { openEmbedded } from '../embedded/open.ts'
import { Database } from '../engine/database.ts'
import { TAGS } from '../engine/keys.ts'
import type { Entry } from '../engine/storage.ts'
import { type AppendResult, deriveIdempotencyKey, open, type RunEventWrite } from '../index.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'
import { Envelope } from './envelope.ts'
import { RepeatedEvents } from './repeated-events.ts'

const ANSWER: AppendResult = { eventId: 'id', runSeq: 1, persistedAt: '', idempotent: true, persisted: false }
const ENTRY: Entry = { key: 'k', value: '', version: 7, time: 0, expiresAt: 0 }

function stepEvent(n: number, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  return newEvent({ eventType: 'StepStarted', stepId: `step-${n}`, ...fields })
}

describe('the cache of repeated events', () => {
  test('finds the envelope of an equal event, and not of one that was changed', () => {
    const repeats = new RepeatedEvents()
    const payload = { list: [1, { deep: true }] }
    const event = newEvent({ payload })
    const envelope = new Envelope(event)
    expect(repeats.find(event)).toBeUndefined()
    repeats.add(envelope, 'hash', false, ANSWER)
    expect(repeats.find(structuredClone(event))).toBe(envelope)
    payload.list.push(2)
    expect(repeats.find(event)).toBeUndefined()
  })

  test('knows the outcome of a comparison with one record only', () => {
    const repeats = new RepeatedEvents()
    const event = newEvent({})
    repeats.add(new Envelope(event), 'hash', true, ANSWER)
    expect(repeats.answered(new Envelope(event), 'hash')).toMatchObject({ isDivergent: true, answer: ANSWER })
    expect(repeats.answered(new Envelope(event), 'other')).toBeUndefined()
    expect(repeats.answered(new Envelope({ ...event, payload: { a: 1 } }), 'hash')).toBeUndefined()
  })

  test('is bounded, and an event that is added again takes no more room', () => {
    const repeats = new RepeatedEvents()
    const text = 'x'.repeat(15_000)
    const first = stepEvent(0, { payload: { text } })
    for (let n = 0; n < 2_000; n++) repeats.add(new Envelope(first), `hash-${n}`, false, ANSWER)
    expect(repeats.find(first)).toBeDefined()
    for (let n = 1; n < 800; n++) {
      const event = stepEvent(n, { payload: { text } })
      repeats.add(new Envelope(event), 'hash', false, ANSWER)
      expect(repeats.find(event)).toBeDefined()
    }
    expect(repeats.find(first)).toBeUndefined()
  })

  test('does not keep long events', () => {
    const repeats = new RepeatedEvents()
    const event = newEvent({ payload: { text: 'x'.repeat(20_000) } })
    repeats.add(new Envelope(event), 'hash', false, ANSWER)
    expect(repeats.find(event)).toBeUndefined()
  })
})

/** Invalid payloads that look like a valid payload that was sent before. */
const IMPOSTORS: readonly [string, Record<string, unknown>, () => object][] = [
  ['a list with a hole at its end', { a: [1, 2] }, () => ({ a: Object.assign([1, 2], { length: 3 }) })],
  ['a list of holes', { a: [] }, () => ({ a: new Array(5) })],
  ['a symbol', { a: 1 }, () => ({ a: 1, [Symbol('s')]: 1 })],
  ['a symbol on a list', { a: [1] }, () => ({ a: Object.assign([1], { [Symbol('s')]: 1 }) })],
  ['a hidden key', { a: 1 }, () => Object.defineProperty({ a: 1 }, 'b', { value: 1 })],
  ['a key that is hidden now', { a: 1 }, () => Object.defineProperty({}, 'a', { value: 1 })],
  ['an item that is hidden now', { a: [1] }, () => ({ a: Object.defineProperty([], 0, { value: 1 }) })],
  [
    'a hidden key instead of a visible one',
    { a: 1 },
    () => Object.defineProperty({ b: 7 }, 'a', { value: 1 }),
  ],
  [
    'an object with the prototype of a list',
    { a: [1] },
    () => ({ a: Object.setPrototypeOf({ 0: 1, length: 1 }, Array.prototype) }),
  ],
  [
    'a list with the prototype of an object',
    { a: { 0: 1 } },
    () => ({ a: Object.setPrototypeOf([1], Object.prototype) }),
  ],
  [
    'a getter that throws',
    { a: 1 },
    () => ({
      get a() {
        throw new Error('boom')
      },
    }),
  ],
]

describe('LD9: an invalid event is refused even if an equal valid one was cached', () => {
  test.each(IMPOSTORS)('%s', async (_, payload, impostor) => {
    await using db = await open({ memory: true })
    const event = newEvent({ payload })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    const refused = { ...event, payload: impostor() } as RunEventWrite
    await expect(db.ledger.appendEvent(refused)).rejects.toMatchObject({ code: 'INVALID_ENVELOPE' })
    expect(db.ledger.stats()).toMatchObject({ appended: 1, duplicates: 3 })
  })

  test.each(['payload', 'idempotencyKey'] as const)('an unknown field instead of a hidden %s', async name => {
    await using db = await open({ memory: true })
    const event = newEvent({ payload: { a: 1 } })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    const refused = Object.defineProperty({ ...event, unknown: 1 }, name, { enumerable: false })
    await expect(db.ledger.appendEvent(refused)).rejects.toMatchObject({
      code: 'INVALID_ENVELOPE',
      details: { field: 'unknown' },
    })
  })

  test('an event whose key belongs to another event', async () => {
    await using db = await open({ memory: true })
    const event = newEvent({ eventType: 'StepStarted', stepId: 'a' })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    await expect(db.ledger.appendEvent({ ...event, stepId: 'b' })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_MISMATCH',
      details: { expected: deriveIdempotencyKey({ ...event, stepId: 'b' }) },
    })
  })
})

test('L5: a duplicate is answered as usual while the store closes', async () => {
  const db = await open({ memory: true })
  const [known, next] = [stepEvent(1), stepEvent(2)]
  await db.ledger.appendEvent(known)
  const one = db.ledger.appendEvent(known)
  const both = db.ledger.appendEvents([known, next])
  await db.close()
  expect(await one).toMatchObject({ runSeq: 1, idempotent: true })
  expect((await both).map(({ runSeq }) => runSeq)).toEqual([1, 2])
})

/** A database in which the record is damaged, gone, or replaced by another one. */
class OtherRecord extends Database {
  instead: (() => Promise<Entry | undefined>) | undefined

  override get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return tag === TAGS.ledger && this.instead !== undefined ? this.instead() : super.get(scope, tag, key)
  }
}

test.each<[string, () => Promise<Entry | undefined>]>([
  ['cannot be read', () => Promise.reject(new AnnalsError('CORRUPT', 'damaged'))],
  ['belongs to another run now', async () => ({ ...ENTRY, value: '\0'.repeat(80) })],
  ['is gone', async () => undefined],
])('LD11: a duplicate whose record %s is answered and not counted as divergent', async (_, instead) => {
  const storage = await openEmbedded()
  const database = new OtherRecord(storage)
  const db = new Annals({ storage, database, guards: {} }, 'default')
  const [known, next] = [stepEvent(1), stepEvent(2)]
  const first = await db.ledger.appendEvent(known)
  database.instead = instead
  expect(await db.ledger.appendEvent(known)).toEqual({ ...first, idempotent: true, persisted: false })
  const both = await db.ledger.appendEvents([known, next])
  expect(both.map(({ runSeq, persisted }) => [runSeq, persisted])).toEqual([
    [1, false],
    [2, true],
  ])
  expect(db.ledger.stats()).toMatchObject({ appended: 2, duplicates: 2, divergentDuplicates: 0 })
  await db.close()
})
