import { expect } from 'vitest'
import { namespace } from '../../index.ts'
import { expectFrozen, gather, RUN, refused, type Suite, times, ZERO_HASH } from './suite.ts'

const HASH = /^[0-9a-f]{64}$/

/** P7: the hash-chained event log of a run. */
export function testEvents(suite: Suite): void {
  suite.holds('a missing event reads as undefined, and a log without appends is empty', async db => {
    expect(await db.events.read(RUN, 0)).toBeUndefined()
    expect(await db.events.head(RUN)).toBeUndefined()
    expect(await db.events.length(RUN)).toBe(0)
    expect(await db.events.readRange(RUN, 0, 10)).toEqual([])
    expect(await db.events.readByType(RUN, 'note')).toEqual([])
    expect(await gather(db.events.iterate(RUN))).toEqual([])
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 0 })
  })

  suite.holds('P7: sequences count from 0 without a gap, and the receipt has the sequence', async db => {
    const receipts = []
    for (let i = 0; i < 5; i++) receipts.push(await db.events.append(RUN, 'note', i))
    receipts.push(
      ...(await db.events.appendBatch(
        RUN,
        times(5, i => ({ type: 'batch', payload: i + 5 })),
      )),
    )
    expect(receipts.map(({ sequence }) => sequence)).toEqual(times(10, i => i))
    const events = await gather(db.events.iterate(RUN))
    expect(events.map(({ sequence, hash }) => ({ sequence, hash }))).toEqual(
      receipts.map(({ sequence, hash }) => ({ sequence, hash })),
    )
    expect(events.map(({ payload }) => payload)).toEqual(times(10, i => i))
    expect(await db.events.length(RUN)).toBe(10)
    expect(await db.events.appendBatch(RUN, [])).toEqual([])
    expect(await db.events.length(RUN)).toBe(10)
  })

  suite.holds(
    'P7: each event has the hash of the event before it, and the first one has 64 zeros',
    async db => {
      for (const payload of ['a', 'b', 'c']) await db.events.append(RUN, 'note', payload)
      const events = await db.events.readRange(RUN, 0, 3)
      let before = ZERO_HASH
      for (const event of events) {
        expect(event.prevHash).toBe(before)
        expect(event.hash).toMatch(HASH)
        before = event.hash
      }
      expect(new Set(events.map(({ hash }) => hash)).size).toBe(3)
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
    },
  )

  suite.holds('an event is found by its sequence, as the head, by its type and in a range', async db => {
    const types = ['a', 'b', 'a', 'c', 'b']
    await db.events.appendBatch(
      RUN,
      types.map((type, payload) => ({ type, payload })),
    )
    const all = await gather(db.events.iterate(RUN))
    expect(all[1]).toEqual({
      sequence: 1,
      type: 'b',
      payload: 1,
      timestamp: expect.any(Number),
      prevHash: all[0].hash,
      hash: expect.stringMatching(HASH),
    })
    for (const [i, event] of all.entries()) expect(await db.events.read(RUN, i)).toEqual(event)
    expect(await db.events.read(RUN, 5)).toBeUndefined()
    expect(await db.events.read(RUN, Number.MAX_SAFE_INTEGER)).toBeUndefined()
    expect(await db.events.head(RUN)).toEqual(all[4])
    expect(await db.events.readByType(RUN, 'b')).toEqual([all[1], all[4]])
    expect(await db.events.readByType(RUN, 'z')).toEqual([])
  })

  suite.holds('readRange is half-open, and may begin or end beyond the log', async db => {
    await db.events.appendBatch(
      RUN,
      times(5, payload => ({ type: 'n', payload })),
    )
    const range = async (start: number, end: number): Promise<unknown[]> =>
      (await db.events.readRange(RUN, start, end)).map(({ payload }) => payload)
    expect(await range(1, 3)).toEqual([1, 2])
    expect(await range(0, 5)).toEqual([0, 1, 2, 3, 4])
    expect(await range(2, 2)).toEqual([])
    expect(await range(4, 100)).toEqual([4])
    expect(await range(5, 100)).toEqual([])
    expect(await range(100, 200)).toEqual([])
  })

  suite.holds('iterate yields many events from any sequence, and can be left early', async db => {
    await db.events.appendBatch(
      RUN,
      times(1_500, payload => ({ type: 'n', payload })),
    )
    expect((await gather(db.events.iterate(RUN))).map(({ payload }) => payload)).toEqual(times(1_500, i => i))
    const rest = await gather(db.events.iterate(RUN, { from: 1_490 }))
    expect(rest.map(({ sequence }) => sequence)).toEqual(times(10, i => 1_490 + i))
    expect(await gather(db.events.iterate(RUN, { from: 1_500 }))).toEqual([])
    let seen = 0
    for await (const event of db.events.iterate(RUN)) {
      seen = event.sequence
      if (seen === 20) break
    }
    expect(seen).toBe(20)
  })

  suite.holdsInTime('P7: timestamps never go back, even if the clock does', async (db, clock) => {
    const start = clock.now()
    await db.events.append(RUN, 'n', 0)
    clock.jump(-60_000)
    await db.events.append(RUN, 'n', 1)
    await db.transaction(RUN, async tx => {
      const { sequence } = await tx.events.append('n', 2)
      expect(sequence).toBe(2)
    })
    clock.jump(120_000)
    await db.events.append(RUN, 'n', 3)
    const events = await gather(db.events.iterate(RUN))
    expect(events.map(({ timestamp }) => timestamp - start)).toEqual([0, 0, 0, 60_000])
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 4 })
  })

  suite.holdsInTime(
    'P7: the hash depends on run, type, payload and time, so equal events of two runs differ',
    async (db, clock) => {
      const a = namespace({ tenant: db.tenant, app: 'x', agent: 'y', run: 'z' })
      const scopes = ['r1', 'r2', a]
      for (const scope of scopes) await db.events.append(scope, 'note', 1)
      await db.events.append('r3', 'nota', 1)
      await db.events.append('r4', 'note', 2)
      clock.advance(1)
      await db.events.append('r5', 'note', 1)
      const hashes = await Promise.all(
        [...scopes, 'r3', 'r4', 'r5'].map(async scope => (await db.events.head(scope))!.hash),
      )
      expect(new Set(hashes).size).toBe(6)
    },
  )

  suite.holds('P5: a batch with one invalid event appends none, and uses no sequence', async db => {
    await db.events.append(RUN, 'n', 0)
    const batch = [
      { type: 'n', payload: 1 },
      { type: '', payload: 2 },
    ]
    await refused(db.events.appendBatch(RUN, batch), 'INVALID_ARGUMENT')
    expect(await db.events.length(RUN)).toBe(1)
    expect((await db.events.append(RUN, 'n', 3)).sequence).toBe(1)
  })

  suite.holds('P7: there is no way to change or remove an event', async db => {
    const methods = new Set<string>()
    for (
      let of: object | null = db.events;
      of !== null && of !== Object.prototype;
      of = Object.getPrototypeOf(of)
    ) {
      for (const name of Object.getOwnPropertyNames(of)) methods.add(name)
    }
    for (const name of methods) expect(name).not.toMatch(/delete|remove|update|set|put|truncate|clear/i)
    // The keys of kv are in another tree, so they can't reach the log.
    await db.events.append(RUN, 'n', 1)
    const event = await db.events.read(RUN, 0)
    await db.kv.put(RUN, '\u0001', 'x')
    await db.kv.delete(RUN, 'n')
    expect(await db.events.read(RUN, 0)).toEqual(event)
  })

  suite.holds('returned values are frozen', async db => {
    await db.events.append(RUN, 'n', { a: [{}] })
    for (const result of [
      await db.events.append(RUN, 'n', 1),
      await db.events.appendBatch(RUN, [{ type: 'n', payload: [1] }]),
      await db.events.read(RUN, 0),
      await db.events.head(RUN),
      await db.events.readRange(RUN, 0, 2),
      await db.events.readByType(RUN, 'n'),
      (await gather(db.events.iterate(RUN)))[0],
      await db.events.verifyChain(RUN),
    ]) {
      expect(result).toBeTypeOf('object')
      expectFrozen(result)
    }
  })
}
