import { expect } from 'vitest'
import { type Annals, agentShared, appShared, namespace, tenantShared } from '../../index.ts'
import {
  bad,
  contentsOf,
  gather,
  outcomes,
  RUN,
  refused,
  runsOf,
  type Suite,
  take,
  times,
  ZERO_HASH,
} from './suite.ts'

const EMPTY = { kv: [], events: [], length: 0, cells: [], traces: [] }

/** P11: deleting a run removes its data and leaves a tombstone. */
export function testDeletion(suite: Suite): void {
  suite.holds(
    'P11: a deleted run leaves nothing in any primitive, and its tombstone has the counts',
    async db => {
      await fill(db, RUN)
      const head = (await db.events.head(RUN))!
      const before = Date.now()
      const tombstone = await db.runs.delete(RUN, { reason: 'asked to forget' })
      expect(tombstone).toStrictEqual({
        runId: RUN,
        deletedAt: expect.any(Number),
        reason: 'asked to forget',
        events: 3,
        headHash: head.hash,
      })
      expect(Math.abs(tombstone.deletedAt - before)).toBeLessThan(60_000)
      expect(await db.runs.tombstones()).toStrictEqual([tombstone])

      expect(await contentsOf(db, RUN)).toEqual(EMPTY)
      expect(await db.runs.get(RUN)).toBeUndefined()
      expect(await db.runs.list({ includeArchived: true })).toEqual([])
      expect(await db.runs.query({ tags: ['t'] })).toEqual([])
      expect(await db.runs.stats()).toMatchObject({ total: 0 })
      expect(await db.traces.queryByTag(RUN, 'x')).toEqual([])
      expect(await db.traces.queryByType(RUN, 'Thought')).toEqual([])
      await refused(db.machines.current(RUN, 'm'), 'MACHINE_NOT_FOUND')
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 0 })
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    },
  )

  suite.holds(
    'P11: the tombstone of an empty run that is deleted without a reason has no events and no reason',
    async db => {
      await db.runs.create({ runId: RUN })
      const tombstone = await db.runs.delete(RUN)
      expect(tombstone).toStrictEqual({
        runId: RUN,
        deletedAt: expect.any(Number),
        events: 0,
        headHash: ZERO_HASH,
      })
    },
  )

  suite.holds(
    'P11: an iteration during a deletion yields all events or fails with EVENT_CHAIN_BROKEN',
    async db => {
      const COUNT = 60
      const events = (count: number, life: string) => times(count, i => ({ type: life, payload: i }))
      // The deletion comes at several places of a page. Afterwards the run is gone, shorter, equally long, or longer.
      for (const [turn, taken] of [1, 15, 16, 17, 30, 48, 60].entries()) {
        for (const again of [0, taken, COUNT, COUNT + 5]) {
          const runId = `run-${turn}-${again}`
          await db.runs.create({ runId })
          await db.events.appendBatch(runId, events(COUNT, 'first'))
          const reader = db.events.iterate(runId)
          const seen = (await take(reader, taken)).length
          await db.runs.delete(runId)
          if (again > 0) await db.events.appendBatch(runId, events(again, 'second'))
          const rest = gather(reader)
          if (seen === COUNT) await rest.catch(() => undefined)
          else await refused(rest, 'EVENT_CHAIN_BROKEN', runId)
        }
      }
    },
  )

  suite.holds('P11: a list during a deletion has all entries or none', async db => {
    const COUNT = 100
    const lists: readonly ((runId: string) => Promise<number>)[] = [
      async runId => (await db.events.readByType(runId, 'n')).length,
      async runId => (await db.cells.list(runId)).length,
      async runId => (await db.traces.list(runId)).length,
      runId => db.traces.count(runId),
    ]
    // The lists begin a little later in each round, so that the deletion can fall between any two of their pages.
    for (const ticks of times(12, i => i)) {
      const runId = `run-${ticks}`
      await db.runs.create({ runId })
      await db.transaction(runId, async tx => {
        for (let i = 0; i < COUNT; i++) {
          await tx.events.append('n', i)
          await tx.cells.set(`c${i}`, i)
          await tx.traces.record({ type: 'Thought', content: 'x' }, { id: `t${i}` })
        }
      })
      const deleted = db.runs.delete(runId)
      for (let i = 0; i < ticks; i++) await undefined
      for (const count of await Promise.all(lists.map(list => list(runId)))) {
        expect([0, COUNT], runId).toContain(count)
      }
      await deleted
    }
  })

  suite.holds('P11: deleting a run changes no other run, namespace or shared scope', async db => {
    const { tenant } = db
    const others = [
      'run-2',
      'run-1:x',
      'run',
      namespace({ tenant, app: 'other', agent: 'default', run: RUN }),
      namespace({ tenant, app: 'default', agent: 'other', run: RUN }),
      agentShared({ tenant, app: 'default', agent: 'default' }),
      appShared({ tenant, app: 'default' }),
      tenantShared({ tenant }),
    ]
    for (const scope of others) await fillScope(db, scope)
    const acme = db.forTenant('acme')
    await fill(acme, RUN)
    const before = await Promise.all(others.map(scope => contentsOf(db, scope)))
    const ofAcme = [await contentsOf(acme, RUN), await runsOf(acme)]
    await fill(db, RUN)
    await db.runs.delete(RUN)
    expect(await Promise.all(others.map(scope => contentsOf(db, scope)))).toEqual(before)
    expect([await contentsOf(acme, RUN), await runsOf(acme)]).toEqual(ofAcme)
  })

  suite.holds('P11: children of a deleted parent stay, and are found by the parent’s id', async db => {
    await db.runs.create({ runId: 'parent' })
    const child = await db.runs.create({ runId: 'child', parentRun: 'parent' })
    await db.kv.put('child', 'k', 1)
    await db.runs.delete('parent')
    expect(await db.runs.get('child')).toEqual(child)
    expect(await db.runs.children('parent')).toEqual([child])
    expect(await db.kv.get('child', 'k')).toBe(1)
    expect(await db.runs.list()).toEqual(['child'])
  })

  suite.holds('P11: the id of a deleted run can be used again for an empty run', async db => {
    await fill(db, RUN)
    const first = (await db.events.read(RUN, 0))!
    await db.runs.delete(RUN)
    await refused(db.runs.delete(RUN), 'RUN_NOT_FOUND')
    await fill(db, RUN)
    expect((await db.runs.get(RUN))!.status).toBe('Active')
    const again = (await db.events.read(RUN, 0))!
    expect(again).toMatchObject({ sequence: 0, prevHash: ZERO_HASH, payload: first.payload })
    expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
    // Deleting a run forgets the versions of its cells, unlike deleting a cell.
    expect(await db.cells.read(RUN, 'c')).toMatchObject({ version: 2 })
    expect(await db.cells.exists(RUN, 'gone')).toBe(false)
    expect(await db.cells.init(RUN, 'never', 1)).toBe(1)
    await db.runs.delete(RUN)
    expect(await db.cells.init(RUN, 'c', 1)).toBe(1)
    expect(await db.runs.tombstones()).toHaveLength(2)
  })

  suite.holdsInTime('P11: tombstones are listed newest first', async (db, clock) => {
    const start = clock.now()
    for (const runId of ['b', 'a', 'c']) {
      await db.runs.create({ runId })
      await db.runs.delete(runId, { reason: runId })
      clock.advance(1)
    }
    const tombstones = await db.runs.tombstones()
    expect(tombstones.map(({ runId }) => runId)).toEqual(['c', 'a', 'b'])
    expect(tombstones.map(({ deletedAt }) => deletedAt)).toEqual([start + 2, start + 1, start])
    for (let i = 0; i < 5; i++) {
      await db.runs.create({ runId: `same-${i}` })
      await db.runs.delete(`same-${i}`)
    }
    expect((await db.runs.tombstones()).slice(0, 5).map(({ runId }) => runId)).toEqual(
      times(5, i => `same-${4 - i}`),
    )
  })

  suite.holds('P11: a run in any status can be deleted', async db => {
    for (const status of ['Completed', 'Failed', 'Cancelled', 'Paused', 'Archived'] as const) {
      await db.runs.create({ runId: status })
      await db.runs.updateStatus(status, status)
      await db.runs.delete(status)
      expect(await db.runs.get(status)).toBeUndefined()
    }
  })

  suite.holds('P11: exactly one of 16 concurrent deletes wins, and leaves one tombstone', async db => {
    await fill(db, RUN)
    const { won, codes } = await outcomes(times(16, () => db.runs.delete(RUN)))
    expect(won).toHaveLength(1)
    expect(codes).toEqual(times(15, () => 'RUN_NOT_FOUND'))
    expect(await db.runs.tombstones()).toEqual(won)
  })

  suite.holds(
    'P11: a transaction from before a deletion reads the run as it was, and conflicts if it writes',
    async db => {
      await fill(db, RUN)
      const whole = await db.events.readRange(RUN, 0, 3)
      const reader = await db.begin(RUN, { readOnly: true })
      const writer = await db.begin(RUN)
      expect(await writer.kv.get('k')).toBe(1)
      await writer.kv.put('k', 2)
      await db.runs.delete(RUN)
      expect(await reader.events.readRange(0, 3)).toEqual(whole)
      expect(await reader.kv.get('k')).toBe(1)
      await reader.commit()
      await refused(writer.commit(), 'CONFLICT')
      expect(await contentsOf(db, RUN)).toEqual(EMPTY)
    },
  )

  suite.holds('P11: an append concurrent with a deletion is wholly before or wholly after it', async db => {
    await db.runs.create({ runId: RUN })
    const appends = times(40, i => db.events.append(RUN, 'n', i))
    const deleted = db.runs.delete(RUN)
    const later = times(40, i => db.events.append(RUN, 'n', 40 + i))
    await Promise.all([...appends, ...later])
    const { events } = await deleted
    const { isValid, length } = await db.events.verifyChain(RUN)
    expect(isValid).toBe(true)
    expect(events + length).toBe(80)
  })

  suite.holds('delete refuses invalid options, and deletes nothing', async db => {
    await fill(db, RUN)
    const before = [await contentsOf(db, RUN), await runsOf(db)]
    for (const options of [
      null,
      'reason',
      { why: 'x' },
      { reason: 7 },
      { reason: '' },
      { reason: 'a\ud800' },
      { purgeLedger: 'yes' },
      { purgeLedger: true },
    ]) {
      await refused(db.runs.delete(RUN, bad(options)), 'INVALID_ARGUMENT', JSON.stringify(options))
    }
    for (const runId of ['', 7, null, undefined, '_shared', 'a\0b']) {
      await refused(db.runs.delete(bad(runId)), 'INVALID_ARGUMENT', String(runId))
    }
    expect([await contentsOf(db, RUN), await runsOf(db)]).toEqual(before)
  })
}

async function fill(db: Annals, runId: string): Promise<void> {
  await db.runs.create({ runId, tags: ['t'] })
  await fillScope(db, runId)
}

/** Writes data with every primitive. */
async function fillScope(db: Annals, scope: Parameters<Annals['run']>[0]): Promise<void> {
  await db.transaction(scope, async tx => {
    await tx.kv.put('k', 1)
    await tx.events.appendBatch(times(3, payload => ({ type: 'n', payload })))
    await tx.cells.init('c', 1)
    await tx.cells.set('c', 2)
    await tx.cells.init('gone', 1)
    await tx.cells.delete('gone')
    await tx.machines.define('m', { initial: 'a', transitions: [] })
    const root = await tx.traces.record({ type: 'Thought', content: 'hm' }, { tags: ['x'] })
    await tx.traces.recordChild(root, { type: 'Thought', content: 'so' })
  })
}
