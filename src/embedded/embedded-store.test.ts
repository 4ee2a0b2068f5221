import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import { openNodeDisk } from '../disk/node-disk.ts'
import type { Operation, Snapshot, Step } from '../engine/storage.ts'
import { Random, seedOfRun } from '../testing/random.ts'
import { type EmbeddedOptions, openEmbedded } from './open.ts'

const folders: string[] = []
function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'annals-store-'))
  folders.push(folder)
  return folder
}
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

const put = (scope: string, key: string, value: string, expiresAt = 0): Operation => ({
  op: 'put',
  scope,
  tag: 1,
  key,
  value,
  expiresAt,
})

describe('the embedded engine', () => {
  const seed = seedOfRun()

  test('P23: if ranges missed pending commits, an entry would be claimed twice', async () => {
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()) })
    const claim = async (isBroken: boolean): Promise<string> => {
      const ranges = [{ scope: 's', tag: 1, from: 'q', limit: 1 }]
      const durable = isBroken ? [await storage.scan(ranges[0])] : undefined
      const step: Step<string> = (_, newest) => {
        const [[{ key }]] = durable ?? newest
        return { operations: [{ op: 'delete', scope: 's', tag: 1, key }], result: key }
      }
      return (await storage.update([], step, { ranges })).result
    }
    for (const isBroken of [false, true]) {
      await storage.commit({ operations: Array.from({ length: 50 }, (_, i) => put('s', `q${i}`, '')) })
      const claims = await Promise.all(Array.from({ length: 50 }, () => claim(isBroken)))
      if (isBroken) expect(new Set(claims).size).toBeLessThan(50)
      else expect(new Set(claims).size).toBe(50)
    }
    await storage.close()
  })

  test(`keeps all commits across close and open, with frequent checkpoints (ANNALS_SEED=${seed})`, async () => {
    const random = new Random(seed)
    const path = newFolder()
    const model = new Map<string, string>()
    const durabilities = ['durable', 'relaxed'] as const
    for (let round = 0; round < 5; round++) {
      const durability = durabilities[round % 2]
      const disk = openNodeDisk(path)
      const storage = await openEmbedded({ disk, walBytes: 20_000, cacheBytes: 50_000, durability })
      for (let i = 0; i < 2_000; i++) {
        const key = `key-${random.below(3_000)}`
        if (random.chance(0.3)) {
          model.delete(key)
          await storage.commit({ operations: [{ op: 'delete', scope: 's', tag: 1, key }] })
        } else {
          const value = `value ${round} ${i} ${'x'.repeat(random.below(300))}`
          model.set(key, value)
          await storage.commit({ operations: [put('s', key, value)] })
        }
      }
      const all = await storage.scan({ scope: 's', tag: 1 })
      expect(all.map(entry => [entry.key, entry.value])).toEqual(
        [...model].sort(([a], [b]) => (a < b ? -1 : 1)),
      )
      await storage.checkpoint()
      await storage.verify()
      for (const [key, value] of model) expect((await storage.get('s', 1, key))?.value).toBe(value)
      await storage.close()
    }
  })

  test('reads are complete while the first commit after a crash applies the log to the trees', async () => {
    const path = newFolder()
    const scopes = Array.from({ length: 60 }, (_, i) => `scope-${i}`)
    const first = await openEmbedded({ disk: openNodeDisk(path), durability: 'relaxed' })
    for (let key = 0; key < 50; key++) {
      await first.commit({ operations: scopes.map(scope => put(scope, `key-${key}`, 'x'.repeat(200))) })
    }
    const copy = newFolder()
    cpSync(path, copy, { recursive: true })
    await first.close()

    let tick = 0
    const scheduler = {
      soon: queueMicrotask,
      later: (task: () => void) => void setImmediate(task),
      now: () => (tick += 1),
    }
    const options: EmbeddedOptions = { durability: 'relaxed', scheduler }
    const second = await openEmbedded({ ...options, disk: openNodeDisk(copy) })
    const committing = second.commit({ operations: [put('other', 'key', 'value')] })
    const tree = { tag: 1 }
    for (const scope of [...scopes].reverse()) {
      await new Promise(resolve => setImmediate(resolve))
      expect((await second.get(scope, 1, 'key-7'))?.value.length).toBe(200)
      expect(await second.scan({ ...tree, scope: scopes[0] })).toHaveLength(50)
    }
    await committing
    for (const scope of scopes) expect(await second.scan({ ...tree, scope })).toHaveLength(50)
    await second.verify()
    await second.close()
    const third = await openEmbedded({ disk: openNodeDisk(copy) })
    for (const scope of scopes) expect(await third.scan({ ...tree, scope })).toHaveLength(50)
    await third.close()
  })

  test('close resolves or rejects if a checkpoint fails while commits wait for it', async () => {
    const disk = new SimulatedDisk({ later: task => void setImmediate(task) })
    disk.fail({
      error: 'EIO',
      when: call => call.kind === 'write' && call.file.startsWith('data'),
      times: Infinity,
    })
    const storage = await openEmbedded({
      disk: disk.handle(),
      durability: 'relaxed',
      walBytes: 10_000,
      warn: () => undefined,
    })
    const commits = Array.from({ length: 200 }, (_, i) =>
      storage.commit({ operations: [put('s', `key-${i}`, 'x'.repeat(1_000))] }),
    )
    const outcomes = Promise.allSettled(commits)
    await storage.close().catch((error: unknown) => expect(error).toMatchObject({ name: 'AnnalsError' }))
    for (const outcome of await outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'READ_ONLY' })
    }
  })

  test('the cost of a commit does not grow with the number of scopes', async () => {
    for (const disk of [undefined, openNodeDisk(newFolder())]) {
      const storage = await openEmbedded({ disk, durability: 'relaxed' })
      const times: number[] = []
      for (let i = 0; i < 30_000; i++) {
        if (i === 10_000 || i === 20_000) times.push(performance.now())
        await storage.commit({ operations: [put(`scope-${i}`, 'key', 'value')] })
      }
      times.push(performance.now())
      const [before, after] = [times[1] - times[0], times[2] - times[1]]
      expect(after).toBeLessThan(before * 10 + 500)
      await storage.close()
    }
  })

  test('gets in scopes that do not exist leave nothing in memory', async () => {
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()), cacheBytes: 1_000_000 })
    await storage.commit({ operations: [put('s', 'key', 'value')] })
    const before = process.memoryUsage().heapUsed
    for (let i = 0; i < 200_000; i++) await storage.get(`scope-${i}`, 1, 'key')
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(60_000_000)
    await storage.close()
  })

  test('entries that nobody reads leave memory at the next checkpoint, and entries that are read stay', async () => {
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()) })
    const fill = (scope: string): Promise<unknown> => {
      // In descending order. Ascending entries would be sealed and leave memory with the first checkpoint.
      const keys = Array.from({ length: 1_000 }, (_, i) => String(9_999 - i))
      return storage.commit({ operations: keys.map(key => put(scope, key, 'x'.repeat(400))) })
    }
    for (const scope of ['looked-at', 'left-alone']) await fill(scope)
    await storage.checkpoint()
    expect(storage.stats().cachedBytes).toBeGreaterThan(800_000)
    await storage.scan({ scope: 'looked-at', tag: 1 })
    await fill('another')
    await storage.checkpoint()
    const { cachedBytes } = storage.stats()
    // Two of three scopes are in memory: the one that was read and the one that was just written.
    expect(cachedBytes).toBeGreaterThan(800_000)
    expect(cachedBytes).toBeLessThan(1_300_000)
    expect(await storage.scan({ scope: 'left-alone', tag: 1 })).toHaveLength(1_000)
    await storage.close()
  })

  test('entries in ascending order leave memory with the checkpoint that writes them', async () => {
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()) })
    const keys = Array.from({ length: 1_000 }, (_, i) => String(i).padStart(4, '0'))
    await storage.commit({ operations: keys.map(key => put('s', key, 'x'.repeat(400))) })
    await storage.checkpoint()
    expect(storage.stats().cachedBytes).toBeLessThan(60_000)
    expect(await storage.scan({ scope: 's', tag: 1 })).toHaveLength(1_000)
    await storage.close()
  })

  test('sealed entries can be read, changed and removed before and after the checkpoint writes them', async () => {
    const folder = newFolder()
    const storage = await openEmbedded({ disk: openNodeDisk(folder) })
    const keys = Array.from({ length: 1_000 }, (_, i) => String(i).padStart(4, '0'))
    const contentOf = (key: string): string => `${key} ${'x'.repeat(400)}`
    await storage.commit({ operations: keys.map(key => put('s', key, contentOf(key))) })
    const before = await storage.snapshot()
    await storage.commit({
      operations: [
        put('s', '0100', 'changed'),
        put('s', '0100+', 'between'),
        { op: 'delete', scope: 's', tag: 1, key: '0200' },
      ],
    })
    const expected = new Map(keys.map(key => [key, contentOf(key)]))
    const found = async (reader: Pick<Snapshot, 'get' | 'scan'>): Promise<Map<string, string>> => {
      for (const key of ['0003', '0100', '0100+', '0200', '0999']) {
        expect((await reader.get('s', 1, key))?.value).toBe(expected.get(key))
        expect((await reader.get('s', 1, key))?.value).toBe(expected.get(key))
      }
      return new Map((await reader.scan({ scope: 's', tag: 1 })).map(({ key, value }) => [key, value]))
    }
    expect(await found(before)).toEqual(expected)
    expected.set('0100', 'changed').set('0100+', 'between').delete('0200')
    const byKey = (map: Map<string, string>): [string, string][] =>
      [...map].sort(([a], [b]) => (a < b ? -1 : 1))
    expect(byKey(await found(storage))).toEqual(byKey(expected))
    before.release()
    await storage.checkpoint()
    await storage.verify()
    expect(byKey(await found(storage))).toEqual(byKey(expected))
    await storage.close()
    const again = await openEmbedded({ disk: openNodeDisk(folder) })
    expect(byKey(await found(again))).toEqual(byKey(expected))
    await again.close()
  })

  test('leaves are short on disk, so that adding one entry writes few bytes', async () => {
    const disk = new SimulatedDisk()
    const storage = await openEmbedded({ disk })
    const scopes = Array.from({ length: 50 }, (_, i) => `s${i}`)
    const value = 'x'.repeat(200)
    for (const scope of scopes) {
      const keys = Array.from({ length: 60 }, (_, i) => String(i).padStart(4, '0'))
      await storage.commit({ operations: keys.map(key => put(scope, key, value)) })
    }
    await storage.checkpoint()
    const before = storage.stats().dataBytes
    await storage.commit({ operations: scopes.map(scope => put(scope, '9999', value)) })
    await storage.checkpoint()
    await storage.verify()
    expect((storage.stats().dataBytes - before) / scopes.length).toBeLessThan(6_000)
    await storage.close()
  })

  test('leaves that are loaded for a change count as dirty bytes', async () => {
    const folder = newFolder()
    const scopes = Array.from({ length: 500 }, (_, i) => `s${i}`)
    const first = await openEmbedded({ disk: openNodeDisk(folder) })
    for (const scope of scopes) await first.commit({ operations: [put(scope, 'a', 'x'.repeat(10_000))] })
    await first.close()
    const storage = await openEmbedded({ disk: openNodeDisk(folder), cacheBytes: 100_000 })
    for (const scope of scopes) await storage.commit({ operations: [put(scope, 'b', 'y')] })
    expect(storage.stats().dirtyBytes).toBeGreaterThan(4_000_000)
    await storage.close()
  })

  test('a commit can use the space of the prepared segment when the disk is full', async () => {
    const refusedAfter = async (durability: 'durable' | 'relaxed'): Promise<number> => {
      const disk = new SimulatedDisk({ capacityBytes: 3_000_000, later: task => setImmediate(task) })
      const storage = await openEmbedded({ disk, durability, walBytes: 2_000_000, warn: () => {} })
      for (let commits = 0; ; commits++) {
        const operations = [put('s', `key-${commits % 100}`, 'x'.repeat(5_000))]
        const refused = await storage.commit({ operations }).then(
          () => undefined,
          (error: unknown) => error,
        )
        if (refused !== undefined) {
          expect(refused).toMatchObject({ code: 'DISK_FULL' })
          return commits
        }
        await new Promise(resolve => setImmediate(resolve))
      }
    }
    expect(await refusedAfter('relaxed')).toBeGreaterThan(400)
    expect(await refusedAfter('durable')).toBeGreaterThan(400)
  })

  test('a patient subscriber gets one notification for many commits, and none after it unsubscribed', async () => {
    const storage = await openEmbedded({ disk: new SimulatedDisk() })
    let told = 0
    const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))
    const end = await storage.subscribe({ scope: 's', tag: 1 }, () => told++, { othersWithinMs: 1_000 })
    for (const key of ['a', 'b', 'c']) await storage.commit({ operations: [put('s', key, 'value')] })
    expect(told).toBeLessThanOrEqual(1)
    await turn()
    await turn()
    expect(told).toBeGreaterThanOrEqual(1)
    const before = told
    await storage.commit({ operations: [put('s', 'd', 'value')] })
    end()
    await turn()
    await turn()
    expect(told).toBe(before)
    await storage.close()
  })

  test('a value that is too large for a block is refused, and the store keeps working', async () => {
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()) })
    const large = put('s', 'key', 'x'.repeat(18 * 1024 * 1024))
    await expect(storage.commit({ operations: [large] })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await storage.commit({ operations: [put('s', 'key', 'value')] })
    await storage.close()
  })

  test('P14: expired entries are removed in the background', async () => {
    let now = 1_750_000_000_000
    const storage = await openEmbedded({ disk: openNodeDisk(newFolder()), clock: () => now })
    const operations = Array.from({ length: 2_000 }, (_, i) =>
      put('s', `key-${i}`, 'x'.repeat(500), now + 10),
    )
    await storage.commit({ operations })
    await storage.commit({ operations: [put('s', 'stays', 'value', now + 1_000_000)] })
    now += 20
    await storage.commit({ operations: [put('s', 'other', 'value')] })
    await storage.close()
    expect(storage.stats().liveBytes).toBeLessThan(10_000)
  })

  test('unsubscribing twice has no effect on other subscriptions', async () => {
    const storage = await openEmbedded()
    const tree = { scope: 's', tag: 1 }
    let calls = 0
    const end = await storage.subscribe(tree, () => undefined)
    end()
    await storage.subscribe(tree, () => calls++)
    end()
    await storage.commit({ operations: [put('s', 'key', 'value')] })
    await new Promise(resolve => setImmediate(resolve))
    expect(calls).toBe(1)
    await storage.close()
  })

  test('an old snapshot stays correct while newer ones are taken and released', async () => {
    const storage = await openEmbedded()
    await storage.commit({ operations: [put('s', 'key', '0')] })
    const old = await storage.snapshot()
    for (let i = 1; i <= 50; i++) {
      const snapshot = await storage.snapshot()
      await storage.commit({ operations: [put('s', 'key', String(i))] })
      expect((await snapshot.get('s', 1, 'key'))?.value).toBe(String(i - 1))
      expect((await old.get('s', 1, 'key'))?.value).toBe('0')
      snapshot.release()
    }
    expect((await old.get('s', 1, 'key'))?.value).toBe('0')
    old.release()
    await expect(old.get('s', 1, 'key')).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
    await storage.close()
  })

  test('a store in memory cannot be backed up', async () => {
    const target = join(newFolder(), 'backup')
    const storage = await openEmbedded()
    await expect(storage.backup(target)).rejects.toThrow(/in memory/)
    expect(existsSync(target)).toBe(false)
    await storage.close()
  })
})
