import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Disk } from './disk.ts'
import { openNodeDisk } from './node-disk.ts'

const DISK_MODULE = new URL('../../dist/disk/node-disk.js', import.meta.url).href

let root: string

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'annals-disk-'))
})

afterEach(() => {
  rmSync(root, { recursive: true })
})

describe('opening a folder', () => {
  it('creates the folder and its parents', () => {
    openNodeDisk(join(root, 'a/b/c')).close()
    expect(readdirSync(join(root, 'a/b'))).toEqual(['c'])
  })

  it('keeps the folder when the current directory changes', () => {
    const before = process.cwd()
    process.chdir(root)
    const disk = openNodeDisk('store')
    process.chdir(before)
    disk.open('x', 'create').close()
    expect(existsSync(join(root, 'store/x'))).toBe(true)
    disk.close()
  })

  const refused: readonly [
    name: string,
    path: () => unknown,
    options: { readOnly?: boolean },
    code: string,
  ][] = [
    ['a number', () => 7, {}, 'INVALID_ARGUMENT'],
    ['undefined', () => undefined, {}, 'INVALID_ARGUMENT'],
    ['an empty path', () => '', {}, 'INVALID_ARGUMENT'],
    ['a path with a NUL', () => `${root}/a\0b`, {}, 'INVALID_ARGUMENT'],
    ['a file', () => join(root, 'file'), {}, 'INVALID_ARGUMENT'],
    ['a file, read-only', () => join(root, 'file'), { readOnly: true }, 'INVALID_ARGUMENT'],
    ['a path through a file', () => join(root, 'file/store'), {}, 'INVALID_ARGUMENT'],
    ['a missing folder, read-only', () => join(root, 'none'), { readOnly: true }, 'INVALID_ARGUMENT'],
    ['a name that is too long', () => join(root, 'new', 'x'.repeat(300)), {}, 'INVALID_ARGUMENT'],
    ['a loop of symbolic links', () => join(root, 'circle'), {}, 'INVALID_ARGUMENT'],
  ]
  it.each(refused)('refuses %s and changes nothing', (_name, path, options, code) => {
    writeFileSync(join(root, 'file'), 'mine')
    symlinkSync(join(root, 'circle'), join(root, 'circle'))
    expect(() => openNodeDisk(path() as string, options)).toThrow(
      expect.objectContaining({ name: 'AnnalsError', code }),
    )
    expect(readdirSync(root).sort()).toEqual(['circle', 'file'])
    expect(readFileSync(join(root, 'file'), 'utf8')).toBe('mine')
  })

  // reason: Windows has no such permissions
  it.skipIf(process.platform === 'win32')(
    'refuses a folder that is not writable, and suggests readOnly',
    () => {
      const folder = join(root, 'store')
      mkdirSync(folder)
      writeFileSync(join(folder, 'data'), 'x')
      chmodSync(folder, 0o555)
      chmodSync(root, 0o755)
      // Permissions don't restrict root, so a child process changes its user first.
      writeFileSync(
        join(root, 'program.mjs'),
        `import { openNodeDisk } from ${JSON.stringify(DISK_MODULE)}
      if (process.getuid() === 0) process.setuid(65534)
      const report = {}
      try { openNodeDisk(${JSON.stringify(folder)}) } catch (error) { report.write = { code: error.code, message: error.message } }
      try { openNodeDisk(${JSON.stringify(join(folder, 'new'))}) } catch (error) { report.make = { code: error.code } }
      const disk = openNodeDisk(${JSON.stringify(folder)}, { readOnly: true })
      await disk.lock()
      report.names = disk.list()
      report.size = disk.open('data', 'read').size()
      try { disk.remove('data') } catch (error) { report.remove = error.code }
      console.log(JSON.stringify(report))`,
      )
      const { stdout, stderr } = spawnSync(process.execPath, [join(root, 'program.mjs')], {
        encoding: 'utf8',
      })
      expect(stderr).toBe('')
      expect(JSON.parse(stdout)).toEqual({
        write: { code: 'READ_ONLY', message: expect.stringContaining('open with readOnly: true') },
        make: { code: 'IO_ERROR' },
        names: ['data'],
        size: 1,
        remove: 'READ_ONLY',
      })
    },
  )
})

describe('a folder', () => {
  let disk: Disk

  beforeEach(() => {
    disk = openNodeDisk(join(root, 'store'))
  })

  afterEach(() => disk.close())

  it('lists its files sorted, without folders', () => {
    disk.open('b', 'create').close()
    disk.open('a', 'create').close()
    mkdirSync(join(root, 'store/folder'))
    expect(disk.list()).toEqual(['a', 'b'])
    disk.remove('a')
    disk.syncFolder()
    expect(disk.list()).toEqual(['b'])
  })

  it('creates only new files, and opens only existing ones', () => {
    disk.open('a', 'create').close()
    expect(() => disk.open('a', 'create')).toThrow(expect.objectContaining({ code: 'EEXIST' }))
    expect(() => disk.open('b', 'read')).toThrow(expect.objectContaining({ code: 'ENOENT' }))
    expect(() => disk.open('b', 'write')).toThrow(expect.objectContaining({ code: 'ENOENT' }))
    expect(() => disk.remove('b')).toThrow(expect.objectContaining({ code: 'ENOENT' }))
    expect(() => disk.open('../a', 'read')).toThrow(expect.objectContaining({ code: 'ILLEGAL_STATE' }))
  })

  it('is locked until it is closed', async () => {
    await disk.lock()
    const other = openNodeDisk(join(root, 'store'))
    await expect(other.lock()).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    disk.close()
    disk.close()
    await other.lock()
    other.close()
  })

  it('reads the written bytes, and fewer than asked only at the end', async () => {
    const file = disk.open('a', 'create')
    expect(file.write(Buffer.from('hello'), 0)).toBe(5)
    expect(await file.writeLater(Buffer.from('HE'), 7)).toBe(2)
    file.sync()
    await file.syncLater()
    expect(file.size()).toBe(9)
    const buffer = Buffer.alloc(20, '.')
    expect(file.read(buffer, 1)).toBe(8)
    expect(buffer.toString('latin1')).toBe('ello\0\0HE............')
    expect(file.read(buffer, 9)).toBe(0)
    file.truncate(3)
    expect(file.size()).toBe(3)
    file.close()
    expect(() => file.size()).toThrow(expect.objectContaining({ code: 'ILLEGAL_STATE' }))
  })

  it('finishes pending writes before it closes a file, so that no other file gets their bytes', async () => {
    for (let round = 0; round < 50; round++) {
      const file = disk.open(`a${round}`, 'create')
      const writes = [0, 1, 2, 3].map(i => file.writeLater(Buffer.alloc(1000, 'a'), i * 1000))
      file.close()
      file.close()
      const other = disk.open(`b${round}`, 'create')
      expect(await Promise.all(writes)).toEqual([1000, 1000, 1000, 1000])
      expect(other.size()).toBe(0)
      other.close()
      const again = disk.open(`a${round}`, 'read')
      expect(again.size()).toBe(4000)
      again.close()
    }
  })

  // reason: Windows has another code for this error
  it.skipIf(process.platform === 'win32')('throws errors with the code of the operating system', async () => {
    disk.open('a', 'create').close()
    const file = disk.open('a', 'read')
    expect(() => file.write(Buffer.from('x'), 0)).toThrow(expect.objectContaining({ code: 'EBADF' }))
    await expect(file.writeLater(Buffer.from('x'), 0)).rejects.toMatchObject({ code: 'EBADF' })
    file.close()
  })
})
