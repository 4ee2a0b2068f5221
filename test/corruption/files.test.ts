import { beforeAll, describe, expect, it } from 'vitest'
import { FORMAT } from '../../src/embedded/format.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { inFormat } from '../other-format.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { type BuiltStore, buildStore, type Files, judge, openOn, type Verdict } from './damaged-store.ts'

/** Failure matrix: "a cut file", "checkpoint damaged", "a newer file format", for whole files. */
const seed = seedOfRun()
const GARBAGE_BYTES = 1024 * 1024

let closed: BuiltStore
let unclosed: BuiltStore
let relaxed: BuiltStore
/** Another store with the same file names, sizes and versions. */
let foreign: BuiltStore

beforeAll(async () => {
  closed = await buildStore('closed', seed)
  unclosed = await buildStore('not closed', seed)
  relaxed = await buildStore('not closed, relaxed', seed)
  foreign = await buildStore('not closed', seed + 1)
})

async function verdictOf(built: BuiltStore, files: Files, where: string): Promise<Verdict> {
  try {
    await judge(built, files, { readOnly: true })
    const { verdict } = await judge(built, files, { gets: true, goOn: true })
    return verdict
  } catch (error) {
    throw new Error(`${built.name}, seed ${seed}: ${where}`, { cause: error })
  }
}

function without(files: Files, ...names: string[]): Files {
  return Object.fromEntries(Object.entries(files).filter(([name]) => !names.includes(name)))
}

/** Prints one line per damaged file with the result. */
async function table(
  title: string,
  damage: (name: string) => Files | undefined,
  built: BuiltStore,
): Promise<void> {
  const rows: string[] = []
  for (const name of Object.keys(built.files)) {
    const files = damage(name)
    if (files !== undefined) rows.push(`${name} ${await verdictOf(built, files, `${title}: ${name}`)}`)
  }
  console.log(`${title}, ${built.name}, seed ${seed}: ${rows.join('; ')}`)
  expect(rows.length).toBeGreaterThan(0)
}

function each(title: string, damage: (built: BuiltStore, name: string) => Files | undefined): void {
  it(title, async () => {
    for (const built of [closed, unclosed, relaxed]) {
      await table(title, name => damage(built, name), built)
    }
  })
}

describe('failure matrix, whole files', () => {
  each('a file that is empty is CORRUPT, reported, or not needed', ({ files }, name) => ({
    ...files,
    [name]: Buffer.alloc(0),
  }))

  each('1 MB of zeros in place of a file is CORRUPT, reported, or not needed', ({ files }, name) => ({
    ...files,
    [name]: Buffer.alloc(GARBAGE_BYTES),
  }))

  each('1 MB of garbage in place of a file is CORRUPT, reported, or not needed', ({ files }, name) => ({
    ...files,
    [name]: Buffer.from(new Random(seed).bytes(GARBAGE_BYTES), 'latin1'),
  }))

  each('1 MB of garbage after a file is CORRUPT, reported, or not needed', ({ files }, name) => ({
    ...files,
    [name]: Buffer.concat([files[name], Buffer.from(new Random(seed).bytes(GARBAGE_BYTES), 'latin1')]),
  }))

  each('a removed file is CORRUPT, reported, or not needed', ({ files }, name) => without(files, name))

  each(
    'a file under the name of the next one of its kind is CORRUPT, reported, or not needed',
    ({ files }, name) => {
      const kind = name.replace(/-\d+$/, '')
      const others = Object.keys(files).filter(other => other.startsWith(kind) && other !== name)
      if (others.length === 0) return undefined
      return { ...files, [name]: files[others[0]], [others[0]]: files[name] }
    },
  )

  each('a file of another store is CORRUPT, reported, or not needed', ({ files }, name) =>
    foreign.files[name] === undefined ? undefined : { ...files, [name]: foreign.files[name] },
  )

  it('two damaged manifests are CORRUPT, whatever their damage', async () => {
    const damages: readonly ((bytes: Uint8Array) => Uint8Array)[] = [
      bytes => bytes.subarray(0, bytes.length - 1),
      () => Buffer.alloc(0),
      () => Buffer.alloc(GARBAGE_BYTES),
      // The byte belongs to a random id and may have any value, so it is inverted instead of set.
      bytes => Buffer.from(bytes.map((byte, i) => (i === 40 ? ~byte : byte))),
    ]
    for (const built of [closed, unclosed, relaxed]) {
      const { files } = built
      for (const damage of damages) {
        const damaged = {
          ...files,
          'manifest-0': damage(files['manifest-0']),
          'manifest-1': damage(files['manifest-1']),
        }
        expect(await verdictOf(built, damaged, 'both manifests')).toBe('CORRUPT')
      }
      const removed = without(files, 'manifest-0', 'manifest-1')
      expect(await verdictOf(built, removed, 'no manifest')).toBe('CORRUPT')
      const logOnly = Object.fromEntries(Object.entries(files).filter(([name]) => name.startsWith('wal')))
      expect(await verdictOf(built, logOnly, 'nothing but the log')).toBe('CORRUPT')
    }
  })

  it.each([
    ['newer', FORMAT + 1, 'FORMAT_TOO_NEW'],
    ['older', FORMAT - 1, 'FORMAT_TOO_OLD'],
  ])(
    'files of a %s format are refused with their name, and nothing is changed',
    async (_age, format, code) => {
      for (const built of [closed, unclosed]) {
        for (const [name, bytes] of Object.entries(built.files)) {
          const disk = SimulatedDisk.of({ ...built.files, [name]: inFormat(format, bytes) })
          const before = disk.toFiles()
          // Files that only the previous checkpoint needs are not read.
          const needed = await isRead(built.files, name)
          if (!needed) continue
          await expect(openOn(disk)).rejects.toMatchObject({
            code,
            details: { file: name, format, supported: FORMAT },
          })
          expect(disk.toFiles()).toEqual(before)
          expect(disk.openFiles).toBe(0)
        }
      }
    },
  )
})

async function isRead(files: Files, name: string): Promise<boolean> {
  const disk = SimulatedDisk.of(files)
  let read = false
  disk.onCall = call => {
    if (call.kind === 'read' && call.file === name) read = true
  }
  await openOn(disk)
  return read
}
