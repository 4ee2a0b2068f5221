import { expect } from 'vitest'
import type { Entry, Reader, Storage } from '../../engine/storage.ts'
import { append, commit, del, KV, LOG, put, range, SCOPE, type Suite, valueAt } from './suite.ts'

/** P12, P15: a snapshot shows everything that was committed before it, for as long as it is held. */
export function testSnapshots(suite: Suite): void {
  suite.holds('P12: a snapshot does not change with later commits', async storage => {
    const keys = Array.from({ length: 300 }, (_, i) => `key ${i}`)
    await commit(storage, ...keys.map(key => put(key, 'old')), append('old'))
    const snapshot = await storage.snapshot()
    const before = await everything(snapshot)
    for (const key of keys.filter((_, i) => i % 3 === 0))
      await commit(storage, put(key, 'new'), append('new'))
    await commit(storage, ...keys.filter((_, i) => i % 3 === 1).map(key => del(key)))
    await Promise.all(Array.from({ length: 500 }, (_, i) => commit(storage, put(`more ${i}`, ''))))
    await commit(storage, put('elsewhere', '', { scope: 'elsewhere' }))
    expect(await everything(snapshot)).toEqual(before)
    expect(await valueAt(snapshot, 'key 0')).toBe('old')
    expect(await valueAt(snapshot, 'key 1')).toBe('old')
    expect(await valueAt(snapshot, 'more 0')).toBeUndefined()
    expect(await snapshot.get('elsewhere', KV, 'elsewhere')).toBeUndefined()
    expect(await snapshot.scan(range({ from: 'key 29', to: 'key 3', reverse: true, limit: 2 }))).toHaveLength(
      2,
    )
    snapshot.release()
    expect(await valueAt(storage, 'key 0')).toBe('new')
  })

  suite.holds(
    'P12: a snapshot includes every commit acknowledged before it, and has at least their version',
    async storage => {
      for (let i = 0; i < 50; i++) {
        const { version, time } = await commit(storage, put('k', `${i}`))
        const snapshot = await storage.snapshot()
        expect(await valueAt(snapshot, 'k')).toBe(`${i}`)
        expect(snapshot.version).toBeGreaterThanOrEqual(version)
        expect(snapshot.time).toBeGreaterThanOrEqual(time)
        snapshot.release()
        const later = await commit(storage, put('l', `${i}`))
        expect(later.version).toBeGreaterThan(snapshot.version)
      }
    },
  )

  suite.holds(
    'P5: a snapshot taken during commits in flight shows each of them completely or not at all',
    async storage => {
      const writes = Array.from({ length: 200 }, (_, i) =>
        commit(storage, put('x', `${i}`), put('y', `${i}`)),
      )
      const looks = Array.from({ length: 50 }, () => compare(storage))
      await Promise.all([...writes, ...looks])
      await compare(storage)
    },
  )

  suite.holds(
    'P12: several snapshots each keep their own state, in whatever order they are released',
    async storage => {
      const snapshots = []
      for (let i = 0; i < 10; i++) {
        await commit(storage, put('k', `${i}`), put(`only ${i}`, ''), del(`only ${i - 1}`))
        snapshots.push(await storage.snapshot())
      }
      const held = new Map(snapshots.entries())
      for (const released of [3, 0, 9, 5]) {
        snapshots[released].release()
        held.delete(released)
        await commit(storage, put('k', 'later'))
        for (const [i, snapshot] of held) {
          expect(await snapshot.scan(range())).toMatchObject([
            { key: 'k', value: `${i}` },
            { key: `only ${i}` },
          ])
        }
      }
      for (const snapshot of held.values()) snapshot.release()
    },
  )

  suite.holds('P12: a snapshot of an empty storage stays empty', async storage => {
    const snapshot = await storage.snapshot()
    await commit(storage, put('k', '1'), append('1'))
    expect(await everything(snapshot)).toEqual([])
    expect(await snapshot.get(SCOPE, KV, 'k')).toBeUndefined()
    snapshot.release()
  })

  suite.holds('entries that were read do not change later', async storage => {
    await commit(storage, put('k', '1'))
    const [entry] = await storage.scan(range())
    const copy = { ...entry }
    await commit(storage, put('k', '2'))
    await commit(storage, del('k'))
    expect(entry).toEqual(copy)
  })
}

async function everything(reader: Reader): Promise<Entry[]> {
  return [...(await reader.scan(range())), ...(await reader.scan(range({ tag: LOG })))]
}

async function compare(storage: Storage): Promise<void> {
  const snapshot = await storage.snapshot()
  const x = await valueAt(snapshot, 'x')
  expect((await snapshot.scan(range())).map(entry => entry.value)).toEqual(x === undefined ? [] : [x, x])
  expect(await valueAt(snapshot, 'y')).toBe(x)
  snapshot.release()
}
