import { expect } from 'vitest'
import { refused, times } from '../annals-suite/suite.ts'
import { newEvent, probe, RUN, said } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** LD11: the counters of the ledger. */
export function testMetrics(suite: LedgerSuite): void {
  suite.holds(
    'LD11: the counters of a ledger start at 0 and count appends, duplicates and divergences',
    async (ledger, given) => {
      const none = { appended: 0, duplicates: 0, divergentDuplicates: 0, rejected: 0, fenced: 0, alerts: 0 }
      expect(await given.stats()).toMatchObject({ ...none, appendLatency: { count: 0 } })
      const event = newEvent()
      await ledger.appendEvent(event)
      await ledger.appendEvents([said('RunPaused'), event])
      await ledger.appendEvent({ ...event, payload: { other: true } })
      await ledger.acquireLease(RUN, { owner: 'w', ttlMs: 60_000 })
      await refused(ledger.appendEvent(said('RunResumed')), 'WRITER_FENCED')
      const stats = await given.stats()
      expect(stats).toMatchObject({ ...none, appended: 2, duplicates: 2, divergentDuplicates: 1, fenced: 1 })
      const { count, sumMs, buckets } = stats.appendLatency
      expect(count).toBe(3)
      expect(sumMs).toBeGreaterThan(0)
      expect(buckets.map(bucket => bucket.count)).toEqual(
        [...buckets.map(bucket => bucket.count)].sort((a, b) => a - b),
      )
    },
    ['stats'],
  )

  suite.holds(
    'concurrent projections count each record once',
    async (ledger, given) => {
      await tell(ledger, ['RunStarted', 'RunQueued', 'StepStarted a'])
      await Promise.all(times(10, () => ledger.projectSnapshot(RUN)))
      await ledger.appendEvents(times(20, i => newEvent({ eventType: `Noted${i}` })))
      await Promise.all(times(10, () => ledger.projectSnapshot(RUN)))
      const { projector, alerts } = await eventually(
        given.stats.bind(given),
        stats => stats.projector.lagMs === 0,
      )
      expect({ projected: projector.projected, alerts }).toEqual({ projected: 23, alerts: 1 })
    },
    ['stats'],
  )

  suite.holds(
    'L26: every rejection is counted, including repeated ones',
    async (ledger, given) => {
      for (let i = 0; i < 2; i++) await refused(ledger.appendEvent(probeOnce), 'INVALID_TRANSITION')
      expect(await given.stats()).toMatchObject({ rejected: 2, appended: 0 })
    },
    ['stats', 'layerTwo'],
  )
}

const probeOnce = probe('RunResumed')
