import { expect } from 'vitest'
import type { Step, Storage, Updated, UpdateOptions } from '../../engine/storage.ts'
import { bodiesOfChain } from './logs.ts'
import {
  append,
  commit,
  del,
  KV,
  keysOf,
  LOG,
  place,
  put,
  range,
  readPoint,
  SCOPE,
  type Suite,
  valueAt,
} from './suite.ts'

/** P4: an update reads and writes in one atomic step. */
export function testUpdates(suite: Suite): void {
  suite.holds('P12: 1,000 concurrent increments of one key are all counted', async storage => {
    const results = await Promise.all(Array.from({ length: 1_000 }, () => increment(storage, 'n')))
    expect(await valueAt(storage, 'n')).toBe('1000')
    const seen = results.map(({ result }) => result).sort((a, b) => a - b)
    expect(seen).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 1))
    // A higher count has a higher version.
    const byVersion = [...results].sort((a, b) => a.version - b.version)
    expect(byVersion.map(({ result }) => result)).toEqual(seen)
  })

  suite.holds(
    'P12: increments among concurrent commits and appends see every commit before them',
    async storage => {
      const work = Array.from({ length: 300 }, (_, i) => {
        if (i % 3 === 0) return commit(storage, put('n', '0'))
        return i % 3 === 1 ? increment(storage, 'n') : commit(storage, append(`${i}`))
      })
      await Promise.all(work)
      const results = (await Promise.all([increment(storage, 'n'), increment(storage, 'n')])).map(
        ({ result }) => result,
      )
      expect(results[1]).toBe(results[0] + 1)
    },
  )

  suite.holds(
    'a step gets the entries that it declared, in order, and undefined for absent ones',
    async storage => {
      const { version } = await commit(storage, put('a', '1'), put('b', '2', { scope: 'x' }), append('event'))
      const places = [
        place('b', { scope: 'x' }),
        place('none'),
        place('a'),
        place('a'),
        place('\0'.repeat(8), { tag: LOG }),
      ]
      const { result } = await storage.update(places, found => ({ operations: [], result: found }))
      expect(result.map(entry => entry?.value.slice(-5))).toEqual(['2', undefined, '1', '1', 'event'])
      expect(result[0]).toMatchObject({ key: 'b', version, expiresAt: 0 })
    },
  )

  suite.holds(
    'P5: an error thrown by a step reaches the caller unchanged, and nothing is written',
    async storage => {
      const mine = new Error('mine')
      await commit(storage, put('k', '1'))
      const failing: Step<never> = () => {
        throw mine
      }
      const before = increment(storage, 'n')
      const thrown = storage.update([place('k')], failing).catch((error: unknown) => error)
      const after = increment(storage, 'n')
      expect(await thrown).toBe(mine)
      expect([(await before).result, (await after).result]).toEqual([1, 2])
      expect(keysOf(await storage.scan(range()))).toEqual(['k', 'n'])
    },
  )

  suite.holds('an update that writes nothing returns its result, and changes nothing', async storage => {
    const { version } = await commit(storage, put('k', '1'))
    const point = await readPoint(storage, 'k')
    const updated = await storage.update([place('k')], ([entry]) => ({
      operations: [],
      result: entry?.value,
    }))
    expect(updated).toMatchObject({ status: 'committed', result: '1', appended: [] })
    expect(updated.version).toBeGreaterThanOrEqual(version)
    expect(await storage.get(SCOPE, KV, 'k')).toMatchObject({ version })
    expect((await storage.commit({ points: [point], operations: [] })).status).toBe('committed')
  })

  suite.holds('P5: puts, deletes and appends of one update are atomic', async storage => {
    await commit(storage, put('a', '1'))
    const { appended, version, result } = await storage.update([place('a')], ([entry]) => ({
      operations: [del('a'), put('b', entry?.value ?? ''), append('moved'), append('twice')],
      result: 'done',
    }))
    expect(result).toBe('done')
    expect(appended.map(({ sequence }) => sequence)).toEqual([0, 1])
    expect(await storage.scan(range())).toMatchObject([{ key: 'b', value: '1', version }])
    expect(await storage.scan(range({ tag: LOG }))).toHaveLength(2)
  })

  suite.holds('P8: exactly one of 64 concurrent updates that claim a free key gets it', async storage => {
    const results = await Promise.all(
      Array.from({ length: 64 }, (_, i) =>
        storage.update<boolean>([place('seat')], ([entry]) =>
          entry === undefined
            ? { operations: [put('seat', `${i}`)], result: true }
            : { operations: [], result: false },
        ),
      ),
    )
    expect(results.filter(({ result }) => result)).toHaveLength(1)
    expect(await valueAt(storage, 'seat')).toBe(`${results.findIndex(({ result }) => result)}`)
  })

  suite.holds('a step that declares an append may do other writes instead', async storage => {
    const appends = true
    const dedupe = { key: 'once', memo: 'first' }
    const once = (body: string): Promise<Updated<undefined>> =>
      storage.update([], () => ({ operations: [append(body, { dedupe })], result: undefined }), { appends })
    expect((await once('1')).appended).toMatchObject([{ sequence: 0, duplicate: false }])
    // The step has not read the dedupe key, so the engine alone knows that this is a duplicate.
    expect((await once('2')).appended).toMatchObject([{ sequence: 0, duplicate: true, memo: 'first' }])
    const counted = await Promise.all(Array.from({ length: 20 }, () => increment(storage, 'n', { appends })))
    expect(counted.map(({ result }) => result).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    )
    const nothing = storage.update([place('n')], ([n]) => ({ operations: [], result: n?.value }), { appends })
    expect(await nothing).toMatchObject({ result: '20', appended: [] })
  })

  suite.holds('a step that appends sees every commit before it', async storage => {
    // Appends the counter's value during concurrent increments. The appended values must never decrease.
    const work = Array.from({ length: 100 }, (_, i) => {
      if (i % 2 === 0) return increment(storage, 'n')
      const step: Step<undefined> = ([n]) => ({ operations: [append(n?.value ?? '0')], result: undefined })
      return storage.update([place('n')], step, { appends: true })
    })
    await Promise.all(work)
    const seen = (await bodiesOfChain(storage)).map(Number)
    expect(seen).toEqual([...seen].sort((a, b) => a - b))
    expect(seen).toHaveLength(50)
  })

  suite.holds('P12: a commit conflicts if an update has changed a value that it read', async storage => {
    const point = await readPoint(storage, 'n')
    const [, outcome] = await Promise.all([
      increment(storage, 'n'),
      storage.commit({ points: [point], operations: [put('n', '100')] }),
    ])
    // The increment is not lost, whichever of the two came first.
    expect(await valueAt(storage, 'n')).toBe(outcome.status === 'conflict' ? '1' : '101')
  })
}

function increment(storage: Storage, key: string, options?: UpdateOptions): Promise<Updated<number>> {
  const step: Step<number> = ([entry]) => {
    const next = Number(entry?.value ?? '0') + 1
    return { operations: [put(key, `${next}`)], result: next }
  }
  return storage.update([place(key)], step, options)
}
