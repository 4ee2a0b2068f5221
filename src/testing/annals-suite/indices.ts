import { expect } from 'vitest'
import type { Annals } from '../../index.ts'
import { expectFrozen, RUN, type Suite, times } from './suite.ts'

const SOUND = { ok: true, problems: [] }
const THOUGHT = { type: 'Thought', content: '' } as const

/** P9, P10, P16: the indexes match the records after any change. */
export function testIndices(suite: Suite): void {
  suite.holds('P16: an empty database is sound, and rebuilding changes nothing', async db => {
    expect(await db.verifyIndices()).toEqual(SOUND)
    expect(await db.verifyIndices(RUN)).toEqual(SOUND)
    expect(await db.rebuildIndices()).toEqual({ repaired: 0 })
    expectFrozen(await db.verifyIndices())
    expectFrozen(await db.rebuildIndices(RUN))
  })

  suite.holds(
    'P16: indexes are sound after every kind of change, and rebuilding changes nothing',
    async db => {
      await db.runs.create({ runId: 'a', tags: ['x', 'y'] })
      await db.runs.create({ runId: 'b', parentRun: 'a', tags: ['x'] })
      await db.runs.create({ runId: 'c', parentRun: 'b' })
      await db.runs.pause('a')
      await db.runs.resume('a')
      await db.runs.addTags('a', ['z', 'x'])
      await db.runs.updateMetadata('a', { m: 1 })
      await db.runs.fail('b', 'e')
      await db.runs.archive('b')
      await db.runs.delete('c')
      const root = await db.traces.record('a', THOUGHT, { tags: ['x', 'x', 'y'] })
      await db.traces.recordChild('a', root, THOUGHT)
      await db.transaction('b', async tx => {
        const id = await tx.traces.record(THOUGHT, { tags: ['x'] })
        await tx.traces.recordChild(id, THOUGHT)
      })
      await db.runs.delete('b')
      const before = await everything(db)
      expect(await db.verifyIndices()).toEqual(SOUND)
      expect(await db.verifyIndices('a')).toEqual(SOUND)
      expect(await db.rebuildIndices()).toEqual({ repaired: 0 })
      expect(await everything(db)).toEqual(before)
    },
  )

  suite.holds('P16: indexes are sound after many concurrent changes', async db => {
    await db.runs.create({ runId: RUN })
    await Promise.all(
      times(40, async i => {
        const runId = `r${i}`
        await db.runs.create({ runId, tags: [`t${i % 3}`], parentRun: RUN })
        await Promise.all([
          db.runs.addTags(runId, ['late']),
          db.traces.record(runId, THOUGHT, { tags: ['x'] }),
          db.runs.updateStatus(runId, i % 2 === 0 ? 'Paused' : 'Completed'),
        ])
        if (i % 4 === 0) await db.runs.delete(runId)
      }),
    )
    expect(await db.verifyIndices()).toEqual(SOUND)
    expect(await db.runs.children(RUN)).toHaveLength(30)
    expect(await db.runs.query({ tags: ['late'] })).toHaveLength(30)
    expect(await db.runs.stats()).toMatchObject({ total: 31, active: 1, paused: 10, completed: 20 })
  })

  suite.holds('P9: an index finds the same traces as a full scan', async db => {
    const types = ['Thought', 'Custom'] as const
    const root = await db.traces.record(RUN, THOUGHT, { id: 'root' })
    for (let i = 0; i < 60; i++) {
      const trace =
        types[i % 2] === 'Thought' ? THOUGHT : ({ type: 'Custom', traceType: 'x', data: i } as const)
      const tags = [`t${i % 3}`, `u${i % 5}`]
      await db.traces.record(RUN, trace, { tags, ...(i % 4 === 0 ? { parentId: root } : {}) })
    }
    const all = (await Promise.all((await db.traces.list(RUN)).map(id => db.traces.get(RUN, id)))).map(
      t => t!,
    )
    expect(all).toHaveLength(61)
    for (const type of types) {
      expect(await db.traces.queryByType(RUN, type)).toEqual(all.filter(({ trace }) => trace.type === type))
    }
    for (const tag of ['t0', 't1', 't2', 'u0', 'u4']) {
      expect(await db.traces.queryByTag(RUN, tag)).toEqual(all.filter(({ tags }) => tags.includes(tag)))
    }
    expect(await db.traces.children(RUN, root)).toEqual(all.filter(({ parentId }) => parentId === root))
    const [from, to] = [all[20].timestamp, all[50].timestamp]
    expect(await db.traces.queryByTime(RUN, from, to)).toEqual(
      all.filter(({ timestamp }) => timestamp >= from && timestamp < to),
    )
  })

  suite.holds('P10: a query finds the same runs as a full scan', async db => {
    const statuses = ['Active', 'Paused', 'Failed', 'Archived'] as const
    for (let i = 0; i < 40; i++) {
      const { runId } = await db.runs.create({ tags: [`t${i % 3}`, 'all'] })
      if (i % 4 > 0) await db.runs.updateStatus(runId, statuses[i % 4])
    }
    const all = await db.runs.query({ includeArchived: true })
    expect(all).toHaveLength(40)
    for (const status of statuses) {
      expect(await db.runs.query({ status })).toEqual(all.filter(run => run.status === status))
      for (const tag of ['t0', 't2']) {
        expect(await db.runs.query({ status, tags: [tag, 'all'] })).toEqual(
          all.filter(run => run.status === status && run.tags.includes(tag)),
        )
      }
    }
  })
}

async function everything(db: Annals): Promise<unknown> {
  return {
    runs: await db.runs.query({ includeArchived: true }),
    x: await db.runs.query({ tags: ['x'], includeArchived: true }),
    z: await db.runs.query({ tags: ['z'] }),
    children: await db.runs.children('a'),
    stats: await db.runs.stats(),
    tombstones: await db.runs.tombstones(),
    byTag: await db.traces.queryByTag('a', 'x'),
    byType: await db.traces.queryByType('a', 'Thought'),
    gone: await db.traces.list('b'),
  }
}
