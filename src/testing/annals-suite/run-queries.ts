import { expect } from 'vitest'
import type { Annals, Run, RunQuery } from '../../index.ts'
import type { SimulatedClock } from '../simulated-clock.ts'
import { bad, refused, type Suite, times } from './suite.ts'

const ids = (runs: readonly Run[]): string[] => runs.map(({ runId }) => runId)

/** P10: the runs that a query finds, and their order. */
export function testRunQueries(suite: Suite): void {
  suite.holds('every query of a database without runs returns an empty result', async db => {
    expect(await db.runs.query()).toEqual([])
    expect(await db.runs.list()).toEqual([])
    expect(await db.runs.children('nobody')).toEqual([])
    expect(await db.runs.tombstones()).toEqual([])
    expect(await db.runs.stats()).toEqual({
      total: 0,
      active: 0,
      completed: 0,
      failed: 0,
      cancelled: 0,
      paused: 0,
      archived: 0,
    })
  })

  suite.holdsInTime('runs are listed newest first', async (db, clock) => {
    for (const runId of ['m', 'a', 'z', 'b']) {
      await db.runs.create({ runId })
      clock.advance(1)
    }
    expect(await db.runs.list()).toEqual(['b', 'z', 'a', 'm'])
    expect(ids(await db.runs.query())).toEqual(['b', 'z', 'a', 'm'])
    await db.runs.pause('m')
    expect(await db.runs.list()).toEqual(['b', 'z', 'a', 'm'])
  })

  suite.holds('runs with the same time are listed in reverse order of their creation', async db => {
    const made: string[] = []
    for (let i = 0; i < 20; i++) made.push((await db.runs.create()).runId)
    expect(await db.runs.list()).toEqual(made.toReversed())
  })

  suite.holdsInTime(
    'each condition of a query, and all together, find the matching runs',
    async (db, clock) => {
      const start = await fill(db, clock)
      const found = async (query: RunQuery): Promise<string[]> => ids(await db.runs.query(query))
      expect(await found({})).toEqual(['r7', 'r6', 'r5', 'r4', 'r3', 'r2', 'r1', 'r0'])
      expect(await found({ status: 'Paused' })).toEqual(['r5', 'r1'])
      expect(await found({ tags: ['even'] })).toEqual(['r6', 'r4', 'r2', 'r0'])
      expect(await found({ tags: ['all', 'even'] })).toEqual(['r6', 'r4', 'r2', 'r0'])
      expect(await found({ tags: ['even', 'odd'] })).toEqual([])
      expect(await found({ tags: ['eve'] })).toEqual([])
      expect(await found({ tags: [] })).toHaveLength(8)
      expect(await found({ parentRun: 'r0' })).toEqual(['r7', 'r6'])
      expect(await found({ parentRun: 'nobody' })).toEqual([])
      expect(await found({ createdAfter: start + 6 })).toEqual(['r7', 'r6'])
      expect(await found({ createdBefore: start + 2 })).toEqual(['r1', 'r0'])
      expect(await found({ createdAfter: start + 2, createdBefore: start + 4 })).toEqual(['r3', 'r2'])
      expect(await found({ createdAfter: start + 4, createdBefore: start + 4 })).toEqual([])
      expect(await found({ createdAfter: start + 6, createdBefore: Number.POSITIVE_INFINITY })).toEqual([
        'r7',
        'r6',
      ])
      expect(await found({ createdAfter: -1, limit: 2 })).toEqual(['r7', 'r6'])
      expect(await found({ tags: ['odd'], status: 'Paused', createdAfter: start + 2 })).toEqual(['r5'])
      expect(await found({ parentRun: 'r0', tags: ['even'], status: 'Active' })).toEqual(['r6'])
      expect(await found({ parentRun: 'r0', tags: ['odd'], status: 'Paused' })).toEqual([])
    },
  )

  suite.holdsInTime(
    'after is exclusive, and consecutive pages return every run once under every condition',
    async (db, clock) => {
      const start = await fill(db, clock)
      const queries: readonly RunQuery[] = [
        {},
        { tags: ['even'] },
        { tags: ['all'], status: 'Active' },
        { status: 'Active' },
        { parentRun: 'r0' },
        { includeArchived: true },
        { createdAfter: start + 2, createdBefore: start + 6 },
      ]
      for (const query of queries) {
        const whole = ids(await db.runs.query(query))
        for (const limit of [1, 2, 3, 100]) {
          const seen: string[] = []
          // The number of pages is bounded, so that a query that repeats a page fails instead of hanging.
          for (let pages = 0; pages < 12; pages++) {
            const after = seen.at(-1)
            const page = await db.runs.query({ ...query, limit, ...(after === undefined ? {} : { after }) })
            if (page.length === 0) break
            expect(page.length).toBeLessThanOrEqual(limit)
            seen.push(...ids(page))
          }
          expect(seen, JSON.stringify({ query, limit })).toEqual(whole)
        }
      }
      // `after` may be a run that the query itself does not find.
      expect(ids(await db.runs.query({ tags: ['even'], after: 'r3' }))).toEqual(['r2', 'r0'])
      expect(ids(await db.runs.query({ createdAfter: start + 4, after: 'r2' }))).toEqual([])
      expect(ids(await db.runs.query({ createdBefore: start + 3, after: 'r6' }))).toEqual(['r2', 'r1', 'r0'])
    },
  )

  suite.holdsInTime(
    'runs of one millisecond are listed newest first, and their pages are exact',
    async db => {
      // There are more runs than one internal page holds, and their ids are not in order.
      const made = times(50, i => `r${(i * 37) % 50}`)
      for (const [i, runId] of made.entries()) {
        const tags = i % 3 === 0 ? ['t', 'third'] : ['t']
        await db.runs.create({ runId, tags, ...(i === 0 ? {} : { parentRun: made[0] }) })
      }
      // Later changes of a run don't change its place in any index.
      for (const runId of [made[40], made[3], made[20]]) {
        await db.runs.pause(runId)
        await db.runs.addTags(runId, ['late'])
      }
      const newest = made.toReversed()
      expect(await db.runs.list()).toEqual(newest)
      expect(ids(await db.runs.children(made[0]))).toEqual(newest.slice(0, -1))
      expect(ids(await db.runs.query({ status: 'Paused' }))).toEqual([made[40], made[20], made[3]])
      expect(ids(await db.runs.query({ tags: ['late'], limit: 2 }))).toEqual([made[40], made[20]])
      const third = newest.filter(runId => made.indexOf(runId) % 3 === 0)
      for (const [i, runId] of newest.entries()) {
        expect(ids(await db.runs.query({ tags: ['t'], after: runId }))).toEqual(newest.slice(i + 1))
        expect(ids(await db.runs.query({ after: runId, limit: 3 }))).toEqual(newest.slice(i + 1, i + 4))
        expect(ids(await db.runs.query({ tags: ['third'], after: runId }))).toEqual(
          third.filter(other => made.indexOf(other) < made.indexOf(runId)),
        )
      }
    },
  )

  suite.holdsInTime('P10: archived runs are hidden unless they are requested', async (db, clock) => {
    await fill(db, clock)
    await db.runs.archive('r6')
    await db.runs.archive('r1')
    expect(await db.runs.list()).toEqual(['r7', 'r5', 'r4', 'r3', 'r2', 'r0'])
    expect(await db.runs.list({ includeArchived: true })).toHaveLength(8)
    expect(await db.runs.list({ includeArchived: false })).toHaveLength(6)
    expect(ids(await db.runs.query({ tags: ['even'] }))).toEqual(['r4', 'r2', 'r0'])
    expect(ids(await db.runs.query({ tags: ['even'], includeArchived: true }))).toEqual([
      'r6',
      'r4',
      'r2',
      'r0',
    ])
    expect(ids(await db.runs.query({ status: 'Archived' }))).toEqual(['r6', 'r1'])
    expect(ids(await db.runs.query({ status: 'Archived', tags: ['odd'] }))).toEqual(['r1'])
    expect(ids(await db.runs.query({ parentRun: 'r0' }))).toEqual(['r7'])
    expect((await db.runs.get('r6'))!.status).toBe('Archived')
  })

  suite.holdsInTime('children returns archived children too, but no grandchildren', async (db, clock) => {
    await fill(db, clock)
    await db.runs.create({ runId: 'grandchild', parentRun: 'r7' })
    await db.runs.archive('r6')
    expect(ids(await db.runs.children('r0'))).toEqual(['r7', 'r6'])
    expect(ids(await db.runs.children('r7'))).toEqual(['grandchild'])
    expect(await db.runs.children('grandchild')).toEqual([])
  })

  suite.holdsInTime('stats count every status, and follow every change', async (db, clock) => {
    await fill(db, clock)
    await db.runs.complete('r0')
    await db.runs.fail('r2', 'x')
    await db.runs.cancel('r3')
    await db.runs.archive('r4')
    await db.runs.delete('r6')
    expect(await db.runs.stats()).toEqual({
      total: 7,
      active: 1,
      completed: 1,
      failed: 1,
      cancelled: 1,
      paused: 2,
      archived: 1,
    })
  })

  suite.holds('an invalid query is refused', async db => {
    await db.runs.create({ runId: 'r' })
    for (const query of [
      null,
      7,
      { state: 'Active' },
      { status: 'active' },
      { status: 'toString' },
      { status: null },
      { tags: 'a' },
      { tags: null },
      { tags: [''] },
      { tags: [7] },
      { createdAfter: Number.NaN },
      { createdAfter: 1.5 },
      { createdBefore: '2020' },
      { createdBefore: Number.NEGATIVE_INFINITY },
      { createdAfter: Number.POSITIVE_INFINITY },
      { createdAfter: 2, createdBefore: 1 },
      { parentRun: '' },
      { parentRun: 7 },
      { includeArchived: 'yes' },
      { limit: 0 },
      { limit: -1 },
      { limit: 1.5 },
      { limit: Number.NaN },
      { after: 7 },
      { after: '' },
    ]) {
      await refused(db.runs.query(bad(query)), 'INVALID_ARGUMENT', JSON.stringify(query))
    }
    await refused(db.runs.list(bad({ archived: true })), 'INVALID_ARGUMENT')
    await refused(db.runs.list(bad({ includeArchived: 1 })), 'INVALID_ARGUMENT')
    await refused(db.runs.children(bad(7)), 'INVALID_ARGUMENT')
  })
}

/** Creates the runs r0 to r7, a millisecond apart. r1 and r5 are paused, and r6 and r7 are children of r0. */
async function fill(db: Annals, clock: SimulatedClock): Promise<number> {
  const start = clock.now()
  for (let i = 0; i < 8; i++) {
    const tags = ['all', i % 2 === 0 ? 'even' : 'odd']
    await db.runs.create({ runId: `r${i}`, tags, ...(i >= 6 ? { parentRun: 'r0' } : {}) })
    if (i % 4 === 1) await db.runs.pause(`r${i}`)
    clock.advance(1)
  }
  return start
}
