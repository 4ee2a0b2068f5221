import { expect } from 'vitest'
import { bad, refused, times } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import type { LedgerSuite } from './suite.ts'

const TEN_YEARS_MS = 10 * 365 * 86_400_000
const HOUR = { owner: 'worker-1', ttlMs: 3_600_000 }

/** LD16: a writer whose lease was taken over can’t write. */
export function testLeases(suite: LedgerSuite): void {
  suite.holds('LD16: epochs grow from lease to lease', async ledger => {
    expect(await ledger.acquireLease(RUN, HOUR)).toEqual({ epoch: 1 })
    expect(await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })).toEqual({ epoch: 2 })
    expect(await ledger.acquireLease('run-2', HOUR)).toEqual({ epoch: 1 })
    const epochs = await Promise.all(times(20, () => ledger.acquireLease(RUN, HOUR)))
    expect(new Set(epochs.map(({ epoch }) => epoch)).size).toBe(20)
  })

  suite.holds('LD16: an epoch can’t write once a newer one is granted', async ledger => {
    const { epoch: old } = await ledger.acquireLease(RUN, HOUR)
    expect(await ledger.appendEvent(said('RunStarted'), { epoch: old })).toMatchObject({ runSeq: 1 })
    const { epoch } = await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
    const { details } = await refused(ledger.appendEvent(said('RunPaused'), { epoch: old }), 'WRITER_FENCED')
    expect(details).toMatchObject({ runId: RUN, epoch: old })
    await refused(ledger.appendEvents([said('RunPaused')], { epoch: old }), 'WRITER_FENCED')
    expect(await ledger.appendEvent(said('RunPaused'), { epoch })).toMatchObject({ runSeq: 2 })
  })

  suite.holds('LD16: while a lease is held, an append without an epoch is refused', async ledger => {
    await ledger.acquireLease(RUN, HOUR)
    await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
    await refused(ledger.appendEvents([newEvent({ runId: 'run-2' }), said('RunStarted')]), 'WRITER_FENCED')
    expect(await ledger.fetchEvents(RUN)).toEqual([])
    expect(await ledger.fetchEvents('run-2')).toEqual([])
    expect(await ledger.appendEvent(newEvent({ runId: 'run-2' }))).toMatchObject({ persisted: true })
  })

  suite.holds(
    'LD16: an expired lease fences no writer, but older epochs stay fenced',
    async (ledger, { clock }) => {
      const { epoch: old } = await ledger.acquireLease(RUN, { owner: 'worker-1', ttlMs: 1_000 })
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-2', ttlMs: 1_000 })
      clock.advance(999)
      await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      clock.advance(1)
      expect(await ledger.appendEvent(said('RunStarted'))).toMatchObject({ persisted: true })
      await refused(ledger.appendEvent(said('RunPaused'), { epoch: old }), 'WRITER_FENCED')
      expect(await ledger.appendEvent(said('RunPaused'), { epoch })).toMatchObject({ persisted: true })
    },
    ['clock'],
  )

  suite.holds(
    'LD16: a lease lasts its ttlMs, even after an event from a clock ten years ahead',
    async (ledger, { clock }) => {
      clock.jump(TEN_YEARS_MS)
      const first = await ledger.appendEvent(said('RunStarted'))
      clock.jump(-TEN_YEARS_MS)
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-1', ttlMs: 300 })
      const next = { owner: 'worker-2', ttlMs: 300, ifFree: true }
      clock.advance(299)
      await refused(ledger.appendEvent(said('RunPaused')), 'WRITER_FENCED')
      await refused(ledger.appendEvents([said('RunPaused')]), 'WRITER_FENCED')
      await refused(ledger.acquireLease(RUN, next), 'WRITER_FENCED')
      clock.advance(1)
      const second = await ledger.appendEvent(said('RunPaused'))
      expect(second).toMatchObject({ persisted: true, runSeq: 2 })
      expect(await ledger.appendEvents([said('RunResumed')])).toMatchObject([{ runSeq: 3 }])
      // persistedAt never goes back, so the event is not before the one from the clock that ran ahead.
      expect(second.persistedAt >= first.persistedAt).toBe(true)
      expect(await ledger.acquireLease(RUN, next)).toEqual({ epoch: epoch + 1 })
    },
    ['clock'],
  )

  suite.holds(
    'LD16: once the clock is right, a lease from ten years ahead has ended, and one from a second ahead has not',
    async (ledger, { clock }) => {
      await ledger.acquireLease(RUN, { owner: 'worker-1', ttlMs: 300 })
      clock.jump(-1_000)
      await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      clock.jump(TEN_YEARS_MS)
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-1', ttlMs: 300 })
      clock.jump(-TEN_YEARS_MS)
      expect(await ledger.appendEvent(said('RunStarted'))).toMatchObject({ persisted: true })
      const next = { owner: 'worker-2', ttlMs: 300, ifFree: true }
      expect(await ledger.acquireLease(RUN, next)).toEqual({ epoch: epoch + 1 })
    },
    ['clock'],
  )

  suite.holds('LD16: an epoch that was never granted is refused', async ledger => {
    await refused(ledger.appendEvent(said('RunStarted'), { epoch: 1 }), 'WRITER_FENCED')
    await ledger.acquireLease(RUN, HOUR)
    await refused(ledger.appendEvent(said('RunStarted'), { epoch: 2 }), 'WRITER_FENCED')
    await refused(ledger.appendEvent(said('RunStarted'), { epoch: 0 }), 'WRITER_FENCED')
  })

  suite.holds(
    'LD16, L4: a duplicate without an epoch is answered while another writer holds the lease',
    async ledger => {
      const { epoch } = await ledger.acquireLease(RUN, HOUR)
      const event = said('RunStarted')
      const first = await ledger.appendEvent(event, { epoch })
      const duplicate = { ...first, idempotent: true, persisted: false }
      await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
      // The ledger compares the first duplicate with its record, and answers later ones from a cache.
      for (let time = 0; time < 4; time++) {
        expect(await ledger.appendEvent(event)).toEqual(duplicate)
        expect(await ledger.appendEvents([event])).toEqual([duplicate])
      }
    },
  )

  suite.holds('LD16: a stale epoch is fenced even for a duplicate, alone and in a batch', async ledger => {
    const { epoch: old } = await ledger.acquireLease(RUN, HOUR)
    const event = said('RunStarted')
    const first = await ledger.appendEvent(event, { epoch: old })
    const duplicate = { ...first, idempotent: true, persisted: false }
    expect(await ledger.appendEvent(event, { epoch: old })).toEqual(duplicate)
    const { epoch } = await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
    for (let time = 0; time < 4; time++) {
      for (const stale of [old, epoch + 1, 0]) {
        await refused(ledger.appendEvent(event, { epoch: stale }), 'WRITER_FENCED')
        await refused(ledger.appendEvents([event], { epoch: stale }), 'WRITER_FENCED')
      }
      // The answer to a duplicate comes from a cache, which must not serve a writer with a stale epoch.
      expect(await ledger.appendEvent(event)).toEqual(duplicate)
      expect(await ledger.appendEvent(event, { epoch })).toEqual(duplicate)
    }
    const { details } = await refused(ledger.appendEvent(event, { epoch: old }), 'WRITER_FENCED')
    expect(details).toMatchObject({ runId: RUN, epoch: old, held: epoch, owner: 'worker-2' })
    // A duplicate under a stale epoch rejects its whole batch.
    await refused(ledger.appendEvents([event, said('RunPaused')], { epoch: old }), 'WRITER_FENCED')
    expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
  })

  suite.holds('LD16: an epoch for a run without a lease is fenced, even for a duplicate', async ledger => {
    const event = said('RunStarted')
    await ledger.appendEvent(event)
    await refused(ledger.appendEvent(event, { epoch: 1 }), 'WRITER_FENCED')
    expect(await ledger.appendEvent(event)).toMatchObject({ idempotent: true })
  })

  suite.holds(
    'LD16, L26: a stale epoch gets WRITER_FENCED, not the rejection of its event',
    async ledger => {
      const { epoch: old } = await ledger.acquireLease(RUN, HOUR)
      const event = said('RunResumed')
      await refused(ledger.appendEvent(event, { epoch: old }), 'INVALID_TRANSITION')
      await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
      await refused(ledger.appendEvent(event, { epoch: old }), 'WRITER_FENCED')
      await refused(ledger.appendEvent(event), 'INVALID_TRANSITION')
    },
    ['layerTwo'],
  )

  suite.holds(
    'LD16: a lease is still held after reopening',
    async (ledger, given) => {
      const { epoch } = await ledger.acquireLease(RUN, HOUR)
      const { ledger: again } = await given.reopen()
      await refused(again.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      expect(await again.appendEvent(said('RunStarted'), { epoch })).toMatchObject({ persisted: true })
      expect(await again.acquireLease(RUN, HOUR)).toEqual({ epoch: epoch + 1 })
    },
    ['reopen'],
  )

  suite.holds(
    'LD16: a takeover during concurrent appends fences every later append of the old epoch',
    async ledger => {
      const { epoch: old } = await ledger.acquireLease(RUN, HOUR)
      const writes = Promise.allSettled(
        times(50, i => ledger.appendEvent(newEvent({ eventType: `Noted${i}` }), { epoch: old })),
      )
      const { epoch } = await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
      const { length } = await ledger.fetchEvents(RUN)
      const settled = await writes
      expect(await ledger.fetchEvents(RUN)).toHaveLength(length)
      expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(length)
      expect(await ledger.appendEvent(said('RunStarted'), { epoch })).toMatchObject({ runSeq: length + 1 })
    },
  )

  suite.holds(
    'LD16: a lease without ttlMs is held until it is released',
    async (ledger, { clock }) => {
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-1' })
      clock.advance(10 * 365 * 24 * 3_600_000)
      await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      await refused(ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2', ifFree: true }), 'WRITER_FENCED')
      expect(await ledger.appendEvent(said('RunStarted'), { epoch })).toMatchObject({ runSeq: 1 })
      await ledger.releaseLease(RUN, epoch)
      expect(await ledger.appendEvent(said('RunPaused'))).toMatchObject({ runSeq: 2 })
      const next = await ledger.acquireLease(RUN, { owner: 'worker-2', ifFree: true })
      expect(next).toEqual({ epoch: epoch + 1 })
    },
    ['clock'],
  )

  suite.holds('LD16: a lease without ttlMs is superseded by the next one', async ledger => {
    const { epoch: old } = await ledger.acquireLease(RUN, { owner: 'worker-1' })
    const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-2' })
    await refused(ledger.appendEvent(said('RunStarted'), { epoch: old }), 'WRITER_FENCED')
    expect(await ledger.appendEvent(said('RunStarted'), { epoch })).toMatchObject({ runSeq: 1 })
  })

  suite.holds('LD16: only the newest epoch can be released, and releasing it is idempotent', async ledger => {
    await refused(ledger.releaseLease(RUN, 1), 'WRITER_FENCED')
    const { epoch: old } = await ledger.acquireLease(RUN, HOUR)
    const { epoch } = await ledger.acquireLease(RUN, { ...HOUR, owner: 'worker-2' })
    const { details } = await refused(ledger.releaseLease(RUN, old), 'WRITER_FENCED')
    expect(details).toMatchObject({ runId: RUN, epoch: old, held: epoch, owner: 'worker-2' })
    await refused(ledger.releaseLease(RUN, epoch + 1), 'WRITER_FENCED')
    await refused(ledger.appendEvent(said('RunStarted')), 'WRITER_FENCED')
    for (let time = 0; time < 2; time++) await ledger.releaseLease(RUN, epoch)
    expect(await ledger.appendEvent(said('RunStarted'))).toMatchObject({ runSeq: 1 })
    await refused(ledger.appendEvent(said('RunPaused'), { epoch: old }), 'WRITER_FENCED')
    for (const wrong of [-1, 1.5, '1', null, undefined]) {
      await refused(ledger.releaseLease(RUN, bad(wrong)), 'INVALID_ARGUMENT', String(wrong))
    }
  })

  suite.holds(
    'LD16: a released lease stays released after reopening',
    async (ledger, given) => {
      const { epoch } = await ledger.acquireLease(RUN, { owner: 'worker-1' })
      const { ledger: held } = await given.reopen()
      await refused(held.appendEvent(said('RunStarted')), 'WRITER_FENCED')
      await held.releaseLease(RUN, epoch)
      const { ledger: again } = await given.reopen()
      expect(await again.appendEvent(said('RunStarted'))).toMatchObject({ runSeq: 1 })
      expect(await again.acquireLease(RUN, { owner: 'worker-2' })).toEqual({ epoch: epoch + 1 })
    },
    ['reopen'],
  )

  suite.holds('LD16, L20: a lease is refused for a run id that no event can have', async ledger => {
    for (const runId of ['a|b', '|', '_shared', '', 'x'.repeat(257), '\ud800', 'a\0b']) {
      await refused(ledger.acquireLease(runId, HOUR), 'INVALID_ARGUMENT', String(runId))
      await refused(ledger.releaseLease(runId, 1), 'INVALID_ARGUMENT', String(runId))
    }
  })

  suite.holds(
    'L20, L22: an event id is refused for a run id that no event can have',
    async (_, { registry }) => {
      const { idempotencyKey, eventId } = said('RunStarted')
      for (const runId of ['a|b', '|', '_shared', '', 'x'.repeat(257), '\ud800', 'a\0b']) {
        await refused(registry.claim(runId, idempotencyKey, eventId), 'INVALID_ARGUMENT', runId)
        await refused(registry.adopt(runId, idempotencyKey, eventId), 'INVALID_ARGUMENT', runId)
      }
    },
    ['registry'],
  )

  suite.holds('LD16: invalid lease options are refused', async ledger => {
    for (const options of [
      { owner: '', ttlMs: 1 },
      { owner: 'w', ttlMs: 0 },
      { owner: 'w', ttlMs: 1.5 },
      { ttlMs: 1 },
      { owner: 'w', ttlMs: null },
      { owner: 'w', ttlMs: 1, forever: true },
      null,
    ]) {
      await refused(ledger.acquireLease(RUN, bad(options)), 'INVALID_ARGUMENT', JSON.stringify(options))
    }
    for (const epoch of [-1, 1.5, '1', null]) {
      await refused(ledger.appendEvent(said('RunStarted'), { epoch: bad(epoch) }), 'INVALID_ARGUMENT')
    }
    expect(await ledger.acquireLease(RUN, HOUR)).toEqual({ epoch: 1 })
  })
}
