import { describe, expect, test } from 'vitest'
import { sha256 } from '../../src/core/hash.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { FORMAT, fileName } from '../../src/embedded/format.ts'
import { type EmbeddedOptions, openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'
import type { Committed, Operation } from '../../src/engine/storage.ts'
import { seedOfRun } from '../../src/testing/random.ts'
import { damageCampaign } from '../campaigns/damage-campaign.ts'
import { inFormat } from '../other-format.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

/** The rows of the failure matrix that concern one process and its disk. */

const scope = 't:a:g:run'

function open(disk: SimulatedDisk, options: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  return openEmbedded({ disk: disk.handle(), warn: () => undefined, ...options })
}

function put(key: string, value = 'value'): Operation {
  return { op: 'put', scope, tag: TAGS.kv, key, value }
}

function append(dedupeKey: string, body = 'body'): Operation {
  return { op: 'append', scope, tag: TAGS.event, body, bodyHash: sha256(body), dedupe: { key: dedupeKey } }
}

async function keysOf(store: EmbeddedStore): Promise<string[]> {
  return (await store.scan({ scope, tag: TAGS.kv })).map(({ key }) => key)
}

describe('fsync fails', () => {
  test('callers get OUTCOME_UNKNOWN, the handle stays read-only, no sync is retried, and reopening finds what is durable', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await store.commit({ operations: [put('before')] })
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'sync' || kind === 'syncLater' })
    await expect(store.commit({ operations: [put('unknown')] })).rejects.toMatchObject({
      code: 'OUTCOME_UNKNOWN',
    })
    const calls: string[] = []
    disk.onCall = ({ kind, phase }) => void (phase === 'start' && calls.push(kind))
    await expect(store.commit({ operations: [put('later')] })).rejects.toMatchObject({ code: 'READ_ONLY' })
    await expect(store.checkpoint()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await keysOf(store)).toEqual(['before'])
    await store.close()
    expect(calls.filter(kind => kind !== 'read')).toEqual([])
    const found = await keysOf(await open(disk))
    expect(found.filter(key => key !== 'unknown')).toEqual(['before'])
  })

  test('a failed sync of the folder makes the handle read-only, whichever call needed it', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    await store.commit({ operations: [put('a')] })
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'syncFolder' })
    await expect(store.checkpoint()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await expect(store.commit({ operations: [put('b')] })).rejects.toMatchObject({ code: 'READ_ONLY' })
    await store.close()
    const again = await open(disk)
    await again.commit({ operations: [put('c')] })
    expect(await keysOf(again)).toEqual(['a', 'c'])
  })
})

describe('disk full, short write', () => {
  test('the commit is refused, the log is truncated to the last complete frame, and reads and reopening work', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk, { prepareBytes: 0 })
    await store.commit({ operations: [put('before')] })
    const sizes = disk.files()
    disk.capacityBytes = sizes.reduce((sum, { size }) => sum + size, 0) + 100
    await expect(store.commit({ operations: [put('big', 'x'.repeat(1_000))] })).rejects.toMatchObject({
      code: 'DISK_FULL',
    })
    expect(disk.files()).toEqual(sizes)
    expect(await keysOf(store)).toEqual(['before'])
    const reopened = await open(disk.afterProcessCrash())
    expect(reopened.recovery).toBeUndefined()
    expect(await keysOf(reopened)).toEqual(['before'])
    await expect(reopened.commit({ operations: [put('more', 'x'.repeat(1_000))] })).rejects.toMatchObject({
      code: 'DISK_FULL',
    })
    disk.capacityBytes = Number.POSITIVE_INFINITY
    await store.commit({ operations: [put('after')] })
    expect(await keysOf(store)).toEqual(['after', 'before'])
  })
})

describe('a flipped bit, a cut file', () => {
  test("damage is CORRUPT, harmless, or a reported loss of the log's end, and never silent", {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`damage campaign: ANNALS_SEED=${seed}`)
    const report = await damageCampaign({ seed, stores: 100 })
    console.log('damage campaign:', report)
    expect(Object.entries(report).filter(([, count]) => count === 0)).toEqual([])
  })
})

describe('checkpoint damaged', () => {
  async function twoCheckpoints(): Promise<SimulatedDisk> {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    for (const key of ['a', 'b', 'c']) {
      await store.commit({ operations: [put(key)] })
      await store.checkpoint()
    }
    await store.commit({ operations: [put('d')] })
    return disk.afterProcessCrash()
  }

  test.each([0, 1])('manifest %i: the other one and the log replace it', async id => {
    const disk = await twoCheckpoints()
    disk.flip(fileName('M', id), 40)
    const store = await open(disk)
    expect(store.recovery?.damagedManifests).toEqual([fileName('M', id)])
    expect(await keysOf(store)).toEqual(['a', 'b', 'c', 'd'])
  })

  test('both manifests: the store is refused as CORRUPT', async () => {
    const disk = await twoCheckpoints()
    disk.flip(fileName('M', 0), 40)
    disk.flip(fileName('M', 1), 40)
    await expect(open(disk)).rejects.toMatchObject({ code: 'CORRUPT' })
  })
})

describe('clock jumps', () => {
  test('the time of a commit never goes back, not even across a restart', async () => {
    const disk = new SimulatedDisk()
    let now = 1_000
    const clock = (): number => now
    let store = await open(disk, { clock })
    const times: number[] = []
    for (const jump of [5, -500, 3, 10_000, -20_000]) {
      now += jump
      const { time } = (await store.commit({ operations: [append(`d${jump}`)] })) as Committed
      times.push(time)
    }
    store = await open(disk.afterProcessCrash(), { clock })
    times.push(((await store.commit({ operations: [append('last')] })) as Committed).time)
    expect(times).toEqual(times.toSorted((a, b) => a - b))
    const events = await store.scan({ scope, tag: TAGS.event })
    expect(events.map(({ time }) => time)).toEqual(times)
  })
})

describe('duplicate append, any timing', () => {
  test('a duplicate append stores one record and returns the same result: concurrently, later, after a restart and after a refusal', async () => {
    const disk = new SimulatedDisk()
    const store = await open(disk, { prepareBytes: 0 })
    disk.capacityBytes = 300
    await expect(store.commit({ operations: [append('d', 'x'.repeat(400))] })).rejects.toMatchObject({
      code: 'DISK_FULL',
    })
    disk.capacityBytes = Number.POSITIVE_INFINITY
    const atOnce = await Promise.all([1, 2, 3].map(() => store.commit({ operations: [append('d')] })))
    const later = await store.commit({ operations: [append('d')] })
    const reopened = await open(disk.afterProcessCrash())
    const afterwards = await reopened.commit({ operations: [append('d')] })
    const answers = [...atOnce, later, afterwards].map(outcome => (outcome as Committed).appended[0])
    expect(answers.map(({ duplicate }) => duplicate)).toEqual([false, true, true, true, true])
    expect(new Set(answers.map(({ sequence, hash, time }) => `${sequence} ${hash} ${time}`)).size).toBe(1)
    expect(await reopened.scan({ scope, tag: TAGS.event })).toHaveLength(1)
  })
})

describe('a newer file format', () => {
  test.each(['W', 'D', 'M'] as const)(
    'of kind %s: refused with its name, and no byte changed',
    async kind => {
      const disk = new SimulatedDisk()
      const store = await open(disk)
      await store.commit({ operations: [put('a')] })
      await store.checkpoint()
      await store.commit({ operations: [put('b')] })
      const files = disk.toFiles()
      const prefix = { W: 'wal', D: 'data', M: 'manifest' }[kind]
      const name = Object.keys(files).findLast(each => each.startsWith(prefix)) as string
      files[name] = inFormat(FORMAT + 1, files[name])
      const newer = SimulatedDisk.of(files)
      await expect(open(newer)).rejects.toMatchObject({ code: 'FORMAT_TOO_NEW', details: { file: name } })
      expect(newer.toFiles()).toEqual(files)
    },
  )
})
