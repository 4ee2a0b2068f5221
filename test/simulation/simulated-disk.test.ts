import { describe, expect, it } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { SimulatedDisk } from './simulated-disk.ts'

const IMAGES = 1000

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1')
}

function contentOf(disk: SimulatedDisk, name: string): string | undefined {
  return disk.toFiles()[name]?.toString('latin1')
}

/** All contents that a file had after many power cuts; `undefined` if the file was missing. */
function outcomes(
  disk: SimulatedDisk,
  name: string,
  tear: 'none' | 'mixed' | 'garbage' = 'none',
): Set<string | undefined> {
  const random = new Random(1)
  const seen = new Set<string | undefined>()
  for (let i = 0; i < IMAGES; i++) seen.add(contentOf(disk.afterPowerCut(random, tear), name))
  return seen
}

function diskWith(files: Record<string, string>, sectorBytes = 512): SimulatedDisk {
  const buffers = Object.entries(files).map(([name, text]) => [name, bytes(text)] as const)
  return SimulatedDisk.of(Object.fromEntries(buffers), { sectorBytes })
}

describe('a power cut', () => {
  it('may lose the bytes or the size of a write that was not synced, or both', () => {
    const disk = diskWith({ a: 'old' })
    disk.open('a', 'write').write(bytes('new'), 3)
    expect(outcomes(disk, 'a')).toEqual(new Set(['old', 'oldnew', 'old\0\0\0']))
  })

  it('never loses a write that was synced', async () => {
    const disk = diskWith({ a: 'old', b: 'old' })
    const a = disk.open('a', 'write')
    a.write(bytes('new'), 3)
    a.sync()
    const b = disk.open('b', 'write')
    await b.writeLater(bytes('new'), 3)
    await b.syncLater()
    expect(outcomes(disk, 'a')).toEqual(new Set(['oldnew']))
    expect(outcomes(disk, 'b')).toEqual(new Set(['oldnew']))
  })

  it('affects each sector independently', () => {
    const disk = diskWith({ a: '........' }, 4)
    disk.open('a', 'write').write(bytes('NNNN'), 2)
    expect(outcomes(disk, 'a')).toEqual(new Set(['........', '..NN....', '....NN..', '..NNNN..']))
  })

  it('may keep a later write and lose an earlier one', () => {
    const disk = diskWith({ a: '.... ....' }, 1)
    const file = disk.open('a', 'write')
    file.write(bytes('1'), 0)
    file.write(bytes('2'), 5)
    expect(outcomes(disk, 'a')).toContain('.... 2...')
  })

  it('may leave any version of a sector that was written repeatedly', () => {
    const disk = diskWith({ a: '0' })
    const file = disk.open('a', 'write')
    for (const version of '123') file.write(bytes(version), 0)
    expect(outcomes(disk, 'a')).toEqual(new Set(['0', '1', '2', '3']))
  })

  it('may undo a truncation that was not synced, and never one that was', () => {
    const disk = diskWith({ a: 'abcdef' })
    const file = disk.open('a', 'write')
    file.truncate(3)
    expect(outcomes(disk, 'a')).toEqual(new Set(['abcdef', 'abc']))
    file.sync()
    expect(outcomes(disk, 'a')).toEqual(new Set(['abc']))
    file.truncate(5)
    expect(outcomes(disk, 'a')).toEqual(new Set(['abc', 'abc\0\0']))
  })

  it('may lose a file made without a sync of the folder, though its content was synced', () => {
    const disk = new SimulatedDisk()
    const file = disk.open('a', 'create')
    file.write(bytes('data'), 0)
    file.sync()
    expect(outcomes(disk, 'a')).toEqual(new Set([undefined, 'data']))
    disk.syncFolder()
    expect(outcomes(disk, 'a')).toEqual(new Set(['data']))
  })

  it('may leave a file empty whose folder was synced and whose content was not', () => {
    const disk = new SimulatedDisk()
    disk.open('a', 'create').write(bytes('data'), 0)
    disk.syncFolder()
    expect(outcomes(disk, 'a')).toEqual(new Set(['', 'data', '\0\0\0\0']))
  })

  it('may bring back a removed file until the folder is synced, with any of its unsynced writes', () => {
    const disk = diskWith({ a: 'old' })
    disk.open('a', 'write').write(bytes('new'), 0)
    disk.remove('a')
    expect(outcomes(disk, 'a')).toEqual(new Set([undefined, 'old', 'new']))
    disk.syncFolder()
    expect(outcomes(disk, 'a')).toEqual(new Set([undefined]))
  })

  it('distinguishes a removed file from a new one with the same name', () => {
    const disk = diskWith({ a: 'old' })
    disk.remove('a')
    const file = disk.open('a', 'create')
    file.write(bytes('new'), 0)
    file.sync()
    expect(outcomes(disk, 'a')).toEqual(new Set([undefined, 'old', 'new']))
  })

  it('applies changes of the folder in any order', () => {
    const disk = diskWith({ b: '' })
    disk.open('a', 'create')
    disk.remove('b')
    const random = new Random(2)
    const seen = new Set<string>()
    for (let i = 0; i < IMAGES; i++) seen.add(disk.afterPowerCut(random).list().join())
    expect(seen).toEqual(new Set(['b', 'a,b', '', 'a']))
  })

  it('may tear a sector, and fill it with garbage if asked to, but only where it was being written', () => {
    const disk = diskWith({ a: '(....)' })
    disk.open('a', 'write').write(bytes('NNNN'), 1)
    const mixed = outcomes(disk, 'a', 'mixed')
    expect(mixed).toContain('(NN..)')
    expect(mixed).toContain('(...N)')
    for (const content of mixed) expect(content).toMatch(/^\([.N]{4}\)$/)
    const garbage = [...outcomes(disk, 'a', 'garbage')]
    expect(garbage.some(content => !/^\([.N]{4}\)$/.test(content!))).toBe(true)
    for (const content of garbage) expect(content).toMatch(/^\(.{4}\)$/s)
  })

  it('may keep any part of a writeLater that has not ended', async () => {
    const tasks: (() => void)[] = []
    const disk = SimulatedDisk.of({ a: bytes('..') }, { sectorBytes: 1, later: task => tasks.push(task) })
    const written = disk.open('a', 'write').writeLater(bytes('NN'), 0)
    expect(contentOf(disk, 'a')).toBe('..')
    expect(outcomes(disk, 'a')).toEqual(new Set(['..', 'N.', '.N', 'NN']))
    for (const task of tasks) task()
    expect(await written).toBe(2)
    expect(contentOf(disk, 'a')).toBe('NN')
  })

  it('is the same for the same seed', () => {
    const disk = diskWith({ a: '.'.repeat(5000) })
    disk.open('a', 'write').write(Buffer.alloc(4000, 'N'), 700)
    const images = [1, 2].map(() => {
      const random = new Random(99)
      return Array.from({ length: 50 }, () => contentOf(disk.afterPowerCut(random), 'a'))
    })
    expect(images[0]).toEqual(images[1])
    expect(new Set(images[0]).size).toBeGreaterThan(10)
  })

  it('does not change the disk itself, and images are independent', () => {
    const disk = diskWith({ a: 'old' })
    const file = disk.open('a', 'write')
    file.write(bytes('new'), 3)
    const random = new Random(3)
    for (let i = 0; i < 100; i++) {
      const image = disk.afterPowerCut(random)
      const twin = image.afterProcessCrash()
      const imageFile = image.open('a', 'write')
      imageFile.write(bytes('XXXXXXXX'), 0)
      imageFile.sync()
      expect(contentOf(image, 'a')).toBe('XXXXXXXX')
      expect(contentOf(twin, 'a')).not.toContain('X')
    }
    expect(contentOf(disk, 'a')).toBe('oldnew')
    expect(outcomes(disk, 'a')).toEqual(new Set(['old', 'oldnew', 'old\0\0\0']))
    file.sync()
    expect(outcomes(disk, 'a')).toEqual(new Set(['oldnew']))
  })

  it('can follow another power cut, after which the image is durable', () => {
    const disk = diskWith({ a: '0' })
    const random = new Random(4)
    const seen = new Set<string>()
    for (let i = 0; i < IMAGES; i++) {
      let image = disk
      let history = ''
      for (const generation of '123') {
        image.open('a', 'write').write(bytes(generation), 0)
        image = image.afterPowerCut(random)
        expect(image.undecided).toBe(0)
        history += contentOf(image, 'a')
      }
      seen.add(history)
    }
    // Each generation has either its own write or the content of the generation before: 2 × 2 × 2 histories.
    expect(seen).toEqual(new Set(['000', '003', '022', '023', '111', '113', '122', '123']))
  })
})

describe('all power cuts', () => {
  it('are enumerated without repetition if they are few', () => {
    const disk = diskWith({ a: '....' }, 2)
    disk.open('a', 'write').write(bytes('NNNN'), 0)
    disk.open('b', 'create')
    expect(disk.undecided).toBe(3)
    const images = [...disk.powerCuts(new Random(0), 8)].map(image => JSON.stringify(image.toFiles()))
    expect(images.length).toBe(8)
    expect(new Set(images).size).toBe(8)
  })

  it('are sampled if they are too many', () => {
    const disk = diskWith({ a: '' })
    disk.open('a', 'write').write(Buffer.alloc(512 * 40), 0)
    expect(disk.undecided).toBe(41)
    expect([...disk.powerCuts(new Random(0), 100)].length).toBe(100)
  })

  it('contain every sampled one that is not torn', () => {
    const seed = seedOfRun()
    const random = new Random(seed)
    for (let round = 0; round < 60; round++) {
      const disk = diskWith({ a: 'abcdefgh', b: 'xy' }, 4)
      for (let i = 0; i < 4; i++) changeSomething(disk, random)
      if (disk.undecided > 12) continue
      const all = new Set([...disk.powerCuts(random, 1 << 12)].map(image => JSON.stringify(image.toFiles())))
      for (let i = 0; i < 100; i++) {
        const image = disk.afterPowerCut(random, 'none')
        expect(all, `seed ${seed}`).toContain(JSON.stringify(image.toFiles()))
      }
    }
  })
})

function changeSomething(disk: SimulatedDisk, random: Random): void {
  const name = random.pick(['a', 'b', 'c'])
  if (!disk.list().includes(name)) {
    disk.open(name, 'create').close()
    return
  }
  const file = disk.open(name, 'write')
  const choice = random.below(6)
  if (choice < 3) file.write(bytes(String(random.below(10)).repeat(1 + random.below(4))), random.below(10))
  else if (choice === 3) file.truncate(random.below(10))
  else if (choice === 4) disk.remove(name)
  else if (random.chance(0.5)) file.sync()
  else disk.syncFolder()
  file.close()
}

describe('a process crash', () => {
  it('keeps every write, which a later power cut may still lose', () => {
    const disk = diskWith({ a: 'old' })
    disk.open('a', 'write').write(bytes('new'), 3)
    disk.open('b', 'create')
    const image = disk.afterProcessCrash()
    expect(image.list()).toEqual(['a', 'b'])
    expect(contentOf(image, 'a')).toBe('oldnew')
    expect(outcomes(image, 'a')).toEqual(new Set(['old', 'oldnew', 'old\0\0\0']))
    expect(outcomes(image, 'b')).toEqual(new Set([undefined, '']))
    image.open('a', 'read').sync()
    image.syncFolder()
    expect(outcomes(image, 'a')).toEqual(new Set(['oldnew']))
    expect(outcomes(image, 'b')).toEqual(new Set(['']))
  })

  it('frees the lock and forgets the hook, the faults and the open files', async () => {
    const disk = diskWith({ a: '' })
    await disk.lock()
    disk.open('a', 'read')
    disk.fail({ error: 'EIO', times: Number.POSITIVE_INFINITY })
    disk.onCall = () => expect.unreachable()
    const image = disk.afterProcessCrash()
    await image.lock()
    expect(image.list()).toEqual(['a'])
    expect(image.openFiles).toBe(0)
  })

  it('may cut a writeLater short that has not ended', () => {
    const disk = SimulatedDisk.of({ a: bytes('...') }, { later: () => {} })
    void disk.open('a', 'write').writeLater(bytes('NNN'), 0)
    expect(contentOf(disk.afterProcessCrash(), 'a')).toBe('...')
    const random = new Random(5)
    const seen = new Set(Array.from({ length: 100 }, () => contentOf(disk.afterProcessCrash(random), 'a')))
    expect(seen).toEqual(new Set(['...', 'N..', 'NN.', 'NNN']))
  })
})

describe('syncLater', () => {
  it('covers writes before its start, and no later ones', async () => {
    const tasks: (() => void)[] = []
    const disk = SimulatedDisk.of({ a: bytes('..') }, { sectorBytes: 1, later: task => tasks.push(task) })
    const file = disk.open('a', 'write')
    file.write(bytes('1'), 0)
    const synced = file.syncLater()
    file.write(bytes('2'), 1)
    expect(outcomes(disk, 'a')).toContain('..')
    tasks.shift()!()
    await synced
    expect(outcomes(disk, 'a')).toEqual(new Set(['1.', '12']))
  })

  it('may end after one that started later, and undoes nothing', async () => {
    const tasks: (() => void)[] = []
    const disk = SimulatedDisk.of({ a: bytes('..') }, { sectorBytes: 1, later: task => tasks.push(task) })
    const file = disk.open('a', 'write')
    file.write(bytes('1'), 0)
    const first = file.syncLater()
    file.write(bytes('2'), 1)
    const second = file.syncLater()
    tasks[1]()
    await second
    expect(outcomes(disk, 'a')).toEqual(new Set(['12']))
    tasks[0]()
    await first
    expect(outcomes(disk, 'a')).toEqual(new Set(['12']))
  })

  it('does not cover a writeLater that was under way when it started', async () => {
    const tasks: (() => void)[] = []
    const disk = SimulatedDisk.of({ a: bytes('.') }, { later: task => tasks.push(task) })
    const file = disk.open('a', 'write')
    const written = file.writeLater(bytes('N'), 0)
    const synced = file.syncLater()
    for (const task of tasks) task()
    await Promise.all([written, synced])
    expect(outcomes(disk, 'a')).toEqual(new Set(['.', 'N']))
  })
})

describe('a failed sync', () => {
  it('loses or keeps the writes it should have synced, and a later sync does not restore them', () => {
    const ends = new Set<string>()
    for (let seed = 0; seed < 100; seed++) {
      const disk = SimulatedDisk.of({ a: bytes('.') }, { seed })
      const file = disk.open('a', 'write')
      file.write(bytes('N'), 0)
      disk.fail({ error: 'EIO', when: call => call.kind === 'sync' })
      expect(() => file.sync()).toThrow(expect.objectContaining({ code: 'EIO' }))
      const cached = contentOf(disk, 'a')
      file.sync()
      const durable = [...outcomes(disk, 'a')]
      expect(durable.length).toBe(1)
      ends.add(`reads ${cached}, holds ${durable[0]}`)
    }
    // In the first outcome the data can be read and a later sync succeeds, but a power cut loses it.
    expect(ends).toEqual(new Set(['reads N, holds .', 'reads N, holds N', 'reads ., holds .']))
  })

  it('lets later writes be synced', () => {
    for (let seed = 0; seed < 100; seed++) {
      const disk = SimulatedDisk.of({ a: bytes('..') }, { seed, sectorBytes: 1 })
      const file = disk.open('a', 'write')
      file.write(bytes('1'), 0)
      disk.fail({ error: 'EIO', when: call => call.kind === 'sync' })
      expect(() => file.sync()).toThrow()
      file.write(bytes('2'), 1)
      file.sync()
      for (const content of outcomes(disk, 'a')) expect(content).toMatch(/^[.1]2$/)
    }
  })

  it('of the folder does the same to names', () => {
    const ends = new Set<string | undefined>()
    for (let seed = 0; seed < 100; seed++) {
      const disk = new SimulatedDisk({ seed })
      disk.open('a', 'create')
      disk.fail({ error: 'EIO', when: call => call.kind === 'syncFolder' })
      expect(() => disk.syncFolder()).toThrow(expect.objectContaining({ code: 'EIO' }))
      disk.syncFolder()
      expect(disk.list()).toEqual(['a'])
      const names = outcomes(disk, 'a')
      expect(names.size).toBe(1)
      ends.add([...names][0])
    }
    expect(ends).toEqual(new Set([undefined, '']))
  })

  it('that was asynchronous does not affect writes after its start', async () => {
    for (let seed = 0; seed < 50; seed++) {
      const disk = SimulatedDisk.of({ a: bytes('..') }, { seed, sectorBytes: 1 })
      const file = disk.open('a', 'write')
      file.write(bytes('1'), 0)
      disk.fail({ error: 'EIO', when: call => call.kind === 'syncLater' })
      const synced = file.syncLater()
      file.write(bytes('2'), 1)
      await expect(synced).rejects.toMatchObject({ code: 'EIO' })
      expect(contentOf(disk, 'a')).toMatch(/^[.1]2$/)
      file.sync()
      for (const content of outcomes(disk, 'a')) expect(content).toMatch(/^[.1]2$/)
    }
  })
})

describe('the hook', () => {
  it('sees each call before and after its effect, so that images can be taken there', async () => {
    const disk = diskWith({ a: '.' })
    const log: string[] = []
    const file = disk.open('a', 'write')
    disk.onCall = call => {
      const image = disk.afterPowerCut(new Random(0), 'none')
      log.push(
        `${call.kind} ${call.phase}: ${contentOf(disk, 'a')} of ${[...outcomes(disk, 'a')].sort().join('|')}`,
      )
      expect(image.calls).toBe(0)
    }
    file.write(bytes('1'), 0)
    await file.syncLater()
    await file.writeLater(bytes('2'), 0)
    file.sync()
    expect(log).toEqual([
      'write start: . of .',
      'write end: 1 of .|1',
      'syncLater start: 1 of .|1',
      'syncLater end: 1 of 1',
      'writeLater start: 1 of 1',
      'writeLater end: 2 of 1|2',
      'sync start: 2 of 1|2',
      'sync end: 2 of 2',
    ])
    expect(disk.calls).toBe(5)
  })
})

describe('the lock', () => {
  it('is refused to another handle of the folder until its holder is closed', async () => {
    const disk = new SimulatedDisk()
    await disk.lock()
    const other = disk.handle()
    await expect(other.lock()).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    other.close()
    await expect(disk.lock()).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    disk.close()
    const third = disk.handle()
    await third.lock()
    await expect(disk.lock()).rejects.toThrow(expect.objectContaining({ code: 'LOCKED' }))
    third.close()
    await disk.lock()
    expect(() => third.list()).toThrow(expect.objectContaining({ code: 'ILLEGAL_STATE' }))
  })
})
