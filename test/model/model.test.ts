import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { campaign } from './campaign.ts'

/** `npm run test:soak` runs fifty thousand. */
const PROGRAMS = 700

test('every answer, and after every crash all that is there, is what a simple model says', {
  timeout: 600_000,
}, async () => {
  const seed = seedOfRun()
  console.log(`model: ANNALS_SEED=${seed}`)
  const start = performance.now()
  const counts = await campaign(seed, PROGRAMS)
  console.log(`model: ${PROGRAMS} programs in ${Math.round(performance.now() - start)} ms`, counts)
  // What the campaign claims to reach, it has to reach.
  expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([])
})
