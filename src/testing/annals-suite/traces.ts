import { expect } from 'vitest'
import type { Annals, StoredTrace, Trace, TraceTree } from '../../index.ts'
import { bad, expectFrozen, outcomes, RUN, refused, type Suite, times } from './suite.ts'

const KINDS: readonly Trace[] = [
  { type: 'ToolCall', toolName: 'search', arguments: { q: 'x' }, result: ['a'], durationMs: 1.5 },
  { type: 'ToolCall', toolName: 'search', arguments: null },
  { type: 'Decision', question: 'which?', options: ['a', 'b'], chosen: 'a', reasoning: 'because' },
  { type: 'Decision', question: '', options: [], chosen: '' },
  { type: 'Query', queryType: 'sql', query: 'select 1', resultsCount: 0 },
  { type: 'Thought', content: 'hm', confidence: 0.5 },
  { type: 'Thought', content: '' },
  { type: 'Error', errorType: 'Timeout', message: 'too late', recoverable: false },
  { type: 'Custom', traceType: 'Thought', data: [1n] },
]

const thought = (content: string): Trace => ({ type: 'Thought', content })
const ids = (traces: readonly StoredTrace[]): string[] => traces.map(({ id }) => id)

type Names = readonly [id: string, children: readonly Names[]]
const names = (node: TraceTree): Names => [node.trace.id, node.children.map(names)]

/** P9: traces, their trees and their indexes. */
export function testTraces(suite: Suite): void {
  suite.holds(
    'a missing trace reads as undefined, and a query without matches as an empty list',
    async db => {
      expect(await db.traces.get(RUN, 't')).toBeUndefined()
      expect(await db.traces.tree(RUN, 't')).toBeUndefined()
      expect(await db.traces.children(RUN, 't')).toEqual([])
      expect(await db.traces.list(RUN)).toEqual([])
      expect(await db.traces.count(RUN)).toBe(0)
      expect(await db.traces.queryByType(RUN, 'Thought')).toEqual([])
      expect(await db.traces.queryByTag(RUN, 'x')).toEqual([])
      expect(await db.traces.queryByTime(RUN, 0, Number.MAX_SAFE_INTEGER)).toEqual([])
    },
  )

  suite.holds('every kind of trace is read back as it was recorded', async db => {
    for (const trace of KINDS) {
      const id = await db.traces.record(RUN, trace, { tags: ['t'], metadata: { a: 1 } })
      const stored = await db.traces.get(RUN, id)
      expect(stored).toStrictEqual({
        id,
        trace,
        timestamp: expect.any(Number),
        tags: ['t'],
        metadata: { a: 1 },
      })
      expectFrozen(stored)
    }
    expect(await db.traces.count(RUN)).toBe(KINDS.length)
    expect((await db.traces.list(RUN)).length).toBe(KINDS.length)
  })

  suite.holds('P9: recording an existing id is TRACE_EXISTS, and changes nothing', async db => {
    expect(await db.traces.record(RUN, thought('a'), { id: 't', tags: ['x'] })).toBe('t')
    const before = await db.traces.get(RUN, 't')
    await refused(db.traces.record(RUN, thought('b'), { id: 't', tags: ['y'] }), 'TRACE_EXISTS')
    expect(await db.traces.get(RUN, 't')).toEqual(before)
    expect(await db.traces.queryByTag(RUN, 'y')).toEqual([])
    expect(await db.traces.count(RUN)).toBe(1)
    const made = await Promise.all(times(50, () => db.traces.record(RUN, thought('c'))))
    expect(new Set(made).size).toBe(50)
  })

  suite.holds('P9: exactly one of 64 concurrent records with the same id wins', async db => {
    const { won, codes } = await outcomes(times(64, i => db.traces.record(RUN, thought(`${i}`), { id: 't' })))
    expect(won).toEqual(['t'])
    expect(codes).toEqual(times(63, () => 'TRACE_EXISTS'))
    expect(await db.traces.list(RUN)).toEqual(['t'])
    expect(await db.traces.queryByType(RUN, 'Thought')).toHaveLength(1)
  })

  suite.holds('P9: an unknown parent is TRACE_NOT_FOUND, and nothing is recorded', async db => {
    await refused(db.traces.record(RUN, thought('a'), { id: 'a', parentId: 'b' }), 'TRACE_NOT_FOUND')
    await refused(db.traces.record(RUN, thought('a'), { id: 'a', parentId: 'a' }), 'TRACE_NOT_FOUND')
    await refused(db.traces.recordChild(RUN, 'b', thought('a')), 'TRACE_NOT_FOUND')
    await db.traces.record('other', thought('b'), { id: 'b' })
    await refused(db.traces.recordChild(RUN, 'b', thought('a')), 'TRACE_NOT_FOUND')
    expect(await db.traces.count(RUN)).toBe(0)
    expect(await db.traces.children(RUN, 'b')).toEqual([])
  })

  suite.holds('P9: a trace is found by its type, its tags and its parent', async db => {
    await family(db)
    expect(ids(await db.traces.queryByType(RUN, 'Thought'))).toEqual(['1', '2', '3', '5'])
    expect(ids(await db.traces.queryByType(RUN, 'Custom'))).toEqual(['4'])
    expect(await db.traces.queryByType(RUN, 'special')).toEqual([])
    expect(ids(await db.traces.queryByTag(RUN, 'x'))).toEqual(['2', '5'])
    expect(ids(await db.traces.queryByTag(RUN, 'y'))).toEqual(['2', '4'])
    expect(ids(await db.traces.children(RUN, '1'))).toEqual(['2', '3', '4'])
    expect(ids(await db.traces.children(RUN, '5'))).toEqual([])
    expect((await db.traces.get(RUN, '5'))!.parentId).toBe('2')
    expect(await db.traces.list(RUN)).toEqual(['1', '2', '3', '4', '5'])
  })

  suite.holds('a tree has all descendants of its root, in order, and no other traces', async db => {
    await family(db)
    const tree = await db.traces.tree(RUN, '1')
    const leaf = (id: string): Names => [id, []]
    expect(names(tree!)).toEqual(['1', [['2', [leaf('5')]], leaf('3'), leaf('4')]])
    expect(names((await db.traces.tree(RUN, '2'))!)).toEqual(['2', [leaf('5')]])
    expectFrozen(tree)
  })

  suite.holds('P9: repeated tags count once', async db => {
    await db.traces.record(RUN, thought('a'), { id: 't', tags: ['x', 'y', 'x'] })
    expect((await db.traces.get(RUN, 't'))!.tags).toEqual(['x', 'y'])
    expect(await db.traces.queryByTag(RUN, 'x')).toHaveLength(1)
  })

  suite.holdsInTime(
    'P9: queryByTime is half-open, and lists are ordered by timestamp, then id',
    async (db, clock) => {
      const start = clock.now()
      for (const [id, ms] of [
        ['c', 0],
        ['z', 10],
        ['a', 0],
        ['m', 10],
        ['b', 10],
      ] as const) {
        clock.advance(ms)
        await db.traces.record(RUN, thought(id), { id, tags: ['x'] })
      }
      // Times: c 0, z 10, a 10, m 20, b 30.
      const order = ['c', 'a', 'z', 'm', 'b']
      expect(await db.traces.list(RUN)).toEqual(order)
      expect(ids(await db.traces.queryByType(RUN, 'Thought'))).toEqual(order)
      expect(ids(await db.traces.queryByTag(RUN, 'x'))).toEqual(order)
      const between = async (from: number, to: number): Promise<string[]> =>
        ids(await db.traces.queryByTime(RUN, start + from, start + to))
      expect(await between(0, 31)).toEqual(order)
      expect(await between(0, 30)).toEqual(['c', 'a', 'z', 'm'])
      expect(await between(10, 20)).toEqual(['a', 'z'])
      expect(await between(1, 10)).toEqual([])
      expect(await between(10, 10)).toEqual([])
      expect(await between(20, Number.POSITIVE_INFINITY)).toEqual(['m', 'b'])
      expect(ids(await db.traces.queryByTime(RUN, -5, start + 1))).toEqual(['c'])
    },
  )

  suite.holds('P9: traces with the same time keep the order in which they were recorded', async db => {
    const made: string[] = []
    for (let i = 0; i < 50; i++) made.push(await db.traces.record(RUN, thought(`${i}`)))
    expect(await db.traces.list(RUN)).toEqual(made)
  })

  suite.holds('P5: the traces of a failed transaction leave no index entry', async db => {
    const mine = new Error('mine')
    const attempt = db.transaction(RUN, async tx => {
      const root = await tx.traces.record(thought('a'), { tags: ['x'] })
      await tx.traces.recordChild(root, thought('b'))
      expect(await tx.traces.queryByTag('x')).toHaveLength(1)
      expect(await tx.traces.children(root)).toHaveLength(1)
      throw mine
    })
    await expect(attempt).rejects.toBe(mine)
    expect(await db.traces.queryByTag(RUN, 'x')).toEqual([])
    expect(await db.traces.queryByType(RUN, 'Thought')).toEqual([])
    expect(await db.traces.list(RUN)).toEqual([])
    expect(await db.verifyIndices(RUN)).toEqual({ ok: true, problems: [] })
  })

  suite.holds('an invalid trace is refused, and nothing is recorded', async db => {
    for (const trace of [
      undefined,
      null,
      'Thought',
      {},
      { type: 'Nothing' },
      { type: 'toString' },
      { type: 'Thought' },
      { type: 'Thought', content: 7 },
      { type: 'Thought', content: 'a', mood: 'b' },
      { type: 'Thought', content: 'a', confidence: Number.NaN },
      { type: 'ToolCall', toolName: 't' },
      { type: 'ToolCall', toolName: 't', arguments: 1, durationMs: -1 },
      { type: 'Decision', question: 'q', options: 'a', chosen: 'a' },
      { type: 'Query', queryType: 'q', query: 'q', resultsCount: 1.5 },
      { type: 'Error', errorType: 'e', message: 'm', recoverable: 'no' },
      { type: 'Custom', traceType: 'x' },
    ]) {
      await refused(
        db.traces.record(RUN, bad(trace)),
        'INVALID_ARGUMENT',
        JSON.stringify(trace) ?? 'undefined',
      )
    }
    expect(await db.traces.count(RUN)).toBe(0)
  })
}

/** Records a small tree. Traces of one millisecond are ordered by id, so the ids follow the order of recording. */
async function family(db: Annals): Promise<void> {
  await db.traces.record(RUN, thought('root'), { id: '1' })
  await db.traces.recordChild(RUN, '1', thought('a'), { id: '2', tags: ['x', 'y'] })
  await db.traces.recordChild(RUN, '1', thought('b'), { id: '3' })
  const custom: Trace = { type: 'Custom', traceType: 'special', data: 1 }
  await db.traces.record(RUN, custom, { id: '4', parentId: '1', tags: ['y'] })
  await db.traces.recordChild(RUN, '2', thought('a child of a'), { id: '5', tags: ['x'] })
}
