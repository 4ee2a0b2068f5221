import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { campaign } from './campaign.ts'

/** `npm run test:soak` runs 50,000. */
const PROGRAMS = 400

test('every result, and all data after every crash, match a simple model', {
  timeout: 600_000,
}, async () => {
  const seed = seedOfRun()
  console.log(`model: ANNALS_SEED=${seed}`)
  const start = performance.now()
  const counts = await campaign(seed, PROGRAMS)
  console.log(`model: ${PROGRAMS} programs in ${Math.round(performance.now() - start)} ms`, counts)
  // Every counter must be above zero. Otherwise the campaign tests less than it claims.
  expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([])
})
