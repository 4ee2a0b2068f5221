import { expect } from 'vitest'
import { gather, refused, take } from '../annals-suite/suite.ts'
import { newEvent, RUN, said } from './events.ts'
import type { LedgerSuite } from './suite.ts'

/** LD8: a run belongs to one tenant, project and environment. */
export function testScope(suite: LedgerSuite): void {
  suite.each(
    'LD8, L19: an event with another %s than its run is refused, even if it is a duplicate',
    [['tenantId'], ['projectId'], ['environmentId']],
    async (ledger, [field]) => {
      const first = newEvent({ payload: { secret: 'mine' } })
      const { persistedAt } = await ledger.appendEvent(first)
      // The key is the same. Answering this as a duplicate would disclose the id and time of the first event.
      const duplicate = newEvent({ [field]: 'other' })
      expect(duplicate.idempotencyKey).toBe(first.idempotencyKey)
      for (const event of [duplicate, newEvent({ eventType: 'RunPaused', [field]: 'other' })]) {
        const error = await refused(ledger.appendEvent(event), 'RUN_SCOPE_MISMATCH')
        const heard = JSON.stringify([error.message, error.details])
        for (const secret of [first.eventId, persistedAt, first[field as 'tenantId']]) {
          expect(heard).not.toContain(secret)
        }
      }
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
    },
  )

  suite.holds(
    'LD8: plan id and version may differ between events, and the snapshot shows those of the first',
    async ledger => {
      await ledger.appendEvent(newEvent({ planId: 'a', planVersion: '1' }))
      await ledger.appendEvent(newEvent({ eventType: 'RunPaused', planId: 'b', planVersion: '2' }))
      const snapshot = await ledger.projectSnapshot(RUN)
      expect(snapshot).toMatchObject({ planId: 'a', planVersion: '1', status: 'PAUSED', lastEventSeq: 2 })
      expect((await ledger.fetchEvents(RUN))[1]).toMatchObject({ planId: 'b', planVersion: '2' })
    },
  )

  suite.holds('LD8: the default handle stores events of any tenantId side by side', async ledger => {
    await ledger.appendEvent(newEvent({ runId: 'a', tenantId: 'acme' }))
    await ledger.appendEvent(newEvent({ runId: 'b', tenantId: 'default' }))
    expect(await ledger.projectSnapshot('a')).toMatchObject({ tenantId: 'acme' })
    expect(await ledger.projectSnapshot('b')).toMatchObject({ tenantId: 'default' })
  })

  suite.holds(
    'LD8: a handle that is bound to a tenant accepts only its own tenantId',
    async (_, given) => {
      const acme = given.forTenant('acme')
      for (const tenantId of ['other', 'Acme', 'default', 'acme ']) {
        await refused(acme.appendEvent(newEvent({ tenantId })), 'RUN_SCOPE_MISMATCH', tenantId)
      }
      const batch = [newEvent({ tenantId: 'acme' }), newEvent({ runId: 'run-2', tenantId: 'other' })]
      await refused(acme.appendEvents(batch), 'RUN_SCOPE_MISMATCH')
      expect(await acme.fetchEvents(RUN)).toEqual([])
      expect(await acme.appendEvent(newEvent({ tenantId: 'acme' }))).toMatchObject({ runSeq: 1 })
    },
    ['tenants'],
  )

  suite.holds(
    'LD8: run ids are unique per handle: tenants can’t see each other’s runs, nor collide with them',
    async (ledger, given) => {
      const [acme, other] = [given.forTenant('acme'), given.forTenant('other')]
      await acme.appendEvent(said('RunStarted', { tenantId: 'acme' }))
      await acme.appendEvent(said('RunStarted', { tenantId: 'acme', planVersion: '2' }))
      expect(await other.fetchEvents(RUN)).toEqual([])
      expect(await other.getSnapshot(RUN)).toBeNull()
      await refused(other.projectSnapshot(RUN), 'RUN_NOT_FOUND')
      await refused(other.verifyRun(RUN), 'RUN_NOT_FOUND')
      expect(await ledger.fetchEvents(RUN)).toEqual([])

      expect(await other.appendEvent(said('RunQueued', { tenantId: 'other' }))).toMatchObject({ runSeq: 1 })
      expect(await other.projectSnapshot(RUN)).toMatchObject({ tenantId: 'other', status: 'PENDING' })
      expect(await acme.projectSnapshot(RUN)).toMatchObject({ tenantId: 'acme', status: 'RUNNING' })
      expect(await other.alerts()).toEqual([])
      expect(await acme.alerts()).toHaveLength(1)

      const window = { from: 0, to: '9999-01-01T00:00:00Z' }
      for (const [tenant, count] of [
        [acme, 2],
        [other, 1],
        [ledger, 0],
      ] as const) {
        expect(await gather(tenant.audit(window))).toHaveLength(count)
      }
      const feed = other.subscribeAll()
      expect((await take(feed, 1))[0].record).toMatchObject({ tenantId: 'other' })
      await feed.return()
    },
    ['tenants'],
  )

  suite.holds(
    'LD8: tenant, project and environment of a run stay fixed after reopening',
    async (ledger, given) => {
      await ledger.appendEvent(newEvent())
      const { ledger: again } = await given.reopen()
      await refused(again.appendEvent(newEvent({ tenantId: 'other' })), 'RUN_SCOPE_MISMATCH')
    },
    ['reopen'],
  )

  suite.holds(
    'LD8: exactly one of two concurrent first events with different tenants is stored',
    async ledger => {
      const attempts = ['a', 'b'].map(tenantId =>
        ledger.appendEvent(newEvent({ tenantId, eventType: `Noted-${tenantId}` })),
      )
      const settled = await Promise.allSettled(attempts)
      expect(settled.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1)
    },
  )
}
