import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Annals, open, openOn } from '../annals.ts'
import { newId } from '../core/id.ts'
import { formatRfc3339 } from '../core/time.ts'
import { openEmbedded } from '../embedded/open.ts'
import { TAGS } from '../engine/keys.ts'
import type { NewRun } from './run-record.ts'
import type { RunSelection } from './run-selection.ts'
import type { RunTrail } from './telemetry-store.ts'

const T0 = Date.UTC(2026, 10, 15, 3, 30)
const ALL = { limit: 1000, offset: 0 }

function newRun(fields: Partial<NewRun> = {}): NewRun {
  return {
    event_id: newId(),
    run_id: 'r',
    agent_name: 'a',
    job_type: 'j',
    status: 'running',
    start_time: formatRfc3339(T0),
    ...fields,
  }
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

/** Opens a store with the test's clock. */
async function openAt(clock: () => number): Promise<Annals> {
  const storage = await openEmbedded({ clock })
  return openOn(storage)
}

describe('the telemetry store', () => {
  test('an event id is stored once, even if it is sent several times at once or in another case', async () => {
    await using db = await open({ memory: true })
    const run = newRun()
    const other = { ...run, event_id: run.event_id.toUpperCase(), agent_name: 'other' }
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => db.telemetry.insert([i % 2 === 0 ? run : other])),
    )
    expect(answers.flat().filter(answer => answer === 'created')).toHaveLength(1)
    expect(await all(db.telemetry.list(ALL))).toHaveLength(1)
    expect(await db.telemetry.totals()).toMatchObject({ total_runs: 1, agents: { a: 1 } })
    expect(await db.telemetry.get(run.event_id.toUpperCase())).toMatchObject({ event_id: run.event_id })
  })

  test('a batch is stored atomically, and a repeated event id once', async () => {
    await using db = await open({ memory: true })
    const [first, second] = [newRun(), newRun({ agent_name: 'b' })]
    expect(await db.telemetry.insert([first, second, first])).toEqual(['created', 'created', 'duplicate'])
    expect(await db.telemetry.insert([second, newRun()])).toEqual(['duplicate', 'created'])
    expect(await db.telemetry.totals()).toMatchObject({ total_runs: 3, agents: { a: 2, b: 1 } })
  })

  test('TD5: the newest created_at comes first; of equal times the later insert, in a batch too', async () => {
    await using db = await openAt(() => T0)
    await db.telemetry.insert(['1', '2', '3'].map(run_id => newRun({ run_id })))
    await db.telemetry.insert([newRun({ run_id: 'old', created_at: formatRfc3339(T0 - 1) })])
    await db.telemetry.insert([newRun({ run_id: '4' })])
    await db.telemetry.insert([newRun({ run_id: 'before 1970', created_at: '1969-12-31T23:59:59.000Z' })])
    await db.telemetry.insert([newRun({ run_id: 'first', created_at: '0000-01-01T00:00:00.000Z' })])
    const listed = async (more: Partial<RunSelection> = {}): Promise<string[]> =>
      (await all(db.telemetry.list({ ...ALL, ...more }))).map(run => run.run_id)
    expect(await listed()).toEqual(['4', '3', '2', '1', 'old', 'before 1970', 'first'])
    expect(await listed({ limit: 2, offset: 3 })).toEqual(['1', 'old'])
    expect(await listed({ agent_name: 'a', job_type: 'j', limit: 2, offset: 3 })).toEqual(['1', 'old'])
    expect(await listed({ created_after: T0 - 1 })).toEqual(['4', '3', '2', '1'])
    expect(await listed({ created_before: T0 })).toEqual(['old', 'before 1970', 'first'])
  })

  test('a query finds the same runs as a filter over all of them, for any runs and filters', async () => {
    const name = fc.constantFrom('x', 'y', 'xy')
    const run = fc.record(
      {
        run_id: name,
        agent_name: name,
        job_type: name,
        parent_run_id: name,
        status: fc.constantFrom('running' as const, 'success' as const),
        created_at: fc.integer({ min: 0, max: 3 }).map(n => formatRfc3339(T0 + n)),
        start_time: fc.integer({ min: 0, max: 3 }).map(n => formatRfc3339(T0 + n)),
      },
      { requiredKeys: [] },
    )
    const time = fc.integer({ min: -1, max: 4 }).map(n => T0 + n)
    const selection = fc.record(
      {
        run_id: name,
        agent_name: name,
        job_type: name,
        parent_run_id: name,
        status: fc.constantFrom('running' as const, 'success' as const),
        created_after: time,
        created_before: time,
        start_time_from: time,
        start_time_to: time,
      },
      { requiredKeys: [] },
    )
    const page = fc.record({
      limit: fc.integer({ min: 1, max: 20 }),
      offset: fc.integer({ min: 0, max: 10 }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(run, { maxLength: 30 }),
        fc.array(fc.tuple(selection, page), { minLength: 1, maxLength: 8 }),
        async (runs, asked) => {
          await using db = await openAt(() => T0)
          const stored = runs.map(each => newRun(each as Partial<NewRun>))
          if (stored.length > 0) await db.telemetry.insert(stored)
          const newest = stored
            .map((each, i) => ({ created_at: formatRfc3339(T0), ...each, i }))
            .sort((a, b) =>
              a.created_at === b.created_at ? b.i - a.i : a.created_at < b.created_at ? 1 : -1,
            )
          for (const [filter, { limit, offset }] of asked) {
            const { created_after, created_before, start_time_from, start_time_to, ...names } = filter
            const expected = newest.filter(
              each =>
                Object.entries(names).every(([field, value]) => each[field as keyof NewRun] === value) &&
                (created_after === undefined || Date.parse(each.created_at) > created_after) &&
                (created_before === undefined || Date.parse(each.created_at) < created_before) &&
                (start_time_from === undefined || Date.parse(each.start_time) >= start_time_from) &&
                (start_time_to === undefined || Date.parse(each.start_time) <= start_time_to),
            )
            const found = await all(
              db.telemetry.list({ ...(filter as Partial<RunSelection>), limit, offset }),
            )
            expect(found.map(each => each.event_id)).toEqual(
              expected.slice(offset, offset + limit).map(each => each.event_id),
            )
          }
          expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
        },
      ),
      { numRuns: 100 },
    )
  })

  test('a change replaces whole fields, removes undefined ones, and updates the indexes', async () => {
    await using db = await open({ memory: true })
    const run = newRun({ metrics_json: { a: 1, b: 2 }, output_summary: 'x' })
    await db.telemetry.insert([run])
    await db.telemetry.change(run.event_id, { git_commit_hash: 'abcdef1', git_commit_author: 'me' })
    const change = { status: 'success', metrics_json: { c: 3 }, git_commit_author: undefined } as const
    const changed = await db.telemetry.change(run.event_id, change)
    expect(changed).toEqual(await db.telemetry.get(run.event_id))
    expect(changed).toMatchObject({ status: 'success', metrics_json: { c: 3 }, output_summary: 'x' })
    expect(changed).not.toHaveProperty('git_commit_author')
    expect(await all(db.telemetry.list({ ...ALL, status: 'running' }))).toEqual([])
    expect(await all(db.telemetry.list({ ...ALL, status: 'success' }))).toHaveLength(1)
    expect(await db.verifyIndices()).toEqual({ ok: true, problems: [] })
    expect(await db.telemetry.change(newId(), { status: 'success' })).toBeUndefined()
    expect(await db.telemetry.change('no id', { status: 'success' })).toBeUndefined()
  })

  test('concurrent changes of one run are all applied', async () => {
    await using db = await open({ memory: true })
    const run = newRun()
    await db.telemetry.insert([run])
    await Promise.all([
      db.telemetry.change(run.event_id, { status: 'success' }),
      db.telemetry.change(run.event_id, { items_failed: 3 }),
      db.telemetry.change(run.event_id, { error_summary: 'x' }),
    ])
    const expected = { status: 'success', items_failed: 3, error_summary: 'x' }
    expect(await db.telemetry.get(run.event_id)).toMatchObject(expected)
  })

  test('TD3: a trail has each descendant once, by start_time, even if parents form a cycle', async () => {
    await using db = await open({ memory: true })
    const at = (seconds: number): string => formatRfc3339(T0 + seconds * 1000)
    await db.telemetry.insert([
      newRun({ run_id: 'root', start_time: at(0), parent_run_id: 'grandchild', output_summary: 'older' }),
      newRun({ run_id: 'child', parent_run_id: 'root', start_time: at(3) }),
      newRun({ run_id: 'grandchild', parent_run_id: 'child', start_time: at(1) }),
      newRun({ run_id: 'second', parent_run_id: 'root', start_time: at(1) }),
      newRun({ run_id: 'self', parent_run_id: 'self', start_time: at(1) }),
      newRun({ run_id: 'root', start_time: at(9), parent_run_id: 'grandchild', output_summary: 'newest' }),
    ])
    const childrenOf = async (runId: string): Promise<string[]> => {
      const { children } = (await db.telemetry.trail(runId)) as RunTrail
      return (await all(children)).map(child => child.run_id)
    }
    const trail = await db.telemetry.trail('root')
    expect(trail?.run.output_summary).toBe('newest')
    expect(await childrenOf('root')).toEqual(['root', 'grandchild', 'second', 'child'])
    expect(await childrenOf('self')).toEqual([])
    expect(await db.telemetry.trail('none')).toBeUndefined()
    expect(await db.telemetry.trail('root\0')).toBeUndefined()
    expect(await all(db.telemetry.list({ ...ALL, run_id: 'root\0', agent_name: 'a' }))).toEqual([])
  })

  test('metadata are cached for 300 s, and every write invalidates them', async () => {
    let now = T0
    await using db = await openAt(() => now)
    const hit = async (): Promise<boolean> => (await db.telemetry.metadata()).cache_hit
    expect(await db.telemetry.metadata()).toEqual({
      agent_names: [],
      job_types: [],
      counts: { agent_names: 0, job_types: 0 },
      cache_hit: false,
    })
    const run = newRun({ agent_name: 'b' })
    await db.telemetry.insert([run, newRun({ agent_name: 'a', job_type: 'k' })])
    expect(await db.telemetry.metadata()).toEqual({
      agent_names: ['a', 'b'],
      job_types: ['j', 'k'],
      counts: { agent_names: 2, job_types: 2 },
      cache_hit: false,
    })
    expect(await hit()).toBe(true)
    await db.telemetry.insert([run])
    expect(await hit(), 'a duplicate writes nothing').toBe(true)
    await db.telemetry.change(run.event_id, { status: 'success' })
    expect(await hit()).toBe(false)
    now += 299_999
    expect(await hit()).toBe(true)
    now += 1
    expect(await hit()).toBe(false)
  })

  test('TD5: recent_24h counts by created_at', async () => {
    await using db = await openAt(() => T0)
    const created = (ms: number): NewRun => newRun({ created_at: formatRfc3339(T0 - ms) })
    await db.telemetry.insert([0, 86_400_000, 86_400_001].map(created))
    expect(await db.telemetry.totals()).toMatchObject({ total_runs: 3, recent_24h: 2 })
  })

  test('names such as __proto__ are ordinary names', async () => {
    await using db = await open({ memory: true })
    await db.telemetry.insert([newRun({ agent_name: '__proto__' }), newRun({ agent_name: 'constructor' })])
    const { agents } = await db.telemetry.totals()
    expect(Object.entries(agents)).toEqual([
      ['__proto__', 1],
      ['constructor', 1],
    ])
  })

  test('tenants are isolated; handles of one tenant share the cache', async () => {
    await using db = await open({ memory: true })
    const run = newRun()
    await db.telemetry.insert([run])
    const acme = db.forTenant('acme')
    expect(await acme.telemetry.get(run.event_id)).toBeUndefined()
    expect(await acme.telemetry.insert([run])).toEqual(['created'])
    await acme.telemetry.metadata()
    expect((await db.forTenant('acme').telemetry.metadata()).cache_hit).toBe(true)
  })

  test('all runs are in the reopened store and in a copy of it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'annals-telemetry-store-'))
    const run = newRun({ parent_run_id: 'p' })
    {
      await using db = await open({ path: folder })
      await db.telemetry.insert([run, newRun({ run_id: 'p' })])
    }
    await using db = await open({ path: folder })
    await using copy = await open({ memory: true })
    await db.copyTo(copy)
    for (const each of [db, copy]) {
      expect(await each.telemetry.insert([run])).toEqual(['duplicate'])
      expect(await all((await each.telemetry.trail('p'))!.children)).toHaveLength(1)
      expect(await each.verifyIndices()).toEqual({ ok: true, problems: [] })
      expect(await each.telemetry.totals()).toMatchObject({ total_runs: 2 })
    }
    rmSync(folder, { recursive: true })
  })

  test('P16: verifyIndices finds missing entries and misplaced records, and repairs what it can', async () => {
    const storage = await openEmbedded({})
    const db = await openOn(storage)
    await db.telemetry.insert([newRun({ parent_run_id: 'p' }), newRun()])
    const tree = { scope: 'default:telemetry:_shared:_shared', tag: TAGS.telemetry }
    const entries = await storage.scan(tree)
    const indexes = entries.filter(({ key }) => 'tipajs'.includes(key[0]))
    expect(indexes).toHaveLength(11)
    for (const { key } of indexes) {
      await storage.commit({ operations: [{ op: 'delete', ...tree, key }] })
      expect((await db.verifyIndices()).problems).toMatchObject([{ of: 'telemetry', problem: 'missing' }])
      expect(await db.rebuildIndices()).toEqual({ repaired: 1 })
    }
    const [first, second] = entries.filter(({ key }) => key.startsWith('r'))
    await storage.commit({ operations: [{ op: 'put', ...tree, key: first.key, value: second.value }] })
    expect((await db.verifyIndices()).problems).toMatchObject([{ of: 'telemetry', problem: 'unreadable' }])
    await db.close()
  })

  test('a subscriber hears of inserts and changes', async () => {
    await using db = await open({ memory: true })
    let heard = 0
    const unsubscribe = await db.telemetry.subscribe(() => heard++)
    const run = newRun()
    await db.telemetry.insert([run])
    await db.telemetry.change(run.event_id, { status: 'success' })
    await expect.poll(() => heard).toBe(2)
    unsubscribe()
  })
})
