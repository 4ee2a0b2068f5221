import { expect } from 'vitest'
import type { ListOptions } from '../../index.ts'
import { expectFrozen, gather, RUN, refused, type Suite, times } from './suite.ts'

/** P20 to P22 and P24: ranges of keys, many keys at once, conditional puts and watching. */
export function testKeyRanges(suite: Suite): void {
  const KEYS = ['a', 'b', 'b/1', 'b/2', 'c', 'é', '😀']

  const RANGES: readonly (readonly [options: ListOptions, keys: readonly string[]])[] = [
    [{}, KEYS],
    [{ reverse: true }, KEYS.toReversed()],
    [{ limit: 1 }, ['a']],
    [{ reverse: true, limit: 1 }, ['😀']],
    [{ gt: 'b' }, ['b/1', 'b/2', 'c', 'é', '😀']],
    [{ gte: 'b' }, ['b', 'b/1', 'b/2', 'c', 'é', '😀']],
    [{ lt: 'b/1' }, ['a', 'b']],
    [{ lte: 'b/1' }, ['a', 'b', 'b/1']],
    [{ gte: 'b', lt: 'c' }, ['b', 'b/1', 'b/2']],
    [{ gt: 'b', lte: 'c', reverse: true, limit: 2 }, ['c', 'b/2']],
    [{ prefix: 'b/', reverse: true }, ['b/2', 'b/1']],
    [{ prefix: 'b', gt: 'b' }, ['b/1', 'b/2']],
    [{ prefix: 'b', gt: 'a', lt: 'd' }, ['b', 'b/1', 'b/2']],
    [{ gte: 'a', after: 'b/1', lte: 'c' }, ['b/2', 'c']],
    [{ gt: 'b/2', after: 'a', lte: 'c' }, ['c']],
    [{ after: 'c', reverse: true, limit: 2 }, ['b/2', 'b/1']],
    [{ after: 'c', lt: 'b', reverse: true }, ['a']],
    [{ gte: 'aa', lte: 'aa' }, []],
    [{ gt: 'c', lt: 'a' }, []],
    [{ prefix: 'b', gt: 'x' }, []],
    [{ gte: '' }, KEYS],
    [{ lt: '' }, []],
  ]

  suite.holds('P20: list, entries and iterate agree on every range, in a transaction as well', async db => {
    await db.kv.write(
      RUN,
      KEYS.map(key => ({ op: 'put', key, value: `value of ${key}` })),
    )
    for (const [options, keys] of RANGES) {
      const pairs = keys.map(key => [key, `value of ${key}`])
      const title = JSON.stringify(options)
      expect(await db.kv.list(RUN, options), title).toEqual(keys)
      expect(await db.kv.entries(RUN, options), title).toEqual(pairs)
      expect(await gather(db.run(RUN).kv.iterate(options)), title).toEqual(pairs)
      await db.transaction(RUN, async tx => {
        expect(await tx.kv.list(options), title).toEqual(keys)
        expect(await gather(tx.kv.iterate(options)), title).toEqual(pairs)
      })
    }
  })

  suite.holds('P20: `after` pages through a bounded range in both directions', async db => {
    const keys = times(50, i => `key-${String(i).padStart(2, '0')}`)
    await db.kv.write(
      RUN,
      keys.map((key, i) => ({ op: 'put', key, value: i })),
    )
    for (const reverse of [false, true]) {
      const seen: string[] = []
      for (;;) {
        const after = seen.at(-1)
        const bounds = { gte: 'key-05', lt: 'key-45', reverse, limit: 7 }
        const page = await db.kv.list(RUN, after === undefined ? bounds : { ...bounds, after })
        if (page.length === 0) break
        seen.push(...page)
      }
      const expected = keys.slice(5, 45)
      expect(seen).toEqual(reverse ? expected.reverse() : expected)
    }
  })

  suite.holds('P20: iterate reads beyond one page, in both directions', async db => {
    const keys = times(3_000, i => `key-${String(i).padStart(4, '0')}`)
    await db.kv.write(
      RUN,
      keys.map((key, i) => ({ op: 'put', key, value: i })),
    )
    const found = await gather(db.kv.iterate(RUN))
    expect(found.map(([key]) => key)).toEqual(keys)
    const backwards = await gather(db.kv.iterate(RUN, { reverse: true, limit: 2_500 }))
    expect(backwards.map(([, value]) => value)).toEqual(times(2_500, i => 2_999 - i))
  })

  suite.holds('P20: contradictory and unknown bounds are refused', async db => {
    for (const options of [
      { gt: 'a', gte: 'a' },
      { lt: 'a', lte: 'b' },
      { limit: 0 },
      { limit: -1 },
      { reverse: 'yes' },
      { from: 'a' },
      { gt: 1 },
      { gt: 'a\0' },
      { after: '' },
    ]) {
      await refused(db.kv.list(RUN, options as ListOptions), 'INVALID_ARGUMENT')
      await refused(db.kv.entries(RUN, options as ListOptions), 'INVALID_ARGUMENT')
      await refused(db.kv.iterate(RUN, options as ListOptions).next(), 'INVALID_ARGUMENT')
    }
  })

  suite.holds('P21: getMany returns values in the order of the keys', async db => {
    await db.kv.put(RUN, 'a', 1)
    await db.kv.put(RUN, 'b', { deep: [2] })
    const found = await db.kv.getMany(RUN, ['b', 'missing', 'a', 'b'])
    expect(found).toEqual([{ deep: [2] }, undefined, 1, { deep: [2] }])
    expectFrozen(found)
    expect(await db.kv.getMany(RUN, [])).toEqual([])
    await db.transaction(RUN, async tx => {
      await tx.kv.put('a', 'own')
      expect(await tx.kv.getMany(['a', 'b'])).toEqual(['own', { deep: [2] }])
    })
    await refused(db.kv.getMany(RUN, times(10_001, String)), 'INVALID_ARGUMENT')
  })

  suite.holds('P21: write applies all operations in order, or none', async db => {
    await db.kv.put(RUN, 'old', 1)
    await db.kv.write(RUN, [
      { op: 'put', key: 'a', value: 1 },
      { op: 'put', key: 'b', value: 1 },
      { op: 'delete', key: 'a' },
      { op: 'put', key: 'b', value: 2 },
      { op: 'delete', key: 'old' },
      { op: 'delete', key: 'never there' },
    ])
    expect(await db.kv.entries(RUN)).toEqual([['b', 2]])
    const bad: readonly unknown[] = [
      { op: 'put', key: '', value: 1 },
      { op: 'put', key: 'c' },
      { op: 'put', key: 'c', value: undefined },
      { op: 'put', key: 'c', value: 1, ttlMs: 0 },
      { op: 'put', key: 'c', value: 1, ifAbsent: true },
      { op: 'delete', key: 'c', value: 1 },
      { op: 'patch', key: 'c', value: 1 },
      { key: 'c', value: 1 },
      null,
    ]
    for (const operation of bad) {
      const operations = [{ op: 'put', key: 'x', value: 1 }, operation] as never
      await refused(db.kv.write(RUN, operations), 'INVALID_ARGUMENT')
    }
    await refused(
      db.kv.write(
        RUN,
        times(10_001, i => ({ op: 'delete', key: `k${i}` })),
      ),
      'INVALID_ARGUMENT',
    )
    expect(await db.kv.entries(RUN)).toEqual([['b', 2]])
  })

  suite.holds('P21: a write reads nothing, so a transaction with it never conflicts', async db => {
    const tx = await db.begin(RUN)
    await tx.kv.write([{ op: 'put', key: 'a', value: 'mine' }])
    await db.kv.put(RUN, 'a', 'theirs')
    await tx.commit()
    expect(await db.kv.get(RUN, 'a')).toBe('mine')
  })

  suite.holds('P22: put returns the version, and takes a condition on it', async db => {
    const version = await db.kv.put(RUN, 'a', 1)
    expect((await db.kv.getVersioned(RUN, 'a'))?.version).toBe(version)
    const next = await db.kv.put(RUN, 'a', 2, { ifVersion: version })
    expect(next).toBeGreaterThan(version)
    const stale = await refused(db.kv.put(RUN, 'a', 3, { ifVersion: version }), 'VERSION_MISMATCH')
    expect(stale.details).toMatchObject({ key: 'a', actual: next })
    const existing = await refused(db.kv.put(RUN, 'a', 3, { ifAbsent: true }), 'VERSION_MISMATCH')
    expect(existing.details).toMatchObject({ key: 'a', actual: next })
    const missing = await refused(db.kv.put(RUN, 'b', 3, { ifVersion: next }), 'VERSION_MISMATCH')
    expect(missing.details).toMatchObject({ key: 'b', actual: 0 })
    expect(await db.kv.entries(RUN)).toEqual([['a', 2]])
    expect(await db.kv.put(RUN, 'b', 1, { ifAbsent: true })).toBeGreaterThan(next)
    expect(await db.kv.put(RUN, 'b', 2, { ifAbsent: false })).toBeGreaterThan(next)
  })

  suite.holds('P22: exactly one of many concurrent conditional puts wins', async db => {
    const attempt = (i: number): Promise<number | string> =>
      db.kv.put(RUN, 'lock', i, { ifAbsent: true }).catch((error: { code: string }) => error.code)
    const answers = await Promise.all(times(30, attempt))
    expect(answers.filter(answer => answer === 'VERSION_MISMATCH')).toHaveLength(29)
  })

  suite.holds('P22: in a transaction a conditional put sees own writes, and its version is 0', async db => {
    const version = await db.kv.put(RUN, 'a', 1)
    await db.transaction(RUN, async tx => {
      expect(await tx.kv.put('a', 2, { ifVersion: version })).toBe(0)
      await refused(tx.kv.put('a', 3, { ifVersion: version }), 'VERSION_MISMATCH')
      expect(await tx.kv.put('a', 3, { ifVersion: 0 })).toBe(0)
      await tx.kv.delete('a')
      expect(await tx.kv.put('a', 4, { ifAbsent: true })).toBe(0)
    })
    expect(await db.kv.get(RUN, 'a')).toBe(4)
  })

  suite.holdsInTime('P22: a key that has expired counts as absent', async (db, clock) => {
    const version = await db.kv.put(RUN, 'a', 1, { ttlMs: 10 })
    clock.advance(10)
    await refused(db.kv.put(RUN, 'a', 2, { ifVersion: version }), 'VERSION_MISMATCH')
    await db.kv.put(RUN, 'a', 3, { ifAbsent: true, ttlMs: 10 })
    expect(await db.kv.get(RUN, 'a')).toBe(3)
    clock.advance(10)
    expect(await db.kv.get(RUN, 'a')).toBeUndefined()
  })

  suite.holds('P24: watch delivers every key, then the newest value of each changed key', async db => {
    await db.kv.put(RUN, 'job/1', 'ready')
    await db.kv.put(RUN, 'other', 'unwatched')
    const changes = db.kv.watch(RUN, { prefix: 'job/' })
    const first = await changes.next()
    expect(first.value).toEqual({ key: 'job/1', value: 'ready', version: expect.any(Number) })
    const waiting = changes.next()
    await db.kv.put(RUN, 'other', 'still unwatched')
    const version = await db.kv.put(RUN, 'job/2', 'ready')
    expect((await waiting).value).toEqual({ key: 'job/2', value: 'ready', version })
    await db.kv.put(RUN, 'job/2', 'running')
    const newest = await db.kv.put(RUN, 'job/2', 'done')
    let last = await changes.next()
    while (last.value?.version !== newest) last = await changes.next()
    expect(last.value).toEqual({ key: 'job/2', value: 'done', version: newest })
    await db.kv.delete(RUN, 'job/1')
    expect((await changes.next()).value).toEqual({ key: 'job/1', version: first.value?.version })
    await changes.return()
    expect(await changes.next()).toEqual({ done: true, value: undefined })
  })

  suite.holds('P24: watch ends when its signal aborts, also while it waits', async db => {
    const stop = new AbortController()
    const changes = db.run(RUN).kv.watch({ signal: stop.signal })
    const waiting = changes.next()
    stop.abort()
    expect(await waiting).toEqual({ done: true, value: undefined })
    await refused(db.kv.watch(RUN, { limit: 1 } as never).next(), 'INVALID_ARGUMENT')
  })

  suite.holds('P24: a key that expires is delivered without a value', async db => {
    await db.kv.put(RUN, 'a', 1)
    const changes = db.kv.watch(RUN)
    expect((await changes.next()).value).toMatchObject({ key: 'a', value: 1 })
    await db.kv.put(RUN, 'a', 2, { ttlMs: 30 })
    let last = await changes.next()
    // The value may have expired before it could be delivered.
    if (last.value?.value === 2) last = await changes.next()
    expect(last.value).toEqual({ key: 'a', version: expect.any(Number) })
    await changes.return()
  })
}
