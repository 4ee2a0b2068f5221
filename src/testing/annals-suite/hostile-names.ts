import { expect } from 'vitest'
import { type NamespaceParts, namespace } from '../../index.ts'
import { type Suite, times } from './suite.ts'

/** Names that a careless key layout would confuse with internal keys or with each other. */
const HOSTILE: readonly string[] = [
  '__meta__',
  '__idx_tag__:x',
  '__idx_tag__',
  '__proto__',
  'constructor',
  'head',
  'a:b',
  'a%3Ab',
  'a%253Ab',
  'a|b',
  'a/b',
  'a/../b',
  'a/./b',
  '..',
  '.',
  '/',
  ':',
  '::',
  '%',
  '%3A',
  '%00',
  '\\0',
  'a\u0001b',
  '\u0001',
  '\u0002',
  'r',
  'rx',
  't',
  'g',
  's',
  'x',
  'default:default:default:run',
  'default',
  'shared',
  '_Shared',
  '_shared_',
  ' ',
  'a ',
  'A',
  'a',
  'é',
  'e\u0301',
  '\u{10ffff}',
  '\ufeff',
  "'; drop table events; --",
  '$x',
  'true',
  'null',
  '0',
  '00',
  '-1',
  '1e3',
]

/** P6: no name gives access to the data of another name. */
export function testHostileNames(suite: Suite): void {
  suite.holds('P6: hostile keys, cells and machines are ordinary names, and none sees another', async db => {
    await db.transaction('run', async tx => {
      for (const name of HOSTILE) {
        await tx.kv.put(name, name)
        await tx.cells.init(name, name)
        await tx.machines.define(name, { initial: name, transitions: [] })
      }
    })
    for (const name of HOSTILE) {
      expect(await db.kv.get('run', name)).toBe(name)
      expect(await db.cells.read('run', name)).toMatchObject({ value: name, version: 1 })
      expect(await db.machines.current('run', name)).toMatchObject({ state: name, version: 1 })
    }
    expect(await db.kv.list('run')).toEqual(inByteOrder(HOSTILE))
    expect(await db.cells.list('run')).toEqual(inByteOrder(HOSTILE))
    for (const name of HOSTILE) expect(await db.kv.delete('run', name)).toBe(true)
    expect(await db.kv.list('run')).toEqual([])
    expect(await db.cells.list('run')).toHaveLength(HOSTILE.length)
  })

  suite.holds('P6: hostile run ids are ordinary runs, and none sees another', async db => {
    for (const runId of HOSTILE) {
      await db.runs.create({ runId, tags: [runId], metadata: runId })
      await db.kv.put(runId, 'k', runId)
      await db.events.append(runId, 'n', runId)
    }
    for (const runId of HOSTILE) {
      expect(await db.runs.get(runId)).toMatchObject({ runId, tags: [runId], metadata: runId })
      expect(await db.kv.entries(runId)).toEqual([['k', runId]])
      expect((await db.events.readRange(runId, 0, 9)).map(({ payload }) => payload)).toEqual([runId])
      expect((await db.runs.query({ tags: [runId] })).map(run => run.runId)).toEqual([runId])
    }
    expect((await db.runs.list()).toSorted()).toEqual(HOSTILE.toSorted())
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    for (const runId of HOSTILE.slice(0, HOSTILE.length / 2)) await db.runs.delete(runId)
    for (const [i, runId] of HOSTILE.entries()) {
      const isDeleted = i < Math.floor(HOSTILE.length / 2)
      expect(await db.kv.exists(runId, 'k'), runId).toBe(!isDeleted)
      expect(await db.events.length(runId), runId).toBe(isDeleted ? 0 : 1)
    }
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds(
    'P6: hostile ids, tags and parents of traces are ordinary names, and none breaks an index',
    async db => {
      const thought = { type: 'Thought', content: '' } as const
      await db.transaction('run', async tx => {
        for (const name of HOSTILE) await tx.traces.record(thought, { id: name, tags: [name] })
        for (const name of HOSTILE) await tx.traces.recordChild(name, thought, { id: `${name} child` })
      })
      for (const name of HOSTILE) {
        expect((await db.traces.queryByTag('run', name)).map(({ id }) => id)).toEqual([name])
        expect((await db.traces.children('run', name)).map(({ id }) => id)).toEqual([`${name} child`])
        expect((await db.traces.get('run', name))!.tags).toEqual([name])
        if (name !== 'Thought') expect(await db.traces.queryByType('run', name)).toEqual([])
      }
      expect(await db.traces.count('run')).toBe(2 * HOSTILE.length)
      expect(await db.traces.queryByType('run', 'Thought')).toHaveLength(2 * HOSTILE.length)
      expect(await db.verifyIndices('run')).toEqual({ ok: true, problems: [] })
    },
  )

  suite.holds('P6: hostile parents of runs and event types are ordinary names', async db => {
    for (const name of HOSTILE) {
      await db.runs.create({ runId: name })
      await db.runs.create({ runId: `${name} child`, parentRun: name })
      await db.events.append('run', name, name)
    }
    for (const name of HOSTILE) {
      expect((await db.runs.children(name)).map(({ runId }) => runId)).toEqual([`${name} child`])
      expect((await db.events.readByType('run', name)).map(({ payload }) => payload)).toEqual([name])
    }
    expect(await db.events.verifyChain('run')).toEqual({ isValid: true, length: HOSTILE.length })
  })

  suite.holds('P6: different namespaces never share a scope, however their parts are split', async db => {
    const { tenant } = db
    const parts: readonly Omit<NamespaceParts, 'tenant'>[] = [
      { app: 'a:b', agent: 'c', run: 'd' },
      { app: 'a', agent: 'b:c', run: 'd' },
      { app: 'a', agent: 'b', run: 'c:d' },
      { app: 'a%3Ab', agent: 'c', run: 'd' },
      { app: 'a%253Ab', agent: 'c', run: 'd' },
      { app: 'a', agent: ':', run: 'd' },
      { app: 'a:', agent: 'x', run: 'd' },
      { app: 'a', agent: ':x', run: 'd' },
      { app: 'ab', agent: 'c', run: 'd' },
      { app: 'a', agent: 'bc', run: 'd' },
      { app: 'a', agent: 'b', run: 'cd' },
    ]
    const scopes = parts.map(each => namespace({ tenant, ...each }))
    for (const [i, scope] of scopes.entries()) {
      await db.kv.put(scope, 'k', i)
      await db.events.append(scope, 'n', i)
    }
    const heads = new Set<string>()
    for (const [i, scope] of scopes.entries()) {
      expect(await db.kv.entries(scope)).toEqual([['k', i]])
      const event = (await db.events.head(scope))!
      expect(event).toMatchObject({ sequence: 0, payload: i })
      heads.add(event.hash)
    }
    expect(heads.size).toBe(scopes.length)
    expect(new Set(scopes.map(String)).size).toBe(scopes.length)
  })

  suite.holds(
    'P6: tenants with a common prefix or a separator in their names do not see each other',
    async db => {
      const tenants = ['a', 'a:b', 'a%3Ab', 'a;', 'ab', 'a:', 'a/', 'A']
      for (const tenant of tenants) {
        const handle = db.forTenant(tenant)
        await handle.kv.put('run', 'k', tenant)
        await handle.runs.create({ runId: 'run', metadata: tenant })
        await handle.traces.record('run', { type: 'Thought', content: tenant })
      }
      for (const tenant of tenants) {
        const handle = db.forTenant(tenant)
        expect(await handle.kv.entries('run')).toEqual([['k', tenant]])
        expect((await handle.runs.query()).map(({ metadata }) => metadata)).toEqual([tenant])
        expect(await handle.verifyIndices()).toEqual({ ok: true, problems: [] })
      }
      expect(await db.runs.list()).toEqual([])
    },
  )

  suite.holds('P6: a prefix finds keys, and never internal entries', async db => {
    await db.runs.create({ runId: 'run', tags: ['x'] })
    await db.events.append('run', 'n', 1)
    await db.cells.set('run', 'c', 1)
    await db.traces.record('run', { type: 'Thought', content: '' }, { tags: ['x'] })
    for (const prefix of [
      ...times(30, i => String.fromCharCode(i + 1)),
      'r',
      's',
      't',
      'g',
      'p',
      'x',
      'y',
      'head',
    ]) {
      expect(await db.kv.list('run', { prefix }), JSON.stringify(prefix)).toEqual([])
    }
    expect(await db.kv.list('run')).toEqual([])
  })
}

function inByteOrder(names: readonly string[]): string[] {
  return names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}
