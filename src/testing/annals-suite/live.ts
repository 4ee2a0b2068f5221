import { expect } from 'vitest'
import type { Annals, Event } from '../../index.ts'
import { RUN, refused, type Suite, take, times } from './suite.ts'

/** An upper bound for the events in one page of a reader. Later events have not been loaded. */
const PAGE_MAX = 1_100
const MANY = 3_000

/** P19: readers that follow a log. */
export function testLive(suite: Suite): void {
  suite.holds('P19: tail delivers stored events, then new ones, each once and in order', async db => {
    await append(db, 0, 5)
    const tail = db.events.tail(RUN)
    expect(payloads(await take(tail, 5))).toEqual([0, 1, 2, 3, 4])
    const live = take(tail, 6)
    for (let i = 5; i < 8; i++) await db.events.append(RUN, 'n', i)
    await append(db, 8, 3)
    expect(payloads(await live)).toEqual([5, 6, 7, 8, 9, 10])
    const next = tail.next()
    await db.transaction(RUN, tx => tx.events.append('n', 'in a transaction'))
    expect((await next).value).toMatchObject({ sequence: 11, payload: 'in a transaction' })
    await tail.return()
  })

  suite.holds(
    'P19: tail can start inside a log, at its end, beyond it, and in a run without events',
    async db => {
      const early = take(db.events.tail('other'), 1)
      await append(db, 0, 40)
      const inside = db.events.tail(RUN, { from: 30 })
      const atEnd = db.events.tail(RUN, { from: 40 })
      const beyond = db.events.tail(RUN, { from: 45 })
      const found = Promise.all([take(inside, 20), take(atEnd, 10), take(beyond, 5)])
      for (let i = 40; i < 50; i++) await db.events.append(RUN, 'n', i)
      const [a, b, c] = await found
      expect(payloads(a)).toEqual(times(20, i => 30 + i))
      expect(payloads(b)).toEqual(times(10, i => 40 + i))
      expect(payloads(c)).toEqual(times(5, i => 45 + i))
      await db.events.append('other', 'n', 'first')
      expect(payloads(await early)).toEqual(['first'])
    },
  )

  suite.holds(
    'P19: 20 readers from different sequences each get every event of 300 concurrent appends',
    async db => {
      await append(db, 0, 20)
      const readers = times(20, from => take(db.events.tail(RUN, { from }), 320 - from))
      await Promise.all(times(300, i => db.events.append(RUN, 'n', 20 + i)))
      for (const [from, events] of (await Promise.all(readers)).entries()) {
        expect(events.map(({ sequence }) => sequence)).toEqual(times(320 - from, i => from + i))
        for (let i = 1; i < events.length; i++) expect(events[i].prevHash).toBe(events[i - 1].hash)
      }
    },
  )

  suite.holds('P3: tail delivers nothing of another run or another primitive', async db => {
    const stop = new AbortController()
    const tail = db.events.tail(RUN, { signal: stop.signal })
    const next = tail.next()
    await db.events.append('run-2', 'n', 1)
    await db.kv.put(RUN, 'k', 1)
    await db.cells.set(RUN, 'c', 1)
    await db.events.append(RUN, 'n', 'mine')
    expect((await next).value).toMatchObject({ payload: 'mine' })
    stop.abort()
  })

  suite.holds(
    'P19: an aborted signal ends tail without an error, before it starts, while it waits, and between two events',
    async db => {
      await append(db, 0, 10)
      expect(await drained(db.events.tail(RUN, { signal: AbortSignal.abort() }))).toEqual([])

      const waiting = new AbortController()
      const all = drained(db.events.tail(RUN, { from: 5, signal: waiting.signal }))
      const last = await take(db.events.tail(RUN, { from: 9 }), 1)
      expect(last).toHaveLength(1)
      waiting.abort()
      expect((await all).length).toBeLessThanOrEqual(5)

      const between = new AbortController()
      const seen: Event[] = []
      for await (const event of db.events.tail(RUN, { signal: between.signal })) {
        seen.push(event)
        if (seen.length === 3) between.abort(new Error('never seen'))
      }
      expect(payloads(seen)).toEqual([0, 1, 2])
    },
  )

  suite.holds('P19: a signal ends a reader that waits for new events', async db => {
    await append(db, 0, 2)
    const stop = new AbortController()
    const tail = db.events.tail(RUN, { signal: stop.signal })
    await take(tail, 2)
    const end = tail.next()
    stop.abort()
    expect(await end).toEqual({ done: true, value: undefined })
    await db.events.append(RUN, 'n', 2)
    expect(await tail.next()).toEqual({ done: true, value: undefined })
  })

  suite.holds('P19: return() ends a waiting reader without a signal', async db => {
    await append(db, 0, 2)
    const waits = async (tail: AsyncGenerator<Event, void, void>): Promise<void> => {
      const next = tail.next()
      // Nothing shows that the reader has begun to wait. After 20 other calls it has.
      for (let i = 0; i < 20; i++) expect(await db.events.length(RUN)).toBe(2)
      expect(await tail.return()).toEqual({ done: true, value: undefined })
      expect(await next).toEqual({ done: true, value: undefined })
      expect(await tail.next()).toEqual({ done: true, value: undefined })
    }
    await waits(db.events.tail(RUN, { from: 2 }))
    await waits(db.run(RUN).events.tail({ from: 2 }))
    const begun = db.events.tail(RUN)
    await take(begun, 2)
    await waits(begun)
    const never = db.events.tail(RUN)
    expect(await never.return()).toEqual({ done: true, value: undefined })
    expect(await never.next()).toEqual({ done: true, value: undefined })
    {
      await using tail = db.events.tail(RUN)
      await take(tail, 2)
    }
    const thrown = db.events.tail(RUN, { from: 2 })
    const next = thrown.next()
    await expect(thrown.throw(new Error('enough'))).rejects.toThrow('enough')
    expect(await next).toEqual({ done: true, value: undefined })
  })

  suite.holds('P19: one signal ends any number of readers, without a warning about listeners', async db => {
    await append(db, 0, 1)
    const warnings: Error[] = []
    const onWarning = (warning: Error): void => void warnings.push(warning)
    process.on('warning', onWarning)
    const stop = new AbortController()
    const { signal } = stop
    try {
      const tails = times(30, () => db.events.tail(RUN, { signal }))
      for (const tail of tails) expect(payloads(await take(tail, 1))).toEqual([0])
      const waiting = tails.map(drained)
      let ended: readonly Promise<unknown>[] = []
      await new Promise<void>(resolve => {
        const never = new Promise<never>(() => {})
        let begun = 0
        const begin = (): Promise<never> => {
          if (++begun === 30) resolve()
          return never
        }
        ended = times(30, () => db.transaction(RUN, begin, { signal }).catch(() => 'aborted'))
      })
      stop.abort()
      expect(await Promise.all(waiting)).toEqual(times(30, () => []))
      expect(await Promise.all(ended)).toEqual(times(30, () => 'aborted'))
      // Node emits warnings in a later turn of the event loop.
      await new Promise(resolve => setTimeout(resolve, 10))
      expect(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning')).toEqual([])
    } finally {
      process.off('warning', onWarning)
    }
  })

  suite.holds('P19: a reader can stop with break, and the next one gets every event', async db => {
    await append(db, 0, 3)
    for await (const event of db.events.tail(RUN)) if (event.sequence === 1) break
    expect(payloads(await take(db.events.tail(RUN), 3))).toEqual([0, 1, 2])
  })

  suite.holds('a slow reader loads only the events that it consumes', async db => {
    await append(db, 0, 1)
    const tail = db.events.tail(RUN)
    await take(tail, 1)
    await append(db, 1, MANY)
    expect(payloads(await take(tail, 3))).toEqual([1, 2, 3])
    // If the reader had loaded the rest already, it would notice the deletion only at the end.
    await db.runs.create({ runId: RUN })
    await db.runs.delete(RUN)
    let more = 0
    await refused(
      (async () => {
        for await (const _ of tail) more++
      })(),
      'EVENT_CHAIN_BROKEN',
    )
    expect(more).toBeLessThan(PAGE_MAX)
  })

  suite.holds('a slow reader misses no event that is appended meanwhile', async db => {
    const tail = db.events.tail(RUN)
    const first = tail.next()
    await append(db, 0, 500)
    expect((await first).value).toMatchObject({ sequence: 0 })
    await append(db, 500, 500)
    expect(payloads(await take(tail, 999))).toEqual(times(999, i => i + 1))
  })

  suite.holds('P11: a waiting reader of a run that is deleted gets EVENT_CHAIN_BROKEN', async db => {
    await db.runs.create({ runId: RUN })
    await append(db, 0, 3)
    const tail = db.events.tail(RUN)
    await take(tail, 3)
    const heard = refused(tail.next(), 'EVENT_CHAIN_BROKEN')
    await db.runs.delete(RUN)
    await heard
  })

  suite.holds(
    'P11: a reader of a deleted run gets EVENT_CHAIN_BROKEN even if it waited at the end and has read nothing',
    async db => {
      await db.runs.create({ runId: RUN })
      await append(db, 0, 3)
      const tail = db.events.tail(RUN, { from: 3 })
      const heard = refused(tail.next(), 'EVENT_CHAIN_BROKEN')
      // Nothing shows that the reader has begun to wait. After an event of a later reader and 20 other calls it has.
      const later = db.events.tail(RUN, { from: 2 })
      await take(later, 1)
      await later.return()
      for (let i = 0; i < 20; i++) expect(await db.events.length(RUN)).toBe(3)
      await db.runs.delete(RUN)
      await append(db, 100, 10)
      await heard
    },
  )

  suite.holds('P11: a reader gets no events of a later run with the same id', async db => {
    await db.runs.create({ runId: RUN })
    await append(db, 0, 3)
    const tail = db.events.tail(RUN)
    await take(tail, 2)
    await db.runs.delete(RUN)
    await append(db, 100, 10)
    const seen: Event[] = []
    await refused(
      (async () => {
        for await (const event of tail) seen.push(event)
      })(),
      'EVENT_CHAIN_BROKEN',
    )
    expect(payloads(seen).filter(payload => Number(payload) >= 100)).toEqual([])
  })

  suite.holds('a waiting reader gets CLOSED when the database is closed', async db => {
    await append(db, 0, 1)
    const tail = db.events.tail(RUN)
    await take(tail, 1)
    const next = tail.next()
    const closed = refused(next, 'CLOSED')
    await db.close()
    await closed
    await refused(db.events.tail(RUN).next(), 'CLOSED')
  })

  suite.holds('tail on a run handle works as on the database', async db => {
    const tail = db.run(RUN).events.tail({ from: 1 })
    const next = tail.next()
    await append(db, 0, 2)
    expect((await next).value).toMatchObject({ sequence: 1, payload: 1 })
    await tail.return()
  })
}

async function append(db: Annals, from: number, count: number): Promise<void> {
  await db.events.appendBatch(
    RUN,
    times(count, i => ({ type: 'n', payload: from + i })),
  )
}

function payloads(events: readonly Event[]): unknown[] {
  return events.map(({ payload }) => payload)
}

async function drained(events: AsyncIterable<Event>): Promise<Event[]> {
  const seen: Event[] = []
  for await (const event of events) seen.push(event)
  return seen
}
