import { expect } from 'vitest'
import { linkHash, ZERO_HASH } from '../../core/hash.ts'
import { HEAD_KEY, headTag, TAGS } from '../../engine/keys.ts'
import { EMPTY_LOG, type LogHead, parseHead, parseLogEntry } from '../../engine/log.ts'
import type { Reader } from '../../engine/storage.ts'
import {
  append,
  bodyHashOf,
  commit,
  del,
  expectError,
  LOG,
  place,
  put,
  range,
  SCOPE,
  type Suite,
} from './suite.ts'

async function headIn(reader: Reader, tag = LOG): Promise<LogHead> {
  return parseHead(await reader.get(SCOPE, headTag(tag), HEAD_KEY))
}

/**
 * P7: the engine keeps a head for each log, which proves that no entries are missing at its end. An append may have an
 * explicit time.
 */
export function testHeads(suite: Suite): void {
  suite.holds('P7: the head changes with every append, and matches the last entry', async storage => {
    expect(await headIn(storage)).toEqual(EMPTY_LOG)
    for (let i = 1; i <= 10; i++) {
      const { appended, version } = await commit(storage, append(`${i}`), append('x', { tag: TAGS.ledger }))
      expect(await headIn(storage)).toEqual({ length: i, hash: appended[0].hash })
      expect(await headIn(storage, TAGS.ledger)).toEqual({ length: i, hash: appended[1].hash })
      expect((await storage.get(SCOPE, headTag(LOG), HEAD_KEY))?.version).toBe(version)
      const [last] = await storage.scan(range({ tag: LOG, reverse: true, limit: 1 }))
      expect(parseLogEntry(last)).toMatchObject({ sequence: i - 1, hash: appended[0].hash })
    }
  })

  suite.holds(
    'P7: after concurrent appends, and several in one commit, the head matches the last entry',
    async storage => {
      await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          commit(storage, append(`${i}`), append(`${i}`, { dedupe: { key: `${i % 9}` } })),
        ),
      )
      const entries = (await storage.scan(range({ tag: LOG }))).map(parseLogEntry)
      expect(entries).toHaveLength(59)
      expect(await headIn(storage)).toEqual({ length: 59, hash: entries[58].hash })
    },
  )

  suite.holds(
    'P7: a duplicate does not change the head, and a snapshot keeps its own head',
    async storage => {
      await commit(storage, append('1', { dedupe: { key: 'once' } }))
      const head = await headIn(storage)
      const before = await storage.get(SCOPE, headTag(LOG), HEAD_KEY)
      await commit(storage, append('2', { dedupe: { key: 'once' } }))
      expect(await storage.get(SCOPE, headTag(LOG), HEAD_KEY)).toEqual(before)
      const snapshot = await storage.snapshot()
      await commit(storage, append('3'))
      expect(await headIn(snapshot)).toEqual(head)
      expect((await headIn(storage)).length).toBe(2)
      snapshot.release()
    },
  )

  suite.holds('P12: an append conflicts with a read of the head', async storage => {
    await commit(storage, append('1'))
    const entry = await storage.get(SCOPE, headTag(LOG), HEAD_KEY)
    const point = { ...place(HEAD_KEY, { tag: headTag(LOG) }), version: entry?.version ?? 0 }
    expect((await storage.commit({ points: [point], operations: [append('2')] })).status).toBe('committed')
    expect((await storage.commit({ points: [point], operations: [append('3')] })).status).toBe('conflict')
  })

  suite.holds('P7: a write to a head is refused', async storage => {
    await commit(storage, append('1'))
    const head = await headIn(storage)
    const place = { tag: headTag(LOG) }
    for (const operation of [put(HEAD_KEY, 'x', place), del(HEAD_KEY, place), append('x', place)]) {
      await expectError(storage.commit({ operations: [operation] }), 'INVALID_OPERATION')
    }
    expect(await headIn(storage)).toEqual(head)
  })

  suite.holdsInTime(
    'P7: an append with an explicit time has that time in its entry and hash',
    async (storage, clock) => {
      const dedupe = { key: 'once' }
      const { time, appended } = await commit(storage, append('a', { time: 5, dedupe }), append('b'))
      expect(time).toBe(clock.now())
      const hash = linkHash(ZERO_HASH, 0, 5, bodyHashOf('a'))
      expect(appended).toMatchObject([
        { sequence: 0, time: 5, hash },
        { sequence: 1, time, hash: linkHash(hash, 1, time, bodyHashOf('b')) },
      ])
      const entries = await storage.scan(range({ tag: LOG }))
      expect(entries.map(entry => [entry.time, parseLogEntry(entry).time])).toEqual([
        [time, 5],
        [time, time],
      ])
      clock.advance(100)
      const again = await commit(storage, append('c', { time: 7, dedupe }))
      expect(again.appended).toEqual([{ ...appended[0], duplicate: true }])
    },
  )

  suite.holds('an invalid time is INVALID_ARGUMENT', async storage => {
    for (const time of [-1, 0.5, Number.NaN]) {
      await expectError(storage.commit({ operations: [append('x', { time })] }), 'INVALID_ARGUMENT')
    }
  })
}
