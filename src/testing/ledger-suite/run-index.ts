import { expect } from 'vitest'
import { gather, refused } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** LD15: every run of the ledger has an entry in the run index. */
export function testRunIndex(suite: LedgerSuite): void {
  suite.holds(
    'LD15: the first event creates the run’s entry, and later events create none',
    async (ledger, { runs }) => {
      await ledger.appendEvent(newEvent())
      expect(await runs.get(RUN)).toMatchObject({ runId: RUN, status: 'Active' })
      await tell(ledger, ['StepStarted a', 'RunPaused'])
      expect(await runs.query({})).toHaveLength(1)
    },
    ['runs'],
  )

  suite.holds(
    'LD15: an existing entry is adopted with all its fields',
    async (ledger, { runs }) => {
      await runs.create({ runId: RUN, tags: ['nightly'], metadata: { by: 'me' } })
      await tell(ledger, ['RunStarted', 'RunCompleted'])
      await ledger.projectSnapshot(RUN)
      expect(await runs.get(RUN)).toMatchObject({
        status: 'Completed',
        tags: ['nightly'],
        metadata: { by: 'me' },
      })
      expect(await runs.query({})).toHaveLength(1)
    },
    ['runs'],
  )

  suite.each(
    'LD15: after %s a run is %s in the index',
    [
      ['RunQueued', 'Active'],
      ['RunStarted', 'Active'],
      ['RunStarted RunPaused', 'Paused'],
      ['RunStarted RunPaused RunResumed', 'Active'],
      ['RunStarted RunCompleted', 'Completed'],
      ['RunStarted RunFailed', 'Failed'],
      ['RunStarted RunCancelled', 'Cancelled'],
      ['RunCompleted', 'Active'],
    ],
    async (ledger, [events, status], { runs }) => {
      await tell(ledger, events.split(' '))
      const { completedAt } = await ledger.projectSnapshot(RUN)
      const run = await runs.get(RUN)
      expect(run).toMatchObject({ status })
      expect(run?.completedAt).toBe(completedAt === undefined ? undefined : Date.parse(completedAt))
    },
    ['runs'],
  )

  suite.holds(
    'LD15: updatedAt is the time of the last status change, no matter when the run was projected',
    async (ledger, { runs, clock }) => {
      const timeOf = ({ persistedAt }: { readonly persistedAt: string }): number => Date.parse(persistedAt)
      const append = async (text: string, runId: string): Promise<number> => {
        clock.advance(10)
        return timeOf(await ledger.appendEvent(said(text, { runId })))
      }
      // One run is projected after each event, the other only at the end. Both must get the same time.
      for (const runId of ['each', 'end']) {
        await runs.create({ runId })
        for (const text of ['RunStarted', 'RunPaused', 'RunResumed', 'Noted']) {
          await append(text, runId)
          if (runId === 'each') await ledger.projectSnapshot(runId)
        }
        await ledger.projectSnapshot(runId)
        const [, , resumed] = await ledger.fetchEvents(runId)
        expect(await runs.get(runId)).toMatchObject({ status: 'Active', updatedAt: timeOf(resumed) })
      }
      // A run that was completed by hand becomes active again with its first event in the ledger.
      await runs.create({ runId: 'adopted' })
      await runs.complete('adopted')
      const started = await append('RunStarted', 'adopted')
      await append('Noted', 'adopted')
      await ledger.projectSnapshot('adopted')
      const adopted = await runs.get('adopted')
      expect(adopted).toMatchObject({ status: 'Active', updatedAt: started })
      expect(adopted?.completedAt).toBeUndefined()
    },
    ['runs', 'clock'],
  )

  suite.holds(
    'LD15: the status in the index is updated in the background',
    async (ledger, { runs }) => {
      await tell(ledger, ['RunStarted', 'RunFailed'])
      const run = await eventually(
        () => runs.get(RUN),
        found => found?.status === 'Failed',
      )
      expect(run).toMatchObject({ runId: RUN })
    },
    ['runs'],
  )

  suite.holds(
    'LD15: a refused event creates no entry',
    async (ledger, { runs }) => {
      await expect(ledger.appendEvent({ ...newEvent(), idempotencyKey: 'x' })).rejects.toThrow()
      expect(await runs.query({})).toEqual([])
    },
    ['runs'],
  )

  suite.holds(
    'L7: deleting a run keeps its records, unless purging is requested with a reason',
    async (ledger, { runs }) => {
      const before = await tell(ledger, ['RunStarted', 'RunCompleted'])
      for (const options of [{}, { reason: 'tidying up' }, { purgeLedger: false, reason: 'x' }]) {
        await refused(runs.delete(RUN, options), 'INVALID_OPERATION')
      }
      expect(await ledger.fetchEvents(RUN)).toEqual(before)
      expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 2 })
    },
    ['runs'],
  )

  suite.holds(
    'LD15: a purged run leaves nothing, and a new run with its id starts from 1',
    async (ledger, { runs }) => {
      await tell(ledger, ['RunStarted', 'RunQueued', 'StepStarted a'])
      await ledger.projectSnapshot(RUN)
      await runs.delete(RUN, { purgeLedger: true, reason: 'asked to forget' })
      expect(await ledger.fetchEvents(RUN)).toEqual([])
      expect(await ledger.getSnapshot(RUN)).toBeNull()
      expect(await ledger.alerts()).toEqual([])
      await refused(ledger.verifyRun(RUN), 'RUN_NOT_FOUND')
      const event = newEvent({ tenantId: 'other' })
      expect(await ledger.appendEvent(event)).toMatchObject({ runSeq: 1, persisted: true })
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        tenantId: 'other',
        lastEventSeq: 1,
        steps: [],
        consistency: 'CONSISTENT',
      })
      expect(await gather(ledger.audit({ from: 0, to: '9999-01-01T00:00:00Z' }))).toHaveLength(1)
      expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 1 })
    },
    ['runs'],
  )
}
