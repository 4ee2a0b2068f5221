import { describe, expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { FAULTS, faultCampaign, faultProgram, newFaultReport } from '../campaigns/fault-campaign.ts'
import { fullDiskCampaign, fullDiskProgram } from '../campaigns/full-disk-campaign.ts'
import { replacedFolderCampaign } from '../campaigns/replaced-folder-campaign.ts'
import { FAULT_SEEDS, FULL_DISK_SEEDS } from './regression-seeds.ts'

/** `npm run test:soak` runs a hundred, and crashes more of the programs that continue on an image. */
const PROGRAMS = 1
const IMAGE_SHARE = 0.005
const SHARE = 0.03
const DISKS = 600
const FOLDERS = 300

/** The runs of all programs, known and random. */
const report = newFaultReport(0)

describe('fsync fails, disk full, short write: every disk call of a program fails in every way, once and permanently', () => {
  test.each(FAULT_SEEDS.map(([seed, bug, share = SHARE]) => [seed, bug, share] as const))(
    'regression: the program with seed %i, which found that %s',
    { timeout: 600_000 },
    async (seed, _bug, share) => {
      await faultProgram(seed, { share, report })
    },
  )

  test('callers get an error code, readers see what was acknowledged, and the reopened store has it and accepts writes', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`fault campaign: ANNALS_SEED=${seed}`)
    await faultCampaign({ seed, programs: PROGRAMS, report, imageShare: IMAGE_SHARE })
    const { images, ...counts } = report
    console.log('fault campaign:', counts, `${images.images} images left behind and judged`)
    expect(Object.keys(report.runsByFault).sort()).toEqual(FAULTS.map(({ name }) => name).sort())
    expect(report.wentOn).toBeGreaterThan(0)
    expect(report.stayedReadOnly).toBeGreaterThan(0)
    expect(report.failedOpenings).toBeGreaterThan(0)
    expect(Object.keys(report.heard).sort()).toEqual([
      'DISK_FULL',
      'IO_ERROR',
      'OUTCOME_UNKNOWN',
      'READ_ONLY',
    ])
  })
})

describe('disk full: disks of every size, which get free space again', () => {
  test.each(FULL_DISK_SEEDS)('regression: the disk with seed %i, which found that %s', async seed => {
    await fullDiskProgram(seed)
  })

  test('the commit is refused, the log is truncated, reads and reopening work, and with free space the handle accepts writes', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`full disk campaign: ANNALS_SEED=${seed}`)
    const report = await fullDiskCampaign({ seed, disks: DISKS })
    console.log('full disk campaign:', report)
    expect(Object.entries(report).filter(([, count]) => count === 0)).toEqual([])
  })
})

describe('a folder that is replaced during commits and checkpoints', () => {
  test('no later commit is acknowledged, and the new store in its place is not changed', {
    timeout: 600_000,
  }, async () => {
    const seed = seedOfRun()
    console.log(`replaced folder campaign: ANNALS_SEED=${seed}`)
    const report = await replacedFolderCampaign({ seed, folders: FOLDERS })
    console.log('replaced folder campaign:', report)
    expect(Object.entries(report).filter(([, count]) => count === 0)).toEqual([])
  })
})
