import { expect } from 'vitest'
import type { AuditQuery, RunEventRecord } from '../../index.ts'
import { bad, gather, refused, times } from '../annals-suite/suite.ts'
import { newEvent } from './events.ts'
import type { Given, LedgerApi, LedgerSuite } from './suite.ts'

const ALL: AuditQuery = { from: 0, to: '9999-12-31T00:00:00Z' }

/** Appends one event per second to three runs in turn. Their `emittedAt` times are in reverse order. */
async function fill(ledger: LedgerApi, { clock }: Given): Promise<{ readonly start: number }> {
  const start = clock.now()
  for (let i = 0; i < 12; i++) {
    const event = newEvent({
      runId: `run-${i % 3}`,
      eventType: i % 2 === 0 ? 'Even' : 'Odd',
      logicalAttemptId: i + 1,
      tenantId: i % 3 === 0 ? 'acme' : 'other',
      projectId: `project-${i % 3}`,
      environmentId: i % 3 === 2 ? 'prod' : 'test',
      emittedAt: new Date(start + 1_000_000 - i * 1_000).toISOString(),
    })
    await ledger.appendEvent(event)
    clock.advance(1_000)
  }
  return { start }
}

const numbers = (records: readonly RunEventRecord[]): number[] =>
  records.map(record => record.logicalAttemptId)

/** L10, LD17: an audit lists the records of all runs by the time at which they were stored. */
export function testAudit(suite: LedgerSuite): void {
  suite.holds(
    'L10, LD17: an audit window selects by persistedAt, from inclusive to exclusive',
    async (ledger, given) => {
      const { start } = await fill(ledger, given)
      const second = (i: number): number => start + i * 1_000
      const found = async (from: AuditQuery['from'], to: AuditQuery['to']): Promise<number[]> =>
        numbers(await gather(ledger.audit({ from, to })))
      expect(await found(second(3), second(6))).toEqual([4, 5, 6])
      expect(await found(second(3) + 1, second(6) + 1)).toEqual([5, 6, 7])
      expect(await found(new Date(second(3)).toISOString(), new Date(second(6)).toISOString())).toEqual([
        4, 5, 6,
      ])
      expect(await found(second(3), second(3))).toEqual([])
      expect(await found(0, second(0))).toEqual([])
      expect(await found(second(12), second(99))).toEqual([])
      expect(await found(0, second(99))).toEqual(times(12, i => i + 1))
    },
    ['clock'],
  )

  suite.each(
    'LD17: an audit by %s returns exactly the matching records',
    [
      ['tenantId', 'acme'],
      ['projectId', 'project-1'],
      ['environmentId', 'prod'],
      ['runId', 'run-2'],
      ['eventType', 'Odd'],
    ],
    async (ledger, [field, value], given) => {
      await fill(ledger, given)
      const all = await gather(ledger.audit(ALL))
      const name = field as 'tenantId'
      const expected = all.filter(record => record[name] === value)
      expect(expected.length).toBeGreaterThan(3)
      expect(await gather(ledger.audit({ ...ALL, [field]: value }))).toEqual(expected)
      expect(await gather(ledger.audit({ ...ALL, [field]: `${value}x` }))).toEqual([])
    },
    ['clock'],
  )

  suite.holds(
    'LD17: an audit with several filters returns the records that match all of them',
    async (ledger, given) => {
      await fill(ledger, given)
      expect(numbers(await gather(ledger.audit({ ...ALL, runId: 'run-0', eventType: 'Odd' })))).toEqual([
        4, 10,
      ])
    },
    ['clock'],
  )

  suite.holds(
    'LD17: records with the same time are ordered by run, then by runSeq',
    async ledger => {
      for (const runId of ['c', 'a', 'b', 'a', 'c']) {
        const { length } = await ledger.fetchEvents(runId)
        await ledger.appendEvent(newEvent({ runId, eventType: `Noted${length}` }))
      }
      const found = (await gather(ledger.audit(ALL))).map(({ runId, runSeq }) => `${runId}${runSeq}`)
      expect(found).toEqual(['a1', 'a2', 'b1', 'c1', 'c2'])
    },
    ['clock'],
  )

  suite.holds(
    'LD17: an audit of many records with equal times is in order across pages',
    async (ledger, { clock }) => {
      for (let i = 0; i < 3; i++) {
        const events = times(900, n =>
          newEvent({ runId: `run-${(n * 7) % 10}`, eventType: 'Noted', logicalAttemptId: i * 900 + n + 1 }),
        )
        await ledger.appendEvents(events)
        if (i > 0) clock.advance(1)
      }
      const found = await gather(ledger.audit(ALL))
      expect(found).toHaveLength(2_700)
      const order = found.map(
        ({ persistedAt, runId, runSeq }) => `${persistedAt} ${runId} ${String(runSeq).padStart(5, '0')}`,
      )
      expect(order).toEqual([...order].sort())
    },
    ['clock'],
  )

  suite.holds('LD17: an audit reads records only as they are consumed', async ledger => {
    await ledger.appendEvents(times(50, i => newEvent({ eventType: `Noted${i}` })))
    let count = 0
    for await (const _ of ledger.audit(ALL)) if (++count === 3) break
    expect(count).toBe(3)
  })

  suite.holds('LD17: an invalid audit window is refused', async ledger => {
    for (const query of [
      {},
      { from: 0 },
      { to: 0 },
      { from: 5, to: 4 },
      { from: 'yesterday', to: 4 },
      { from: '2025-02-30T00:00:00Z', to: '2026-01-01T00:00:00Z' },
      { from: 0.5, to: 1 },
      { from: Number.NaN, to: 1 },
      { ...ALL, tenantId: 7 },
      { ...ALL, tenant: 'acme' },
      null,
    ]) {
      await refused(ledger.audit(bad(query)).next(), 'INVALID_ARGUMENT', JSON.stringify(query))
    }
  })
}
