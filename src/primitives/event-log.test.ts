import { describe, expect, test } from 'vitest'
import { type ByteString, u64 } from '../core/bytes.ts'
import { linkHash, sha256 } from '../core/hash.ts'
import { encodeValue } from '../core/value.ts'
import { Database } from '../engine/database.ts'
import { HEAD_KEY, headTag, namespace, resolveScope, TAGS } from '../engine/keys.ts'
import { parseLogEntry } from '../engine/log.ts'
import type { Entry, Range, Reader, Snapshot } from '../engine/storage.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import { type Events, LiveEventLog } from './event-log.ts'

const scopeOf = (scope: Parameters<typeof resolveScope>[1]): ByteString => resolveScope('default', scope)
const RUN = 'run'
const OTHER = 'other'
const COUNT = 7

type Edit = (events: Entry[]) => Entry[]

/** A storage whose event log was modified outside the engine. `edit` makes the events that are read. */
class TamperedStorage extends ReferenceStorage {
  edit: Edit = events => events

  override async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return this.#read(super.get.bind(this), super.scan.bind(this)).get(scope, tag, key)
  }

  override async scan(range: Range): Promise<readonly Entry[]> {
    return this.#read(super.get.bind(this), super.scan.bind(this)).scan(range)
  }

  override async snapshot(): Promise<Snapshot> {
    const snapshot = await super.snapshot()
    return { ...snapshot, ...this.#read(snapshot.get, snapshot.scan) }
  }

  #read(get: Reader['get'], scan: Reader['scan']): Reader {
    const changed = async (): Promise<readonly Entry[]> =>
      this.edit([...(await scan({ scope: scopeOf(RUN), tag: TAGS.event }))])
    const isLog = (scope: ByteString, tag: number): boolean => scope === scopeOf(RUN) && tag === TAGS.event
    return {
      get: async (scope, tag, key) =>
        isLog(scope, tag) ? (await changed()).find(entry => entry.key === key) : get(scope, tag, key),
      scan: async range => {
        if (!isLog(range.scope, range.tag)) return scan(range)
        const { from = '', to, limit, reverse } = range
        const found = (await changed()).filter(({ key }) => key >= from && (to === undefined || key < to))
        return (reverse === true ? found.reverse() : found).slice(0, limit)
      },
    }
  }
}

async function setUp(): Promise<{ storage: TamperedStorage; events: Events; others: readonly Entry[] }> {
  const storage = new TamperedStorage()
  const events = new LiveEventLog(new Database(storage), scopeOf)
  for (let i = 0; i < COUNT; i++) {
    await events.append(RUN, `type-${i}`, { n: i })
    await events.append(OTHER, `type-${i}`, { n: i })
  }
  const others = await storage.scan({ scope: scopeOf(OTHER), tag: TAGS.event })
  return { storage, events, others }
}

const PREV_HASH_AT = 0
const HASH_AT = 32
const TIME_AT = 64
const BODY_AT = 72

function patched(entry: Entry, at: number, bytes: ByteString): Entry {
  const { value } = entry
  return { ...entry, value: value.slice(0, at) + bytes + value.slice(at + bytes.length) }
}

/** Gives each entry the key of its position. */
function inPlaces(entries: readonly Entry[]): Entry[] {
  return entries.map((entry, i) => ({ ...entry, key: u64(i) }))
}

const bodyOf = (type: string, n: number): ByteString => {
  const typeBytes = type
  return `\0${String.fromCharCode(typeBytes.length)}${typeBytes}${encodeValue({ n })}`
}

/** The modifications of the event at `i`. `others` are the events of another run. */
const TAMPERINGS: Readonly<Record<string, (i: number, others: readonly Entry[]) => Edit>> = {
  'a changed payload': i => events =>
    events.with(i, patched(events[i], BODY_AT, bodyOf(`type-${i}`, i === 0 ? 9 : 0))),
  'a changed type': i => events => events.with(i, patched(events[i], BODY_AT, bodyOf('type-x', i))),
  'a changed timestamp': i => events =>
    events.with(i, patched(events[i], TIME_AT, u64(parseLogEntry(events[i]).time + 1))),
  'a changed hash': i => events => events.with(i, patched(events[i], HASH_AT, sha256('x'))),
  'a changed previous hash': i => events => events.with(i, patched(events[i], PREV_HASH_AT, sha256('x'))),
  'a removed event': i => events => events.toSpliced(i, 1),
  'a removed event whose followers moved up': i => events => inPlaces(events.toSpliced(i, 1)),
  'two swapped events': i => events => {
    const other = i === 0 ? 1 : i - 1
    return inPlaces(events.with(i, events[other]).with(other, events[i]))
  },
  'a duplicated event': i => events => inPlaces(events.toSpliced(i, 0, events[i])),
  'an event from another run': (i, others) => events => events.with(i, others[i]),
  'an event from another place': i => events => inPlaces(events.with(i, events[(i + 2) % COUNT])),
}

describe('P7: verifyChain finds', () => {
  for (const [what, tampering] of Object.entries(TAMPERINGS)) {
    for (const [where, i] of [
      ['first', 0],
      ['middle', 3],
      ['last', COUNT - 1],
    ] as const) {
      test(`${what}, at the ${where} place`, async () => {
        const { storage, events, others } = await setUp()
        expect(await events.verifyChain(RUN)).toEqual({ isValid: true, length: COUNT })
        const before = await storage.scan({ scope: scopeOf(RUN), tag: TAGS.event })
        storage.edit = tampering(i, others)
        const after = await storage.scan({ scope: scopeOf(RUN), tag: TAGS.event })
        expect(after).not.toEqual(before)

        const report = await events.verifyChain(RUN)
        expect(report).toMatchObject({ isValid: false, length: after.length })
        // The first of two swapped events is invalid. Of a duplicated event, the second is.
        const expected =
          what === 'two swapped events' ? Math.max(0, i - 1) : what === 'a duplicated event' ? i + 1 : i
        expect(report.firstInvalid).toBe(expected)
        expect(report.error).toContain(`event ${expected} `)
        expect(await events.verifyChain(OTHER)).toEqual({ isValid: true, length: COUNT })
      })
    }
  }

  test('a changed event with a recomputed hash', async () => {
    const { storage, events } = await setUp()
    for (const i of [0, 3, COUNT - 1]) {
      storage.edit = entries => {
        const { prevHash, sequence, time } = parseLogEntry(entries[i])
        const body = bodyOf('forged', i)
        const hash = linkHash(prevHash, sequence, time, sha256(body))
        return entries.with(i, { ...entries[i], value: prevHash + hash + u64(time) + body })
      }
      const { isValid, firstInvalid } = await events.verifyChain(RUN)
      expect({ isValid, firstInvalid }).toEqual({ isValid: false, firstInvalid: i })
    }
  })

  test('an event that was never appended, and a log that was emptied', async () => {
    const { storage, events, others } = await setUp()
    storage.edit = entries => [...entries, { ...others[0], key: u64(COUNT) }]
    expect(await events.verifyChain(RUN)).toMatchObject({ isValid: false, firstInvalid: COUNT })
    storage.edit = () => []
    expect(await events.verifyChain(RUN)).toMatchObject({ isValid: false, length: 0, firstInvalid: 0 })
  })

  test('a log without its head', async () => {
    const storage = new ReferenceStorage()
    const events = new LiveEventLog(new Database(storage), scopeOf)
    await events.append(RUN, 'a', 1)
    const get = storage.get.bind(storage)
    const snapshot = storage.snapshot.bind(storage)
    const headless: Reader['get'] = async (scope, tag, key) =>
      tag === headTag(TAGS.event) && key === HEAD_KEY ? undefined : get(scope, tag, key)
    storage.snapshot = async () => ({ ...(await snapshot()), get: headless })
    expect(await events.verifyChain(RUN)).toMatchObject({ isValid: false, firstInvalid: 0 })
  })
})

test('P7: a running iteration notices that the log was changed', async () => {
  const { storage, events } = await setUp()
  storage.edit = entries => inPlaces(entries.with(4, entries[2]))
  const read = async (): Promise<void> => {
    for await (const _ of events.iterate(RUN));
  }
  await expect(read()).rejects.toMatchObject({ code: 'EVENT_CHAIN_BROKEN', details: { sequence: 4 } })
})

test('P7: the same events in two namespaces have different hashes', async () => {
  const { events } = await setUp()
  const parts = { tenant: 'default', app: 'a', agent: 'b', run: RUN }
  const hashes = await Promise.all(
    [RUN, OTHER, namespace(parts), namespace({ ...parts, agent: 'c' })].map(async scope => {
      await events.append(scope, 'same', 'payload')
      return (await events.head(scope))?.hash
    }),
  )
  expect(new Set(hashes).size).toBe(4)
})
