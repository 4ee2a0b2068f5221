import { describe, expect, it } from 'vitest'
import { type DiskFile, writeAll } from '../../src/disk/disk.ts'
import { Random } from '../../src/testing/random.ts'
import type { DiskCall, DiskCallKind } from './disk-faults.ts'
import { SimulatedDisk } from './simulated-disk.ts'

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1')
}

function contentOf(disk: SimulatedDisk, name: string): string | undefined {
  return disk.toFiles()[name]?.toString('latin1')
}

function diskWith(files: Record<string, string>): SimulatedDisk {
  return SimulatedDisk.of(
    Object.fromEntries(Object.entries(files).map(([name, text]) => [name, bytes(text)])),
  )
}

describe('faults', () => {
  const calls: readonly [DiskCallKind, (disk: SimulatedDisk, file: DiskFile) => unknown][] = [
    ['lock', disk => disk.lock()],
    ['list', disk => disk.list()],
    ['open', disk => disk.open('a', 'read')],
    ['create', disk => disk.open('new', 'create')],
    ['remove', disk => disk.remove('a')],
    ['syncFolder', disk => disk.syncFolder()],
    ['size', (_disk, file) => file.size()],
    ['read', (_disk, file) => file.read(Buffer.alloc(1), 0)],
    ['write', (_disk, file) => file.write(bytes('x'), 0)],
    ['writeLater', (_disk, file) => file.writeLater(bytes('x'), 0)],
    ['truncate', (_disk, file) => file.truncate(0)],
    ['sync', (_disk, file) => file.sync()],
    ['syncLater', (_disk, file) => file.syncLater()],
  ]
  for (const error of ['EIO', 'ENOSPC'] as const) {
    it.each(calls)(`${error} can hit %s, at a given call, once or permanently`, async (kind, call) => {
      for (const times of [1, Number.POSITIVE_INFINITY]) {
        const disk = diskWith({ a: 'data' })
        const file = disk.open('a', 'write')
        const seen: DiskCall[] = []
        disk.onCall = ({ ...call }) => seen.push(call)
        disk.fail({ error, at: 1, times })
        await expect((async () => call(disk, file))()).rejects.toMatchObject({ code: error })
        expect(seen).toMatchObject([
          { index: 1, kind, phase: 'start' },
          { index: 1, kind, phase: 'end', failed: true },
        ])
        const again = (async () => call(disk, file))()
        if (times === 1) await again
        else await expect(again).rejects.toMatchObject({ code: error })
        disk.heal()
        if (times !== 1) await call(disk, file)
      }
    })
  }

  it('make a write short, and a writer that continues it succeeds', async () => {
    const disk = diskWith({ a: '' })
    const file = disk.open('a', 'write')
    disk.fail({ error: 'short', times: 2 })
    expect(file.write(bytes('abcdef'), 0)).toBe(3)
    expect(contentOf(disk, 'a')).toBe('abc')
    expect(await file.writeLater(bytes('def'), 3)).toBe(1)
    disk.fail({ error: 'short', times: 2 })
    writeAll(file, bytes('0123456789'), 0)
    expect(contentOf(disk, 'a')).toBe('0123456789')
  })

  it('make all writes empty, and a writer that continues them fails', () => {
    const disk = diskWith({ a: '' })
    disk.fail({ error: 'short', times: Number.POSITIVE_INFINITY })
    expect(() => writeAll(disk.open('a', 'write'), bytes('abcdef'), 0)).toThrow(
      expect.objectContaining({ code: 'ENOSPC' }),
    )
  })

  it('of a write with EIO may leave a part of it', () => {
    const seen = new Set<string | undefined>()
    for (let seed = 0; seed < 50; seed++) {
      const disk = SimulatedDisk.of({ a: bytes('') }, { seed })
      disk.fail({ error: 'EIO', when: call => call.kind === 'write' })
      expect(() => disk.open('a', 'write').write(bytes('abc'), 0)).toThrow(
        expect.objectContaining({ code: 'EIO' }),
      )
      seen.add(contentOf(disk, 'a'))
    }
    expect(seen).toEqual(new Set(['', 'a', 'ab', 'abc']))
  })

  it('of a full disk write what fits, then nothing, until there is free space', () => {
    const disk = new SimulatedDisk({ capacityBytes: 10 })
    const file = disk.open('a', 'create')
    expect(file.write(bytes('1234567'), 0)).toBe(7)
    expect(file.write(bytes('abcdef'), 7)).toBe(3)
    expect(() => file.write(bytes('def'), 10)).toThrow(expect.objectContaining({ code: 'ENOSPC' }))
    expect(() => file.truncate(11)).toThrow(expect.objectContaining({ code: 'ENOSPC' }))
    expect(() => disk.afterProcessCrash().open('a', 'write').write(bytes('x'), 10)).toThrow()
    expect(file.write(bytes('over'), 0)).toBe(4)
    file.truncate(8)
    expect(() => writeAll(file, bytes('xyz'), 8)).toThrow(expect.objectContaining({ code: 'ENOSPC' }))
    expect(contentOf(disk, 'a')).toBe('over567axy')
    disk.capacityBytes = 12
    expect(file.write(bytes('!!!'), 10)).toBe(2)
    disk.remove('a')
    expect(disk.open('b', 'create').write(Buffer.alloc(12), 0)).toBe(12)
  })

  it('damage durable bytes permanently', () => {
    const disk = diskWith({ a: 'abc', b: 'abcdef' })
    disk.flip('a', 1)
    disk.flip('a', 2, 0xff)
    disk.cut('b', 2)
    expect(contentOf(disk.afterPowerCut(new Random(1)), 'a')).toBe(`ac${String.fromCharCode(0x63 ^ 0xff)}`)
    expect(contentOf(disk.afterPowerCut(new Random(1)), 'b')).toBe('ab')
    expect(disk.files()).toEqual([
      { name: 'a', size: 3 },
      { name: 'b', size: 2 },
    ])
  })
})
