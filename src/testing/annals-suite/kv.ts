import { expect } from 'vitest'
import { expectFrozen, RUN, type Suite, times } from './suite.ts'

/** P3, P4, P6: the key-value store. */
export function testKv(suite: Suite): void {
  suite.holds('get returns the value that was put, and undefined for a missing key', async db => {
    expect(await db.kv.get(RUN, 'a')).toBeUndefined()
    expect(await db.kv.getVersioned(RUN, 'a')).toBeUndefined()
    expect(await db.kv.exists(RUN, 'a')).toBe(false)
    expect(await db.kv.list(RUN)).toEqual([])
    expect(await db.kv.entries(RUN)).toEqual([])
    expect(await db.kv.put(RUN, 'a', { n: 1 })).toBeGreaterThan(0)
    expect(await db.kv.get(RUN, 'a')).toEqual({ n: 1 })
    expect(await db.kv.exists(RUN, 'a')).toBe(true)
    await db.kv.put(RUN, 'a', null)
    expect(await db.kv.get(RUN, 'a')).toBeNull()
    expect(await db.kv.exists(RUN, 'a')).toBe(true)
  })

  suite.holds('delete returns whether the key existed', async db => {
    await db.kv.put(RUN, 'a', 1)
    expect(await db.kv.delete(RUN, 'a')).toBe(true)
    expect(await db.kv.delete(RUN, 'a')).toBe(false)
    expect(await db.kv.get(RUN, 'a')).toBeUndefined()
    expect(await db.kv.list(RUN)).toEqual([])
  })

  suite.holds(
    'a version grows with every change of its key, even across a delete, and with no other change',
    async db => {
      await db.kv.put(RUN, 'a', 1)
      const first = await db.kv.getVersioned(RUN, 'a')
      expect(first).toEqual({ value: 1, version: expect.any(Number), updatedAt: expect.any(Number) })
      await db.kv.put(RUN, 'b', 1)
      expect(await db.kv.getVersioned(RUN, 'a')).toEqual(first)
      await db.kv.put(RUN, 'a', 1)
      const second = await db.kv.getVersioned(RUN, 'a')
      expect(second!.version).toBeGreaterThan(first!.version)
      await db.kv.delete(RUN, 'a')
      await db.kv.put(RUN, 'a', 1)
      const third = await db.kv.getVersioned(RUN, 'a')
      expect(third!.version).toBeGreaterThan(second!.version)
    },
  )

  suite.holdsInTime('updatedAt is the time of the put', async (db, clock) => {
    const before = clock.now()
    await db.kv.put(RUN, 'a', 1)
    clock.advance(1_000)
    await db.kv.put(RUN, 'b', 1)
    expect((await db.kv.getVersioned(RUN, 'a'))!.updatedAt).toBe(before)
    expect((await db.kv.getVersioned(RUN, 'b'))!.updatedAt).toBe(before + 1_000)
  })

  suite.holds('P6: keys are ordered by their UTF-8 bytes, not by UTF-16', async db => {
    const keys = ['A', 'a', 'a/', 'a0', 'aa', 'b', 'é', 'ﬀ', '🙂']
    for (const key of keys.toReversed()) await db.kv.put(RUN, key, key)
    expect(await db.kv.list(RUN)).toEqual(keys)
    expect(await db.kv.entries(RUN)).toEqual(keys.map(key => [key, key]))
  })

  suite.holds('prefix, after (exclusive) and limit combine', async db => {
    for (const key of ['a', 'b/1', 'b/2', 'b/é', 'b/🙂', 'b0', 'c']) await db.kv.put(RUN, key, 0)
    expect(await db.kv.list(RUN, { prefix: 'b/' })).toEqual(['b/1', 'b/2', 'b/é', 'b/🙂'])
    expect(await db.kv.list(RUN, { prefix: '' })).toHaveLength(7)
    expect(await db.kv.list(RUN, { prefix: 'b/', limit: 2 })).toEqual(['b/1', 'b/2'])
    expect(await db.kv.list(RUN, { prefix: 'b/', after: 'b/2' })).toEqual(['b/é', 'b/🙂'])
    expect(await db.kv.list(RUN, { prefix: 'b/', after: 'b/2', limit: 1 })).toEqual(['b/é'])
    expect(await db.kv.list(RUN, { prefix: 'b/', after: 'a' })).toEqual(['b/1', 'b/2', 'b/é', 'b/🙂'])
    expect(await db.kv.list(RUN, { prefix: 'b/', after: 'b0' })).toEqual([])
    expect(await db.kv.list(RUN, { prefix: 'nothing' })).toEqual([])
    expect(await db.kv.list(RUN, { after: 'b1' })).toEqual(['c'])
    expect(await db.kv.list(RUN, { after: 'c' })).toEqual([])
    expect(await db.kv.entries(RUN, { prefix: 'b', limit: 1 })).toEqual([['b/1', 0]])
  })

  suite.holds('consecutive pages of a list return every key once', async db => {
    const keys = times(100, i => `k${String(i).padStart(3, '0')}`)
    await db.transaction(RUN, tx => Promise.all(keys.map(key => tx.kv.put(key, 0))))
    const seen: string[] = []
    // The number of pages is bounded, so that a list that repeats a page fails instead of hanging.
    for (let pages = 0; pages < 20; pages++) {
      const after = seen.at(-1)
      const page = await db.kv.list(RUN, { limit: 7, ...(after === undefined ? {} : { after }) })
      if (page.length === 0) break
      expect(page.length).toBeLessThanOrEqual(7)
      seen.push(...page)
    }
    expect(seen).toEqual(keys)
    expect(await db.kv.list(RUN)).toEqual(keys)
  })

  suite.holds('kv.transaction is atomic, and returns the result of its function', async db => {
    await db.kv.put(RUN, 'balance', 100)
    const answer = await db.kv.transaction(RUN, async kv => {
      await kv.put('balance', Number(await kv.get('balance')) + 50)
      await kv.put('changed', true)
      return kv.list()
    })
    expect(answer).toEqual(['balance', 'changed'])
    const mine = new Error('mine')
    const failed = db.kv.transaction(RUN, async kv => {
      await kv.delete('balance')
      throw mine
    })
    await expect(failed).rejects.toBe(mine)
    expect(await db.kv.entries(RUN)).toEqual([
      ['balance', 150],
      ['changed', true],
    ])
  })

  suite.holds('returned values are frozen', async db => {
    await db.kv.put(RUN, 'a', { list: [1, { deep: [] }] })
    for (const result of [
      await db.kv.get(RUN, 'a'),
      await db.kv.getVersioned(RUN, 'a'),
      await db.kv.list(RUN),
      await db.kv.entries(RUN),
      await db.transaction(RUN, tx => tx.kv.entries()),
    ]) {
      expect(result).toBeTypeOf('object')
      expectFrozen(result)
    }
  })

  suite.holds('changing a value after the call changes nothing in the store', async db => {
    const value = { list: [1], bytes: new Uint8Array([1]) }
    const done = db.kv.put(RUN, 'a', value)
    value.list.push(2)
    value.bytes[0] = 2
    await done
    expect(await db.kv.get(RUN, 'a')).toEqual({ list: [1], bytes: new Uint8Array([1]) })
  })
}
