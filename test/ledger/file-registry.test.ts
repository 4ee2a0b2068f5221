import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { sha256Hex } from '../../src/core/hash.ts'
import { newId } from '../../src/core/id.ts'
import { openFileRegistry } from '../../src/index.ts'

/** Of the calls that matter: what was synced or written, in order; and whether the next sync fails. */
const disk = vi.hoisted(() => ({ calls: [] as string[], failSync: false }))

vi.mock('node:fs/promises', async original => {
  const real = await original<typeof import('node:fs/promises')>()
  return {
    ...real,
    open: async (path: string, flags: string) => {
      const file = await real.open(path, flags)
      const noted = (name: 'write' | 'datasync' | 'sync'): void => {
        const method = file[name].bind(file) as (...args: unknown[]) => Promise<unknown>
        const wrapped = async (...args: unknown[]): Promise<unknown> => {
          disk.calls.push(`${name} ${basename(path)}`)
          const result = await method(...args)
          if (name === 'datasync' && disk.failSync) {
            disk.failSync = false
            throw Object.assign(new Error('EIO: simulated'), { code: 'EIO' })
          }
          return result
        }
        Object.assign(file, { [name]: wrapped })
      }
      for (const name of ['write', 'datasync', 'sync'] as const) noted(name)
      return file
    },
  }
})

const root = mkdtempSync(join(tmpdir(), 'annals-registry-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
beforeEach(() => {
  disk.calls.length = 0
  disk.failSync = false
})

let files = 0
const newPath = (): string => join(root, `ids-${files++}`)
const keyOf = (name: string): string => sha256Hex(name)

async function claimAll(path: string, names: readonly string[]): Promise<string[]> {
  const registry = await openFileRegistry(path)
  const ids: string[] = []
  for (const name of names) ids.push(await registry.claim('run-1', keyOf(name), newId()))
  await registry.close()
  return ids
}

describe('L22, the registry in a file', () => {
  test('survives a power cut that leaves any part of the line that was being written', async () => {
    const path = newPath()
    const [first, second] = await claimAll(path, ['a', 'b'])
    const whole = readFileSync(path).length
    await claimAll(path, ['c'])
    const bytes = readFileSync(path)
    const torn: Buffer[] = []
    for (let at = whole; at < bytes.length; at++) {
      torn.push(bytes.subarray(0, at))
      // The file has grown, and of the new bytes only the last ones arrived.
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

  test('says where it is damaged, and does not guess', async () => {
    const path = newPath()
    await claimAll(path, ['a', 'b', 'c'])
    const bytes = readFileSync(path)
    bytes[bytes.indexOf(0x0a) + 2] ^= 1
    writeFileSync(path, bytes)
    await expect(openFileRegistry(path)).rejects.toMatchObject({
      code: 'CORRUPT',
      details: { file: path, offset: bytes.indexOf(0x0a) + 1 },
    })
  })

  test('is on the device, in its folder, before an id is given', async () => {
    const path = newPath()
    const name = basename(path)
    const registry = await openFileRegistry(path)
    expect(disk.calls).toEqual([`datasync ${name}`, `sync ${basename(root)}`])
    disk.calls.length = 0
    await registry.claim('run-1', keyOf('a'), newId())
    expect(disk.calls).toEqual([`write ${name}`, `datasync ${name}`])
    disk.calls.length = 0
    await registry.claim('run-1', keyOf('a'), newId())
    expect(disk.calls).toEqual([])
    await registry.close()
  })

  test('writes nothing after a sync that failed; opened again, it is sound', async () => {
    const path = newPath()
    const registry = await openFileRegistry(path)
    const known = await registry.claim('run-1', keyOf('a'), newId())
    disk.failSync = true
    const long = 'run-with-a-name-that-is-longer-than-that-of-the-next'
    await expect(registry.claim(long, keyOf('b'), newId())).rejects.toMatchObject({ code: 'EIO' })
    await expect(registry.claim('run-1', keyOf('c'), newId())).rejects.toMatchObject({ code: 'READ_ONLY' })
    expect(await registry.claim('run-1', keyOf('a'), newId())).toBe(known)
    await registry.close()
    expect(await claimAll(path, ['a'])).toEqual([known])
  })
})
