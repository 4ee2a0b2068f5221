import { expect } from 'vitest'
import {
  append,
  commit,
  del,
  keysOf,
  place,
  put,
  range,
  readPoint,
  readRange,
  type Suite,
  valueAt,
} from './suite.ts'

const TEN_YEARS_MS = 10 * 365 * 86_400_000

/** P14: an entry is absent for every reader from the moment that it expires. */
export function testExpiry(suite: Suite): void {
  suite.holdsInTime(
    'P14: an entry is present before its expiry and absent from then on',
    async (storage, clock) => {
      const expiresAt = clock.now() + 1_000
      await commit(storage, put('k', '1', { expiresAt }), put('stays', '1'))
      expect(await storage.scan(range())).toMatchObject([
        { key: 'k', expiresAt },
        { key: 'stays', expiresAt: 0 },
      ])
      clock.advance(999)
      expect(await valueAt(storage, 'k')).toBe('1')
      clock.advance(1)
      expect(await valueAt(storage, 'k')).toBeUndefined()
      expect(keysOf(await storage.scan(range()))).toEqual(['stays'])
      const { result } = await storage.update([place('k')], found => ({ operations: [], result: found }))
      expect(result).toEqual([undefined])
      const snapshot = await storage.snapshot()
      expect(keysOf(await snapshot.scan(range()))).toEqual(['stays'])
      snapshot.release()
    },
  )

  suite.holdsInTime(
    'P14: a put without an expiry clears the old one, and a put with an expiry replaces it',
    async (storage, clock) => {
      const expiresAt = clock.now() + 1_000
      await commit(storage, put('a', '1', { expiresAt }), put('b', '1', { expiresAt }), put('c', '1'))
      await commit(
        storage,
        put('a', '2'),
        put('b', '2', { expiresAt: expiresAt + 1_000 }),
        put('c', '2', { expiresAt }),
      )
      clock.advance(1_000)
      expect(keysOf(await storage.scan(range()))).toEqual(['a', 'b'])
      clock.advance(1_000)
      expect(keysOf(await storage.scan(range()))).toEqual(['a'])
    },
  )

  suite.holdsInTime(
    'P14: an entry that is put with a past expiry is never present',
    async (storage, clock) => {
      await commit(storage, put('now', '1', { expiresAt: clock.now() }), put('past', '1', { expiresAt: 1 }))
      expect(await storage.scan(range())).toEqual([])
      expect(await valueAt(storage, 'now')).toBeUndefined()
    },
  )

  suite.holdsInTime(
    'P14: the limit of a scan does not count expired entries, in either direction',
    async (storage, clock) => {
      const keys = Array.from({ length: 200 }, (_, i) => `key ${String(i).padStart(3, '0')}`)
      const expiresAt = clock.now() + 1
      await commit(storage, ...keys.map((key, i) => put(key, '', i % 10 === 0 ? {} : { expiresAt })))
      clock.advance(1)
      const living = keys.filter((_, i) => i % 10 === 0)
      expect(keysOf(await storage.scan(range({ limit: 7 })))).toEqual(living.slice(0, 7))
      expect(keysOf(await storage.scan(range({ limit: 7, reverse: true })))).toEqual(
        living.slice(-7).reverse(),
      )
      expect(keysOf(await storage.scan(range({ from: keys[5], to: keys[31] })))).toEqual(living.slice(1, 4))
    },
  )

  suite.holdsInTime(
    'P14: an expired key can be put and deleted like an absent one',
    async (storage, clock) => {
      const expiresAt = clock.now() + 1
      await commit(storage, put('a', '1', { expiresAt }), put('b', '1', { expiresAt }))
      clock.advance(1)
      await commit(storage, put('a', '2'), del('b'))
      expect(await storage.scan(range())).toMatchObject([{ key: 'a', value: '2', expiresAt: 0 }])
    },
  )

  suite.holdsInTime(
    'P12: an entry that expires after its read is a conflict, and one that expired before counts as absent',
    async (storage, clock) => {
      await commit(storage, put('k', '1', { expiresAt: clock.now() + 10 }))
      const [points, ranges] = [[await readPoint(storage, 'k')], [await readRange(storage)]]
      expect((await storage.commit({ points, ranges, operations: [] })).status).toBe('committed')
      clock.advance(10)
      expect((await storage.commit({ points, operations: [] })).status).toBe('conflict')
      expect((await storage.commit({ ranges, operations: [] })).status).toBe('conflict')
      const [absent, empty] = [[await readPoint(storage, 'k')], [await readRange(storage)]]
      expect(absent[0].version).toBe(0)
      expect((await storage.commit({ points: absent, ranges: empty, operations: [] })).status).toBe(
        'committed',
      )
    },
  )

  suite.holdsInTime(
    'P14: a snapshot still shows entries that expire while it is held',
    async (storage, clock) => {
      await commit(storage, put('k', '1', { expiresAt: clock.now() + 10 }))
      const snapshot = await storage.snapshot()
      clock.advance(10)
      await commit(storage, put('other', '1'))
      expect(await valueAt(snapshot, 'k')).toBe('1')
      expect(keysOf(await snapshot.scan(range()))).toEqual(['k'])
      expect(await valueAt(storage, 'k')).toBeUndefined()
      snapshot.release()
    },
  )

  suite.holdsInTime(
    'P14: expiry follows the current clock, even after a commit from a clock ten years ahead',
    async (storage, clock) => {
      clock.jump(TEN_YEARS_MS)
      const ahead = await commit(storage, put('other', '1'), append('x'))
      clock.jump(-TEN_YEARS_MS)
      expect(storage.clock()).toBe(clock.now())
      const expiresAt = clock.now() + 300
      const { time } = await commit(storage, put('k', '1', { expiresAt }))
      expect(time).toBeGreaterThanOrEqual(ahead.time)
      const find = async (): Promise<unknown[]> => {
        const { result } = await storage.update([place('k')], ([found]) => ({
          operations: [],
          result: found?.value,
        }))
        const snapshot = await storage.snapshot()
        const inSnapshot = [await valueAt(snapshot, 'k'), keysOf(await snapshot.scan(range()))]
        snapshot.release()
        return [await valueAt(storage, 'k'), keysOf(await storage.scan(range())), ...inSnapshot, result]
      }
      expect(await find()).toEqual(['1', ['k', 'other'], '1', ['k', 'other'], '1'])
      const [points, ranges] = [[await readPoint(storage, 'k')], [await readRange(storage)]]
      const validated = await storage.commit({ points, ranges, operations: [append('y')] })
      expect(validated.status).toBe('committed')
      clock.advance(300)
      expect(await find()).toEqual([undefined, ['other'], undefined, ['other'], undefined])
      expect((await storage.commit({ points, operations: [append('z')] })).status).toBe('conflict')
      expect((await storage.commit({ ranges, operations: [] })).status).toBe('conflict')
    },
  )

  suite.holdsInTime('a commit has the time of the clock', async (storage, clock) => {
    for (const pause of [0, 1, 1_000, 86_400_000]) {
      clock.advance(pause)
      const { time } = await commit(storage, put('k', '1'))
      expect(time).toBe(clock.now())
    }
  })
}
