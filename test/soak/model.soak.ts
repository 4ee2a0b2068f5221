import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { campaign } from '../model/campaign.ts'

const PROGRAMS = 50_000
const TELL_EVERY_PROGRAMS = 5_000

test('fifty thousand programs: every result matches a simple model', async () => {
  const seed = seedOfRun()
  console.log(`model: ANNALS_SEED=${seed}`)
  const start = performance.now()
  const counts = await campaign(seed, PROGRAMS, ({ programs }) => {
    if (programs % TELL_EVERY_PROGRAMS > 0) return
    console.log(`${programs} programs in ${Math.round((performance.now() - start) / 1000)} s`)
  })
  console.log(counts)
  expect(counts.programs).toBe(PROGRAMS)
})
