import { describe, expect, test } from 'vitest'
import { blocksReadBy } from '../../test/simulation/blocks-read.ts'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import type { Operation, Put } from '../engine/storage.ts'
import { Random, seedOfRun } from '../testing/random.ts'
import type { EmbeddedStore } from './embedded-store.ts'
import { openEmbedded } from './open.ts'

const TREE = { scope: 's', tag: 1 }
const VALUE = 'v'.repeat(80)
const PER_COMMIT = 50
const KEYS = 20_000

const put = (key: string, value = VALUE): Put => ({ ...TREE, op: 'put', key, value })

/** Opens a store that starts no checkpoint by itself. */
function open(disk = new SimulatedDisk()): Promise<EmbeddedStore> {
  return openEmbedded({ disk, walBytes: 1e9, dirtyBytes: 1e9, durability: 'relaxed' })
}

async function putAll(store: EmbeddedStore, keyOf: (n: number) => string): Promise<void> {
  for (let n = 0; n < KEYS; n += PER_COMMIT)
    await store.commit({ operations: Array.from({ length: PER_COMMIT }, (_, i) => put(keyOf(n + i))) })
}

const inOrder = (n: number): string => `step-${String(n).padStart(8, '0')}`
/** Keys like those of a run's steps: each step starts and then completes, and the key of its completion sorts first. */
const paired = (n: number): string => `step-${n >> 1}|${n % 2 === 0 ? 'started' : 'completed'}`
const pairedInOrder = (n: number): string => `${inOrder(n >> 1)}${n % 2 === 0 ? 'b' : 'a'}`

describe('leaves that are filled by ascending keys leave memory when they are written', () => {
  test.each([
    ['numbers in order', inOrder],
    ['numbers that count up and sort between older ones as text', (n: number) => `step-${n}`],
    ['pairs', paired],
    ['pairs in order', pairedInOrder],
    ['four sequences of pairs at once', (n: number) => `${n % 4}-${pairedInOrder(Math.floor(n / 4))}`],
  ])('%s', async (_, keyOf) => {
    const store = await open()
    await putAll(store, keyOf)
    await store.checkpoint()
    const { cachedBytes, liveBytes } = store.stats()
    // Entries in memory take twice their bytes on disk.
    expect(cachedBytes).toBeLessThan(liveBytes * 0.75)
    expect(await store.scan(TREE)).toHaveLength(KEYS)
    await store.close()
  })
})

/** The number of blocks that a tree has on disk, leaves and inner nodes. */
async function blocksOf(disk: SimulatedDisk): Promise<number> {
  const store = await open(disk)
  const { length } = await blocksReadBy(disk, () => store.scan(TREE))
  await store.close()
  return length
}

test.each([
  ['in descending order after other keys', (n: number) => `b-${String(KEYS - n).padStart(8, '0')}`],
  ['ascending, in turns with one that sorts last', (n: number) => (n % 2 === 0 ? inOrder(n) : 'z')],
])('keys that arrive %s fill leaves at least by half', async (_, keyOf) => {
  const disk = new SimulatedDisk()
  const store = await open(disk)
  // Enough keys that leaves would become small if each split kept these together with the new ones.
  await store.commit({ operations: Array.from({ length: 20 }, (_, n) => put(`a-${inOrder(n)}`)) })
  await putAll(store, keyOf)
  const { length } = await store.scan(TREE)
  await store.close()
  expect(length / (await blocksOf(disk))).toBeGreaterThan(15)
})

test.each([
  ['in ascending order', (keys: string[]) => keys],
  ['in descending order', (keys: string[]) => keys.toReversed()],
])('sealed leaves are merged after deletes %s', async (_, order) => {
  const disk = new SimulatedDisk()
  const store = await open(disk)
  await putAll(store, inOrder)
  const gone = order(
    Array.from({ length: KEYS }, (_, n) => n)
      .filter(n => n % 10 !== 0)
      .map(inOrder),
  )
  for (let n = 0; n < gone.length; n += PER_COMMIT) {
    const keys = gone.slice(n, n + PER_COMMIT)
    await store.commit({ operations: keys.map(key => ({ ...TREE, op: 'delete' as const, key })) })
  }
  const { length } = await store.scan(TREE)
  await store.close()
  expect(length / (await blocksOf(disk))).toBeGreaterThan(10)
})

test('a scan marked `once` does not fill the cache', async () => {
  const store = await open()
  await putAll(store, paired)
  await store.checkpoint()
  const before = store.stats().cachedBytes
  expect(await store.scan({ ...TREE, once: true })).toHaveLength(KEYS)
  expect(await store.scan({ ...TREE, once: true })).toHaveLength(KEYS)
  // Only inner nodes stay in memory.
  expect(store.stats().cachedBytes - before).toBeLessThan(500_000)
  await store.scan(TREE)
  expect(store.stats().cachedBytes - before).toBeGreaterThan(2_000_000)
  await store.close()
})

const seed = seedOfRun()

/** Random operations of several writers with interleaved ascending keys, with some random changes to existing keys. */
class Writers {
  readonly expected: Map<string, string> = new Map()
  readonly #random: Random
  readonly #next = new Map<string, number>()

  constructor(random: Random) {
    this.#random = random
  }

  operations(): Operation[] {
    const random = this.#random
    const writer = `w${random.below(3)}-`
    const operations: Operation[] = []
    for (let left = 1 + random.below(60); left > 0; left--) {
      if (random.chance(0.03)) operations.push(this.#change([...this.expected.keys()]))
      else operations.push(this.#put(this.#nextKey(writer)))
    }
    return operations
  }

  #nextKey(writer: string): string {
    const n = this.#next.get(writer) ?? 0
    // A counter may also jump, forward or back.
    this.#next.set(writer, this.#random.chance(0.01) ? this.#random.below(2_000) : n + 1)
    return writer + paired(n)
  }

  #change(keys: readonly string[]): Operation {
    const random = this.#random
    const key = keys.length === 0 ? 'first' : random.pick(keys)
    if (random.chance(0.5)) return this.#put(key)
    this.expected.delete(key)
    return { ...TREE, op: 'delete', key }
  }

  #put(key: string): Put {
    // Some values alone fill a leaf.
    const value = 'x'.repeat(this.#random.below(this.#random.chance(0.02) ? 5_000 : 200))
    this.expected.set(key, value)
    return put(key, value)
  }
}

test(`interleaved ascending writers lose nothing, in the store, in snapshots and after a crash (ANNALS_SEED=${seed})`, async () => {
  const random = new Random(seed)
  for (let program = 0; program < 25; program++) {
    const writers = new Writers(random.fork())
    let disk = new SimulatedDisk()
    let store = await open(disk)
    const contents = async (reader: Pick<EmbeddedStore, 'scan'>): Promise<[string, string][]> =>
      (await reader.scan({ ...TREE, once: random.chance(0.5) })).map(({ key, value }) => [key, value])
    const sorted = (): [string, string][] => [...writers.expected].sort(([a], [b]) => (a < b ? -1 : 1))
    for (let round = 0; round < 6; round++) {
      for (let commits = random.below(30); commits > 0; commits--) {
        await store.commit({ operations: writers.operations() })
        if (random.chance(0.05)) await store.checkpoint()
      }
      const then = sorted()
      const snapshot = await store.snapshot()
      const going = random.chance(0.5) ? store.checkpoint() : undefined
      for (let commits = random.below(20); commits > 0; commits--)
        await store.commit({ operations: writers.operations() })
      await going
      expect(await contents(snapshot)).toEqual(then)
      snapshot.release()
      const now = sorted()
      expect(await contents(store)).toEqual(now)
      for (let gets = 50; gets > 0 && now.length > 0; gets--) {
        const [key, value] = random.pick(now)
        expect((await store.get(TREE.scope, TREE.tag, key))?.value).toBe(value)
      }
      await store.verify()
      if (random.chance(0.3)) {
        disk = disk.afterProcessCrash()
        store = await open(disk)
        expect(await contents(store)).toEqual(now)
      }
    }
    await store.close()
  }
})
