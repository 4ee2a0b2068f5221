import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Annals } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { open } from '../../src/index.ts'
import { contentsOf, fill, goOn, verify } from './everything.ts'

test('a copy has all data, verifies, and can be written to', async () => {
  await using source = await open({ memory: true, tenant: 'acme' })
  await using target = await open({ memory: true, tenant: 'acme' })
  await fill(source)
  const report = await source.copyTo(target)
  expect(report).toMatchObject({ events: 60 })
  expect(await contentsOf(target)).toEqual(await contentsOf(source))
  await verify(source)
  await verify(target)
  await goOn(target)
})

test('a copy keeps the time of every entry, also after reopening', async () => {
  const earlier = 1_800_000
  const storage = await openEmbedded({ clock: () => Date.now() - earlier })
  await using source = new Annals({ storage, database: new Database(storage), guards: {} }, 'acme')
  await fill(source)
  const contents = await contentsOf(source)
  const path = mkdtempSync(join(tmpdir(), 'annals-copy-'))
  try {
    const target = await open({ path, tenant: 'acme' })
    await source.copyTo(target)
    expect(await contentsOf(target)).toEqual(contents)
    await target.close()
    await using again = await open({ path, tenant: 'acme' })
    expect(await contentsOf(again)).toEqual(contents)
    expect((await again.kv.getVersioned('parent', 'key-0'))?.updatedAt).toBeLessThan(Date.now() - earlier / 2)
    // The next write has the current time.
    await again.kv.put('parent', 'key-0', 1)
    expect((await again.kv.getVersioned('parent', 'key-0'))?.updatedAt).toBeGreaterThan(
      Date.now() - earlier / 2,
    )
  } finally {
    rmSync(path, { recursive: true })
  }
})

test('runs of one millisecond have the same order in a copy', async () => {
  const storage = await openEmbedded({ clock: () => 1_800_000_000_000 })
  await using source = new Annals({ storage, database: new Database(storage), guards: {} }, 'acme')
  for (const runId of ['b', 'd', 'a', 'c']) await source.runs.create({ runId })
  await using target = await open({ memory: true, tenant: 'acme' })
  await source.copyTo(target)
  for (const db of [source, target]) {
    expect((await db.runs.query({})).map(({ runId }) => runId)).toEqual(['c', 'a', 'd', 'b'])
  }
})

test('the target must be another store without data of the tenant', async () => {
  await using source = await open({ memory: true })
  await using target = await open({ memory: true })
  await source.kv.put('r', 'k', 1)
  await target.forTenant('other').kv.put('r', 'k', 1)
  await source.copyTo(target)
  await expect(source.copyTo(target)).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
  await expect(source.copyTo(source)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  await expect(source.copyTo(source.forTenant('x'))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  await expect(source.copyTo(target.forTenant('x'))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  await expect(source.copyTo({} as typeof target)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  expect(await target.kv.get('r', 'k')).toBe(1)
})

test('LD10: records appended after a copy from a clock that is ahead are not before the copied ones', async () => {
  const hour = 3_600_000
  const storage = await openEmbedded({ clock: () => Date.now() + hour })
  await using source = new Annals({ storage, database: new Database(storage), guards: {} }, 'acme')
  await using target = await open({ memory: true, tenant: 'acme' })
  await fill(source)
  await source.copyTo(target)
  await goOn(target)
  const events = await target.events.readRange('child', 0, Number.POSITIVE_INFINITY)
  const times = events.map(({ timestamp }) => timestamp)
  expect(times).toEqual([...times].sort((a, b) => a - b))
  expect(times.at(-1)).toBeGreaterThan(Date.now() + hour / 2)
})
