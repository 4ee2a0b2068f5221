import { expect } from 'vitest'
import {
  type Annals,
  agentShared,
  appShared,
  type Namespace,
  namespace,
  type Scope,
  tenantShared,
  verifyBundle,
} from '../../index.ts'
import { said } from '../ledger-suite/events.ts'
import { bad, contentsOf, expectFrozen, gather, outcomes, RUN, refused, type Suite, times } from './suite.ts'

/** A run whose app and agent are not the default ones. */
const THERE = placed('research', 'critic')
const OTHERS: readonly Namespace[] = [placed('research', 'default'), placed('default', 'critic')]

function placed(app: string, agent: string, run = RUN, tenant = 'default'): Namespace {
  return namespace({ tenant, app, agent, run })
}

function bundleOf(lines: readonly Uint8Array[]): () => AsyncIterable<Uint8Array> {
  return async function* () {
    yield* lines
  }
}

/** P27: runs in the namespace of an app or agent. Data in a scope without a run can be listed and dropped. */
export function testNamespaces(suite: Suite): void {
  suite.holds('P27: a run has the fields app and agent, unless they are default', async db => {
    const run = await db.runs.create({ runId: THERE, tags: ['t'], metadata: { by: 'me' } })
    expect(run).toStrictEqual({
      runId: RUN,
      app: 'research',
      agent: 'critic',
      status: 'Active',
      createdAt: expect.any(Number),
      updatedAt: expect.any(Number),
      tags: ['t'],
      metadata: { by: 'me' },
    })
    expectFrozen(run)
    expect(await db.runs.create({ runId: placed('research', 'default', 'app') })).toMatchObject({
      app: 'research',
    })
    expect(await db.runs.get('app')).not.toHaveProperty('agent')
    expect(await db.runs.create({ runId: placed('default', 'critic', 'agent') })).not.toHaveProperty('app')
    const plain = await db.runs.create({ runId: placed('default', 'default', 'plain') })
    expect(plain).not.toHaveProperty('app')
    expect(plain).not.toHaveProperty('agent')
    expect(await db.runs.query({ tags: ['t'] })).toEqual([run])
    expect(await db.runs.list()).toEqual(['plain', 'agent', 'app', RUN])
    expect(await db.runs.stats()).toMatchObject({ total: 4, active: 4 })
  })

  suite.holds('P28: a run in any namespace is found if its metadata have bytes', async db => {
    const metadata = { raw: Uint8Array.of(0, 255) }
    const run = await db.runs.create({ runId: THERE, metadata })
    expect(await db.runs.get(THERE)).toEqual(run)
    await db.runs.updateMetadata(THERE, metadata.raw)
    expect(await db.runs.get(THERE)).toMatchObject({ app: 'research', metadata: metadata.raw })
    expect(await db.runs.get(placed('research', 'other'))).toBeUndefined()
    expect(await db.runs.complete(THERE)).toMatchObject({ status: 'Completed', metadata: metadata.raw })
  })

  suite.holds('P27: every call finds a run in any namespace, by its id and by its namespace', async db => {
    for (const run of [RUN, THERE]) {
      const created = await db.runs.create({ runId: THERE })
      expect(await db.runs.get(run)).toEqual(created)
      expect(await db.runs.addTags(run, ['x'])).toMatchObject({ app: 'research', agent: 'critic' })
      expect(await db.runs.updateMetadata(run, 7)).toMatchObject({ metadata: 7, app: 'research' })
      expect(await db.runs.pause(run)).toMatchObject({ status: 'Paused', agent: 'critic' })
      expect(await db.runs.resume(run)).toMatchObject({ status: 'Active' })
      await db.runs.delete(run)
    }
    await db.runs.create({ runId: THERE })
    expect(await db.runs.fail(THERE, 'why')).toMatchObject({
      status: 'Failed',
      error: 'why',
      app: 'research',
    })
    expect(await db.runs.archive(RUN)).toMatchObject({ status: 'Archived', app: 'research' })
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
  })

  suite.holds('P27: a run is not found under the namespace of another app or agent', async db => {
    const created = await db.runs.create({ runId: THERE })
    for (const run of [...OTHERS, placed('default', 'default')]) {
      expect(await db.runs.get(run)).toBeUndefined()
      for (const attempt of [
        () => db.runs.complete(run),
        () => db.runs.addTags(run, ['x']),
        () => db.runs.updateMetadata(run, 1),
        () => db.runs.delete(run),
        () => db.runs.query({ after: run }),
        () => db.runs.create({ parentRun: run }),
        () => gather(db.exportRun(run)),
      ]) {
        await refused(attempt(), 'RUN_NOT_FOUND', String(run))
      }
      expect(await db.runs.children(run)).toEqual([])
    }
    expect(await db.runs.get(RUN)).toEqual(created)
    expect(await db.runs.list()).toEqual([RUN])
  })

  suite.holds('P27: creating an id that exists in another app or agent is RUN_EXISTS', async db => {
    const created = await db.runs.create({ runId: THERE })
    for (const runId of [RUN, THERE, ...OTHERS, placed('default', 'default')]) {
      await refused(db.runs.create({ runId }), 'RUN_EXISTS', String(runId))
    }
    expect(await db.runs.query()).toEqual([created])
    // Run ids are unique per tenant.
    await db.forTenant('acme').runs.create({ runId: RUN })
    await db.runs.delete(RUN)
    expect(await db.runs.create({ runId: RUN })).not.toHaveProperty('app')
    await refused(db.runs.create({ runId: THERE }), 'RUN_EXISTS')
  })

  suite.holds(
    'P27: exactly one of 12 concurrent creations of one id in different apps succeeds',
    async db => {
      for (const turn of times(4, i => `run-${i}`)) {
        const { won, codes } = await outcomes(
          times(12, i =>
            db.runs.create({ runId: placed(i % 3 === 0 ? 'default' : `app-${i}`, 'default', turn) }),
          ),
        )
        expect(won).toHaveLength(1)
        expect(codes).toEqual(times(11, () => 'RUN_EXISTS'))
        expect(await db.runs.get(turn)).toEqual(won[0])
      }
      expect(await db.runs.list()).toHaveLength(4)
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    },
  )

  suite.holds('P27: ensure returns the existing run, or creates it', async db => {
    const first = await db.runs.ensure(RUN, { tags: ['a'], metadata: 1 })
    expect(first).toMatchObject({ runId: RUN, status: 'Active', tags: ['a'], metadata: 1 })
    expect(await db.runs.ensure(RUN, { tags: ['b'], metadata: 2 })).toEqual(first)
    expect(await db.runs.ensure(placed('default', 'default'))).toEqual(first)
    // The run exists, so its options are not used, and the unknown parent is not an error.
    expect(await db.runs.ensure(RUN, { parentRun: 'nobody' })).toEqual(first)
    await refused(db.runs.ensure(THERE), 'RUN_EXISTS')
    const there = await db.runs.ensure(placed('research', 'critic', 'r2'), { parentRun: RUN })
    expect(there).toMatchObject({ runId: 'r2', app: 'research', agent: 'critic', parentRun: RUN })
    for (const run of ['r2', placed('research', 'critic', 'r2')]) {
      expect(await db.runs.ensure(run)).toEqual(there)
    }
    await refused(db.runs.ensure('r3', { parentRun: 'nobody' }), 'RUN_NOT_FOUND')
    const completed = await db.runs.complete(RUN)
    expect(await db.runs.ensure(RUN)).toEqual(completed)
    expect(await db.runs.list()).toEqual(['r2', RUN])
  })

  suite.holds('P27: 16 concurrent ensure calls of one id return the same run', async db => {
    const attempts = times(16, i => db.runs.ensure(RUN, { metadata: i }))
    const [first, ...rest] = await Promise.all(attempts)
    for (const run of rest) expect(run).toEqual(first)
    const inApp = await Promise.all(times(16, i => db.runs.ensure(placed('a', 'b', 'r2'), { metadata: i })))
    for (const run of inApp) expect(run).toEqual(inApp[0])
    expect(await db.runs.list()).toHaveLength(2)
  })

  suite.holds('P27: parents and children may live in different apps', async db => {
    const parent = await db.runs.create({ runId: THERE })
    const byId = await db.runs.create({ runId: 'c1', parentRun: RUN })
    const byNamespace = await db.runs.create({ runId: placed('other', 'x', 'c2'), parentRun: THERE })
    expect(byNamespace).toMatchObject({ parentRun: RUN, app: 'other' })
    for (const run of [RUN, THERE]) {
      expect(await db.runs.children(run)).toEqual([byNamespace, byId])
      expect(await db.runs.query({ parentRun: run, after: placed('other', 'x', 'c2') })).toEqual([byId])
    }
    await db.runs.delete(THERE)
    for (const run of [RUN, THERE]) expect(await db.runs.children(run)).toEqual([byNamespace, byId])
    await refused(db.runs.create({ runId: parent.runId, parentRun: 'c2' }), 'INVALID_ARGUMENT')
  })

  suite.holds('P27, P3: a string given to a primitive still means app and agent default', async db => {
    await db.runs.create({ runId: THERE })
    await fill(db, RUN, 'here')
    await fill(db, THERE, 'there')
    expect(await db.kv.get(RUN, 'k')).toBe('here')
    expect(await db.kv.get(THERE, 'k')).toBe('there')
    expect(await db.cells.read(THERE, 'c')).toMatchObject({ value: 'there' })
    expect((await db.events.read(RUN, 0))?.payload).toBe('here')
  })

  suite.holds('P27, P11: deleting a run removes its own scope, and nothing else', async db => {
    await db.runs.create({ runId: THERE })
    for (const scope of [RUN, THERE, ...OTHERS]) await fill(db, scope, String(scope))
    const kept = await Promise.all([RUN, ...OTHERS].map(scope => contentsOf(db, scope)))
    const { hash } = (await db.events.head(THERE))!
    const tombstone = await db.runs.delete(RUN, { reason: 'done' })
    expect(tombstone).toStrictEqual({
      runId: RUN,
      app: 'research',
      agent: 'critic',
      deletedAt: expect.any(Number),
      reason: 'done',
      events: 1,
      headHash: hash,
    })
    expect(await db.runs.tombstones()).toEqual([tombstone])
    expect(await contentsOf(db, THERE)).toEqual({ kv: [], events: [], length: 0, cells: [], traces: [] })
    expect(await Promise.all([RUN, ...OTHERS].map(scope => contentsOf(db, scope)))).toEqual(kept)
    expect(await db.runs.get(RUN)).toBeUndefined()
    await refused(db.runs.delete(THERE), 'RUN_NOT_FOUND')
  })

  suite.holds(
    'P27: a shared namespace, one of another tenant, and an invalid one are refused as runs',
    async db => {
      const { tenant } = db
      const scopes: unknown[] = [
        agentShared({ tenant, app: 'a', agent: 'b' }),
        appShared({ tenant, app: 'a' }),
        tenantShared({ tenant }),
        placed('a', 'b', RUN, 'acme'),
        { tenant, app: 'a', agent: 'b', run: RUN },
        7,
        null,
        [],
      ]
      for (const run of scopes) {
        for (const attempt of [
          () => db.runs.create({ runId: bad(run) }),
          () => db.runs.ensure(bad(run)),
          () => db.runs.get(bad(run)),
          () => db.runs.complete(bad(run)),
          () => db.runs.delete(bad(run)),
          () => db.runs.children(bad(run)),
          () => db.runs.create({ parentRun: bad(run) }),
          () => db.runs.query({ after: bad(run) }),
          () => db.ledger.fetchEvents(bad(run)),
          () => db.ledger.getSnapshot(bad(run)),
          () => db.ledger.verifyRun(bad(run)),
          () => db.ledger.acquireLease(bad(run), { owner: 'me', ttlMs: 1_000 }),
          () => gather(db.exportRun(bad(run))),
        ]) {
          await refused(attempt(), 'INVALID_ARGUMENT', String(run))
        }
      }
      for (const scope of [...scopes.slice(3), '', '_shared', 'a\0b', undefined]) {
        await refused(db.drop(bad(scope)), 'INVALID_ARGUMENT', String(scope))
      }
      for (const options of [null, 7, { prefix: 7 }, { prefx: 'a' }, { prefix: 'x'.repeat(257) }]) {
        await refused(db.scopes(bad(options)), 'INVALID_ARGUMENT', JSON.stringify(options))
      }
      expect(await db.runs.query()).toEqual([])
    },
  )

  suite.holds('P27: a bundle keeps the namespace of its run', async db => {
    await db.runs.create({ runId: THERE, tags: ['t'] })
    await fill(db, THERE, 'there')
    await fill(db, RUN, 'here')
    const lines = await gather(db.exportRun(RUN))
    expect(await gather(db.exportRun(THERE))).toEqual(lines)
    const bundle = bundleOf(lines)
    expect(await verifyBundle(bundle())).toMatchObject({
      isValid: true,
      runId: RUN,
      app: 'research',
      agent: 'critic',
      events: 1,
    })
    const run = await db.runs.get(RUN)
    const events = await gather(db.events.iterate(THERE))
    // Importing a run that exists adds nothing. If its id exists in another app, the import is refused.
    expect(await db.importRun(bundle)).toEqual({ runId: RUN, records: 0, events: 0 })
    await db.runs.delete(RUN)
    await db.runs.create({ runId: RUN })
    await refused(db.importRun(bundle), 'RUN_EXISTS')
    await db.runs.delete(RUN)
    expect(await db.importRun(bundle)).toEqual({ runId: RUN, records: 0, events: 1 })
    expect(await db.runs.get(THERE)).toEqual(run)
    expect(await gather(db.events.iterate(THERE))).toEqual(events)
    expect(await db.events.verifyChain(THERE)).toEqual({ isValid: true, length: 1 })
    // A scope without a run can be exported too.
    await fill(db, 'loose', 'x')
    await fill(db, placed('a', 'b', 'loose'), 'y')
    expect(await verifyBundle(db.exportRun(placed('a', 'b', 'loose')))).toMatchObject({ app: 'a', events: 1 })
    expect(await verifyBundle(db.exportRun('loose'))).not.toHaveProperty('app')
  })

  suite.holds(
    'P27, LD16, L22: a lease and event ids taken before an import hold for the imported run in its namespace',
    async db => {
      const { registry } = db.ledger
      await db.runs.create({ runId: THERE })
      await fill(db, THERE, 'there')
      const plain = await gather(db.exportRun(RUN))
      await db.ledger.appendEvent(said('RunStarted', { runId: RUN }))
      const recorded = await gather(db.exportRun(RUN))
      const { idempotencyKey, eventId } = said('RunPaused', { runId: RUN })
      const other = said('RunPaused', { runId: RUN }).eventId
      for (const bundle of [plain, recorded]) {
        await db.runs.delete(RUN, { purgeLedger: true, reason: 'a test' })
        const { epoch } = await db.ledger.acquireLease(RUN, { owner: 'early' })
        expect(await registry.claim(RUN, idempotencyKey, eventId)).toBe(eventId)
        if (bundle === recorded) {
          // The import would write ledger records without holding the lease.
          await refused(db.importRun(bundleOf(bundle)), 'WRITER_FENCED')
          expect(await db.runs.list()).toEqual([])
          await db.ledger.releaseLease(RUN, epoch)
        }
        await db.importRun(bundleOf(bundle))
        expect(await registry.claim(RUN, idempotencyKey, other)).toBe(eventId)
        if (bundle === plain) {
          await refused(db.ledger.appendEvent(said('RunResumed', { runId: RUN })), 'WRITER_FENCED')
        }
        const paused = said('RunPaused', { runId: RUN, eventId })
        expect(await db.ledger.appendEvent(paused, { epoch })).toMatchObject({ persisted: true })
        expect(await db.scopes()).toEqual([])
      }
    },
  )

  suite.holds('P27: scopes lists the namespaces that have data and no run', async db => {
    const { tenant } = db
    await db.runs.create({ runId: THERE })
    await fill(db, THERE, 'a run')
    const loose: readonly Namespace[] = [
      placed('a', 'b', 'scratch-2'),
      agentShared({ tenant, app: 'a', agent: 'b' }),
      appShared({ tenant, app: 'a' }),
      placed('default', 'default', RUN),
      placed('default', 'default', 'scratch-1'),
      placed('default', 'default', 'ü:%'),
      placed('research', 'other', RUN),
    ]
    for (const scope of [...loose].reverse()) await fill(db, scope, 1)
    await db.forTenant('acme').kv.put('scratch-9', 'k', 1)
    await db.kv.put(tenantShared({ tenant }), 'k', 1)
    const found = await db.scopes()
    expect(found.map(String).toSorted()).toEqual(loose.map(String).toSorted())
    expect(Object.isFrozen(found)).toBe(true)
    // The scopes are in byte order, and can be passed to other calls.
    expect(found.map(String)).toEqual(found.map(String).toSorted())
    expect(await db.kv.get(found[0]!, 'k')).toBe(1)
    const named = await db.scopes({ prefix: 'scratch-' })
    expect(named.map(({ run }) => run)).toEqual(['scratch-2', 'scratch-1'])
    expect((await db.scopes({ prefix: 'ü:' })).map(({ run }) => run)).toEqual(['ü:%'])
    expect(await db.scopes({ prefix: 'nobody' })).toEqual([])
  })

  suite.holds('P27: drop removes all data of a scope without a run, and nothing else', async db => {
    const { tenant } = db
    const loose: readonly Scope[] = [
      RUN,
      placed('a', 'b'),
      placed('a', 'c'),
      agentShared({ tenant, app: 'a', agent: 'b' }),
      appShared({ tenant, app: 'a' }),
    ]
    for (const scope of loose) await fill(db, scope, 1)
    for (const [i, scope] of loose.entries()) {
      const { hash } = (await db.events.head(scope))!
      const rest = await Promise.all(loose.slice(i + 1).map(other => contentsOf(db, other)))
      expect(await db.drop(scope)).toBeUndefined()
      expect(await contentsOf(db, scope)).toEqual({ kv: [], events: [], length: 0, cells: [], traces: [] })
      expect(await Promise.all(loose.slice(i + 1).map(other => contentsOf(db, other)))).toEqual(rest)
      expect(await db.scopes()).toHaveLength(loose.length - i - 1)
      // Dropping a log leaves a tombstone.
      expect((await db.runs.tombstones())[0]).toMatchObject({ events: 1, headHash: hash })
    }
    // Dropping a scope without a log leaves no tombstone, and dropping an empty scope succeeds.
    await db.kv.put('scratch', 'k', 1)
    await db.drop('scratch')
    await db.drop('scratch')
    expect(await db.runs.tombstones()).toHaveLength(loose.length)
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    expect((await db.events.append(RUN, 'n', 1)).sequence).toBe(0)
  })

  suite.holds('P27, LD16: a scope with a held lease is neither listed nor dropped', async db => {
    const { epoch } = await db.ledger.acquireLease(RUN, { owner: 'early' })
    expect(await db.scopes()).toEqual([])
    await refused(db.drop(RUN), 'INVALID_OPERATION')
    await refused(db.ledger.appendEvent(said('RunStarted', { runId: RUN })), 'WRITER_FENCED')
    // A drop removes the whole scope, so a held lease also protects the data beside it.
    await fill(db, RUN, 1)
    expect(await db.scopes()).toEqual([])
    await refused(db.drop(RUN), 'INVALID_OPERATION')
    expect(await db.kv.get(RUN, 'k')).toBe(1)
    await db.ledger.releaseLease(RUN, epoch)
    expect((await db.scopes()).map(({ run }) => run)).toEqual([RUN])
    await db.drop(RUN)
    expect(await db.scopes()).toEqual([])
    expect(await db.ledger.acquireLease(RUN, { owner: 'later' })).toEqual({ epoch: epoch + 1 })
  })

  suite.holds('P27: a scope that has a run or ledger records, or is internal, is not dropped', async db => {
    await db.runs.create({ runId: THERE })
    await db.runs.create({ runId: 'plain' })
    for (const scope of [THERE, 'plain']) {
      await fill(db, scope, 1)
      const before = await contentsOf(db, scope)
      await refused(db.drop(scope), 'INVALID_OPERATION', String(scope))
      expect(await contentsOf(db, scope)).toEqual(before)
    }
    // This scope has the id of a run in another namespace, so it can be dropped.
    await fill(db, RUN, 1)
    await db.drop(RUN)
    const { tenant } = db
    await refused(db.drop(tenantShared({ tenant })), 'INVALID_OPERATION')
    await refused(db.drop(appShared({ tenant, app: 'telemetry' })), 'INVALID_OPERATION')
    expect(await db.runs.list()).toEqual(['plain', RUN])
    expect(await db.scopes()).toEqual([])
  })

  suite.holds(
    'P27: a run created while its scope is dropped keeps everything written after its creation',
    async db => {
      for (const turn of times(6, i => i)) {
        const scope = placed('a', 'b', `r${turn}`)
        await db.kv.put(scope, 'k', 1)
        const [created, dropped] = await Promise.allSettled([
          db.runs.create({ runId: scope }),
          db.drop(scope),
        ])
        expect(created.status).toBe('fulfilled')
        const found = await db.kv.get(scope, 'k')
        expect(found).toBe(dropped.status === 'fulfilled' ? undefined : 1)
      }
    },
  )

  suite.holdsAfterReopen('P27, P13: runs in namespaces are unchanged after reopening', async (db, reopen) => {
    const created = await db.runs.create({ runId: THERE })
    await fill(db, THERE, 'there')
    await db.runs.create({ runId: placed('a', 'b', 'gone') })
    await db.runs.delete('gone')
    await fill(db, placed('a', 'b', 'loose'), 1)
    const contents = await contentsOf(db, THERE)
    const again = await reopen()
    expect(await again.runs.get(RUN)).toEqual(created)
    expect(await contentsOf(again, THERE)).toEqual(contents)
    expect((await again.scopes()).map(String)).toEqual([String(placed('a', 'b', 'loose'))])
    expect(await again.runs.tombstones()).toMatchObject([{ runId: 'gone', app: 'a', agent: 'b' }])
    await again.runs.delete(RUN)
    expect(await again.kv.get(THERE, 'k')).toBeUndefined()
  })
}

/** Writes data with every primitive. */
async function fill(db: Annals, scope: Scope, value: string | number): Promise<void> {
  await db.transaction(scope, async tx => {
    await tx.kv.put('k', value)
    await tx.events.append('n', value)
    await tx.cells.init('c', value)
    await tx.traces.record({ type: 'Thought', content: 'hm' }, { tags: ['x'] })
  })
}
