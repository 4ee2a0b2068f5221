import { describe, expect, test } from 'vitest'
import { contextOver, scopeOf } from '../../test/ledger/memory-ledger.ts'
import { type ByteString, u64, utf8 } from '../core/bytes.ts'
import { Database } from '../engine/database.ts'
import { dedupeTag, HEAD_KEY, headTag, TAGS } from '../engine/keys.ts'
import type { Entry, Place, Range, Reader, Snapshot } from '../engine/storage.ts'
import { newEvent, RUN } from '../testing/ledger-suite/events.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import { idempotencyPreimage } from './idempotency-key.ts'
import { Ledger } from './ledger.ts'
import { Projector } from './projector.ts'
import type { RunEventWrite } from './run-events.ts'
import { chunkPlace, HEADING_KEY, placeOf, RUN_STATE_KEY } from './stored.ts'

const SCOPE = scopeOf(RUN)
const LOG = TAGS.ledger

/** A storage in which one entry was changed without the engine. */
class TamperedStorage extends ReferenceStorage {
  place: Place | undefined
  /** The changed value; undefined removes the entry. */
  value: ByteString | undefined

  override async snapshot(): Promise<Snapshot> {
    const snapshot = await super.snapshot()
    return { ...snapshot, ...this.#tampered(snapshot) }
  }

  override async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return this.#change(scope, tag, await super.get(scope, tag, key))
  }

  override async scan(range: Range): Promise<readonly Entry[]> {
    return this.#changeAll(range, await super.scan(range))
  }

  #tampered(reader: Reader): Reader {
    return {
      get: async (scope, tag, key) => this.#change(scope, tag, await reader.get(scope, tag, key)),
      scan: async range => this.#changeAll(range, await reader.scan(range)),
    }
  }

  #changeAll({ scope, tag }: Range, entries: readonly Entry[]): readonly Entry[] {
    return entries.flatMap(entry => this.#change(scope, tag, entry) ?? [])
  }

  #change(scope: ByteString, tag: number, entry: Entry | undefined): Entry | undefined {
    const { place, value } = this
    if (entry === undefined || place === undefined) return entry
    if (scope !== place.scope || tag !== place.tag || entry.key !== place.key) return entry
    return value === undefined ? undefined : { ...entry, value }
  }
}

/** The key of an event in the dedupe tree. */
function identityIn(event: RunEventWrite): ByteString {
  return utf8(idempotencyPreimage(event).slice(RUN.length + 1))
}

const EVENTS: readonly RunEventWrite[] = [
  newEvent({}),
  newEvent({ eventType: 'StepStarted', stepId: 'é' }),
  newEvent({ eventType: 'StepFailed', stepId: 'é', payload: { error: { code: 'E', ключ: [1, null] } } }),
  newEvent({ eventType: 'RunCompleted' }),
]

async function setUp(): Promise<{ storage: TamperedStorage; ledger: Ledger; database: Database }> {
  const storage = new TamperedStorage()
  const database = new Database(storage)
  const context = contextOver(database)
  // A read-only ledger has no projector of its own.
  const ledger = new Ledger(context, true)
  await ledger.appendEvents(EVENTS)
  await new Projector(context).project(scopeOf(RUN))
  return { storage, ledger, database }
}

/** Flips each bit of the entry in turn, and expects that verifyRun reports it. */
async function expectEveryByteFound(place: Place): Promise<void> {
  const { storage, ledger } = await setUp()
  expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: EVENTS.length })
  const entry = await storage.get(place.scope, place.tag, place.key)
  if (entry === undefined) throw new Error('there is no such entry')
  storage.place = place
  const missed: string[] = []
  for (let at = 0; at < entry.value.length; at++) {
    for (let bit = 0; bit < 8; bit++) {
      const byte = entry.value.charCodeAt(at) ^ (1 << bit)
      storage.value = entry.value.slice(0, at) + String.fromCharCode(byte) + entry.value.slice(at + 1)
      const { isValid, error } = await ledger.verifyRun(RUN)
      if (isValid || error === undefined || error === '') missed.push(`byte ${at}, bit ${bit}`)
    }
  }
  expect(missed).toEqual([])
  storage.value = entry.value
  expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: true })
}

const PLACES: Readonly<Record<string, Place>> = {
  'the first record': { scope: SCOPE, tag: LOG, key: u64(0) },
  'a record in the middle': { scope: SCOPE, tag: LOG, key: u64(2) },
  'the last record': { scope: SCOPE, tag: LOG, key: u64(3) },
  'the head of the log': { scope: SCOPE, tag: headTag(LOG), key: HEAD_KEY },
  'the dedupe entry of a key': { scope: SCOPE, tag: dedupeTag(LOG), key: identityIn(EVENTS[2]) },
  'the state of the run': placeOf(SCOPE, RUN_STATE_KEY),
  'the states of steps': chunkPlace(SCOPE, 0),
  'the heading of the run': placeOf(SCOPE, HEADING_KEY),
}

describe('LD14: verifyRun', () => {
  test.each(Object.keys(PLACES))('LD14: finds any single altered bit of %s', what =>
    expectEveryByteFound(PLACES[what]),
  )

  test.each(Object.keys(PLACES))('LD14: finds that %s was removed, emptied, cut or extended', async what => {
    const { storage, ledger } = await setUp()
    const place = PLACES[what]
    const entry = await storage.get(place.scope, place.tag, place.key)
    if (entry === undefined) throw new Error('there is no such entry')
    storage.place = place
    const { value } = entry
    for (const changed of [undefined, '', value.slice(0, -1), value.slice(1), `${value} `, `${value}\0`]) {
      storage.value = changed
      expect(await ledger.verifyRun(RUN), JSON.stringify(changed)).toMatchObject({ isValid: false })
    }
  })

  test('LD14: finds a state whose lastEventSeq is wrong', async () => {
    const { storage, ledger } = await setUp()
    const place = PLACES['the state of the run']
    const value = (await storage.get(place.scope, place.tag, place.key))?.value ?? ''
    storage.place = place
    for (const seq of ['0', '1', '3', '5', '44', '-4', '4.5', '"4"', 'null', 'true']) {
      storage.value = value.replace('"lastEventSeq":4', `"lastEventSeq":${seq}`)
      expect(storage.value).not.toBe(value)
      expect(await ledger.verifyRun(RUN), seq).toMatchObject({ isValid: false })
    }
  })

  test('LD14: reports the runSeq of the first invalid record', async () => {
    const { storage, ledger } = await setUp()
    for (let i = 0; i < EVENTS.length; i++) {
      storage.place = { scope: SCOPE, tag: LOG, key: u64(i) }
      storage.value = 'x'.repeat(200)
      const report = await ledger.verifyRun(RUN)
      expect(report).toMatchObject({ isValid: false, firstInvalid: i + 1, events: EVENTS.length })
    }
  })

  test('LD14: finds a dedupe entry without a record, which would suppress a future event', async () => {
    const { storage, ledger, database } = await setUp()
    const next = newEvent({ eventType: 'RunCancelled' })
    const known = { scope: SCOPE, tag: dedupeTag(LOG), key: identityIn(EVENTS[0]) }
    const entry = await storage.get(known.scope, known.tag, known.key)
    if (entry === undefined) throw new Error('there is no such entry')
    const scan = storage.scan.bind(storage)
    const withForged = async (range: Range): Promise<readonly Entry[]> => {
      const found = await scan(range)
      const isThere = range.tag === known.tag && range.scope === SCOPE
      return isThere ? [...found, { ...entry, key: identityIn(next) }] : found
    }
    const snapshot = storage.snapshot.bind(storage)
    storage.snapshot = async () => ({ ...(await snapshot()), scan: withForged })
    expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: false })
    expect(await database.get(SCOPE, known.tag, identityIn(next))).toBeUndefined()
  })
})

describe('L7: through the raw handle', () => {
  const value = 'forged'
  test.each<[string, Place]>([
    ['a record', PLACES['a record in the middle']],
    ['a future record', { scope: SCOPE, tag: LOG, key: u64(4) }],
    ['the head', PLACES['the head of the log']],
    ['a key', PLACES['the dedupe entry of a key']],
  ])('L7: %s can be neither overwritten nor removed', async (_, place) => {
    const { database, ledger } = await setUp()
    const before = JSON.stringify(await ledger.fetchEvents(RUN))
    for (const operation of [
      { op: 'put', ...place, value },
      { op: 'delete', ...place },
    ] as const) {
      await expect(database.write([operation])).rejects.toMatchObject({
        code: expect.stringMatching(/^INVALID/),
      })
      await expect(
        database.update([], () => ({ operations: [operation], result: undefined })),
      ).rejects.toMatchObject({ code: expect.stringMatching(/^INVALID/) })
      const transaction = database.begin()
      await expect(
        (async () => {
          if (operation.op === 'put') transaction.put(place.scope, place.tag, place.key, value)
          else transaction.delete(place.scope, place.tag, place.key)
          await transaction.commit()
        })(),
      ).rejects.toMatchObject({ code: expect.stringMatching(/^INVALID/) })
    }
    expect(JSON.stringify(await ledger.fetchEvents(RUN))).toBe(before)
    expect(await ledger.verifyRun(RUN)).toMatchObject({ isValid: true })
  })
})
