import { expect, test } from 'vitest'
import { seedOfRun } from '../../src/testing/random.ts'
import { campaign, FailedProgram, failureOf } from './campaign.ts'
import { generateProgram } from './generator.ts'
import { PLANTED_BUGS } from './planted-bugs.ts'

/** As many as the campaign runs at least. */
const PROGRAMS = 2_000

test(`each of ${PLANTED_BUGS.length} planted bugs is found by the model`, { timeout: 600_000 }, async () => {
  const seed = seedOfRun()
  console.log(`planted bugs: ANNALS_SEED=${seed}`)
  const lines: string[] = []
  const survivors: string[] = []
  for (const bug of PLANTED_BUGS) {
    const start = performance.now()
    const remove = bug.plant()
    let programs = 0
    let failure: string | undefined
    try {
      while (failure === undefined && programs < PROGRAMS)
        failure = await failureOf(generateProgram(seed + programs++))
    } finally {
      remove()
    }
    if (failure === undefined) survivors.push(bug.name)
    const fate = failure === undefined ? 'SURVIVED' : `found by program ${programs}: ${failure.slice(0, 140)}`
    lines.push(`${bug.name} → ${fate} (${Math.round(performance.now() - start)} ms)`)
  }
  console.log(
    `${lines.join('\n')}\nscore: ${PLANTED_BUGS.length - survivors.length} of ${PLANTED_BUGS.length}`,
  )
  expect(survivors).toEqual([])
})

test('a program that fails is told with its seed, and as short as it can be', async () => {
  const cas = PLANTED_BUGS.find(({ name }) => name === 'a cas ignores the version')
  const remove = cas?.plant()
  const failure = await campaign(1, PROGRAMS).catch((error: unknown) => error)
  remove?.()
  expect(failure).toBeInstanceOf(FailedProgram)
  const [reason, program, ...steps] = (failure as Error).message.split('\n')
  console.log((failure as Error).message)
  expect(reason).toMatch(/^ANNALS_SEED=\d+: .*VERSION_MISMATCH/)
  expect(program).toMatch(/^program \d+, (memory|disk), (durable|relaxed):$/)
  expect(steps.length).toBeLessThanOrEqual(3)
  expect(steps.join('\n')).toContain('cells.cas(')
})
