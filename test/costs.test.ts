import { beforeAll, describe, expect, test } from 'vitest'
import { Annals } from '../src/annals.ts'
import type { Disk, DiskFile } from '../src/disk/disk.ts'
import { openEmbedded } from '../src/embedded/open.ts'
import { Database } from '../src/engine/database.ts'
import { TAGS } from '../src/engine/keys.ts'
import { SimulatedDisk } from './simulation/simulated-disk.ts'

/**
 * Costs as the number of disk calls, because times would depend on the machine. By default nothing is cached, so that
 * every node that is needed is read.
 */
class Counts {
  reads = 0
  readBytes = 0
  written = 0
}

function counting(disk: Disk, counts: Counts): Disk {
  const open = (file: DiskFile): DiskFile => ({
    size: () => file.size(),
    read(buffer, position) {
      counts.reads++
      counts.readBytes += buffer.length
      return file.read(buffer, position)
    },
    write(buffer, position) {
      counts.written += buffer.length
      return file.write(buffer, position)
    },
    writeLater(buffer, position) {
      counts.written += buffer.length
      return file.writeLater(buffer, position)
    },
    truncate: size => file.truncate(size),
    sync: () => file.sync(),
    syncLater: () => file.syncLater(),
    close: () => file.close(),
  })
  // Wraps only `open`. The engine sees the counted disk as a folder.
  const counted: Pick<Disk, 'open'> = { open: (name, mode) => open(disk.open(name, mode)) }
  return new Proxy(disk, {
    get: (_, name) => {
      if (name === 'open') return counted.open
      const value: unknown = Reflect.get(disk, name, disk)
      return typeof value === 'function' ? value.bind(disk) : value
    },
  })
}

interface Measured {
  readonly db: Annals
  readonly database: Database
  /** Counts the disk calls of the work. */
  cost<T>(work: () => Promise<T>): Promise<Counts>
}

const SMALL = 500
const LARGE = 100_000
const BATCH = 5_000
const keyOf = (i: number): string => `key-${String(i).padStart(8, '0')}`

/** A run with this many keys and events, in a store that was closed and opened again. */
async function storeOf(count: number, cacheBytes = 0): Promise<Measured> {
  const disk = new SimulatedDisk()
  const first = await openEmbedded({ disk, durability: 'relaxed' })
  const writer = new Annals({ storage: first, database: new Database(first), guards: {} }, 'default')
  await writer.runs.create({ runId: 'r' })
  for (let i = 0; i < count; i += BATCH) {
    const numbers = Array.from({ length: Math.min(BATCH, count - i) }, (_, j) => i + j)
    await writer.transaction('r', async tx => {
      for (const n of numbers) await tx.kv.put(keyOf(n), n)
      await tx.events.appendBatch(numbers.map(n => ({ type: 'n', payload: n })))
    })
  }
  await writer.checkpoint()
  await writer.close()

  const counts = new Counts()
  const storage = await openEmbedded({ disk: counting(disk, counts), durability: 'relaxed', cacheBytes })
  const database = new Database(storage)
  const db = new Annals({ storage, database, guards: {} }, 'default')
  return {
    db,
    database,
    async cost(work) {
      const before = { ...counts }
      await work()
      const after = new Counts()
      after.reads = counts.reads - before.reads
      after.readBytes = counts.readBytes - before.readBytes
      after.written = counts.written - before.written
      return after
    },
  }
}

describe('the cost of operations', () => {
  let small: Measured
  let large: Measured

  beforeAll(async () => {
    small = await storeOf(SMALL)
    large = await storeOf(LARGE)
  })

  test('P15: a point operation reads one node per level, and 200 times the keys add two levels', async () => {
    for (const at of [0, 0.3, 0.99]) {
      const few = await small.cost(() => small.db.kv.get('r', keyOf(Math.floor(at * SMALL))))
      const many = await large.cost(() => large.db.kv.get('r', keyOf(Math.floor(at * LARGE))))
      expect(few.reads).toBeGreaterThan(0)
      expect(many.reads - few.reads).toBeLessThanOrEqual(2)
      expect(many.reads).toBeLessThanOrEqual(6)
    }
    const put = await large.cost(() => large.db.kv.put('r', keyOf(17), 'x'))
    expect(put.written).toBeLessThan(1_000)
  })

  test('P15: the cost of a scan is proportional to the entries it finds', async () => {
    const ten = await large.cost(() => large.db.kv.list('r', { after: keyOf(50_000), limit: 10 }))
    const thousand = await large.cost(() => large.db.kv.list('r', { after: keyOf(50_000), limit: 1_000 }))
    expect(ten.reads).toBeLessThanOrEqual(8)
    // A leaf has up to 128 entries and is at least half full.
    expect(thousand.reads).toBeLessThanOrEqual(8 + 1_000 / 16)
    const events = await large.cost(() => large.db.events.readRange('r', 70_000, 70_100))
    expect(events.reads).toBeLessThanOrEqual(8 + 100 / 16)
  })

  test('P15: a scan over more data than the cache holds still uses the cached nodes', async () => {
    const { database, cost } = await storeOf(LARGE, 12_000_000)
    const scope = (await database.scopes({ limit: 10 })).find(name => name.endsWith(':r')) as string
    const scanAll = (): Promise<unknown> => database.scan({ scope, tag: TAGS.event })
    const cold = await cost(scanAll)
    expect((await database.scan({ scope, tag: TAGS.event })).length).toBe(LARGE)
    const again = await cost(scanAll)
    expect(again.reads).toBeLessThan(cold.reads * 0.8)
    expect(again.reads).toBeGreaterThan(cold.reads * 0.2)
  })

  test('P15: a snapshot makes no disk call', async () => {
    const cost = await large.cost(() => large.database.view(async () => undefined))
    expect({ ...cost }).toEqual({ reads: 0, readBytes: 0, written: 0 })
  })

  test('P11: the cost of deleting a run does not depend on its size', async () => {
    const few = await small.cost(() => small.db.runs.delete('r'))
    const many = await large.cost(() => large.db.runs.delete('r'))
    expect(few.written).toBeGreaterThan(0)
    expect(many.written).toBeLessThanOrEqual(few.written + 64)
    expect(many.reads - few.reads).toBeLessThanOrEqual(6)
    expect(await large.db.kv.list('r')).toEqual([])
    expect(await large.db.events.length('r')).toBe(0)
    await small.db.close()
    await large.db.close()
  })
})
