import { expect } from 'vitest'
import type { Annals } from '../../index.ts'
import { agentShared } from '../../index.ts'
import { contentsOf, gather, RUN, refused, runsOf, type Suite, times } from './suite.ts'

/** P13: committed data survive closing and reopening. */
export function testReopening(suite: Suite): void {
  suite.holdsAfterReopen('P13: all data are the same after reopening', async (db, reopen) => {
    await fill(db)
    const shared = agentShared({ tenant: db.tenant, app: 'a', agent: 'b' })
    await db.kv.put(shared, 'k', 'shared')
    await db.forTenant('acme').kv.put(RUN, 'k', 'acme')
    const before = await everything(db)
    const again = await reopen()
    expect(await everything(again)).toEqual(before)
    expect(await again.kv.get(shared, 'k')).toBe('shared')
    expect(await again.forTenant('acme').kv.get(RUN, 'k')).toBe('acme')
    expect(again.recovery).toBeUndefined()
  })

  suite.holdsAfterReopen(
    'P13: chains and indexes verify after reopening, and sequences and versions continue',
    async (db, reopen) => {
      await fill(db)
      const head = (await db.events.head(RUN))!
      const again = await reopen()
      expect(await again.events.verifyChain(RUN)).toEqual({ isValid: true, length: 20 })
      expect(await again.verifyIndices()).toEqual({ ok: true, problems: [] })
      expect((await again.events.append(RUN, 'n', 'next')).sequence).toBe(20)
      expect((await again.events.head(RUN))!.prevHash).toBe(head.hash)
      expect(await again.events.verifyChain(RUN)).toEqual({ isValid: true, length: 21 })
      expect(await again.cells.set(RUN, 'c', 1)).toBe(3)
      expect(await again.cells.init(RUN, 'gone', 1)).toBe(2)
      expect(await again.machines.send(RUN, 'm', 'back')).toMatchObject({ state: 'a', version: 3 })
      await refused(again.traces.record(RUN, { type: 'Thought', content: '' }, { id: 't' }), 'TRACE_EXISTS')
      await refused(again.runs.create({ runId: RUN }), 'RUN_EXISTS')
    },
  )

  suite.holdsAfterReopen('P13: versions of keys never go back across reopening', async (db, reopen) => {
    await db.kv.put(RUN, 'k', 1)
    const before = (await db.kv.getVersioned(RUN, 'k'))!
    const again = await reopen()
    expect(await again.kv.getVersioned(RUN, 'k')).toEqual(before)
    await again.kv.put(RUN, 'k', 2)
    expect((await again.kv.getVersioned(RUN, 'k'))!.version).toBeGreaterThan(before.version)
  })

  suite.holdsAfterReopen(
    'P11: a deleted run and its tombstone are the same after reopening',
    async (db, reopen) => {
      await fill(db)
      await db.runs.delete(RUN, { reason: 'r' })
      const tombstones = await db.runs.tombstones()
      const again = await reopen()
      expect(await again.runs.get(RUN)).toBeUndefined()
      expect(await contentsOf(again, RUN)).toEqual({ kv: [], events: [], length: 0, cells: [], traces: [] })
      expect(await again.runs.tombstones()).toEqual(tombstones)
      expect(tombstones).toHaveLength(1)
      expect(await again.verifyIndices()).toEqual({ ok: true, problems: [] })
    },
  )

  suite.holdsAfterReopen(
    'P5: nothing of failed, rolled back or unfinished transactions is found after reopening',
    async (db, reopen) => {
      await db.kv.put(RUN, 'kept', 1)
      const open = await db.begin(RUN)
      await open.kv.put('open', 1)
      const back = await db.begin(RUN)
      await back.kv.put('back', 1)
      await back.rollback()
      const failed = db.transaction(RUN, async tx => {
        await tx.kv.put('failed', 1)
        throw new Error('mine')
      })
      await expect(failed).rejects.toThrow('mine')
      const again = await reopen()
      expect(await again.kv.list(RUN)).toEqual(['kept'])
      await refused(open.commit(), 'CLOSED')
      expect(await again.kv.list(RUN)).toEqual(['kept'])
    },
  )

  suite.holdsAfterReopen(
    'P14: an expired key stays absent after reopening, and others keep their expiry',
    async (db, reopen, clock) => {
      await db.kv.put(RUN, 'short', 1, { ttlMs: 1 })
      await db.kv.put(RUN, 'long', 1, { ttlMs: 3_600_000 })
      if (clock === undefined) while (await db.kv.exists(RUN, 'short')) await new Promise(setImmediate)
      clock?.advance(1)
      expect(await db.kv.list(RUN)).toEqual(['long'])
      const again = await reopen()
      expect(await again.kv.list(RUN)).toEqual(['long'])
      clock?.advance(3_600_000)
      if (clock !== undefined) expect(await again.kv.list(RUN)).toEqual([])
    },
  )

  suite.holdsAfterReopen(
    'P13: data survive repeated reopening with writes in between',
    async (db, reopen) => {
      let current = db
      for (let round = 0; round < 4; round++) {
        await Promise.all(times(25, i => current.events.append(RUN, 'n', round * 25 + i)))
        await current.runs.create({ runId: `r${round}` })
        current = await reopen()
        expect(await current.events.verifyChain(RUN)).toEqual({ isValid: true, length: (round + 1) * 25 })
        expect((await current.runs.list()).length).toBe(round + 1)
      }
      const sequences = (await gather(current.events.iterate(RUN))).map(({ sequence }) => sequence)
      expect(sequences).toEqual(times(100, i => i))
    },
  )

  suite.holdsAfterReopen('P19: a reader continues where it stopped', async (db, reopen) => {
    await db.events.append(RUN, 'n', 0)
    const again = await reopen()
    const tail = again.events.tail(RUN, { from: 1 })
    const next = tail.next()
    await again.events.append(RUN, 'n', 1)
    expect((await next).value).toMatchObject({ sequence: 1, payload: 1 })
    await tail.return()
  })
}

async function fill(db: Annals): Promise<void> {
  await db.runs.create({ runId: RUN, tags: ['a'], metadata: { big: 2n ** 60n } })
  await db.runs.create({ runId: 'child', parentRun: RUN })
  await db.runs.fail('child', 'why')
  await Promise.all(times(20, i => db.events.append(RUN, 'n', { i, bytes: new Uint8Array([i]) })))
  await db.kv.put(RUN, 'k', [Number.NaN, -0, '\0'])
  await db.cells.init(RUN, 'c', 1)
  await db.cells.set(RUN, 'c', 2)
  await db.cells.init(RUN, 'gone', 1)
  await db.cells.delete(RUN, 'gone')
  await db.machines.define(RUN, 'm', {
    initial: 'a',
    transitions: [
      { from: 'a', event: 'go', to: 'b' },
      { from: 'b', event: 'back', to: 'a' },
    ],
  })
  await db.machines.send(RUN, 'm', 'go')
  await db.traces.record(RUN, { type: 'Thought', content: 'hm' }, { id: 't', tags: ['x'] })
  await db.traces.recordChild(RUN, 't', { type: 'Thought', content: 'so' })
}

async function everything(db: Annals): Promise<unknown> {
  return {
    contents: await contentsOf(db, RUN),
    runs: await runsOf(db),
    children: await db.runs.children(RUN),
    machine: [await db.machines.current(RUN, 'm'), await db.machines.definition(RUN, 'm')],
    tree: await db.traces.tree(RUN, 't'),
    tagged: await db.traces.queryByTag(RUN, 'x'),
  }
}
