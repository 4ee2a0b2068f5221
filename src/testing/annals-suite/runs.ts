import { expect, test } from 'vitest'
import type { Annals, Run, RunStatus } from '../../index.ts'
import { bad, expectFrozen, outcomes, RUN, refused, runsOf, type Suite, times } from './suite.ts'

const STATUSES: readonly RunStatus[] = ['Active', 'Completed', 'Failed', 'Cancelled', 'Paused', 'Archived']
const ENDS: readonly RunStatus[] = ['Completed', 'Failed', 'Cancelled']

/** P10: the legal transitions, written down independently of the implementation. */
const LEGAL: ReadonlySet<string> = new Set([
  'Active→Completed',
  'Active→Failed',
  'Active→Cancelled',
  'Active→Paused',
  'Active→Archived',
  'Paused→Active',
  'Paused→Cancelled',
  'Paused→Archived',
  'Completed→Archived',
  'Failed→Archived',
  'Cancelled→Archived',
])

const PAIRS = STATUSES.flatMap(from => STATUSES.map(to => ({ from, to, legal: LEGAL.has(`${from}→${to}`) })))

/** The method that brings a run into each status, as `updateStatus` does too. */
const METHODS: Readonly<Record<RunStatus, (db: Annals, runId: string) => Promise<Run>>> = {
  Active: (db, runId) => db.runs.resume(runId),
  Completed: (db, runId) => db.runs.complete(runId),
  Failed: (db, runId) => db.runs.fail(runId, 'why'),
  Cancelled: (db, runId) => db.runs.cancel(runId),
  Paused: (db, runId) => db.runs.pause(runId),
  Archived: (db, runId) => db.runs.archive(runId),
}

/** P10: the life of a run, and the transitions between its statuses. */
export function testRuns(suite: Suite): void {
  test('P10: 11 of the 36 pairs of statuses are legal, and 25 are not', () => {
    expect(PAIRS).toHaveLength(36)
    expect(PAIRS.filter(({ legal }) => legal)).toHaveLength(11)
  })

  for (const { from, to, legal } of PAIRS) {
    const outcome = legal ? 'is legal' : 'is INVALID_TRANSITION and changes nothing'
    suite.holds(`P10: ${from} → ${to} ${outcome}`, async db => {
      for (const [runId, change] of [
        ['by-name', METHODS[to]],
        ['by-status', (_: Annals, id: string) => db.runs.updateStatus(id, to)],
      ] as const) {
        await db.runs.create({ runId, tags: ['t'], metadata: { a: 1 } })
        if (from !== 'Active') await db.runs.updateStatus(runId, from)
        const before = (await db.runs.get(runId))!
        if (legal) {
          const after = await change(db, runId)
          expect(after).toEqual(await db.runs.get(runId))
          expect(after).toMatchObject({ runId, status: to, tags: ['t'], metadata: { a: 1 } })
          expect(after.createdAt).toBe(before.createdAt)
          expect(after.updatedAt).toBeGreaterThanOrEqual(before.updatedAt)
          expect(after.completedAt).toBe(ENDS.includes(to) ? after.updatedAt : before.completedAt)
          expect(await db.runs.query({ status: to })).toContainEqual(after)
        } else {
          const all = await runsOf(db)
          const { details } = await refused(change(db, runId), 'INVALID_TRANSITION')
          expect(details).toMatchObject({ from, to })
          expect(await db.runs.get(runId)).toEqual(before)
          expect(await runsOf(db)).toEqual(all)
        }
      }
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    })
  }

  suite.holdsInTime(
    'P10: only the three final statuses set completedAt, and archiving keeps it',
    async (db, clock) => {
      const start = clock.now()
      for (const status of STATUSES) {
        await db.runs.create({ runId: status })
      }
      clock.advance(100)
      for (const status of STATUSES) if (status !== 'Active') await METHODS[status](db, status)
      for (const status of STATUSES) {
        const run = (await db.runs.get(status))!
        expect(run.completedAt, status).toBe(ENDS.includes(status) ? start + 100 : undefined)
        expect('completedAt' in run, status).toBe(ENDS.includes(status))
        expect(run.createdAt).toBe(start)
        expect(run.updatedAt).toBe(status === 'Active' ? start : start + 100)
      }
      clock.advance(100)
      const archived = await db.runs.archive('Failed')
      expect(archived).toMatchObject({ completedAt: start + 100, updatedAt: start + 200, error: 'why' })
    },
  )

  suite.holds('a run has the fields it was created with, and a generated id if none was given', async db => {
    const run = await db.runs.create({ runId: RUN, tags: ['b', 'a', 'b'], metadata: { n: 1n } })
    expect(run).toStrictEqual({
      runId: RUN,
      status: 'Active',
      createdAt: expect.any(Number),
      updatedAt: run.createdAt,
      tags: ['b', 'a'],
      metadata: { n: 1n },
    })
    expect(await db.runs.get(RUN)).toStrictEqual(run)
    const child = await db.runs.create({ parentRun: RUN })
    expect(child).toMatchObject({ parentRun: RUN, tags: [], metadata: {} })
    const made = await Promise.all(times(50, () => db.runs.create()))
    expect(new Set(made.map(({ runId }) => runId)).size).toBe(50)
    expect(await db.runs.get('nobody')).toBeUndefined()
  })

  suite.holds(
    'creating an existing id is RUN_EXISTS, even that of an archived run, and changes nothing',
    async db => {
      await db.runs.create({ runId: RUN, tags: ['a'] })
      await db.runs.archive(RUN)
      const before = await runsOf(db)
      await refused(db.runs.create({ runId: RUN, tags: ['b'] }), 'RUN_EXISTS')
      expect(await runsOf(db)).toEqual(before)
    },
  )

  suite.holds('exactly one of 64 concurrent creates of the same id wins', async db => {
    await db.runs.create({ runId: 'parent' })
    for (const more of [{}, { parentRun: 'parent' }]) {
      const runId = `run-${Object.keys(more).length}`
      const { won, codes } = await outcomes(times(64, i => db.runs.create({ runId, metadata: i, ...more })))
      expect(won).toHaveLength(1)
      expect(codes).toEqual(times(63, () => 'RUN_EXISTS'))
      expect(await db.runs.get(runId)).toEqual(won[0])
    }
    expect((await db.runs.stats()).total).toBe(3)
  })

  suite.holds(
    'P10: an unknown or deleted parent, the run itself, or its descendant is refused as parent',
    async db => {
      await db.runs.create({ runId: 'a' })
      await db.runs.create({ runId: 'b', parentRun: 'a' })
      await db.runs.create({ runId: 'c', parentRun: 'b' })
      await db.runs.delete('a')
      const before = await runsOf(db)
      await refused(db.runs.create({ runId: 'x', parentRun: 'nobody' }), 'RUN_NOT_FOUND')
      await refused(db.runs.create({ runId: 'x', parentRun: 'a' }), 'RUN_NOT_FOUND')
      await refused(db.runs.create({ runId: 'x', parentRun: 'x' }), 'RUN_NOT_FOUND')
      await refused(db.runs.create({ runId: 'a', parentRun: 'c' }), 'INVALID_ARGUMENT', 'a circle of three')
      await refused(db.runs.create({ runId: 'a', parentRun: 'b' }), 'INVALID_ARGUMENT', 'a circle of two')
      expect(await runsOf(db)).toEqual(before)
      expect(await db.runs.create({ runId: 'd', parentRun: 'c' })).toMatchObject({ parentRun: 'c' })
    },
  )

  suite.holds('P10: children can be created while their ancestors are being changed', async db => {
    await db.runs.create({ runId: 'grandparent' })
    await db.runs.create({ runId: 'parent', parentRun: 'grandparent' })
    let done = false
    const change = async (runId: string): Promise<void> => {
      for (let i = 0; !done; i++) await db.runs.updateMetadata(runId, i)
    }
    const changing = [change('parent'), change('grandparent')]
    try {
      for (const i of times(20, i => i)) await db.runs.create({ runId: `c${i}`, parentRun: 'parent' })
      // Creating a run whose id already has children also checks the ancestors, to prevent a cycle.
      await db.runs.create({ runId: 'again' })
      await db.runs.create({ runId: 'orphan', parentRun: 'again' })
      for (const _ of times(20, i => i)) {
        await db.runs.delete('again')
        await db.runs.create({ runId: 'again', parentRun: 'parent' })
      }
      await refused(db.runs.create({ runId: 'x', parentRun: 'nobody' }), 'RUN_NOT_FOUND')
    } finally {
      done = true
      await Promise.allSettled(changing)
    }
    expect(await db.runs.children('parent')).toHaveLength(21)
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P10: one of two concurrent creations that would form a cycle is refused', async db => {
    await db.runs.create({ runId: 'a' })
    await db.runs.create({ runId: 'b' })
    await db.runs.create({ runId: 'child-of-a', parentRun: 'a' })
    await db.runs.create({ runId: 'child-of-b', parentRun: 'b' })
    await db.runs.delete('a')
    await db.runs.delete('b')
    const { won, codes } = await outcomes([
      db.runs.create({ runId: 'a', parentRun: 'child-of-b' }),
      db.runs.create({ runId: 'b', parentRun: 'child-of-a' }),
    ])
    expect([won.length, codes]).toEqual([1, ['INVALID_ARGUMENT']])
  })

  suite.holds('every call on an unknown run is RUN_NOT_FOUND', async db => {
    const attempts = [
      ...STATUSES.map(status => METHODS[status](db, 'nobody')),
      db.runs.updateStatus('nobody', 'Paused'),
      db.runs.addTags('nobody', ['a']),
      db.runs.updateMetadata('nobody', {}),
      db.runs.delete('nobody'),
      db.runs.query({ after: 'nobody' }),
    ]
    await Promise.all(attempts.map(attempt => refused(attempt, 'RUN_NOT_FOUND')))
    expect(await runsOf(db)).toEqual({
      runs: [],
      stats: expect.objectContaining({ total: 0 }),
      tombstones: [],
    })
  })

  suite.holds(
    'addTags adds each tag once, updateMetadata replaces the metadata, and fail stores the error',
    async db => {
      await db.runs.create({ runId: RUN, tags: ['a'], metadata: { a: 1, b: 2 } })
      expect((await db.runs.addTags(RUN, ['b', 'a', 'b'])).tags).toEqual(['a', 'b'])
      expect((await db.runs.updateMetadata(RUN, { c: 3 })).metadata).toEqual({ c: 3 })
      expect((await db.runs.fail(RUN, 'out of tokens')).error).toBe('out of tokens')
      const run = await db.runs.get(RUN)
      expect(run).toMatchObject({
        tags: ['a', 'b'],
        metadata: { c: 3 },
        error: 'out of tokens',
        status: 'Failed',
      })
      expect(await db.runs.query({ tags: ['b'] })).toEqual([run])
    },
  )

  suite.holds('changing metadata after the call changes nothing in the store', async db => {
    const metadata: Record<string, unknown> = { a: 1, bytes: new Uint8Array([1]) }
    const spoil = (): void => {
      metadata['a'] = () => {}
      ;(metadata['bytes'] as Uint8Array)[0] = 9
    }
    const created = db.runs.create({ runId: RUN, metadata: bad(metadata) })
    spoil()
    expect((await created).metadata).toEqual({ a: 1, bytes: new Uint8Array([1]) })
    expect(await db.runs.get(RUN)).toEqual(await created)
    Object.assign(metadata, { a: 2, bytes: new Uint8Array([2]) })
    const updated = db.runs.updateMetadata(RUN, bad(metadata))
    spoil()
    expect((await updated).metadata).toEqual({ a: 2, bytes: new Uint8Array([2]) })
    expect(await db.runs.get(RUN)).toEqual(await updated)
    // Every reader gets its own copy of the bytes.
    ;((await updated).metadata as { bytes: Uint8Array }).bytes[0] = 7
    expect(await db.runs.get(RUN)).toMatchObject({ metadata: { bytes: new Uint8Array([2]) } })
  })

  suite.holds('concurrent changes of one run are all kept', async db => {
    await db.runs.create({ runId: RUN })
    await Promise.all(times(64, i => db.runs.addTags(RUN, [`t${i}`])))
    expect((await db.runs.get(RUN))!.tags.toSorted()).toEqual(times(64, i => `t${i}`).toSorted())
    const { won, codes } = await outcomes(times(64, () => db.runs.pause(RUN)))
    expect([won.length, codes.length]).toEqual([1, 63])
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P10: the data of an archived run stay readable and writable', async db => {
    await db.runs.create({ runId: RUN })
    await db.kv.put(RUN, 'k', 1)
    await db.events.append(RUN, 'n', 1)
    await db.runs.archive(RUN)
    expect(await db.kv.get(RUN, 'k')).toBe(1)
    expect((await db.events.append(RUN, 'n', 2)).sequence).toBe(1)
    expect((await db.runs.addTags(RUN, ['late'])).status).toBe('Archived')
    expect((await db.runs.updateMetadata(RUN, 'late')).metadata).toBe('late')
  })

  suite.holds('returned values are frozen', async db => {
    expectFrozen(await db.runs.create({ runId: RUN, tags: ['a'], metadata: { a: [] } }))
    for (const result of [
      await db.runs.get(RUN),
      await db.runs.pause(RUN),
      await db.runs.addTags(RUN, ['b']),
      await db.runs.updateMetadata(RUN, { b: [{}] }),
      await db.runs.query(),
      await db.runs.list(),
      await db.runs.stats(),
      await db.runs.children(RUN),
      await db.runs.delete(RUN),
      await db.runs.tombstones(),
    ]) {
      expect(result).toBeTypeOf('object')
      expectFrozen(result)
    }
  })
}
