import { expect } from 'vitest'
import { type BeginOptions, namespace, type TenantTransaction, type TransactionOptions } from '../../index.ts'
import { bad, contentsOf, gather, outcomes, RUN, refused, runsOf, type Suite, times } from './suite.ts'

const OTHER = 'run-2'
const MACHINE = { initial: 'a', transitions: [{ from: 'a', event: 'go', to: 'b' }] }

/** P26: transactions over several scopes of one tenant, and over its runs. */
export function testSeveralScopes(suite: Suite): void {
  const writeBoth = async (tx: TenantTransaction): Promise<void> => {
    for (const scope of [RUN, OTHER]) {
      const { kv, events, cells, machines, traces } = tx.run(scope)
      await kv.put('k', scope)
      await events.append('n', scope)
      await cells.init('c', scope)
      await machines.define('m', MACHINE)
      await traces.record({ type: 'Thought', content: scope }, { id: 't' })
    }
    await tx.runs.create({ runId: RUN, metadata: { of: RUN } })
  }

  suite.holds('P26: one commit holds the writes of all scopes and runs', async db => {
    expect(await db.transaction(tx => writeBoth(tx).then(() => 'answer'))).toBe('answer')
    for (const scope of [RUN, OTHER]) {
      expect(await db.kv.get(scope, 'k')).toBe(scope)
      expect((await db.events.head(scope))!.payload).toBe(scope)
      expect(await db.cells.read(scope, 'c')).toMatchObject({ value: scope, version: 1 })
      expect(await db.machines.current(scope, 'm')).toMatchObject({ state: 'a' })
      expect(await db.traces.list(scope)).toEqual(['t'])
      expect(await db.events.verifyChain(scope)).toEqual({ isValid: true, length: 1 })
    }
    expect(await db.runs.list()).toEqual([RUN])
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P26: after an error nothing is left in any scope', async db => {
    const before = await Promise.all([contentsOf(db, RUN), contentsOf(db, OTHER), runsOf(db)])
    const mine = new Error('mine')
    const attempt = db.transaction(async tx => {
      await writeBoth(tx)
      throw mine
    })
    await expect(attempt).rejects.toBe(mine)
    const tx = await db.begin()
    await writeBoth(tx)
    await tx.rollback()
    expect(await Promise.all([contentsOf(db, RUN), contentsOf(db, OTHER), runsOf(db)])).toEqual(before)
  })

  suite.holds('P26: a scope of another tenant is refused, and nothing is changed', async db => {
    const foreign = namespace({ tenant: 'foreign', app: 'default', agent: 'default', run: RUN })
    const attempt = db.transaction(async tx => {
      await writeBoth(tx)
      tx.run(foreign)
    })
    await refused(attempt, 'INVALID_ARGUMENT')
    for (const scope of [undefined, null, 7, '', {}, '_shared']) {
      await refused(
        db.transaction(tx => void tx.run(bad(scope))),
        'INVALID_ARGUMENT',
        String(scope),
      )
    }
    await refused(
      db.transaction(tx => tx.runs.create({ runId: foreign })),
      'INVALID_ARGUMENT',
    )
    expect(await db.runs.list()).toEqual([])
    expect(await db.kv.list(RUN)).toEqual([])
    expect(await db.forTenant('foreign').kv.list(RUN)).toEqual([])
  })

  suite.holds('P26: a transaction runs again if another commit changed any scope that it read', async db => {
    await db.kv.put(RUN, 'balance', 100)
    await db.kv.put(OTHER, 'balance', 0)
    let attempts = 0
    await db.transaction(async tx => {
      const from = await tx.run(RUN).kv.get<number>('balance')
      const to = await tx.run(OTHER).kv.get<number>('balance')
      if (++attempts === 1) await db.kv.put(OTHER, 'balance', 5)
      await tx.run(RUN).kv.put('balance', from! - 10)
      await tx.run(OTHER).kv.put('balance', to! + 10)
    })
    expect(attempts).toBe(2)
    expect([await db.kv.get(RUN, 'balance'), await db.kv.get(OTHER, 'balance')]).toEqual([90, 15])
  })

  suite.holds('P26: concurrent transfers between scopes lose nothing', async db => {
    const scopes = ['a', 'b', 'c']
    for (const scope of scopes) await db.cells.init(scope, 'balance', 100)
    const move = (amount: number) => (state: { value: unknown }) => ({
      value: Number(state.value) + amount,
      result: 0,
    })
    await Promise.all(
      times(12, i =>
        db.transaction(async tx => {
          await tx.run(scopes[i % 3]).cells.transition('balance', move(-i))
          await tx.run(scopes[(i + 1) % 3]).cells.transition('balance', move(i))
        }),
      ),
    )
    const balances = await Promise.all(
      scopes.map(async scope => (await db.cells.read(scope, 'balance'))!.value),
    )
    expect(balances.reduce<number>((sum, value) => sum + Number(value), 0)).toBe(300)
  })

  suite.holds('P26: the scope at hand and the same scope by name share their writes', async db => {
    await db.transaction(RUN, async tx => {
      await tx.kv.put('k', 1)
      expect(await tx.run(RUN).kv.get('k')).toBe(1)
      await tx.run(RUN).events.append('n', 1)
      await tx.events.append('n', 2)
      expect((await gather(tx.run(RUN).events.iterate())).map(({ payload }) => payload)).toEqual([1, 2])
      await tx.run(OTHER).kv.put('k', 2)
      await tx.runs.create({ runId: RUN })
    })
    expect(await db.kv.get(OTHER, 'k')).toBe(2)
    expect(await db.runs.list()).toEqual([RUN])
    const tx = await db.run(RUN).begin()
    await tx.run(OTHER).kv.put('k', 3)
    await tx.commit()
    expect(await db.kv.get(OTHER, 'k')).toBe(3)
  })

  suite.holds('P26: runs are created and changed in the commit, and the transaction sees it', async db => {
    await db.runs.create({ runId: 'known', tags: ['old'] })
    const placed = namespace({ tenant: db.tenant, app: 'shop', agent: 'a', run: 'placed' })
    await db.transaction(async tx => {
      const parent = await tx.runs.create({ runId: 'parent', metadata: { n: 1 } })
      expect(parent).toMatchObject({ status: 'Active', metadata: { n: 1 } })
      await tx.runs.create({ runId: 'child', parentRun: 'parent' })
      await tx.runs.create({ runId: placed, parentRun: 'child' })
      expect((await tx.runs.ensure('child')).parentRun).toBe('parent')
      expect((await tx.runs.ensure('ensured', { tags: ['x'] })).tags).toEqual(['x'])
      await refused(tx.runs.create({ runId: 'parent' }), 'RUN_EXISTS')
      await refused(tx.runs.create({ runId: 'orphan', parentRun: 'nobody' }), 'RUN_NOT_FOUND')
      await refused(tx.runs.complete('nobody'), 'RUN_NOT_FOUND')
      expect(await tx.runs.pause('known')).toMatchObject({ status: 'Paused' })
      await refused(tx.runs.complete('known'), 'INVALID_TRANSITION')
      await tx.runs.resume('known')
      await tx.runs.addTags('known', ['new'])
      await tx.runs.updateMetadata('known', { big: 1n })
      await tx.runs.fail('child', 'out of tokens')
      await tx.runs.cancel('ensured')
      await tx.runs.archive('parent')
      expect(await tx.runs.updateStatus(placed, 'Completed')).toMatchObject({ app: 'shop', agent: 'a' })
      expect(await tx.runs.get('known')).toMatchObject({ tags: ['old', 'new'], metadata: { big: 1n } })
      expect(await tx.runs.stats()).toMatchObject({ total: 5, active: 1, failed: 1, archived: 1 })
      expect((await tx.runs.children('parent')).map(({ runId }) => runId)).toEqual(['child'])
      expect((await tx.runs.list()).toSorted()).toEqual(['child', 'ensured', 'known', 'placed'])
      expect(await db.runs.list()).toEqual(['known'])
    })
    expect((await db.runs.query({ tags: ['new'] })).map(({ runId }) => runId)).toEqual(['known'])
    expect(await db.runs.get(placed)).toMatchObject({ status: 'Completed', parentRun: 'child' })
    expect(await db.runs.get('child')).toMatchObject({ status: 'Failed', error: 'out of tokens' })
    expect(await db.runs.stats()).toMatchObject({ total: 5, active: 1, archived: 1, cancelled: 1 })
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P26: of transactions that create the same run, one succeeds', async db => {
    const create = (i: number): Promise<unknown> =>
      db.transaction(async tx => {
        await tx.run(RUN).kv.put('by', i)
        return tx.runs.create({ runId: RUN })
      })
    const { won, codes } = await outcomes(times(5, create))
    expect(won).toHaveLength(1)
    expect(codes).toEqual(times(4, () => 'RUN_EXISTS'))
    await db.transaction(async tx => {
      const { won: made } = await outcomes(times(3, () => tx.runs.create({ runId: OTHER, parentRun: RUN })))
      expect(made).toHaveLength(1)
    })
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P26: a read-only transaction over several scopes writes nowhere', async db => {
    await db.kv.put(RUN, 'k', 1)
    await db.runs.create({ runId: 'parent' })
    await db.runs.create({ runId: 'child', parentRun: 'parent' })
    await db.transaction(
      async tx => {
        expect(await tx.run(RUN).kv.get('k')).toBe(1)
        await refused(tx.run(OTHER).kv.put('k', 1), 'INVALID_OPERATION')
        for (const parent of [{}, { parentRun: 'parent' }]) {
          await refused(tx.runs.create({ runId: RUN, ...parent }), 'INVALID_OPERATION')
          await refused(tx.runs.create({ runId: 'child', ...parent }), 'INVALID_OPERATION')
          await refused(tx.runs.ensure('child', parent), 'INVALID_OPERATION')
        }
        await refused(tx.runs.complete('child'), 'INVALID_OPERATION')
        expect(await tx.runs.list()).toEqual(['child', 'parent'])
      },
      { readOnly: true },
    )
    const tx = await db.begin({ readOnly: true })
    await refused(tx.run(RUN).kv.put('k', 2), 'INVALID_OPERATION')
    await tx.commit()
    await refused(tx.run(RUN).kv.get('k'), 'INVALID_OPERATION')
    await refused(tx.runs.get(RUN), 'INVALID_OPERATION')
    expect(await db.kv.list(OTHER)).toEqual([])
  })

  suite.holds('P26: await using rolls back a transaction over several scopes', async db => {
    {
      await using tx = await db.begin()
      await writeBoth(tx)
    }
    expect(await db.kv.list(OTHER)).toEqual([])
  })

  suite.holds('P26: invalid options and functions are refused', async db => {
    let runs = 0
    for (const options of [null, 7, { retries: 1 }, { timeoutMs: 0 }, { readOnly: 'yes' }, { signal: 7 }]) {
      await refused(
        db.transaction(() => runs++, bad<TransactionOptions>(options)),
        'INVALID_ARGUMENT',
        JSON.stringify(options),
      )
    }
    for (const options of [7, null, { maxRetries: 1 }, { timeoutMs: 0 }, { readOnly: 'yes' }]) {
      await refused(db.begin(bad<BeginOptions>(options)), 'INVALID_ARGUMENT', JSON.stringify(options))
    }
    await refused(db.begin(bad<string>(undefined)), 'INVALID_ARGUMENT')
    expect(runs).toBe(0)
  })
}
