import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { sha256Hex } from '../../src/core/hash.ts'
import { newId } from '../../src/core/id.ts'
import { openFileRegistry } from '../../src/index.ts'
import { FileRegistry } from '../../src/ledger/event-id-registry.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'

const root = mkdtempSync(join(tmpdir(), 'annals-registry-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

let files = 0
const newPath = (): string => join(root, `ids-${files++}`)
const keyOf = (name: string): string => sha256Hex(name)
const openOn = (disk: SimulatedDisk): Promise<FileRegistry> => FileRegistry.open(disk.handle(), 'ids', 'ids')

async function claimAll(path: string, names: readonly string[]): Promise<string[]> {
  const registry = await openFileRegistry(path)
  const ids: string[] = []
  for (const name of names) ids.push(await registry.claim('run-1', keyOf(name), newId()))
  await registry.close()
  return ids
}

describe('L22, the file registry', () => {
  test('survives a power cut that leaves any part of the last line', async () => {
    const path = newPath()
    const [first, second] = await claimAll(path, ['a', 'b'])
    const whole = readFileSync(path).length
    await claimAll(path, ['c'])
    // The LF of a line is written after the rest is durable.
    const bytes = readFileSync(path).subarray(0, -1)
    const torn: Buffer[] = []
    for (let at = whole; at <= bytes.length; at++) {
      torn.push(bytes.subarray(0, at))
      // The file has grown, but only the last of the new bytes were written.
      torn.push(
        Buffer.concat([bytes.subarray(0, whole), Buffer.alloc(at + 1 - whole), bytes.subarray(at + 1)]),
      )
    }
    for (const left of torn) {
      writeFileSync(path, left)
      expect(await claimAll(path, ['a', 'b'])).toEqual([first, second])
      expect(readFileSync(path)).toEqual(bytes.subarray(0, whole))
    }
    expect(torn.length).toBeGreaterThan(200)
  })

  test('reports the damaged line, even if it is the last one', async () => {
    const path = newPath()
    await claimAll(path, ['a', 'b', 'c'])
    const bytes = readFileSync(path)
    const lines = [bytes.indexOf(0x0a) + 1, bytes.lastIndexOf(0x0a, bytes.length - 2) + 1]
    for (const offset of lines) {
      const damaged = Buffer.from(bytes)
      damaged[offset + 1] ^= 1
      writeFileSync(path, damaged)
      await expect(openFileRegistry(path)).rejects.toMatchObject({
        code: 'CORRUPT',
        details: { file: path, offset },
      })
      expect(readFileSync(path)).toEqual(damaged)
    }
  })

  test('gives concurrent claims one id per key, and combines their writes', async () => {
    const disk = new SimulatedDisk()
    const registry = await openOn(disk)
    const names = ['a', 'b', 'a', 'c', 'b', 'a']
    const syncsBefore = disk.calls
    const ids = await Promise.all(names.map(name => registry.claim('run-1', keyOf(name), newId())))
    expect(new Set(ids).size).toBe(3)
    expect(ids[0] === ids[2] && ids[2] === ids[5] && ids[1] === ids[4]).toBe(true)
    // Three lines: four writes, four syncs.
    expect(disk.calls - syncsBefore).toBe(8)
    await registry.close()
    expect(disk.openFiles).toBe(0)
  })

  test('writes nothing after a failed sync, and works again after reopening', async () => {
    const disk = new SimulatedDisk()
    const registry = await openOn(disk)
    const known = await registry.claim('run-1', keyOf('a'), newId())
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'syncLater' })
    const long = 'run-with-a-name-that-is-longer-than-that-of-the-next'
    await expect(registry.claim(long, keyOf('b'), newId())).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await expect(registry.claim('run-1', keyOf('c'), newId())).rejects.toMatchObject({ code: 'READ_ONLY' })
    expect(await registry.claim('run-1', keyOf('a'), newId())).toBe(known)
    await registry.close()
    const again = await openOn(disk)
    expect(await again.claim('run-1', keyOf('a'), newId())).toBe(known)
    await again.close()
  })
})
