import { describe, expect, test } from 'vitest'
import { Annals } from '../annals.ts'
import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { openEmbedded } from '../embedded/open.ts'
import { Database } from '../engine/database.ts'
import { TAGS } from '../engine/keys.ts'
import type { Entry } from '../engine/storage.ts'
import { deriveIdempotencyKey, open, type RunEventWrite } from '../index.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'
import { checkEnvelope } from './envelope.ts'
import { Repeats } from './repeats.ts'

const ANSWER = { eventId: '', runSeq: 1, persistedAt: '', idempotent: true, persisted: false }
const ENTRY: Entry = { key: 'k', value: '', version: 7, time: 0, expiresAt: 0 }

function note(repeats: Repeats, event: RunEventWrite): void {
  repeats.note('scope', checkEnvelope(event), ENTRY, ANSWER, false)
}

function stepEvent(n: number, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  return newEvent({ eventType: 'StepStarted', stepId: `step-${n}`, ...fields })
}

describe('events that are sent again', () => {
  test('are kept once they were noted twice, as a copy', () => {
    const repeats = new Repeats()
    const payload = { list: [1, { deep: true }] }
    const event = newEvent({ payload })
    note(repeats, event)
    expect(repeats.find(event)).toBeUndefined()
    note(repeats, event)
    expect(repeats.find(structuredClone(event))).toMatchObject({ version: 7, key: 'k', answer: ANSWER })
    expect(repeats.find(event)?.event()).toEqual(event)
    payload.list.push(2)
    expect(repeats.find(event)).toBeUndefined()
  })

  test('with another time each are not copied, and push nothing out', () => {
    const repeats = new Repeats()
    const kept = stepEvent(0)
    note(repeats, kept)
    note(repeats, kept)
    const event = stepEvent(1)
    for (let n = 0; n < 60_000; n++) {
      const emittedAt = new Date(1_700_000_000_000 + n).toISOString()
      note(repeats, { ...event, emittedAt })
    }
    expect(repeats.find(kept)).toBeDefined()
    expect(repeats.find(event)).toBeUndefined()
  })

  test('are forgotten when they are too many, and whoever is forgotten makes room', () => {
    const repeats = new Repeats()
    const text = 'x'.repeat(15_000)
    const first = stepEvent(0, { payload: { text } })
    for (let n = 0; n < 2_000; n++) {
      note(repeats, first)
      note(repeats, first)
      const repeat = repeats.find(first)
      expect(repeat).toBeDefined()
      if (repeat !== undefined) repeats.forget(repeat)
    }
    note(repeats, first)
    note(repeats, first)
    for (let n = 1; n < 800; n++) {
      const event = stepEvent(n, { payload: { text } })
      note(repeats, event)
      note(repeats, event)
      expect(repeats.find(event)).toBeDefined()
    }
    expect(repeats.find(first)).toBeUndefined()
  })

  test.each([
    ['long', { text: 'x'.repeat(20_000) }],
    ['of many parts', { parts: Array.from({ length: 100 }, () => ({})) }],
  ])('are not kept if they are %s', (_, payload) => {
    const repeats = new Repeats()
    const event = newEvent({ payload })
    for (let n = 0; n < 3; n++) note(repeats, event)
    expect(repeats.find(event)).toBeUndefined()
  })
})

/** What reads like the payload that was sent before, and is none. */
const IMPOSTORS: readonly [string, Record<string, unknown>, () => object][] = [
  [
    'a list that is longer than what it has',
    { a: [1, 2] },
    () => ({ a: Object.assign([1, 2], { length: 3 }) }),
  ],
  ['a list of holes', { a: [] }, () => ({ a: new Array(5) })],
  ['a symbol', { a: 1 }, () => ({ a: 1, [Symbol('s')]: 1 })],
  ['a symbol on a list', { a: [1] }, () => ({ a: Object.assign([1], { [Symbol('s')]: 1 }) })],
  ['a hidden key', { a: 1 }, () => Object.defineProperty({ a: 1 }, 'b', { value: 1 })],
  ['one hidden key for one that is seen', { a: 1 }, () => Object.defineProperty({ b: 7 }, 'a', { value: 1 })],
  [
    'an object like a list',
    { a: [1] },
    () => ({ a: Object.setPrototypeOf({ 0: 1, length: 1 }, Array.prototype) }),
  ],
  ['a list like an object', { a: { 0: 1 } }, () => ({ a: Object.setPrototypeOf([1], Object.prototype) })],
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

describe('LD9: what is refused the first time is refused any time', () => {
  test.each(IMPOSTORS)('%s', async (_, payload, impostor) => {
    await using db = await open({ memory: true })
    const event = newEvent({ payload })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    const refused = { ...event, payload: impostor() } as RunEventWrite
    await expect(db.ledger.appendEvent(refused)).rejects.toMatchObject({ code: 'INVALID_ENVELOPE' })
    expect(db.ledger.stats()).toMatchObject({ appended: 1, duplicates: 3 })
  })

  test('a key that does not fit the event', async () => {
    await using db = await open({ memory: true })
    const event = newEvent({ eventType: 'StepStarted', stepId: 'a' })
    for (let n = 0; n < 4; n++) await db.ledger.appendEvent(event)
    await expect(db.ledger.appendEvent({ ...event, stepId: 'b' })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_MISMATCH',
      details: { expected: deriveIdempotencyKey({ ...event, stepId: 'b' }) },
    })
  })
})

test('L5: who is answered while the store closes is answered as at any time', async () => {
  const db = await open({ memory: true })
  const [known, next] = [stepEvent(1), stepEvent(2)]
  await db.ledger.appendEvent(known)
  const one = db.ledger.appendEvent(known)
  const both = db.ledger.appendEvents([known, next])
  await db.close()
  expect(await one).toMatchObject({ runSeq: 1, idempotent: true })
  expect((await both).map(({ runSeq }) => runSeq)).toEqual([1, 2])
})

/** The record is damaged, or gone and another one is there: whoever looks for it finds that. */
class OtherRecord extends Database {
  instead: (() => Promise<Entry | undefined>) | undefined

  override get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return tag === TAGS.ledger && this.instead !== undefined ? this.instead() : super.get(scope, tag, key)
  }
}

test.each<[string, () => Promise<Entry | undefined>]>([
  ['can’t be read', () => Promise.reject(new AnnalsError('CORRUPT', 'damaged'))],
  ['is another run’s by now', async () => ({ ...ENTRY, value: '\0'.repeat(80) })],
  ['is gone', async () => undefined],
])('LD11: a duplicate whose record %s is answered, and no divergence', async (_, instead) => {
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
