import { expect } from 'vitest'
import { RUN, refused, type Suite } from './suite.ts'

const DEADLINE_MS = 5_000
const TEN_YEARS_MS = 10 * 365 * 86_400_000

/** P14: keys with a time to live. */
export function testExpiry(suite: Suite): void {
  suite.holds('P14: a key is absent after its ttlMs, and a key with time left is present', async db => {
    // The engine uses its own clock here, so poll until the key has expired.
    await db.kv.put(RUN, 'short', 1, { ttlMs: 20 })
    await db.kv.put(RUN, 'long', 1, { ttlMs: 3_600_000 })
    const deadline = Date.now() + DEADLINE_MS
    while ((await db.kv.exists(RUN, 'short')) && Date.now() < deadline) {
      await new Promise(resolve => setTimeout(resolve, 2))
    }
    expect(await db.kv.list(RUN)).toEqual(['long'])
    expect(await db.kv.get(RUN, 'short')).toBeUndefined()
  })

  suite.holdsInTime('P14: every way to read agrees on the expiry, to the millisecond', async (db, clock) => {
    await db.kv.put(RUN, 'a', 1, { ttlMs: 1_000 })
    await db.kv.put(RUN, 'b', 2)
    clock.advance(999)
    expect(await db.kv.get(RUN, 'a')).toBe(1)
    expect(await db.kv.list(RUN)).toEqual(['a', 'b'])
    clock.advance(1)
    expect(await db.kv.get(RUN, 'a')).toBeUndefined()
    expect(await db.kv.getVersioned(RUN, 'a')).toBeUndefined()
    expect(await db.kv.exists(RUN, 'a')).toBe(false)
    expect(await db.kv.list(RUN)).toEqual(['b'])
    expect(await db.kv.list(RUN, { limit: 1 })).toEqual(['b'])
    expect(await db.kv.entries(RUN)).toEqual([['b', 2]])
    expect(await db.transaction(RUN, tx => tx.kv.get('a'))).toBeUndefined()
    expect(await db.kv.delete(RUN, 'a')).toBe(false)
  })

  suite.holdsInTime(
    'P14: a put without ttlMs clears the expiry, and a put with another ttlMs replaces it',
    async (db, clock) => {
      for (const key of ['cleared', 'longer', 'shorter']) await db.kv.put(RUN, key, 1, { ttlMs: 1_000 })
      await db.kv.put(RUN, 'cleared', 2)
      await db.kv.put(RUN, 'longer', 2, { ttlMs: 5_000 })
      await db.kv.put(RUN, 'shorter', 2, { ttlMs: 10 })
      clock.advance(10)
      expect(await db.kv.list(RUN)).toEqual(['cleared', 'longer'])
      clock.advance(990)
      expect(await db.kv.list(RUN)).toEqual(['cleared', 'longer'])
      clock.advance(4_000)
      expect(await db.kv.list(RUN)).toEqual(['cleared'])
      clock.advance(1_000_000_000)
      expect(await db.kv.get(RUN, 'cleared')).toBe(2)
    },
  )

  suite.holdsInTime('P14: an expired key can be put again as a new key', async (db, clock) => {
    await db.kv.put(RUN, 'a', 1, { ttlMs: 10 })
    clock.advance(10)
    await db.kv.put(RUN, 'a', 2)
    clock.advance(1_000)
    expect(await db.kv.get(RUN, 'a')).toBe(2)
  })

  suite.holdsInTime(
    'P14: a ttlMs beyond the greatest time is refused, and the error has the limit',
    async (db, clock) => {
      const max = Number.MAX_SAFE_INTEGER - clock.now()
      await db.kv.put(RUN, 'a', 1, { ttlMs: max })
      const { message, details } = await refused(
        db.kv.put(RUN, 'a', 2, { ttlMs: max + 1 }),
        'INVALID_ARGUMENT',
      )
      expect(message).toContain(`at most ${max}`)
      expect(details).toMatchObject({ name: 'ttlMs', max })
      expect(await db.kv.get(RUN, 'a')).toBe(1)
    },
  )

  suite.holdsInTime('P14: ttlMs works in a transaction', async (db, clock) => {
    await db.transaction(RUN, async tx => {
      await tx.kv.put('a', 1, { ttlMs: 100 })
      expect(await tx.kv.get('a')).toBe(1)
    })
    expect(await db.kv.get(RUN, 'a')).toBe(1)
    clock.advance(100)
    expect(await db.kv.get(RUN, 'a')).toBeUndefined()
  })

  suite.holdsInTime(
    'P14: a key lives for its ttlMs, even after a commit from a clock ten years ahead',
    async (db, clock) => {
      clock.jump(TEN_YEARS_MS)
      await db.kv.put(RUN, 'ahead', 1)
      const ahead = await db.kv.getVersioned(RUN, 'ahead')
      clock.jump(-TEN_YEARS_MS)
      await db.kv.put(RUN, 'a', 1, { ttlMs: 300 })
      await db.transaction(RUN, async tx => {
        await tx.kv.put('b', 2, { ttlMs: 300 })
        expect(await tx.kv.list()).toEqual(['a', 'ahead', 'b'])
      })
      clock.advance(299)
      expect(await db.kv.entries(RUN)).toEqual([
        ['a', 1],
        ['ahead', 1],
        ['b', 2],
      ])
      clock.advance(1)
      expect(await db.kv.list(RUN)).toEqual(['ahead'])
      expect(await db.kv.get(RUN, 'a')).toBeUndefined()
      expect(await db.transaction(RUN, tx => tx.kv.get('b'))).toBeUndefined()
      // The times of commits still never go back.
      await db.kv.put(RUN, 'later', 1)
      const later = await db.kv.getVersioned(RUN, 'later')
      expect(later?.updatedAt).toBeGreaterThanOrEqual(ahead?.updatedAt ?? Number.NaN)
    },
  )

  suite.holdsInTime(
    'P14: an expired key counts as absent in reads and conditional writes',
    async (db, clock) => {
      await db.kv.put(RUN, 'a', 1, { ttlMs: 100 })
      clock.advance(100)
      const tx = await db.begin(RUN)
      expect(await tx.kv.get('a')).toBeUndefined()
      await tx.kv.put('a', 'mine')
      await tx.commit()
      expect(await db.kv.get(RUN, 'a')).toBe('mine')
    },
  )
}
