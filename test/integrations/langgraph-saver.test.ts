import { Annotation, END, START, StateGraph } from '@langchain/langgraph'
import { type Checkpoint, type CheckpointTuple, uuid6 } from '@langchain/langgraph-checkpoint'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Annals } from '../../src/index.ts'
import { AnnalsSaver } from '../../src/integrations/langgraph.ts'
import { type OpenedStore, onEachEngine } from './langgraph-stores.ts'

const THREAD = 'thread-1'

/** A graph whose only node appends a text to a list. */
function listGraph(checkpointer: AnnalsSaver) {
  const list = { reducer: (a: string[], b: string[]) => [...a, ...b], default: (): string[] => [] }
  const State = Annotation.Root({ turns: Annotation<string[]>(list), constant: Annotation<string> })
  return new StateGraph(State)
    .addNode('turn', state => ({ turns: [`turn ${state.turns.length}`] }))
    .addEdge(START, 'turn')
    .addEdge('turn', END)
    .compile({ checkpointer })
}

async function all(tuples: AsyncGenerator<CheckpointTuple>): Promise<CheckpointTuple[]> {
  const found: CheckpointTuple[] = []
  for await (const tuple of tuples) found.push(tuple)
  return found
}

const config = (threadId: string = THREAD, rest: Record<string, unknown> = {}) => ({
  configurable: { thread_id: threadId, checkpoint_ns: '', ...rest },
})

function newCheckpoint(
  step: number,
  values: Record<string, unknown>,
  versions: Record<string, number>,
): Checkpoint {
  return {
    v: 4,
    id: uuid6(step),
    ts: new Date(0).toISOString(),
    channel_values: values,
    channel_versions: versions,
    versions_seen: {},
  }
}

onEachEngine((engine, openStore) => {
  describe(`AnnalsSaver on ${engine}`, () => {
    let store: OpenedStore
    let db: Annals
    let saver: AnnalsSaver

    beforeEach(async () => {
      store = await openStore()
      db = store.db
      saver = new AnnalsSaver(db)
    })
    afterEach(() => store.close())

    const bytesOf = async (prefix: string): Promise<number> => {
      let bytes = 0
      for await (const [, value] of db.kv.iterate<Uint8Array>(saver.namespaceOf(THREAD), { prefix })) {
        bytes += value.length
      }
      return bytes
    }

    test('a value that does not change is stored once', async () => {
      const graph = listGraph(saver)
      await graph.invoke({ turns: [], constant: 'x'.repeat(10_000) }, config())
      for (let i = 0; i < 5; i++) await graph.invoke({ turns: [] }, config())
      expect(await bytesOf('v/')).toBeLessThan(25_000)
      const { values } = await graph.getState(config())
      expect(values.turns).toHaveLength(6)
      expect(values.constant).toHaveLength(10_000)
    })

    test('the bytes of a checkpoint do not grow with the thread', async () => {
      const graph = listGraph(saver)
      await graph.invoke({ turns: [], constant: 'x' }, config())
      const sizes: number[] = []
      for (let i = 0; i < 3; i++) {
        const before = await bytesOf('c/')
        await graph.invoke({ turns: [] }, config())
        sizes.push((await bytesOf('c/')) - before)
      }
      expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThan(50)
    })

    test('two branches with the same channel versions keep their own values', async () => {
      const root = await saver.put(
        config(),
        newCheckpoint(0, { a: 'root' }, { a: 1 }),
        { source: 'input', step: 0, parents: {} },
        { a: 1 },
      )
      const branches = await Promise.all(
        ['left', 'right'].map((a, i) =>
          saver.put(
            root,
            newCheckpoint(i + 1, { a }, { a: 2 }),
            { source: 'loop', step: 1, parents: {} },
            { a: 2 },
          ),
        ),
      )
      const tuples = await Promise.all(branches.map(branch => saver.getTuple(branch)))
      expect(tuples.map(tuple => tuple?.checkpoint.channel_values['a'])).toEqual(['left', 'right'])
    })

    test('a copy of a checkpoint has its values', async () => {
      const graph = listGraph(saver)
      await graph.invoke({ turns: [], constant: 'kept' }, config())
      const fork = await graph.updateState(config(), null, '__copy__')
      const { values } = await graph.getState(fork)
      expect(values).toEqual({ turns: ['turn 0'], constant: 'kept' })
    })

    test('a second saver continues the thread of a first one', async () => {
      await listGraph(saver).invoke({ turns: [], constant: 'one' }, config())
      await listGraph(new AnnalsSaver(db)).invoke({ turns: [] }, config())
      const { values } = await listGraph(saver).getState(config())
      expect(values).toEqual({ turns: ['turn 0', 'turn 1'], constant: 'one' })
    })

    test('list filters by metadata, newest first, with before and limit', async () => {
      const graph = listGraph(saver)
      for (let i = 0; i < 4; i++) await graph.invoke({ turns: [], constant: String(i) }, config())
      const everything = await all(saver.list(config()))
      const expected = (source: string) =>
        everything.filter(tuple => tuple.metadata?.source === source).map(tuple => tuple.checkpoint.id)
      const inputs = await all(saver.list(config(), { filter: { source: 'input' } }))
      expect(inputs.map(tuple => tuple.checkpoint.id)).toEqual(expected('input'))
      expect(inputs).toHaveLength(4)
      expect(inputs[0]).toEqual(everything.find(tuple => tuple.checkpoint.id === inputs[0].checkpoint.id))
      const older = saver.list(config(), { filter: { source: 'input' }, before: inputs[1].config, limit: 1 })
      expect((await all(older)).map(tuple => tuple.checkpoint.id)).toEqual([inputs[2].checkpoint.id])
      const step = everything[3].metadata?.step
      const both = await all(saver.list(config(), { filter: { source: 'loop', step } }))
      expect(both.every(tuple => tuple.metadata?.step === step)).toBe(true)
      const nested = await all(saver.list(config(), { filter: { parents: {} } }))
      expect(nested).toHaveLength(everything.length)
      expect(await all(saver.list(config(), { filter: { source: 'nothing' } }))).toEqual([])
    })

    test('list without a thread merges all threads, newest first', async () => {
      const graph = listGraph(saver)
      for (const threadId of ['a', 'b', 'a']) await graph.invoke({ turns: [] }, config(threadId))
      const ids = (await all(saver.list({}))).map(tuple => tuple.checkpoint.id)
      expect(ids).toEqual([...ids].sort().reverse())
      expect(new Set(ids).size).toBe(9)
      expect(await all(saver.list({}, { limit: 2 }))).toHaveLength(2)
    })

    test('pages of a long list are complete', async () => {
      let parent = config()
      for (let step = 0; step < 150; step++) {
        const checkpoint = newCheckpoint(step, { a: step }, { a: step })
        const metadata = { source: 'loop' as const, step, parents: {} }
        parent = {
          configurable: { ...(await saver.put(parent, checkpoint, metadata, { a: step })).configurable },
        } as typeof parent
      }
      const steps = (await all(saver.list(config()))).map(tuple => tuple.checkpoint.channel_values['a'])
      expect(steps).toEqual(Array.from({ length: 150 }, (_, i) => 149 - i))
    })

    test('deleteThread deletes one thread only, and every key of it', async () => {
      const graph = listGraph(saver)
      for (const threadId of [THREAD, 'other']) await graph.invoke({ turns: [] }, config(threadId))
      await saver.deleteThread(THREAD)
      expect(await db.kv.list(saver.namespaceOf(THREAD))).toEqual([])
      expect(await saver.getTuple(config())).toBeUndefined()
      expect(await saver.getTuple(config('other'))).toBeDefined()
      await graph.invoke({ turns: [] }, config())
      expect((await graph.getState(config())).values.turns).toEqual(['turn 0'])
    })

    test('prune keeps the newest checkpoint, with which the thread continues', async () => {
      const graph = listGraph(saver)
      await graph.invoke({ turns: [], constant: 'old' }, config())
      for (let i = 0; i < 3; i++) await graph.invoke({ turns: [] }, config())
      const before = await saver.getTuple(config())
      await saver.prune([THREAD])
      const left = await all(saver.list(config()))
      expect(left).toEqual([before])
      expect(await all(saver.list(config(), { filter: { source: 'input' } }))).toEqual([])
      expect((await db.kv.list(saver.namespaceOf(THREAD), { prefix: 'm/' })).length).toBeLessThan(8)
      await listGraph(new AnnalsSaver(db)).invoke({ turns: [] }, config())
      expect((await graph.getState(config())).values).toEqual({
        turns: ['turn 0', 'turn 1', 'turn 2', 'turn 3', 'turn 4'],
        constant: 'old',
      })
      await saver.prune([THREAD], { strategy: 'delete' })
      expect(await saver.getTuple(config())).toBeUndefined()
    })

    test('copyThread makes an independent thread', async () => {
      const graph = listGraph(saver)
      await graph.invoke({ turns: [], constant: 'both' }, config())
      await saver.copyThread(THREAD, 'copy')
      await graph.invoke({ turns: [] }, config('copy'))
      expect((await graph.getState(config('copy'))).values).toEqual({
        turns: ['turn 0', 'turn 1'],
        constant: 'both',
      })
      expect((await graph.getState(config())).values.turns).toEqual(['turn 0'])
      await expect(saver.copyThread(THREAD, 'copy')).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
    })

    test('with a lease, one saver at a time writes to a thread', async () => {
      const [a, b] = ['a', 'b'].map(owner => new AnnalsSaver(db, { lease: { owner, ttlMs: 60_000 } }))
      await listGraph(a).invoke({ turns: [] }, config())
      await expect(listGraph(b).invoke({ turns: [] }, config())).rejects.toMatchObject({
        code: 'WRITER_FENCED',
      })
      await listGraph(b).invoke({ turns: [] }, config('other'))
      await a.releaseThread(THREAD)
      await listGraph(b).invoke({ turns: [] }, config())
      expect((await listGraph(a).getState(config())).values.turns).toEqual(['turn 0', 'turn 1'])
    })

    test('a writer that lost its lease is refused, although nobody holds it any more', async () => {
      const [a, b] = ['a', 'b'].map(owner => new AnnalsSaver(db, { lease: { owner, ttlMs: 60_000 } }))
      await listGraph(a).invoke({ turns: [] }, config())
      const seen = await a.getTuple(config())
      await a.releaseThread(THREAD)
      await listGraph(b).invoke({ turns: [] }, config())
      await b.releaseThread(THREAD)
      const late = a.putWrites(seen?.config ?? {}, [['turns', ['late']]], 'task')
      await expect(late).rejects.toMatchObject({ code: 'WRITER_FENCED', details: { threadId: THREAD } })
      await listGraph(a).invoke({ turns: [] }, config())
      expect((await listGraph(a).getState(config())).values.turns).toHaveLength(3)
    })

    test('parts with separators and percent signs stay apart', async () => {
      const metadata = { source: 'loop' as const, step: 0, parents: {} }
      for (const [i, checkpoint_ns] of ['a', 'a/b', 'a%2Fb', 'a%'].entries()) {
        const checkpoint = newCheckpoint(i, { 'x/y': i, __proto__x: i }, { 'x/y': 1, __proto__x: 1 })
        const at = await saver.put(config(THREAD, { checkpoint_ns }), checkpoint, metadata, {
          'x/y': 1,
          __proto__x: 1,
        })
        await saver.putWrites(at, [['c/d', i]], 'task/1')
      }
      const found = await all(saver.list({ configurable: { thread_id: THREAD } }))
      const shown = found.map(tuple => [
        tuple.config.configurable?.['checkpoint_ns'],
        tuple.checkpoint.channel_values['x/y'],
        tuple.pendingWrites,
      ])
      expect(shown).toEqual([
        ['a%', 3, [['task/1', 'c/d', 3]]],
        ['a%2Fb', 2, [['task/1', 'c/d', 2]]],
        ['a/b', 1, [['task/1', 'c/d', 1]]],
        ['a', 0, [['task/1', 'c/d', 0]]],
      ])
    })

    test('a regular write is kept, a special one is replaced', async () => {
      const at = await saver.put(
        config(),
        newCheckpoint(0, {}, {}),
        { source: 'loop', step: 0, parents: {} },
        {},
      )
      await saver.putWrites(at, [['a', 1]], 'task')
      await saver.putWrites(
        at,
        [
          ['a', 2],
          ['b', 3],
        ],
        'task',
      )
      await saver.putWrites(at, [['__error__', 'first']], 'task')
      await saver.putWrites(at, [['__error__', 'second']], 'task')
      expect((await saver.getTuple(at))?.pendingWrites).toEqual([
        ['task', '__error__', 'second'],
        ['task', 'a', 1],
        ['task', 'b', 3],
      ])
    })

    test('bad input is a typed error, and changes nothing', async () => {
      const checkpoint = newCheckpoint(0, {}, {})
      const metadata = { source: 'loop' as const, step: 0, parents: {} }
      for (const thread_id of [undefined, '', 7, '_shared', 'x'.repeat(300)]) {
        const put = saver.put({ configurable: { thread_id } }, checkpoint, metadata, {})
        await expect(put).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      }
      await expect(saver.putWrites(config(), [['a', 1]], 'task')).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      })
      expect(await all(saver.list({}))).toEqual([])
    })
  })
})
