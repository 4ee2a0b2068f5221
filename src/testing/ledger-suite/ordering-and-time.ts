import { expect } from 'vitest'
import { times } from '../annals-suite/suite.ts'
import { newEvent, RUN } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** L7–L10, LD3, LD10, LD18: the ledger assigns the order and the times of a run’s records. */
export function testOrderingAndTime(suite: LedgerSuite): void {
  suite.holds('L8, LD3: runSeq counts from 1, in the order of the appends', async ledger => {
    for (let i = 1; i <= 5; i++) {
      expect(await ledger.appendEvent(newEvent({ eventType: `Noted${i}` }))).toMatchObject({ runSeq: i })
    }
    const records = await ledger.fetchEvents(RUN)
    expect(records.map(({ runSeq }) => runSeq)).toEqual([1, 2, 3, 4, 5])
    expect(records.map(({ eventType }) => eventType)).toEqual(times(5, i => `Noted${i + 1}`))
  })

  suite.holds(
    'L8, LD18: 300 concurrent appends to three runs never conflict, and leave no gap',
    async ledger => {
      const results = await Promise.all(
        times(300, i => ledger.appendEvent(newEvent({ runId: `run-${i % 3}`, eventType: `Noted${i}` }))),
      )
      for (const run of [0, 1, 2]) {
        const seqs = results.filter((_, i) => i % 3 === run).map(({ runSeq }) => runSeq)
        expect([...seqs].sort((a, b) => a - b)).toEqual(times(100, i => i + 1))
      }
    },
  )

  suite.holds(
    'LD3: a reader during concurrent writes sees a prefix of the run, never a gap',
    async ledger => {
      const writers = times(4, w =>
        (async () => {
          for (let i = 0; i < 25; i++) await ledger.appendEvent(newEvent({ eventType: `Noted${w}-${i}` }))
        })(),
      )
      let seen = 0
      await eventually(
        async () => {
          const seqs = (await ledger.fetchEvents(RUN)).map(({ runSeq }) => runSeq)
          expect(seqs).toEqual(times(seqs.length, i => i + 1))
          expect(seqs.length).toBeGreaterThanOrEqual(seen)
          seen = seqs.length
          return seen
        },
        count => count === 100,
      )
      await Promise.all(writers)
    },
  )

  suite.holds(
    'L9: persistedAt is the ledger’s clock, and emittedAt is stored verbatim',
    async (ledger, { clock }) => {
      const emitted = ['2031-01-01T00:00:00.123456Z', '1970-01-01T00:00:00+00:00']
      for (const [i, emittedAt] of emitted.entries()) {
        clock.advance(1_500)
        const expected = new Date(clock.now()).toISOString()
        const { persistedAt } = await ledger.appendEvent(newEvent({ eventType: `Noted${i}`, emittedAt }))
        expect(persistedAt).toBe(expected)
        expect((await ledger.fetchEvents(RUN, { afterSeq: i }))[0]).toMatchObject({ emittedAt, persistedAt })
      }
    },
    ['clock'],
  )

  suite.holds('L10: emittedAt does not affect the order', async ledger => {
    const days = ['2025-03-03', '2025-03-01', '2025-03-02']
    for (const [i, day] of days.entries()) {
      await ledger.appendEvent(newEvent({ eventType: `Noted${i}`, emittedAt: `${day}T00:00:00Z` }))
    }
    const records = await ledger.fetchEvents(RUN)
    expect(records.map(({ emittedAt }) => emittedAt.slice(0, 10))).toEqual(days)
    await ledger.appendEvent(newEvent({ eventType: 'RunStarted', emittedAt: '2025-03-09T00:00:00Z' }))
    await ledger.appendEvent(newEvent({ eventType: 'RunCompleted', emittedAt: '2025-03-01T00:00:00Z' }))
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({
      status: 'COMPLETED',
      consistency: 'CONSISTENT',
    })
  })

  suite.holds(
    'LD10: persistedAt never goes back, whatever the clock does',
    async (ledger, { clock }) => {
      for (const [i, ms] of [0, 5_000, -60_000, 1, 0, -1, 90_000].entries()) {
        clock.jump(ms)
        await ledger.appendEvent(newEvent({ eventType: `Noted${i}` }))
      }
      const stamps = (await ledger.fetchEvents(RUN)).map(({ persistedAt }) => persistedAt)
      expect(stamps).toEqual([...stamps].sort())
      expect(new Set(stamps).size).toBe(3)
      for (const stamp of stamps) expect(stamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,}Z$/)
    },
    ['clock'],
  )

  suite.holds(
    'LD10: persistedAt never goes back across reopening',
    async (ledger, given) => {
      const { persistedAt } = await ledger.appendEvent(newEvent())
      given.clock.jump(-3_600_000)
      const { ledger: again } = await given.reopen()
      const later = await again.appendEvent(newEvent({ eventType: 'RunPaused' }))
      expect(later.persistedAt >= persistedAt).toBe(true)
    },
    ['clock', 'reopen'],
  )

  suite.holds(
    'L7: changing a record that was read, or an event that was sent, changes no stored record',
    async ledger => {
      const payload = { list: [1, 2], deep: { n: 1 } }
      const event = { ...newEvent({ payload }), payload }
      await ledger.appendEvent(event)
      const before = JSON.stringify(await ledger.fetchEvents(RUN))
      payload.deep.n = 2
      payload.list.push(3)
      const [record] = await ledger.fetchEvents(RUN)
      expect(Reflect.set(record, 'runSeq', 7)).toBe(false)
      Reflect.set(record.payload?.['deep'] as object, 'n', 3)
      expect(JSON.stringify(await ledger.fetchEvents(RUN))).toBe(before)
    },
  )

  suite.holds(
    'L7: records are the same, byte for byte, after later appends, projections and reopening',
    async (ledger, given) => {
      const before = JSON.stringify(await tell(ledger, ['RunStarted', 'StepStarted fetch']))
      await tell(ledger, ['StepCompleted fetch', 'RunCompleted', 'RunFailed', 'Noted'])
      await ledger.projectSnapshot(RUN)
      const { ledger: again } = await given.reopen()
      expect(JSON.stringify(await again.fetchEvents(RUN, { limit: 2 }))).toBe(before)
    },
    ['reopen'],
  )
}
