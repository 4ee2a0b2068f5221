import { expect } from 'vitest'
import {
  type Annals,
  AnnalsError,
  agentShared,
  appShared,
  namespace,
  type Scope,
  tenantShared,
} from '../../index.ts'
import { bad, contentsOf, RUN, refused, runsOf, type Suite } from './suite.ts'

/** P1, P3: scopes, primitives and tenants are isolated from each other. */
export function testIsolation(suite: Suite): void {
  suite.holds('P3: no scope sees the data of another', async db => {
    const scopes = scopesOf(db.tenant)
    for (const [i, scope] of scopes.entries()) await fill(db, scope, i)
    for (const [i, scope] of scopes.entries()) {
      expect(await db.kv.entries(scope)).toEqual([['name', i]])
      expect((await db.events.readRange(scope, 0, 10)).map(({ payload }) => payload)).toEqual([i])
      expect(await db.cells.read(scope, 'name')).toMatchObject({ value: i, version: 1 })
      expect(await db.machines.current(scope, 'name')).toMatchObject({ state: `s${i}` })
      expect(await db.traces.list(scope)).toEqual(['name'])
      expect((await db.traces.queryByTag(scope, 'name'))[0].metadata).toBe(i)
    }
  })

  suite.holds('P3: a run id alone means the run in the app and agent default', async db => {
    const spelt = namespace({ tenant: db.tenant, app: 'default', agent: 'default', run: RUN })
    await fill(db, RUN, 1)
    expect(await contentsOf(db, spelt)).toEqual(await contentsOf(db, RUN))
  })

  suite.holds('P3: a primitive never sees the data of another, even under the same name', async db => {
    await db.kv.put(RUN, 'name', 'kv')
    expect(await db.cells.read(RUN, 'name')).toBeUndefined()
    await refused(db.machines.current(RUN, 'name'), 'MACHINE_NOT_FOUND')
    expect(await db.traces.get(RUN, 'name')).toBeUndefined()
    expect(await db.events.length(RUN)).toBe(0)
    expect(await db.runs.list()).toEqual([])
    await fill(db, RUN, 1)
    await db.kv.delete(RUN, 'name')
    expect((await db.cells.read(RUN, 'name'))!.value).toBe(1)
    await db.cells.delete(RUN, 'name')
    expect(await db.machines.current(RUN, 'name')).toMatchObject({ state: 's1' })
    expect(await db.traces.get(RUN, 'name')).toBeDefined()
    expect(await db.events.length(RUN)).toBe(1)
  })

  suite.holds('P3: a tenant sees only its own data and runs', async db => {
    const acme = db.forTenant('acme')
    expect(acme.tenant).toBe('acme')
    await db.runs.create({ runId: RUN, tags: ['t'] })
    await fill(db, RUN, 1)
    const before = [await contentsOf(db, RUN), await runsOf(db)]
    expect(await acme.kv.list(RUN)).toEqual([])
    expect(await acme.runs.get(RUN)).toBeUndefined()
    await acme.runs.create({ runId: RUN, metadata: 'acme' })
    await fill(acme, RUN, 2)
    await acme.runs.complete(RUN)
    expect([await contentsOf(db, RUN), await runsOf(db)]).toEqual(before)
    expect((await acme.runs.get(RUN))!.metadata).toBe('acme')
    expect(await acme.runs.query({ tags: ['t'] })).toEqual([])
    await acme.runs.delete(RUN)
    expect([await contentsOf(db, RUN), await runsOf(db)]).toEqual(before)
    expect(await db.runs.tombstones()).toEqual([])
    expect(await acme.runs.tombstones()).toHaveLength(1)
  })

  suite.holds('P3: a handle reaches only the scopes of its own tenant', async db => {
    const others = [
      namespace({ tenant: 'acme', app: 'default', agent: 'default', run: RUN }),
      agentShared({ tenant: 'acme', app: 'a', agent: 'b' }),
      appShared({ tenant: 'acme', app: 'a' }),
      tenantShared({ tenant: 'acme' }),
    ]
    for (const scope of others) {
      await refused(db.kv.put(scope, 'k', 1), 'INVALID_ARGUMENT')
      await refused(db.events.append(scope, 'n', 1), 'INVALID_ARGUMENT')
      await refused(
        db.transaction(scope, () => 1),
        'INVALID_ARGUMENT',
      )
      await refused(db.begin(scope), 'INVALID_ARGUMENT')
      await refused(db.verifyIndices(scope), 'INVALID_ARGUMENT')
      expect(() => db.run(scope)).toThrow(AnnalsError)
      expect(await db.forTenant('acme').kv.list(scope)).toEqual([])
    }
  })

  suite.holds(
    'P3: a shared scope is reached only by its namespace, because the name _shared is refused',
    async db => {
      const shared = agentShared({ tenant: db.tenant, app: 'default', agent: 'default' })
      await fill(db, shared, 1)
      for (const run of ['_shared']) {
        await refused(db.kv.get(run, 'name'), 'INVALID_ARGUMENT')
        await refused(db.runs.create({ runId: run }), 'INVALID_ARGUMENT')
        expect(() => namespace({ tenant: db.tenant, app: 'a', agent: 'b', run })).toThrow(AnnalsError)
        expect(() => namespace({ tenant: db.tenant, app: run, agent: 'b', run: 'c' })).toThrow(AnnalsError)
        expect(() => agentShared({ tenant: db.tenant, app: 'a', agent: run })).toThrow(AnnalsError)
        expect(() => tenantShared({ tenant: run })).toThrow(AnnalsError)
        expect(() => db.forTenant(run)).toThrow(AnnalsError)
      }
      expect(await db.kv.get(shared, 'name')).toBe(1)
    },
  )

  suite.holds('a scope is a run id or a namespace, and anything else is refused', async db => {
    const parts = { tenant: db.tenant, app: 'default', agent: 'default', run: RUN }
    for (const scope of [null, undefined, 7, {}, [], parts, () => RUN, Symbol('s'), '']) {
      await refused(db.kv.put(bad(scope), 'k', 1), 'INVALID_ARGUMENT', String(scope))
      await refused(db.events.append(bad(scope), 'n', 1), 'INVALID_ARGUMENT', String(scope))
      await refused(db.cells.set(bad(scope), 'c', 1), 'INVALID_ARGUMENT', String(scope))
      await refused(db.machines.current(bad(scope), 'm'), 'INVALID_ARGUMENT', String(scope))
      await refused(db.traces.list(bad(scope)), 'INVALID_ARGUMENT', String(scope))
      await refused(
        db.transaction(bad(scope), () => 1),
        'INVALID_ARGUMENT',
        String(scope),
      )
      await refused(db.begin(bad(scope)), 'INVALID_ARGUMENT', String(scope))
      await refused(db.events.tail(bad(scope)).next(), 'INVALID_ARGUMENT', String(scope))
    }
    for (const bads of [undefined, null, 'a', { tenant: 'a' }, { ...parts, run: 7 }, { ...parts, app: '' }]) {
      expect(() => namespace(bad(bads)), JSON.stringify(bads)).toThrow(AnnalsError)
    }
    expect(await db.kv.list(RUN)).toEqual([])
  })

  suite.holds(
    'P1: primitives keep no state of their own, so every handle on a run reads the same',
    async db => {
      const handles = [db.run(RUN), db.run(RUN), db.forTenant(db.tenant).run(RUN)]
      for (const [i, handle] of handles.entries()) {
        await handle.kv.put(`k${i}`, i)
        await handle.events.append('n', i)
        await handle.cells.set('c', i)
        await handle.transaction(tx => tx.kv.put(`t${i}`, i))
        const tx = await handle.begin()
        await tx.kv.put(`b${i}`, i)
        await tx.commit()
      }
      for (const { kv, events, cells } of handles) {
        expect(await kv.list()).toEqual(['b0', 'b1', 'b2', 'k0', 'k1', 'k2', 't0', 't1', 't2'])
        expect(await events.length()).toBe(3)
        expect(await cells.read('c')).toMatchObject({ value: 2, version: 3 })
      }
      expect(await db.events.verifyChain(RUN)).toEqual({ isValid: true, length: 3 })
    },
  )

  suite.holds('a handle with the scope bound has the same methods as the database', async db => {
    const run = db.run(RUN)
    for (const name of ['kv', 'events', 'cells', 'machines', 'traces'] as const) {
      const bound = run[name] as unknown as Record<string, unknown>
      for (const method of Object.getOwnPropertyNames(Object.getPrototypeOf(db[name]))) {
        if (method === 'constructor' || (name === 'kv' && method === 'transaction')) continue
        expect(bound[method], `${name}.${method}`).toBeTypeOf('function')
      }
    }
  })
}

function scopesOf(tenant: string): readonly Scope[] {
  return [
    'run-1',
    'run-2',
    'default',
    namespace({ tenant, app: 'default', agent: 'a', run: 'run-1' }),
    namespace({ tenant, app: 'a', agent: 'default', run: 'run-1' }),
    namespace({ tenant, app: 'a', agent: 'a', run: 'run-1' }),
    agentShared({ tenant, app: 'a', agent: 'a' }),
    agentShared({ tenant, app: 'a', agent: 'b' }),
    appShared({ tenant, app: 'a' }),
    appShared({ tenant, app: 'default' }),
    tenantShared({ tenant }),
  ]
}

/** Writes the same names in every scope. The value `i` tells the scopes apart. */
async function fill(db: Annals, scope: Scope, i: number): Promise<void> {
  await db.kv.put(scope, 'name', i)
  await db.events.append(scope, 'name', i)
  await db.cells.set(scope, 'name', i)
  await db.machines.define(scope, 'name', { initial: `s${i}`, transitions: [] })
  await db.traces.record(scope, { type: 'Thought', content: '' }, { id: 'name', tags: ['name'], metadata: i })
}
