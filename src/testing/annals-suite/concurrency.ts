import { expect } from 'vitest'
import type { ScopedTransaction } from '../../index.ts'
import { gather, RUN, type Suite, times, ZERO_HASH } from './suite.ts'

/** P5, P7, P8, P12: concurrent calls. */
export function testConcurrency(suite: Suite): void {
  suite.holds(
    'P7: 64 concurrent appends to one run give contiguous sequences and one chain, without a conflict',
    async db => {
      const receipts = await Promise.all(times(64, i => db.events.append(RUN, 'n', i)))
      const events = await gather(db.events.iterate(RUN))
      expect(receipts.map(({ sequence }) => sequence).sort((a, b) => a - b)).toEqual(times(64, i => i))
      for (const [i, { sequence, hash }] of receipts.entries()) {
        expect(events[sequence]).toMatchObject({ sequence, hash, payload: i })
      }
      let before = ZERO_HASH
      for (const event of events) {
        expect(event.prevHash).toBe(before)
        before = event.hash
      }
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 64 })
    },
  )

  suite.holds('P12: 64 concurrent transactions that append run once each', async db => {
    let runs = 0
    const append = (i: number): Promise<unknown> =>
      db.transaction(
        RUN,
        async tx => {
          runs++
          await tx.events.appendBatch([
            { type: 'a', payload: i },
            { type: 'b', payload: i },
          ])
          await tx.kv.put('last', i)
        },
        { maxRetries: 0 },
      )
    await Promise.all(times(64, append))
    expect(runs).toBe(64)
    const events = await gather(db.events.iterate(RUN))
    expect(events).toHaveLength(128)
    for (let i = 0; i < 128; i += 2) {
      expect([events[i].type, events[i + 1].type]).toEqual(['a', 'b'])
      expect(events[i].payload).toBe(events[i + 1].payload)
    }
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 128 })
  })

  suite.holds(
    'P8: a transition function that writes to the store is refused, and no update is lost',
    async db => {
      await db.cells.init(RUN, 'n', 0)
      await db.kv.put(RUN, 'k', 'before')
      const inside: Promise<unknown>[] = []
      const { value } = await db.cells.transition(RUN, 'n', cell => {
        const add = ({ value: n }: { readonly value: unknown }) => ({
          value: (n as number) + 10,
          result: null,
        })
        inside.push(db.cells.transition(RUN, 'n', add), db.kv.put(RUN, 'k', 'inside'))
        // Prevents unhandled rejections until the assertions below.
        for (const each of inside) each.catch(() => undefined)
        return { value: (cell.value as number) + 1, result: null }
      })
      expect(value).toBe(1)
      for (const each of inside) await expect(each).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
      expect((await db.cells.read(RUN, 'n'))?.value).toBe(1)
      expect(await db.kv.get(RUN, 'k')).toBe('before')
      // The store accepts writes again after the transition.
      await db.kv.put(RUN, 'k', 'after')
      expect(await db.kv.get(RUN, 'k')).toBe('after')
    },
  )

  suite.holds('P7: concurrent batches are each contiguous', async db => {
    await Promise.all(
      times(32, i =>
        db.events.appendBatch(
          RUN,
          times(8, j => ({ type: 'n', payload: [i, j] })),
        ),
      ),
    )
    const payloads = (await gather(db.events.iterate(RUN))).map(({ payload }) => payload as [number, number])
    expect(payloads).toHaveLength(256)
    for (let i = 0; i < 256; i += 8) {
      expect(payloads.slice(i, i + 8)).toEqual(times(8, j => [payloads[i][0], j]))
    }
  })

  suite.holds('P12: 50 concurrent read-and-put increments are all counted', async db => {
    const increment = async (tx: ScopedTransaction): Promise<void> => {
      await tx.kv.put('count', Number((await tx.kv.get('count')) ?? 0) + 1)
    }
    await Promise.all(times(50, () => db.transaction(RUN, increment, { maxRetries: 1_000 })))
    expect(await db.kv.get(RUN, 'count')).toBe(50)
  })

  suite.holds('P4: readers always see the same sum while money moves between two keys', async db => {
    await db.kv.put(RUN, 'a', 500)
    await db.kv.put(RUN, 'b', 500)
    const move = (i: number): Promise<void> =>
      db.transaction(
        RUN,
        async tx => {
          const a = Number(await tx.kv.get('a'))
          const b = Number(await tx.kv.get('b'))
          await tx.kv.put('a', a - i)
          await tx.kv.put('b', b + i)
        },
        { maxRetries: 1_000 },
      )
    const look = async (): Promise<number> => {
      const entries = await db.kv.entries(RUN)
      return entries.reduce((sum, [, value]) => sum + Number(value), 0)
    }
    const moves = Promise.all(times(20, move))
    const sums = await Promise.all(times(100, look))
    await moves
    expect(new Set([...sums, await look()])).toEqual(new Set([1_000]))
    expect(await db.kv.get(RUN, 'a')).toBe(500 - 190)
  })

  suite.holds('P4: the writes of one transaction over all primitives become visible together', async db => {
    const write = (i: number): Promise<unknown> =>
      db.transaction(RUN, async tx => {
        await tx.kv.put(`k${i}`, i)
        await tx.events.append('n', i)
        await tx.cells.init(`c${i}`, i)
        await tx.traces.record({ type: 'Thought', content: '' }, { id: `t${i}` })
      })
    const look = (): Promise<number[]> =>
      db.transaction(
        RUN,
        async tx => [
          (await tx.kv.list()).length,
          await tx.events.length(),
          (await tx.cells.list()).length,
          await tx.traces.count(),
        ],
        { readOnly: true },
      )
    const writes = Promise.all(times(30, write))
    for (const counts of await Promise.all(times(30, look))) expect(new Set(counts).size, `${counts}`).toBe(1)
    await writes
    expect(await look()).toEqual([30, 30, 30, 30])
  })

  suite.holds('P12: concurrent withdrawals never exceed the stock', async db => {
    await db.cells.init(RUN, 'stock', 10)
    const takeOne = (i: number): Promise<boolean> =>
      db.transaction(
        RUN,
        async tx => {
          const { value, version } = (await tx.cells.read('stock'))!
          if (Number(value) === 0) return false
          await tx.cells.cas('stock', version, Number(value) - 1)
          await tx.events.append('taken', i)
          return true
        },
        { maxRetries: 1_000 },
      )
    const taken = await Promise.all(times(25, takeOne))
    expect(taken.filter(Boolean)).toHaveLength(10)
    expect(await db.cells.read(RUN, 'stock')).toMatchObject({ value: 0, version: 11 })
    expect(await db.events.length(RUN)).toBe(10)
  })

  suite.holds('P3: concurrent writes to several runs do not mix', async db => {
    const runs = times(16, i => `run-${i}`)
    await Promise.all(
      times(160, i => {
        const run = runs[i % 16]
        return Promise.all([db.events.append(run, 'n', run), db.kv.put(run, `k${i}`, run)])
      }),
    )
    for (const run of runs) {
      const events = await gather(db.events.iterate(run))
      expect(events.map(({ sequence, payload }) => [sequence, payload])).toEqual(times(10, i => [i, run]))
      expect((await db.kv.entries(run)).map(([, value]) => value)).toEqual(times(10, () => run))
    }
  })
}
