import { describe, expect, test } from 'vitest'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import { sha256 } from '../core/hash.ts'
import { HEAD_KEY, headTag, TAGS } from '../engine/keys.ts'
import { parseHead } from '../engine/log.ts'
import type { Append, Committed, Drop, Operation, Put } from '../engine/storage.ts'
import { Random } from '../testing/random.ts'
import type { EmbeddedStore } from './embedded-store.ts'
import { type EmbeddedOptions, openEmbedded } from './open.ts'

/** The parts of a drop that the storage suite can't test: files, reopening and failures. */

const SMALL = { cacheBytes: 20_000, fileBytes: 60_000, garbageBytes: 1e9, warn: () => undefined }

function open(disk: SimulatedDisk, options: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  return openEmbedded({ disk: disk.handle(), ...SMALL, ...options })
}

const put = (scope: string, key: string, value = 'value'): Put => ({
  op: 'put',
  scope,
  tag: TAGS.kv,
  key,
  value,
})
const drop = (scope: string): Drop => ({ op: 'drop', scope })
const append = (scope: string, body: string, key?: string): Append => ({
  op: 'append',
  scope,
  tag: TAGS.event,
  body,
  bodyHash: sha256(body),
  ...(key === undefined ? {} : { dedupe: { key } }),
})

async function commit(store: EmbeddedStore, ...operations: readonly Operation[]): Promise<Committed> {
  return (await store.commit({ operations })) as Committed
}

/** Fills scopes with keys so long that their trees have three levels, in several files. */
async function fill(store: EmbeddedStore, ...scopes: readonly string[]): Promise<void> {
  const keys = Array.from({ length: 300 }, (_, i) => `${'k'.repeat(1_500)}${String(i).padStart(4, '0')}`)
  for (let at = 0; at < keys.length; at += 60) {
    const some = keys.slice(at, at + 60)
    await commit(store, ...scopes.flatMap(scope => some.map(key => put(scope, key))))
    await store.checkpoint()
  }
  await commit(store, ...scopes.map(scope => append(scope, 'event', 'once')))
}

async function sizeOf(store: EmbeddedStore, scope: string): Promise<number> {
  return (await store.scan({ scope, tag: TAGS.kv })).length
}

describe('a drop', () => {
  test('frees the space of a tree with several levels and files', async () => {
    const disk = new SimulatedDisk()
    let store = await open(disk)
    await fill(store, 'a')
    await commit(store, put('b', 'k'))
    await store.checkpoint()
    const before = store.stats().liveBytes
    expect(before).toBeGreaterThan(400_000)
    // Reopened, so that no node is in memory.
    store = await open(disk.afterProcessCrash())
    await commit(store, drop('a'))
    await store.checkpoint()
    await store.verify()
    expect(store.stats().liveBytes).toBeLessThan(2_000)
    for (let i = 0; i < 2; i++) {
      await commit(store, put('b', `k${i}`))
      await store.checkpoint()
    }
    expect(store.stats().dataBytes).toBeLessThan(70_000)
    await store.close()
  })

  test('that recovery finds in the log hides older entries from gets and scans', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await commit(store, put('a', 'k', 'old'), put('a', 'l', 'old'), append('a', 'old', 'once'))
    await store.checkpoint()
    await commit(store, put('a', 'm', 'old'))
    await commit(store, drop('a'))
    await commit(store, put('a', 'l', 'new'))
    for (const readOnly of [true, false]) {
      const again = await open(disk.afterProcessCrash(), { readOnly })
      const found = await Promise.all(['k', 'l', 'm'].map(key => again.get('a', TAGS.kv, key)))
      expect(found.map(entry => entry?.value)).toEqual([undefined, 'new', undefined])
      expect((await again.scan({ scope: 'a', tag: TAGS.kv })).map(({ key }) => key)).toEqual(['l'])
      expect(await again.scan({ scope: 'a', tag: TAGS.event })).toEqual([])
      expect(await again.get('a', headTag(TAGS.event), HEAD_KEY)).toBeUndefined()
      await again.verify()
      if (readOnly) continue
      const { appended } = await commit(again, append('a', 'new', 'once'))
      expect(appended).toMatchObject([{ sequence: 0, duplicate: false }])
      await again.checkpoint()
      await again.verify()
    }
  })

  test('that only the log has takes effect after reopening, and its space is freed', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await fill(store, 'a')
    await store.checkpoint()
    await commit(store, drop('a'), put('a', 'k'))
    const again = await open(disk.afterProcessCrash())
    expect(await sizeOf(again, 'a')).toBe(1)
    await again.checkpoint()
    await again.verify()
    expect(again.stats().liveBytes).toBeLessThan(2_000)
  })

  for (const file of ['data', 'manifest', 'wal']) {
    test(`is freed exactly once if its checkpoint fails because the disk is full when writing the ${file} file`, async () => {
      const disk = new SimulatedDisk()
      const store = await open(disk, { prepareBytes: 0 })
      await fill(store, 'a', 'b')
      await store.checkpoint()
      const snapshot = await store.snapshot()
      await commit(store, drop('a'), put('c', 'k'))
      const isWrite = (kind: string): boolean =>
        kind === 'write' || kind === 'writeLater' || kind === 'create'
      for (let i = 0; i < 3; i++) {
        disk.fail({
          error: 'ENOSPC',
          when: call => isWrite(call.kind) && call.file.startsWith(file),
          times: 4,
        })
        const failed = store.checkpoint().then(
          () => false,
          () => true,
        )
        await commit(store, drop(i === 1 ? 'b' : 'none'), put('a', `k${i}`)).catch(() => undefined)
        expect(file === 'wal' || (await failed)).toBe(true)
        await failed
        disk.heal()
      }
      await store.checkpoint()
      await store.verify()
      expect(await snapshot.scan({ scope: 'a', tag: TAGS.kv })).toHaveLength(300)
      snapshot.release()
      const again = await open(disk.afterPowerCut(new Random(1)))
      await again.verify()
      expect(await again.scopes({ limit: 10 })).toEqual(await store.scopes({ limit: 10 }))
    })
  }

  test('keeps blocks of a failed checkpoint that snapshots read', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    // Fills a data file, so that the next file has only blocks of scope a.
    await commit(store, put('b', 'k', 'x'.repeat(70_000)))
    await store.checkpoint()
    await commit(store, ...Array.from({ length: 300 }, (_, i) => put('a', `k${i}`, 'x'.repeat(900))))
    const snapshot = await store.snapshot()
    const isManifest = ({ kind, file }: { kind: string; file: string }): boolean =>
      kind === 'write' && file.startsWith('manifest')
    // Fails twice, because the checkpoint tries again with the space of the prepared segment.
    disk.fail({ error: 'ENOSPC', when: isManifest, times: 2 })
    await expect(store.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL' })
    // A snapshot that is taken now reads the same blocks.
    const later = await store.snapshot()
    await commit(store, drop('a'))
    await store.checkpoint()
    await store.checkpoint()
    for (const each of [snapshot, later]) {
      expect(await each.scan({ scope: 'a', tag: TAGS.kv })).toHaveLength(300)
      each.release()
    }
    await commit(store, put('b', 'l'))
    await store.checkpoint()
    await store.checkpoint()
    expect(store.stats().dataBytes).toBeLessThan(150_000)
  })

  test('is undone if a read fails later in its commit', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await commit(store, append('b', 'event', 'once'))
    await store.close()
    const again = await open(disk)
    await commit(again, put('a', 'k'), put('c', 'k'))
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'read', times: Number.POSITIVE_INFINITY })
    const inFlight = [commit(again, put('a', 'l')), commit(again, drop('c'), put('c', 'l'))]
    // The dedupe keys are not in memory, so the append must read from disk and fails.
    const failed = commit(again, drop('a'), drop('c'), append('b', 'x', 'once'))
    await expect(failed).rejects.toMatchObject({ code: 'IO_ERROR' })
    disk.heal()
    const places = [...'kl'].flatMap(key => ['a', 'c'].map(scope => ({ scope, tag: TAGS.kv, key })))
    const { result } = await again.update(places, found => ({ operations: [], result: found }))
    expect(result.map(entry => entry?.key)).toEqual(['k', undefined, 'l', 'l'])
    await Promise.all(inFlight)
    expect([await sizeOf(again, 'a'), await sizeOf(again, 'c')]).toEqual([2, 1])
  })
})

describe('scopes', () => {
  const all = ['a', 'a:b', 'b', 'c']

  test('are listed after opening, from the trees and from the log', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await commit(store, ...all.map(scope => put(scope, 'k')), put('gone', 'k'), put('deleted', 'k'))
    await store.checkpoint()
    const listed = await open(disk.afterProcessCrash())
    expect(await listed.scopes({ limit: 10 })).toEqual([...all, 'deleted', 'gone'])
    expect(await listed.scopes({ from: 'a\0', to: 'b\0', limit: 10 })).toEqual(['a:b', 'b'])
    await commit(
      store,
      drop('gone'),
      { op: 'delete', scope: 'deleted', tag: TAGS.kv, key: 'k' },
      put('d', 'k'),
    )
    for (const image of [disk.afterProcessCrash(), disk.afterPowerCut(new Random(1))]) {
      const reader = await open(image, { readOnly: true })
      expect(await reader.scopes({ limit: 10 })).toEqual([...all, 'd'])
      await reader.close()
      const again = await open(image)
      expect(await again.scopes({ from: 'a\0', limit: 2 })).toEqual(['a:b', 'b'])
      await again.close()
      // After the close, the log is empty and only the directory has the scopes.
      const closed = await open(image)
      for (const to of ['a\0', 'a\x01', 'a:b']) expect(await closed.scopes({ to, limit: 10 })).toEqual(['a'])
      expect(await closed.scopes({ from: 'a\0', to: 'c', limit: 10 })).toEqual(['a:b', 'b'])
      expect(await closed.scopes({ limit: 3 })).toEqual(['a', 'a:b', 'b'])
    }
  })

  test('can be listed while a checkpoint applies the recovered log', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    for (const scope of all) for (let i = 0; i < 20; i++) await commit(store, put(scope, `k${i}`))
    await commit(store, drop('b'))
    let tick = 0
    const waiting: (() => void)[] = []
    // Each slice of the checkpoint waits until the test runs it.
    const scheduler = {
      soon: queueMicrotask,
      later: (task: () => void) => void waiting.push(task),
      now: () => (tick += 3),
    }
    const again = await open(disk.afterProcessCrash(), { scheduler })
    const committing = commit(again, put('d', 'k'))
    for (let i = 0; i < 20; i++) await undefined
    waiting.shift()?.()
    for (let i = 0; i < 20; i++) await undefined
    expect(waiting).toHaveLength(1)
    expect(await again.scopes({ limit: 10 })).toEqual(['a', 'a:b', 'c'])
    const timer = setInterval(() => waiting.shift()?.(), 0)
    await committing
    clearInterval(timer)
    expect(await again.scopes({ limit: 10 })).toEqual(['a', 'a:b', 'c', 'd'])
  })
})

describe('the head of a log', () => {
  test('is correct when there are more trees than the forest keeps open', async () => {
    const disk = new SimulatedDisk()
    const scopes = Array.from({ length: 20_100 }, (_, i) => `run-${i}`)
    const lengths = new Map(scopes.map(scope => [scope, 1]))
    let store = await open(disk, { durability: 'relaxed' })
    await commit(store, ...scopes.flatMap(scope => [append(scope, '0'), put(scope, 'k')]))
    await store.close()
    store = await open(disk, { durability: 'relaxed', cacheBytes: 1e8 })
    // Opens as many clean trees as the forest keeps. From here on, each opened tree makes the forest forget others in this order.
    // Appends at the same pace hit trees that are about to be forgotten.
    for (const scope of scopes) await store.get(scope, TAGS.kv, 'k')
    const random = new Random(1)
    for (let i = 0; i < 5_000; i++) {
      const scope = scopes[2 * i + random.below(12)]
      lengths.set(scope, (lengths.get(scope) ?? 0) + 2)
      await commit(store, append(scope, '1'))
      await commit(store, append(scope, '2'))
    }
    await store.checkpoint()
    for (const scope of scopes) {
      const entries = await store.scan({ scope, tag: TAGS.event })
      const head = parseHead(await store.get(scope, headTag(TAGS.event), HEAD_KEY))
      const length = lengths.get(scope)
      expect([scope, entries.length, head.length]).toEqual([scope, length, length])
    }
  })
})
