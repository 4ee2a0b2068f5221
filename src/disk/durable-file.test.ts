import { describe, expect, test } from 'vitest'
import { SimulatedDisk } from '../../test/simulation/simulated-disk.ts'
import { Random } from '../testing/random.ts'
import { filesIn, makeFolders, readFile, replaceFile } from './durable-file.ts'
import { LineFile, wholeLines } from './line-file.ts'

/**
 * The maximum number of disk images per power cut. If there are fewer, all of them are checked. Small sectors make many
 * different images.
 */
const IMAGES_MAX = 512
const SECTOR_BYTES = 8

async function atEveryCall(
  disk: SimulatedDisk,
  work: () => Promise<void>,
  judge: (image: SimulatedDisk, call: string) => void,
): Promise<void> {
  const random = new Random(1)
  let images = 0
  const look = (moment: string): void => {
    judge(disk.afterProcessCrash(), `killed at ${moment}`)
    for (const image of disk.powerCuts(random.fork(), IMAGES_MAX)) {
      images++
      judge(image, `power cut at ${moment}`)
    }
  }
  disk.onCall = ({ kind, file, phase }) => look(`${phase} of ${kind} ${file}`)
  await work()
  disk.onCall = undefined
  look('the end')
  expect(images).toBeGreaterThan(10)
}

describe('replacing a file', () => {
  test('leaves the old or the new content after a crash at any moment, and the new one after it resolved', async () => {
    const disk = new SimulatedDisk({ sectorBytes: SECTOR_BYTES })
    const [before, after] = ['what was there before', 'what is there now, and longer']
    await replaceFile(disk, 'file', Buffer.from(before))
    let isSaid = false
    await atEveryCall(
      disk,
      async () => {
        await replaceFile(disk, 'file', Buffer.from(after))
        isSaid = true
      },
      (image, moment) => {
        const found = readFile(image, 'file')?.toString()
        expect(isSaid ? [after] : [before, after], moment).toContain(found)
      },
    )
  })

  test('works if a crashed process has left an incomplete temporary file', async () => {
    const disk = SimulatedDisk.of({ file: Buffer.from('old'), 'file.tmp': Buffer.from('half of something') })
    await replaceFile(disk, 'file', Buffer.from('new'))
    expect(disk.toFiles()).toEqual({ file: Buffer.from('new') })
  })
})

describe('folders', () => {
  test('are durable after makeFolders, including those that a killed process had made', async () => {
    const disk = new SimulatedDisk()
    disk.makeFolder('a')
    let isSaid = false
    const next = disk.afterProcessCrash()
    await atEveryCall(
      next,
      async () => {
        makeFolders(next, 'a/b/c')
        isSaid = true
        await replaceFile(next, 'a/b/c/file', Buffer.from('x'))
      },
      (image, moment) => {
        if (isSaid) expect(image.folders('a/b'), moment).toEqual(['c'])
      },
    )
    for (const image of next.powerCuts(new Random(1), IMAGES_MAX))
      expect(readFile(image, 'a/b/c/file')?.toString()).toBe('x')
  })

  test('keep their files in a power cut only after a sync of the folder above', () => {
    const disk = new SimulatedDisk()
    disk.makeFolder('a')
    disk.open('a/file', 'create').close()
    disk.syncFolder('a')
    const left = [...disk.powerCuts(new Random(1), IMAGES_MAX)].map(image => image.files().length)
    expect(left.sort()).toEqual([0, 1])
    disk.syncFolder()
    for (const image of disk.powerCuts(new Random(1), IMAGES_MAX)) expect(image.files()).toHaveLength(1)
  })
})

describe('a file of lines', () => {
  const LINES = ['the first line\n', 'second\n', 'the third line is longer than both\n', 'b\n', '\n']

  test.each([
    ['one after the other', false],
    ['concurrently', true],
  ])(
    'has all acknowledged lines, and only complete ones, after a crash at any moment: appended %s',
    async (_, isAtOnce) => {
      const disk = new SimulatedDisk({ sectorBytes: SECTOR_BYTES })
      let answered = 0
      await atEveryCall(
        disk,
        async () => {
          const file = await LineFile.open(disk, 'lines')
          const append = async (line: string): Promise<void> => {
            await file.append(line)
            answered++
          }
          if (isAtOnce) await Promise.all(LINES.map(append))
          else for (const line of LINES) await append(line)
          await file.close()
        },
        (image, moment) => {
          const bytes = readFile(image, 'lines') ?? Buffer.alloc(0)
          const whole = bytes.toString('latin1', 0, wholeLines(bytes))
          const expected = LINES.map((_line, index) => LINES.slice(0, index + 1).join(''))
          expect(['', ...expected].slice(answered), moment).toContain(whole)
        },
      )
      expect(answered).toBe(LINES.length)
      expect(disk.openFiles).toBe(0)
    },
  )

  test('is durable after opening, including the lines that a killed process wrote', async () => {
    const disk = new SimulatedDisk()
    const first = disk.open('lines', 'create')
    first.write(Buffer.from('a\nhalf'), 0)
    const next = disk.afterProcessCrash()
    const file = await LineFile.open(next, 'lines')
    for (const image of next.powerCuts(new Random(1), IMAGES_MAX))
      expect(readFile(image, 'lines')?.toString()).toBe('a\nhalf')
    file.cut(wholeLines(file.read()))
    await file.append('b\n')
    for (const image of next.powerCuts(new Random(1), IMAGES_MAX))
      expect(readFile(image, 'lines')?.toString()).toBe('a\nb\n')
    await file.close()
  })

  test('refuses every append after a failed sync, and rejects the pending ones', async () => {
    const disk = new SimulatedDisk()
    const file = await LineFile.open(disk, 'lines')
    await file.append('a\n')
    disk.fail({ error: 'EIO', when: ({ kind }) => kind === 'syncLater' })
    const failures = await Promise.allSettled([file.append('b\n'), file.append('c\n')])
    expect(failures).toMatchObject([
      { reason: { code: 'OUTCOME_UNKNOWN' } },
      { reason: { code: 'OUTCOME_UNKNOWN' } },
    ])
    for (const line of ['d\n', 'e\n', 'f\n'])
      await expect(file.append(line)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await file.close()
  })

  test('keeps only the earlier lines, without an incomplete one, when the disk is full', async () => {
    const disk = new SimulatedDisk({ capacityBytes: 5 })
    const file = await LineFile.open(disk, 'lines')
    await file.append('a\n')
    await expect(file.append('too long\n')).rejects.toMatchObject({ code: 'DISK_FULL' })
    await file.close()
    expect(readFile(disk, 'lines')?.toString()).toBe('a\n')
    expect(filesIn(disk, 'nowhere')).toEqual([])
  })
})
