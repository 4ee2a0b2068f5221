import { expect } from 'vitest'
import { type IterateOptions, namespace, type ReadByTypeOptions, type ScopedEvents } from '../../index.ts'
import { expectFrozen, gather, outcomes, RUN, refused, type Suite, times, ZERO_HASH } from './suite.ts'

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

  suite.holds('P25: append and appendBatch refuse another length than the expected one', async db => {
    expect((await db.events.append(RUN, 'n', 0, { expectedLength: 0 })).sequence).toBe(0)
    const late = await refused(db.events.append(RUN, 'n', 1, { expectedLength: 0 }), 'VERSION_MISMATCH')
    expect(late.details).toMatchObject({ expected: 0, actual: 1 })
    const batch = times(2, payload => ({ type: 'n', payload }))
    const early = await refused(db.events.appendBatch(RUN, batch, { expectedLength: 7 }), 'VERSION_MISMATCH')
    expect(early.details).toMatchObject({ expected: 7, actual: 1 })
    await refused(db.events.appendBatch(RUN, [], { expectedLength: 7 }), 'VERSION_MISMATCH')
    expect(await db.events.appendBatch(RUN, batch, { expectedLength: 1 })).toHaveLength(2)
    expect(await db.events.appendBatch(RUN, [], { expectedLength: 3 })).toEqual([])
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
  })

  suite.holds('P25: of appends that expect the same length, exactly one succeeds', async db => {
    const append = (i: number): Promise<unknown> => db.events.append(RUN, 'n', i, { expectedLength: 0 })
    const { won, codes } = await outcomes(times(20, append))
    expect(won).toHaveLength(1)
    expect(new Set(codes)).toEqual(new Set(['VERSION_MISMATCH']))
    expect(await db.events.length(RUN)).toBe(1)
  })

  suite.holds(
    'P25: a known idempotency key answers with the first receipt, whatever the expected length',
    async db => {
      const options = { expectedLength: 0, idempotencyKey: 'a' }
      const first = await db.events.append(RUN, 'n', 'first', options)
      await db.events.append(RUN, 'n', 'between')
      for (const again of [options, { idempotencyKey: 'a' }, { idempotencyKey: 'a', expectedLength: 9 }]) {
        expect(await db.events.append(RUN, 'other', 'again', again)).toEqual(first)
      }
      expect(await db.events.length(RUN)).toBe(2)
      expect((await db.events.append(RUN, 'n', 1, { idempotencyKey: 'A' })).sequence).toBe(2)
      await refused(
        db.events.append(RUN, 'n', 1, { idempotencyKey: 'new', expectedLength: 1 }),
        'VERSION_MISMATCH',
      )
      expect((await db.events.append(RUN, 'n', 1, { idempotencyKey: 'new' })).sequence).toBe(3)
      // Each log has its own keys.
      expect((await db.events.append('other', 'n', 1, { idempotencyKey: 'a' })).sequence).toBe(0)
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 4 })
    },
  )

  suite.holds('P25: of concurrent appends with one key, one is stored and all have its receipt', async db => {
    const receipts = await Promise.all(
      times(20, i => db.events.append(RUN, 'n', i, { idempotencyKey: 'once' })),
    )
    expect(new Set(receipts.map(({ hash }) => hash)).size).toBe(1)
    expect(await db.events.length(RUN)).toBe(1)
  })

  suite.holdsAfterReopen('P25: idempotency keys survive reopening', async (db, reopen) => {
    const options = { idempotencyKey: 'é\u{1f600}' }
    const first = await db.events.append(RUN, 'n', 1, options)
    expect(await (await reopen()).events.append(RUN, 'n', 2, options)).toEqual(first)
  })

  suite.holds('P25: deleting the run forgets its idempotency keys', async db => {
    await db.runs.create({ runId: RUN })
    const first = await db.events.append(RUN, 'n', 1, { idempotencyKey: 'a' })
    await db.runs.delete(RUN)
    const second = await db.events.append(RUN, 'n', 1, { idempotencyKey: 'a' })
    expect(second.sequence).toBe(0)
    expect(second.hash).toBe((await db.events.read(RUN, 0))!.hash)
    expect(await db.events.length(RUN)).toBe(1)
    expect(first.sequence).toBe(0)
  })

  suite.holds('P25: a transaction sees the keys and the length of its own appends', async db => {
    const known = await db.events.append(RUN, 'n', 0, { idempotencyKey: 'known' })
    const [first, again] = await db.transaction(RUN, async tx => {
      expect(await tx.events.append('n', 1, { idempotencyKey: 'known', expectedLength: 5 })).toEqual(known)
      const mine = await tx.events.append('n', 1, { idempotencyKey: 'mine', expectedLength: 1 })
      const twice = await tx.events.append('n', 2, { idempotencyKey: 'mine', expectedLength: 1 })
      const late = await refused(tx.events.append('n', 3, { expectedLength: 1 }), 'VERSION_MISMATCH')
      expect(late.details).toMatchObject({ actual: 2 })
      await tx.events.append('n', 4, { expectedLength: 2 })
      expect(await tx.events.length()).toBe(3)
      return [mine, twice]
    })
    expect({ sequence: first.sequence, hash: first.hash }).toEqual({
      sequence: again.sequence,
      hash: again.hash,
    })
    expect((await gather(db.events.iterate(RUN))).map(({ payload }) => payload)).toEqual([0, 1, 4])
    expect(await db.events.append(RUN, 'n', 9, { idempotencyKey: 'mine' })).toEqual({
      sequence: 1,
      hash: (await db.events.read(RUN, 1))!.hash,
    })
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
  })

  suite.holds('P25: concurrent appends of one transaction expect one length, and one succeeds', async db => {
    await db.transaction(RUN, async tx => {
      const appends = times(5, i => tx.events.append('n', i, { expectedLength: 0 }))
      const { won, codes } = await outcomes(appends)
      expect(won).toHaveLength(1)
      expect(codes).toHaveLength(4)
      const keyed = await Promise.all(times(5, i => tx.events.append('k', i, { idempotencyKey: 'k' })))
      expect(new Set(keyed.map(({ sequence }) => sequence))).toEqual(new Set([1]))
    })
    expect(await db.events.length(RUN)).toBe(2)
  })

  suite.holds('P25: a transaction whose key another commit takes runs again and finds it', async db => {
    let attempts = 0
    const receipt = await db.transaction(RUN, async tx => {
      const mine = await tx.events.append('n', 'mine', { idempotencyKey: 'a' })
      if (++attempts === 1) await db.events.append(RUN, 'n', 'other', { idempotencyKey: 'a' })
      return mine
    })
    expect(attempts).toBe(2)
    expect({ ...receipt }).toEqual({ sequence: 0, hash: (await db.events.read(RUN, 0))!.hash })
    expect((await db.events.read(RUN, 0))!.payload).toBe('other')
    expect(await db.events.length(RUN)).toBe(1)
  })

  const LOG = times(40, i => ({ type: ['a', 'b', 'c'][i % 3], payload: i }))
  const SPANS: readonly (readonly [options: IterateOptions, payloads: readonly number[]])[] = [
    [{}, times(40, i => i)],
    [{ to: 3 }, [0, 1, 2]],
    [{ from: 37 }, [37, 38, 39]],
    [{ from: 2, to: 4 }, [2, 3]],
    [{ from: 4, to: 4 }, []],
    [{ from: 5, to: 4 }, []],
    [{ from: 38, to: 100 }, [38, 39]],
    [{ from: 38, to: Number.POSITIVE_INFINITY }, [38, 39]],
    [{ from: 40 }, []],
    [{ to: 7, types: ['a'] }, [0, 3, 6]],
    [{ from: 35, types: ['a', 'c'] }, [35, 36, 38, 39]],
    [{ types: ['z'] }, []],
    [{ types: [] }, []],
  ]

  suite.holds(
    'P25: iterate takes a range and types, and reverse gives the same events backwards',
    async db => {
      await db.events.appendBatch(RUN, LOG.slice(0, 30))
      const check = async (events: ScopedEvents): Promise<void> => {
        for (const [options, payloads] of SPANS) {
          const found = await gather(events.iterate(options))
          expect(found.map(({ payload }) => payload)).toEqual(payloads)
          expect(await gather(events.iterate({ ...options, reverse: true }))).toEqual(found.toReversed())
        }
      }
      await db.transaction(RUN, async tx => {
        await tx.events.appendBatch(LOG.slice(30))
        await check(tx.events)
      })
      await check(db.run(RUN).events)
    },
  )

  suite.holds('P25: iterating backwards fails if the run is deleted meanwhile', async db => {
    await db.runs.create({ runId: RUN })
    await db.events.appendBatch(RUN, LOG)
    const events = db.events.iterate(RUN, { reverse: true })
    expect((await events.next()).value).toMatchObject({ payload: 39 })
    await db.runs.delete(RUN)
    await refused(gather(events), 'EVENT_CHAIN_BROKEN')
  })

  suite.holds('P25: readByType goes on after a sequence and ends at its limit', async db => {
    await db.events.appendBatch(RUN, LOG)
    const find = async (options: ReadByTypeOptions): Promise<readonly unknown[]> =>
      (await db.events.readByType(RUN, 'b', options)).map(({ payload }) => payload)
    expect(await find({ limit: 2 })).toEqual([1, 4])
    expect(await find({ after: 4, limit: 2 })).toEqual([7, 10])
    expect(await find({ after: 34 })).toEqual([37])
    expect(await find({ after: 37 })).toEqual([])
    expect(await find({ after: 100, limit: 1 })).toEqual([])
    expect(await find({})).toHaveLength(13)
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
