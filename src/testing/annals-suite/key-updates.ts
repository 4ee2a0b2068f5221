import { expect } from 'vitest'
import { bad, RUN, refused, type Suite, times } from './suite.ts'

/** P20 and P23: clearing ranges, and updates of keys and ranges in one step. */
export function testKeyUpdates(suite: Suite): void {
  const QUEUE = { ranges: [{ prefix: 'ready/', limit: 1 }] }

  suite.holds('P23: a hundred workers that claim the next entry of a queue get different ones', async db => {
    await db.kv.write(
      RUN,
      times(100, i => ({ op: 'put', key: `ready/${String(i).padStart(3, '0')}`, value: i })),
    )
    const claim = (worker: number): Promise<unknown> =>
      db.kv.update<unknown, number>(RUN, { ...QUEUE, keys: [`claim/${worker}`] }, ({ ranges: [[next]] }) =>
        next === undefined
          ? { result: undefined }
          : { deletes: [next[0]], puts: [{ key: `claim/${worker}`, value: next[1] }], result: next[1] },
      )
    const claimed = await Promise.all(times(110, claim))
    expect(claimed.filter(entry => entry === undefined)).toHaveLength(10)
    expect(new Set(claimed).size).toBe(101)
    expect(await db.kv.list(RUN, { prefix: 'ready/' })).toEqual([])
    expect(await db.kv.list(RUN, { prefix: 'claim/' })).toHaveLength(100)
  })

  suite.holds('P23: keys and ranges are found in the order asked, in both directions', async db => {
    await db.kv.write(
      RUN,
      ['a', 'b', 'c', 'd'].map(key => ({ op: 'put', key, value: `value of ${key}` })),
    )
    const reads = {
      keys: ['d', 'missing', 'a'],
      ranges: [
        { gt: 'a', reverse: true, limit: 2 },
        { gte: 'b', lt: 'c', limit: 9 },
        { gt: 'x', limit: 1 },
      ],
    }
    const found = await db.kv.update(RUN, reads, result => ({ result }))
    expect(found).toEqual({
      keys: ['value of d', undefined, 'value of a'],
      ranges: [
        [
          ['d', 'value of d'],
          ['c', 'value of c'],
        ],
        [['b', 'value of b']],
        [],
      ],
    })
    expect(await db.run(RUN).kv.update({}, () => ({ result: 'nothing read' }))).toBe('nothing read')
  })

  suite.holds('P23: concurrent updates of one key are all counted', async db => {
    const increment = (): Promise<number> =>
      db.kv.update<number, number>(RUN, { keys: ['count'] }, ({ keys: [count = 0] }) => ({
        puts: [{ key: 'count', value: count + 1 }],
        result: count + 1,
      }))
    const results = await Promise.all(times(60, increment))
    expect([...results].sort((a, b) => a - b)).toEqual(times(60, i => i + 1))
    expect(await db.kv.get(RUN, 'count')).toBe(60)
  })

  suite.holds(
    'P23: a key outside the declared keys and ranges is refused, and nothing is written',
    async db => {
      await db.kv.put(RUN, 'a', 1)
      const reads = { keys: ['a'], ranges: [{ prefix: 'b/', limit: 1 }] }
      await db.kv.update(RUN, reads, () => ({
        puts: [{ key: 'b/far behind the limit', value: 1 }],
        result: 0,
      }))
      for (const change of [
        {
          puts: [
            { key: 'a', value: 2 },
            { key: 'c', value: 1 },
          ],
          result: 0,
        },
        { puts: [{ key: 'a', value: 2 }], deletes: ['c'], result: 0 },
        { puts: [{ key: 'a', value: 2 }], deletes: ['a'], result: 0 },
        {
          puts: [
            { key: 'a', value: 2 },
            { key: 'b/1', value: undefined },
          ],
          result: 0,
        },
        { puts: [{ key: 'a', value: 2, ttlMs: 0 }], result: 0 },
        { puts: [{ key: 'a', value: 2, ifAbsent: true }], result: 0 },
        { puts: { key: 'a', value: 2 }, result: 0 },
        { put: [], result: 0 },
        undefined,
      ]) {
        await refused(
          db.kv.update(RUN, reads, () => bad<never>(change)),
          'INVALID_ARGUMENT',
        )
      }
      expect(await db.kv.entries(RUN)).toEqual([
        ['a', 1],
        ['b/far behind the limit', 1],
      ])
    },
  )

  suite.holds('P23: a function that throws, is async or writes elsewhere changes nothing', async db => {
    const failure = new Error('no')
    const failing = db.kv.update(RUN, { keys: ['a'] }, () => {
      throw failure
    })
    await expect(failing).rejects.toBe(failure)
    await refused(
      db.kv.update(
        RUN,
        { keys: ['a'] },
        bad<never>(async () => ({ result: 1 })),
      ),
      'INVALID_ARGUMENT',
    )
    const rejecting = async (): Promise<never> => {
      throw failure
    }
    await refused(db.kv.update(RUN, { keys: ['a'] }, bad<never>(rejecting)), 'INVALID_ARGUMENT')
    let inner: Promise<unknown> = Promise.resolve()
    await db.kv.update(RUN, { keys: ['a'] }, () => {
      inner = refused(db.kv.put(RUN, 'b', 1), 'INVALID_OPERATION')
      return { result: 0 }
    })
    await inner
    expect(await db.kv.list(RUN)).toEqual([])
  })

  suite.holds('P23: invalid reads are refused', async db => {
    for (const reads of [
      { keys: 'a' },
      { keys: [''] },
      { ranges: [{ prefix: 'a' }] },
      { ranges: [{ prefix: 'a', limit: 0 }] },
      { ranges: [{ gt: 'a', gte: 'a', limit: 1 }] },
      { ranges: [{ limit: 10_001 }] },
      { ranges: { limit: 1 } },
      { key: 'a' },
      null,
    ]) {
      await refused(
        db.kv.update(RUN, bad(reads), () => ({ result: 0 })),
        'INVALID_ARGUMENT',
        JSON.stringify(reads),
      )
    }
    await refused(db.kv.update(RUN, {}, bad<never>(undefined)), 'INVALID_ARGUMENT')
  })

  suite.holds('P23: an update in a transaction sees own writes, and conflicts like a read', async db => {
    await db.kv.put(RUN, 'ready/1', 'one')
    const claim = { deletes: ['ready/1'], result: 'claimed' }
    await db.transaction(RUN, async tx => {
      await tx.kv.put('ready/0', 'own')
      const found = await tx.kv.update({ ranges: [{ prefix: 'ready/', limit: 9 }] }, ({ ranges }) => ({
        result: ranges[0].map(([key]) => key),
      }))
      expect(found).toEqual(['ready/0', 'ready/1'])
      await tx.kv.delete('ready/0')
      expect(await tx.kv.update(QUEUE, () => claim)).toBe('claimed')
      expect(await tx.kv.list()).toEqual([])
    })
    expect(await db.kv.list(RUN)).toEqual([])
    const tx = await db.begin(RUN)
    await tx.kv.update(QUEUE, () => ({ puts: [{ key: 'ready/9', value: 1 }], result: 0 }))
    await db.kv.put(RUN, 'ready/5', 'in between')
    await refused(tx.commit(), 'CONFLICT')
  })

  suite.holdsInTime('P23: expired entries are absent, and a put may expire', async (db, clock) => {
    await db.kv.put(RUN, 'ready/1', 'old', { ttlMs: 10 })
    clock.advance(10)
    const result = await db.kv.update(RUN, { ...QUEUE, keys: ['ready/1'] }, ({ keys, ranges }) => ({
      puts: [{ key: 'ready/2', value: 'new', ttlMs: 10 }],
      result: [keys, ranges],
    }))
    expect(result).toEqual([[undefined], [[]]])
    expect(await db.kv.list(RUN)).toEqual(['ready/2'])
    clock.advance(10)
    expect(await db.kv.list(RUN)).toEqual([])
  })

  suite.holds('P20: clear deletes a range and counts its keys', async db => {
    const put = ['a', 'b/1', 'b/2', 'b/3', 'c'].map(key => ({ op: 'put' as const, key, value: 1 }))
    await db.kv.write(RUN, put)
    expect(await db.kv.clear(RUN, { prefix: 'x' })).toBe(0)
    expect(await db.kv.clear(RUN, { prefix: 'b/', reverse: true, limit: 1 })).toBe(1)
    expect(await db.kv.list(RUN)).toEqual(['a', 'b/1', 'b/2', 'c'])
    expect(await db.kv.clear(RUN, { gt: 'a', lt: 'c' })).toBe(2)
    expect(await db.kv.list(RUN)).toEqual(['a', 'c'])
    await refused(db.kv.clear(RUN, bad({ all: true })), 'INVALID_ARGUMENT')
    expect(await db.run(RUN).kv.clear()).toBe(2)
    expect(await db.kv.list(RUN)).toEqual([])
  })

  suite.holds(
    'P20: clear deletes more keys than one commit takes, and in a transaction all of them',
    async db => {
      const puts = times(12_000, i => ({ op: 'put' as const, key: `key-${i}`, value: i }))
      const fill = async (): Promise<void> => {
        await db.kv.write(RUN, puts.slice(0, 10_000))
        await db.kv.write(RUN, puts.slice(10_000))
      }
      await fill()
      expect(await db.kv.clear(RUN)).toBe(12_000)
      await fill()
      const failure = new Error('no')
      const attempt = db.transaction(RUN, async tx => {
        expect(await tx.kv.clear()).toBe(12_000)
        expect(await tx.kv.list()).toEqual([])
        throw failure
      })
      await expect(attempt).rejects.toBe(failure)
      expect(await db.kv.list(RUN, { limit: 12_001 })).toHaveLength(12_000)
      expect(await db.transaction(RUN, tx => tx.kv.clear())).toBe(12_000)
      expect(await db.kv.list(RUN)).toEqual([])
    },
  )
}
