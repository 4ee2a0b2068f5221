import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { crashCampaign } from '../campaigns/crash-campaign.ts'
import { faultCampaign } from '../campaigns/fault-campaign.ts'
import { fullDiskCampaign } from '../campaigns/full-disk-campaign.ts'

const IMAGES = 5_000_000
const TELL_EVERY_IMAGES = 250_000

test('five million crash images: nothing acknowledged is lost, and every commit is atomic', async () => {
  const seed = seedOfRun()
  console.log(`crash campaign: ANNALS_SEED=${seed}`)
  const start = performance.now()
  let told = 0
  const report = await crashCampaign({
    seed,
    images: IMAGES,
    progress: ({ images, programs }) => {
      if (images < told + TELL_EVERY_IMAGES) return
      told = images
      const seconds = Math.round((performance.now() - start) / 1000)
      console.log(`${images} images of ${programs} programs in ${seconds} s`)
    },
  })
  console.log(report)
  expect(report.images).toBeGreaterThanOrEqual(IMAGES)
})

test('every disk call of a hundred programs fails, in every way', async () => {
  const seed = seedOfRun()
  console.log(`fault campaign: ANNALS_SEED=${seed}`)
  console.log(await faultCampaign({ seed, programs: 100 }))
})

test('a hundred thousand disks get full, and have free space again', async () => {
  const seed = seedOfRun()
  console.log(`full disk campaign: ANNALS_SEED=${seed}`)
  console.log(await fullDiskCampaign({ seed, disks: 100_000 }))
})
