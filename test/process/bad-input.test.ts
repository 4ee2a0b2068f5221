import { chmodSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { sha256 } from '../../src/core/hash.ts'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import {
  checkNumbers,
  commitNumber,
  commitUpTo,
  fingerprint,
  makeClosed,
  makeUnclosed,
  newFolder,
  openStore,
  rootFolder,
  visit,
} from './folder.ts'

/** Failure matrix: "malformed input" and "clock jumps", for a folder and the store in it. */
const NOBODY = 65_534
const isRoot = process.getuid?.() === 0

const put = (key: string, value = 'v') => ({ op: 'put', scope: 's', tag: TAGS.kv, key, value }) as const

function lastLog(folder: string): string {
  return join(
    folder,
    readdirSync(folder)
      .filter(name => name.startsWith('wal'))
      .at(-1) as string,
  )
}

describe('failure matrix, malformed input: the folder', () => {
  it('a path that is a file is refused, and the file is not changed', async () => {
    const path = newFolder()
    writeFileSync(path, 'precious')
    const attempts = [
      () => openStore(path),
      () => openStore(path, { readOnly: true }),
      () => openStore(join(path, 'x')),
    ]
    for (const attempt of attempts) {
      await expect((async () => attempt())()).rejects.toMatchObject({
        name: 'AnnalsError',
        code: 'INVALID_ARGUMENT',
      })
    }
    expect(readFileSync(path, 'utf8')).toBe('precious')
  })

  it('unknown files in the folder are not changed', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const foreign = ['notes.txt', 'data-1', 'wal-00000001.bak', 'manifest-2', 'data-00000001x']
    for (const name of foreign) writeFileSync(join(folder, name), name)
    const store = await openStore(folder, { walBytes: 2_000 })
    await commitUpTo(store, 200)
    await store.checkpoint()
    await store.checkpoint()
    await store.close()
    for (const name of foreign) expect(readFileSync(join(folder, name), 'utf8')).toBe(name)
    const again = await openStore(folder)
    expect(await checkNumbers(again)).toBe(200)
    await again.close()
  })

  // reason: only root can change its user; src/disk/node-disk.test.ts tests permissions without that
  describe.runIf(isRoot)('of another user', () => {
    it('a folder without write permission opens with readOnly: true only, and is not changed', async () => {
      chmodSync(rootFolder, 0o755)
      for (const folder of [await makeClosed(40), await makeUnclosed(40)]) {
        chmodSync(folder, 0o555)
        const before = fingerprint(folder)
        const writer = await visit(folder, { uid: NOBODY })
        expect(writer.visit).toMatchObject({ name: 'AnnalsError', code: 'READ_ONLY' })
        expect(writer.visit.message).toContain('readOnly: true')
        const reader = await visit(folder, { uid: NOBODY, readOnly: true })
        expect(reader.visit).toMatchObject({ code: 'OPEN', read: '1', wrote: 'READ_ONLY' })
        expect(fingerprint(folder)).toEqual(before)
      }
    })

    it('a writable folder with read-only files is refused with an error code, and not changed', async () => {
      chmodSync(rootFolder, 0o755)
      const folder = await makeClosed(40)
      chmodSync(folder, 0o777)
      for (const name of readdirSync(folder)) chmodSync(join(folder, name), 0o444)
      const before = fingerprint(folder)
      const writer = await visit(folder, { uid: NOBODY })
      expect(writer.visit.name).toBe('AnnalsError')
      expect(['READ_ONLY', 'IO_ERROR']).toContain(writer.visit.code)
      expect(fingerprint(folder)).toEqual(before)
    })

    it('a folder without read permission is refused', async () => {
      chmodSync(rootFolder, 0o755)
      const folder = await makeClosed(1)
      chmodSync(folder, 0o700)
      const visitor = await visit(folder, { uid: NOBODY, readOnly: true })
      expect(visitor.visit).toMatchObject({ name: 'AnnalsError', code: 'IO_ERROR' })
    })
  })

  it('a failed opening leaves no file open', async () => {
    const folder = await makeClosed(10)
    const holder = await openStore(folder)
    const before = openDescriptors()
    for (let i = 0; i < 20; i++) await expect(openStore(folder)).rejects.toMatchObject({ code: 'LOCKED' })
    expect(openDescriptors()).toBe(before)
    await holder.close()
    truncateSync(join(folder, 'data-00000001'), 20)
    const without = openDescriptors()
    for (let i = 0; i < 20; i++) await expect(openStore(folder)).rejects.toMatchObject({ code: 'CORRUPT' })
    expect(openDescriptors()).toBe(without)
  })
})

/** The number of open descriptors on Linux. Other systems do not list them, so nothing is compared there. */
function openDescriptors(): number {
  return process.platform === 'linux' ? readdirSync('/proc/self/fd').length : 0
}

describe('readOnly: true', () => {
  it('reads all data and changes no byte of a store that was closed, not closed, or has a torn tail', async () => {
    const torn = await makeUnclosed(60)
    truncateSync(lastLog(torn), readFileSync(lastLog(torn)).length - 20)
    const folders = { closed: await makeClosed(60), 'not closed': await makeUnclosed(60), torn }
    for (const [kind, folder] of Object.entries(folders)) {
      const before = fingerprint(folder)
      const store = await openStore(folder, { readOnly: true })
      expect(await checkNumbers(store)).toBe(kind === 'torn' ? 59 : 60)
      expect(store.recovery?.tornTail !== undefined).toBe(kind === 'torn')
      await expect(store.commit({ operations: [put('k')] })).rejects.toMatchObject({ code: 'READ_ONLY' })
      await expect(store.update([], () => ({ operations: [put('k')], result: 1 }))).rejects.toMatchObject({
        code: 'READ_ONLY',
      })
      await expect(store.checkpoint()).rejects.toMatchObject({ code: 'READ_ONLY' })
      const snapshot = await store.snapshot()
      expect((await snapshot.get('s', TAGS.kv, 'last'))?.value).toBe(kind === 'torn' ? '59' : '60')
      snapshot.release()
      await store.close()
      expect(fingerprint(folder)).toEqual(before)
    }
  })

  it('backs up all data, also data that are only in the log', async () => {
    const folder = await makeUnclosed(60)
    const before = fingerprint(folder)
    const target = newFolder()
    const store = await openStore(folder, { readOnly: true })
    await store.backup(openNodeDisk(target))
    await store.close()
    expect(fingerprint(folder)).toEqual(before)
    const copy = await openStore(target)
    expect(await checkNumbers(copy)).toBe(60)
    await copy.close()
  })

  it('refuses a missing folder, and creates none', () => {
    const folder = newFolder()
    expect(() => openNodeDisk(folder, { readOnly: true })).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
    )
    expect(() => readdirSync(folder)).toThrow()
  })
})

describe('a closed handle', () => {
  it('refuses every method with CLOSED, and closing twice succeeds', async () => {
    const store = await openStore(newFolder())
    await commitUpTo(store, 3)
    const snapshot = await store.snapshot()
    const unsubscribe = await store.subscribe({ scope: 's', tag: TAGS.kv }, () => undefined)
    const [first, second] = [store.close(), store.close()]
    await Promise.all([first, second])
    await store.close()
    const calls: Record<string, () => Promise<unknown>> = {
      get: () => store.get('s', TAGS.kv, 'k1'),
      scan: () => store.scan({ scope: 's', tag: TAGS.kv }),
      snapshot: () => store.snapshot(),
      commit: () => store.commit({ operations: [put('k')] }),
      'commit of nothing': () => store.commit({ operations: [] }),
      update: () => store.update([], () => ({ operations: [], result: 1 })),
      subscribe: () => store.subscribe({ scope: 's', tag: TAGS.kv }, () => undefined),
      checkpoint: () => store.checkpoint(),
      backup: () => store.backup(new SimulatedDisk()),
      verify: () => store.verify(),
      'get of a snapshot': () => snapshot.get('s', TAGS.kv, 'k1'),
      'scan of a snapshot': () => snapshot.scan({ scope: 's', tag: TAGS.kv }),
    }
    for (const [name, call] of Object.entries(calls)) {
      // The method must return a rejected promise, not throw.
      await expect(call(), name).rejects.toMatchObject({ name: 'AnnalsError', code: 'CLOSED' })
    }
    snapshot.release()
    unsubscribe()
  })

  it('while closing, each operation is done and survives reopening, or is CLOSED', async () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    const tally = { committed: 0, closed: 0, rounds: 400 }
    for (let round = 0; round < tally.rounds; round++) {
      try {
        await closeInTheMiddle(random, tally)
      } catch (error) {
        throw new Error(`seed ${seed}, round ${round}`, { cause: error })
      }
    }
    console.log(`while closing, seed ${seed}: ${JSON.stringify(tally)}`)
    expect(tally.committed).toBeGreaterThan(0)
    expect(tally.closed).toBeGreaterThan(0)
  })
})

async function closeInTheMiddle(random: Random, tally: { committed: number; closed: number }): Promise<void> {
  const disk = new SimulatedDisk({
    later: random.chance(0.5) ? queueMicrotask : task => void setImmediate(task),
  })
  const durability = random.chance(0.5) ? 'durable' : 'relaxed'
  const options = {
    durability,
    walBytes: 1_500,
    dirtyBytes: 50_000,
    fileBytes: 8_000,
    warn: () => undefined,
  } as const
  let source = disk
  if (random.chance(0.6)) {
    // After a recovery, the first commit waits for a checkpoint.
    const before = await openEmbedded({ ...options, disk: disk.handle() })
    for (let i = 0; i < 5; i++) await before.commit({ operations: [put(`old-${i}`)] })
    source = disk.afterProcessCrash()
  }
  const store = await openEmbedded({ ...options, disk: source.handle() })
  const done = new Set<string>()
  const outcomes: Promise<void>[] = []
  const start = (key: string, action: Promise<unknown>): void => {
    outcomes.push(
      action.then(
        () => {
          done.add(key)
          tally.committed++
        },
        (error: { code?: string }) => {
          if (error.code !== 'CLOSED') throw error
          tally.closed++
        },
      ),
    )
  }
  const expiresAt = Date.now() + 1
  for (let i = 0; i < 12; i++) {
    const value = 'v'.repeat(random.below(400))
    start(`new-${i}`, store.commit({ operations: [put(`new-${i}`, value)] }))
    if (random.chance(0.2)) start('', store.checkpoint())
    if (random.chance(0.2)) start('', store.commit({ operations: [{ ...put('expiring'), expiresAt }] }))
    if (random.chance(0.2)) start('', store.backup(new SimulatedDisk()))
    if (random.chance(0.2)) start('', store.snapshot())
    for (let turns = random.below(4); turns > 0; turns--) await Promise.resolve()
  }
  const closing = store.close()
  start('late', store.commit({ operations: [put('late')] }))
  await closing
  await Promise.all(outcomes)
  // The closed store must not write any more.
  await new Promise(resolve => setImmediate(resolve))
  if (source.openFiles > 0) throw new Error(`${source.openFiles} files are still open`)
  const calls = source.calls
  await new Promise(resolve => setImmediate(resolve))
  if (source.calls > calls) throw new Error('the disk is used after close')
  const again = await openEmbedded({ ...options, disk: source.handle() })
  for (const key of done) {
    if (key !== '' && (await again.get('s', TAGS.kv, key)) === undefined) throw new Error(`${key} is lost`)
  }
  await again.verify()
  await again.close()
}

describe('backup', () => {
  it('under load is a committed state that opens, verifies, and is independent', async () => {
    const store = await openStore(newFolder(), {
      durability: 'relaxed',
      walBytes: 60_000,
      fileBytes: 100_000,
      garbageBytes: 50_000,
    })
    let next = 1
    let running = true
    const load = (async () => {
      while (running) {
        const crowd: Promise<void>[] = []
        for (let i = 0; i < 20; i++) crowd.push(commitNumber(store, next++))
        await Promise.all(crowd)
        await new Promise(resolve => setImmediate(resolve))
      }
    })()
    const versions: number[] = []
    for (let i = 0; i < 5; i++) {
      const target = newFolder()
      const atLeast = store.stats().version
      await store.backup(openNodeDisk(target))
      const copy = await openStore(target)
      expect(copy.recovery).toBeUndefined()
      const version = await checkNumbers(copy)
      expect(version).toBeGreaterThanOrEqual(atLeast)
      versions.push(version)
      await copy.close()
    }
    running = false
    await load
    console.log(`backups under load at versions ${versions.join(', ')} of ${next - 1}`)
    expect(await checkNumbers(store)).toBe(next - 1)
    await store.close()
  })

  it('and its original are independent', async () => {
    const [folder, target] = [newFolder(), newFolder()]
    const store = await openStore(folder)
    await commitUpTo(store, 120)
    await store.backup(openNodeDisk(target))
    const copy = await openStore(target)
    await commitUpTo(store, 200)
    await commitUpTo(copy, 150)
    expect(await checkNumbers(store)).toBe(200)
    expect(await checkNumbers(copy)).toBe(150)
    await Promise.all([store.close(), copy.close()])
    const [storeAgain, copyAgain] = [await openStore(folder), await openStore(target)]
    expect(await checkNumbers(storeAgain)).toBe(200)
    expect(await checkNumbers(copyAgain)).toBe(150)
    await Promise.all([storeAgain.close(), copyAgain.close()])
  })

  it('into a folder that is not empty, or its own, is refused, and nothing is changed there', async () => {
    const folder = newFolder()
    const store = await openStore(folder)
    await commitUpTo(store, 20)
    const other = await makeClosed(7)
    const foreign = newFolder()
    mkdirSync(foreign)
    writeFileSync(join(foreign, 'notes.txt'), 'precious')
    for (const target of [other, foreign]) {
      const before = fingerprint(target)
      await expect(store.backup(openNodeDisk(target))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      expect(fingerprint(target)).toEqual(before)
    }
    await expect(store.backup(openNodeDisk(folder))).rejects.toMatchObject({ code: 'LOCKED' })
    expect(await checkNumbers(store)).toBe(20)
    await store.close()
  })

  it('of an empty store is an empty store', async () => {
    const target = newFolder()
    const store = await openStore(newFolder())
    await store.backup(openNodeDisk(target))
    await store.close()
    const copy = await openStore(target)
    expect(await checkNumbers(copy)).toBe(0)
    await copy.close()
  })
})

describe('failure matrix, clock jumps', () => {
  it('versions and times never go back, whatever the clock does, across close, kill and reopen', async () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    let clock = 1_750_000_000_000
    const disk = new SimulatedDisk()
    let source = disk
    let last = { version: 0, time: 0 }
    let commits = 0
    for (let life = 0; life < 12; life++) {
      const store: EmbeddedStore = await openEmbedded({
        disk: source.handle(),
        clock: () => clock,
        durability: life % 2 ? 'durable' : 'relaxed',
        walBytes: 1_000,
        warn: () => undefined,
      })
      for (let i = 0; i < 40; i++) {
        clock += random.chance(0.5) ? random.below(10) : -random.below(100_000)
        const body = `${life}-${i}`
        const append = { op: 'append', scope: 's', tag: TAGS.event, body, bodyHash: sha256(body) } as const
        const outcome = await store.commit({ operations: [put('k'), append] })
        if (outcome.status !== 'committed') throw new Error('a blind write conflicts')
        commits++
        expect(outcome.version).toBeGreaterThan(last.version)
        expect(outcome.time).toBeGreaterThanOrEqual(last.time)
        expect(outcome.appended[0].time).toBe(outcome.time)
        last = outcome
        const snapshot = await store.snapshot()
        expect(snapshot.time).toBeGreaterThanOrEqual(last.time)
        snapshot.release()
      }
      const events = await store.scan({ scope: 's', tag: TAGS.event })
      expect(events.length).toBe(commits)
      expect(events.every((event, i) => i === 0 || event.time >= events[i - 1].time)).toBe(true)
      if (life % 3 === 0) await store.close()
      else source = source.afterProcessCrash()
    }
    console.log(`clock jumps, seed ${seed}: ${commits} commits over 12 lives, time and version never back`)
  })
})
