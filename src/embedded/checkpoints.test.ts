import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { blocksReadBy } from '../../test/simulation/blocks-read.ts'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import type { Operation, Put } from '../engine/storage.ts'
import { Random } from '../testing/random.ts'
import type { EmbeddedStore } from './embedded-store.ts'
import { type EmbeddedOptions, openEmbedded } from './open.ts'
import { nodeScheduler } from './scheduler.ts'

const TREE = { scope: 's', tag: 1 }
/** The size limit of a leaf, plus the excess of its last entry. */
const BLOCK_BYTES_MAX = 4_400
/** No checkpoint starts by itself. */
const BY_HAND = { walBytes: 1e9, dirtyBytes: 1e9, warn: () => {} }

const put = (key: string, value: string, scope = TREE.scope): Put => ({
  ...TREE,
  op: 'put',
  scope,
  key,
  value,
})
const inOrder = (n: number): string => String(n).padStart(8, '0')
const filled = (count: number, value: string, scope = TREE.scope, from = 0): Put[] =>
  Array.from({ length: count }, (_, i) => put(inOrder(from + i), value, scope))

function open(disk: SimulatedDisk, options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedStore> {
  return openEmbedded({ disk, ...BY_HAND, ...options })
}

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Heap bytes in use after garbage collection. */
function heap(): number {
  for (let i = 0; i < 4; i++) collect()
  return process.memoryUsage().heapUsed
}

describe('failure matrix, power cut', () => {
  test('a data file is synced before a manifest names it, even if writing its first blocks failed', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await store.commit({ operations: [put('a', 'b'.repeat(1_000))] })
    disk.fail({
      error: 'ENOSPC',
      when: ({ kind, file, bytes = 0 }) => kind === 'write' && file.startsWith('data') && bytes > 16,
    })
    await expect(store.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL' })
    disk.heal()
    // After the drop, the next checkpoint has no blocks to write.
    await store.commit({ operations: [{ op: 'drop', scope: TREE.scope }] })
    await store.checkpoint()
    await store.commit({ operations: [put('precious', 'answered')] })
    for (let seed = 0; seed < 50; seed++) {
      const left = await open(disk.afterPowerCut(new Random(seed)))
      expect((await left.get('s', 1, 'precious'))?.value).toBe('answered')
    }
  })

  test('no manifest depends on a recovered log that may be in the page cache only', async () => {
    for (let seed = 0; seed < 20; seed++) {
      let disk = new SimulatedDisk({ seed })
      let store = await open(disk, { prepareBytes: 0 })
      await store.commit({ operations: [put('a', '1')] })
      const isLog = ({ kind, file }: { kind: string; file: string }): boolean =>
        (kind === 'sync' || kind === 'syncLater') && file.startsWith('wal')
      disk.fail({ error: 'EIO', when: isLog })
      const lost = store.commit({ operations: [put('b', 'x'.repeat(2_000))] })
      await expect(lost).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
      disk = disk.afterProcessCrash()
      store = await open(disk, { prepareBytes: 0 })
      await store.commit({ operations: [put('precious', 'answered')] })
      disk = disk.afterProcessCrash()
      store = await open(disk, { prepareBytes: 0 })
      const random = new Random(seed)
      const images: SimulatedDisk[] = []
      disk.onCall = ({ phase, file }) => {
        if (phase === 'end' && file.startsWith('manifest')) images.push(disk.afterPowerCut(random.fork()))
      }
      await store.checkpoint()
      disk.onCall = undefined
      for (const image of images) {
        const left = await open(image, { prepareBytes: 0 })
        expect((await left.get('s', 1, 'precious'))?.value).toBe('answered')
      }
    }
  })
})

describe('a checkpoint', () => {
  test('does not keep leaves in memory for a snapshot that can read them from disk', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk, { cacheBytes: 1_000_000, durability: 'relaxed' })
    const before = heap()
    for (let i = 0; i < 700; i++)
      await store.commit({ operations: filled(100, 'v'.repeat(90), `scope-${i}`) })
    const snapshot = await store.snapshot()
    await store.checkpoint()
    await store.checkpoint()
    expect(heap() - before).toBeLessThan(8_000_000)
    expect(await snapshot.scan({ scope: 'scope-1', tag: 1 })).toHaveLength(100)
    snapshot.release()
    await store.close()
  })

  test('does not keep leaves of dropped trees in memory', async () => {
    const store = await open(new SimulatedDisk(), { durability: 'relaxed' })
    const before = heap()
    for (let i = 0; i < 2_000; i++) {
      const scope = `scope-${i}`
      await store.commit({ operations: filled(60, 'v'.repeat(90), scope) })
      await store.commit({ operations: [{ op: 'drop', scope }] })
    }
    await store.checkpoint()
    await store.checkpoint()
    expect(heap() - before).toBeLessThan(8_000_000)
    await store.close()
  })

  test('counts written bytes once, even if it fails afterwards', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk, {
      // The clock stands still, so the checkpoint is one slice.
      scheduler: { ...nodeScheduler, now: () => 0 },
      durability: 'relaxed',
      cacheBytes: 8_000_000,
      prepareBytes: 0,
    })
    const perRound = 20_000
    for (let round = 0; round < 9; round++) {
      const from = inOrder(round * perRound)
      await store.commit({ operations: filled(perRound, 'v'.repeat(150), 's', round * perRound) })
      let writes = 0
      disk.fail({
        error: 'ENOSPC',
        when: ({ kind, file, bytes = 0 }) =>
          kind === 'write' && file.startsWith('data') && bytes > 1_000 && ++writes === 3,
      })
      await expect(store.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL' })
      disk.heal()
      for (let i = 0; i < 2; i++) expect(await store.scan({ ...TREE, from })).toHaveLength(perRound)
      await store.checkpoint()
    }
    // If bytes were counted twice, the cache would seem full and keep nothing.
    const hot = { ...TREE, from: inOrder(1_000), to: inOrder(2_000) }
    for (let i = 0; i < 40; i++) await store.scan(hot)
    expect((await blocksReadBy(disk, () => store.scan(hot))).length).toBeLessThan(5)
    await store.close()
  })

  test('writes short blocks for the directory and for trees that were created meanwhile', async () => {
    const disk = new SimulatedDisk()
    let now = 0
    // Each reading of the clock ends a slice.
    const scheduler = { ...nodeScheduler, now: () => (now += 3) }
    const store = await open(disk, { scheduler, durability: 'relaxed' })
    const name = (i: number): string => `${'run'.repeat(20)}-${inOrder(i)}`
    for (let i = 0; i < 100; i++) await store.commit({ operations: [put('a', 'b', name(i))] })
    let isDone = false
    const checkpoint = store.checkpoint().then(() => {
      isDone = true
    })
    for (let i = 100; !isDone; i++) {
      await store.commit({ operations: filled(100, 'v'.repeat(120), name(i)) })
      await new Promise(resolve => setImmediate(resolve))
    }
    await checkpoint
    const left = disk.afterProcessCrash()
    const again = await open(left, { cacheBytes: 0 })
    const blocks = await blocksReadBy(left, () => again.verify())
    expect(Math.max(...blocks)).toBeLessThan(BLOCK_BYTES_MAX)
    await again.close()
  })

  test('does not put a large value into one block with its small neighbours', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk, { durability: 'relaxed' })
    await store.commit({ operations: filled(5_000, 'v'.repeat(50)) })
    const large = 'L'.repeat(100_000)
    for (let i = 20; i < 5_000; i += 40) await store.commit({ operations: [put(`${inOrder(i)}+`, large)] })
    await store.close()
    const again = await open(disk, { cacheBytes: 0 })
    const blocks = await blocksReadBy(disk, async () => {
      for (let i = 1; i < 5_000; i += 50) await again.get('s', 1, inOrder(i))
    })
    expect(blocks.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThan(1_500_000)
    await again.close()
  })

  test.each(['durable', 'relaxed'] as const)(
    'can use the space of the prepared log segment, and so can closing: %s',
    async durability => {
      for (const end of ['checkpoint', 'close'] as const) {
        const disk = new SimulatedDisk({ capacityBytes: 1_600_000 })
        const store = await openEmbedded({ disk, durability, walBytes: 1_000_000, warn: () => {} })
        for (let i = 0; i < 50; i++) {
          const operations: Operation[] = filled(50, 'v'.repeat(150), 's', i * 50)
          await store.commit({ operations })
          await new Promise(resolve => setImmediate(resolve))
        }
        await store[end]()
        if (end === 'checkpoint') await store.close()
        const again = await openEmbedded({ disk, durability })
        expect(await again.scan(TREE)).toHaveLength(2_500)
        await again.close()
      }
    },
  )
})
