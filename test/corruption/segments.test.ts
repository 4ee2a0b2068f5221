import { beforeAll, describe, expect, it } from 'vitest'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { fileName } from '../../src/embedded/format.ts'
import { type EmbeddedOptions, openEmbedded } from '../../src/embedded/open.ts'
import { TAGS } from '../../src/engine/keys.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

/**
 * Failure matrix: "a flipped bit, a cut file", for the segments of the log. The manifest names the first segment and
 * each segment names the next. A segment that is missing, swapped or from another store is therefore CORRUPT, and no
 * commit is lost silently.
 */
const scope = 't:a:g:run'
const KEYS = 300

type Files = Record<string, Buffer>

function open(disk: SimulatedDisk, options: EmbeddedOptions = {}): Promise<EmbeddedStore> {
  return openEmbedded({ disk: disk.handle(), prepareBytes: 0, warn: () => undefined, ...options })
}

async function put(store: EmbeddedStore, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i++) {
    await store.commit({ operations: [{ op: 'put', scope, tag: TAGS.kv, key: `k${i}`, value: 'x' }] })
  }
}

/**
 * The files of a store that was not closed. Its log has several segments, because checkpoints failed after a new
 * segment had begun.
 */
async function logOfThree(durability: 'durable' | 'relaxed', checkpoints: boolean): Promise<Files> {
  const disk = new SimulatedDisk()
  const store = await open(disk, { durability })
  for (let part = 0; part < 3; part++) {
    await put(store, part * 100, part * 100 + 100)
    if (checkpoints && part === 0) await store.checkpoint()
    if (part === 2) break
    disk.fail({ error: 'ENOSPC', when: ({ kind, file }) => kind === 'write' && file.startsWith('manifest') })
    await expect(store.checkpoint()).rejects.toMatchObject({ code: 'DISK_FULL' })
    disk.heal()
  }
  const files = disk.afterProcessCrash().toFiles()
  const whole = await open(SimulatedDisk.of(files))
  expect(await whole.scan({ scope, tag: TAGS.kv })).toHaveLength(KEYS)
  return files
}

function segmentsOf(files: Files): string[] {
  return Object.keys(files)
    .filter(name => name.startsWith('wal'))
    .sort()
}

async function refusal(files: Files): Promise<unknown> {
  for (const readOnly of [true, false]) {
    const disk = SimulatedDisk.of(files)
    const opened = await open(disk, { readOnly }).then(
      async store => `opened with ${(await store.scan({ scope, tag: TAGS.kv })).length} of ${KEYS} keys`,
      error => error as unknown,
    )
    if (typeof opened === 'string') return opened
    expect(disk.toFiles()).toEqual(files)
    if (!readOnly) return opened
  }
  return undefined
}

const VARIANTS = [
  ['durable', false],
  ['durable', true],
  ['relaxed', false],
  ['relaxed', true],
] as const

describe.each(VARIANTS)('a log of several segments, %s, with a checkpoint: %s', (durability, checkpoints) => {
  let files: Files
  /** The segments that the newest manifest needs. The others are kept for the previous manifest. */
  let needed: readonly string[]
  beforeAll(async () => {
    files = await logOfThree(durability, checkpoints)
    needed = segmentsOf(files).slice(checkpoints ? 1 : 0)
    expect(needed.length).toBeGreaterThan(1)
  })

  it('a missing segment is CORRUPT with its name, also the newest one', async () => {
    for (const name of needed) {
      const { [name]: _, ...left } = files
      expect(await refusal(left), name).toMatchObject({ code: 'CORRUPT', details: { file: name } })
    }
  })

  it('several missing segments at the end are CORRUPT', async () => {
    for (let kept = 0; kept < needed.length; kept++) {
      const left = { ...files }
      for (const name of needed.slice(kept)) delete left[name]
      expect(await refusal(left), `the first ${kept} are left`).toMatchObject({ code: 'CORRUPT' })
    }
  })

  it('two swapped segments are CORRUPT', async () => {
    for (let i = 0; i + 1 < needed.length; i++) {
      const [a, b] = [needed[i], needed[i + 1]]
      const swapped = { ...files, [a]: files[b], [b]: files[a] }
      expect(await refusal(swapped), `${a} and ${b}`).toMatchObject({ code: 'CORRUPT', details: { file: a } })
    }
  })

  it('a segment replaced by one of another store is CORRUPT with its name', async () => {
    const other = await logOfThree(durability, checkpoints)
    for (const name of needed) {
      const mixed = { ...files, [name]: other[name] }
      expect(await refusal(mixed), name).toMatchObject({
        code: 'CORRUPT',
        details: { file: name, why: expect.stringContaining('another store') },
      })
    }
  })

  it('a segment with commits that no other segment links to is CORRUPT', async () => {
    const before = needed.at(-2) as string
    const unlinked = { ...files, [before]: Buffer.from(files[before]).fill(0, 40, 48) }
    expect(await refusal(unlinked)).toMatchObject({ code: 'CORRUPT', details: { file: before } })
  })
})

describe('the files of another store', () => {
  async function checkpointed(): Promise<Files> {
    const disk = new SimulatedDisk()
    const store = await open(disk)
    for (let i = 0; i < 3; i++) {
      await put(store, i * 100, i * 100 + 100)
      await store.checkpoint()
    }
    await store.close()
    return disk.toFiles()
  }

  it('are CORRUPT with their name: a manifest, a data file or a segment', async () => {
    const [ours, theirs] = [await checkpointed(), await checkpointed()]
    expect(Object.keys(theirs)).toEqual(Object.keys(ours))
    const names = Object.keys(ours).filter(
      name => name !== segmentsOf(ours)[0] || segmentsOf(ours).length === 1,
    )
    for (const name of names) {
      expect(await refusal({ ...ours, [name]: theirs[name] }), name).toMatchObject({
        code: 'CORRUPT',
        details: { file: name, why: expect.stringContaining('another store') },
      })
    }
  })
})

it('a new store without a commit detects that its log is missing', async () => {
  const disk = new SimulatedDisk()
  const store = await open(disk)
  await put(store, 0, KEYS)
  const { [fileName('W', 1)]: _, ...left } = disk.afterProcessCrash().toFiles()
  expect(await refusal(left)).toMatchObject({ code: 'CORRUPT', details: { file: fileName('W', 1) } })
})
