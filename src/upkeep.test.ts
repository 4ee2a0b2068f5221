import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Annals, open, openOn } from './annals.ts'
import { openNodeDisk } from './disk/node-disk.ts'
import type { EmbeddedStore } from './embedded/embedded-store.ts'
import { openEmbedded } from './embedded/open.ts'
import { resolveScope, TAGS, tenantShared } from './engine/keys.ts'
import type { Place } from './engine/storage.ts'

const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-upkeep-'))
  folders.push(folder)
  return folder
}

const RUN_SCOPE = resolveScope('default', 'r1')
const RUNS_SCOPE = resolveScope('default', tenantShared({ tenant: 'default' }))

/** A store with traces and runs, whose index entries the test can change directly. */
async function setUp(): Promise<{ db: Annals; storage: EmbeddedStore }> {
  const storage = await openEmbedded({})
  const db = await openOn(storage)
  await db.runs.create({ runId: 'r1', tags: ['x', 'y'] })
  await db.runs.create({ runId: 'r2', parentRun: 'r1' })
  await db.traces.record('r1', { type: 'Thought', content: 'a' }, { id: 't1', tags: ['x'] })
  await db.traces.recordChild('r1', 't1', { type: 'Thought', content: 'b' }, { id: 't2' })
  await db.traces.record('r2', { type: 'Thought', content: 'c' }, { id: 't1' })
  return { db, storage }
}

async function indexPlaces(storage: EmbeddedStore, scope: string, tag: number): Promise<Place[]> {
  const entries = await storage.scan({ scope, tag })
  return entries.filter(({ key }) => !key.startsWith('r')).map(({ key }) => ({ scope, tag, key }))
}

const INDEXES = [
  ['traces', RUN_SCOPE, TAGS.trace, 6],
  ['runs', RUNS_SCOPE, TAGS.run, 7],
] as const

describe('P16: verifyIndices and rebuildIndices', () => {
  test('find no problem in an intact store', async () => {
    const { db } = await setUp()
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    expect(await db.rebuildIndices()).toEqual({ repaired: 0 })
  })

  for (const [of, scope, tag, count] of INDEXES) {
    test(`${of}: each missing entry is reported and repaired`, async () => {
      const { db, storage } = await setUp()
      const before = await storage.scan({ scope, tag })
      const places = await indexPlaces(storage, scope, tag)
      expect(places).toHaveLength(count)
      for (const place of places) {
        await storage.commit({ operations: [{ op: 'delete', ...place }] })
        const { ok, problems } = await db.verifyIndices()
        expect(ok).toBe(false)
        expect(problems).toMatchObject([{ of, problem: 'missing', scope }])
        expect(await db.rebuildIndices()).toEqual({ repaired: 1 })
        expect((await db.verifyIndices()).ok).toBe(true)
      }
      const after = await storage.scan({ scope, tag })
      expect(after.map(({ key, value }) => [key, value])).toEqual(
        before.map(({ key, value }) => [key, value]),
      )
    })

    test(`${of}: orphaned and wrong entries are reported and repaired`, async () => {
      const { db, storage } = await setUp()
      const [place, other] = await indexPlaces(storage, scope, tag)
      const time = '\0'.repeat(8)
      await storage.commit({
        operations: [
          { op: 'put', ...place, value: 'something' },
          { op: 'put', ...other, key: `gnobody\0${time}ghost`, value: '' },
          { op: 'put', ...other, key: `ghalf`, value: '' },
        ],
      })
      const { problems } = await db.verifyIndices()
      expect(problems.map(({ problem }) => problem).sort()).toEqual(['orphaned', 'orphaned', 'wrong'])
      expect(await db.rebuildIndices()).toEqual({ repaired: 3 })
      expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    })
  }

  for (const [of, scope, tag] of INDEXES) {
    const [record, other] = of === 'traces' ? ['rt1', 'rt2'] : ['rr1', 'rr2']

    test(`${of}: an unreadable record is reported with its id, and the others are checked`, async () => {
      for (const value of ['{', 'null', '{}', '7']) {
        const { db, storage } = await setUp()
        const [lost] = (await indexPlaces(storage, scope, tag)).filter(({ key }) =>
          key.endsWith(other.slice(1)),
        )
        await storage.commit({
          operations: [
            { op: 'put', scope, tag, key: record, value },
            { op: 'delete', ...lost },
          ],
        })
        const { ok, problems } = await db.verifyIndices()
        expect(ok).toBe(false)
        expect(problems).toHaveLength(2)
        expect(problems).toContainEqual({ scope, of, problem: 'unreadable', id: record.slice(1) })
        expect(problems).toContainEqual({ scope, of, problem: 'missing', id: other.slice(1) })
        expect(await db.rebuildIndices()).toEqual({ repaired: 1 })
        expect((await db.verifyIndices()).problems).toEqual([
          { scope, of, problem: 'unreadable', id: record.slice(1) },
        ])
        expect(await db.rebuildIndices()).toEqual({ repaired: 0 })
      }
    })

    test(`${of}: a record under another record's key is reported, and not repaired repeatedly`, async () => {
      const { db, storage } = await setUp()
      const before = await indexPlaces(storage, scope, tag)
      const { value } = (await storage.get(scope, tag, other))!
      await storage.commit({ operations: [{ op: 'put', scope, tag, key: record, value }] })
      const problem = { scope, of, problem: 'unreadable', id: record.slice(1) }
      expect((await db.verifyIndices()).problems).toEqual([problem])
      expect(await db.rebuildIndices()).toEqual({ repaired: 0 })
      expect((await db.verifyIndices()).problems).toEqual([problem])
      expect(await indexPlaces(storage, scope, tag)).toEqual(before)
    })
  }

  test('the index entries of a deleted record are reported as orphaned and removed', async () => {
    const { db, storage } = await setUp()
    await storage.commit({ operations: [{ op: 'delete', scope: RUN_SCOPE, tag: TAGS.trace, key: 'rt2' }] })
    const { problems } = await db.verifyIndices('r1')
    expect(problems).toHaveLength(3)
    expect(problems.every(({ problem, id }) => problem === 'orphaned' && id === 't2')).toBe(true)
    expect(await db.traces.list('r1')).toEqual(['t1', 't2'])
    expect(await db.rebuildIndices('r1')).toEqual({ repaired: 3 })
    expect(await db.traces.list('r1')).toEqual(['t1'])
  })

  test('check one scope, or all scopes of the tenant, and no other tenant', async () => {
    const { db, storage } = await setUp()
    const other = db.forTenant('default2')
    await other.traces.record('r1', { type: 'Thought', content: 'x' })
    const theirs = await indexPlaces(storage, resolveScope('default2', 'r1'), TAGS.trace)
    const ours = await indexPlaces(storage, resolveScope('default', 'r2'), TAGS.trace)
    await storage.commit({ operations: [theirs[0], ours[0]].map(place => ({ op: 'delete', ...place })) })
    expect((await db.verifyIndices('r1')).ok).toBe(true)
    expect((await db.verifyIndices('r2')).problems).toHaveLength(1)
    expect((await db.verifyIndices()).problems).toHaveLength(1)
    expect((await other.verifyIndices()).problems).toHaveLength(1)
    expect(await db.rebuildIndices()).toEqual({ repaired: 1 })
    expect((await other.verifyIndices()).problems).toHaveLength(1)
  })
})

describe('P13: verifyOnOpen', () => {
  test('opens a store whose chains verify', async () => {
    const path = newFolder()
    const db = await open({ path })
    for (let i = 0; i < 300; i++) await db.events.append(`run-${i % 3}`, 'note', i)
    await db.kv.put('no-events', 'k', 1)
    await db.close()
    const again = await open({ path, verifyOnOpen: true })
    expect(await again.events.length('run-1')).toBe(100)
    await again.close()
  })

  test('refuses a store with an event that does not match its hash, and releases the folder', async () => {
    const path = newFolder()
    const storage = await openEmbedded({ disk: openNodeDisk(path) })
    const place = { scope: resolveScope('acme', 'r7'), tag: TAGS.event }
    const body = '\0\x04note"hello"'
    await storage.commit({ operations: [{ op: 'append', ...place, body, bodyHash: 'x'.repeat(32) }] })
    await storage.close()
    await expect(open({ path, verifyOnOpen: true })).rejects.toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
      details: { scope: 'acme:default:default:r7', sequence: 0 },
    })
    const db = await open({ path })
    expect(await db.forTenant('acme').events.verifyChain('r7')).toMatchObject({
      isValid: false,
      firstInvalid: 0,
    })
    await db.close()
  })
})
