import { afterAll, beforeAll, expect, test } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { DocsLaunches, killAndResume } from '../launch/docs-launches.ts'

/** Kills the documentation launch at every event, and again while it resumes. */

let launches: DocsLaunches
let expected: unknown
let events = 0

beforeAll(async () => {
  launches = DocsLaunches.make()
  const whole = await launches.place('whole')
  expect(await whole.work('start')).toMatchObject({ status: 'completed', state: 'DONE' })
  expected = await whole.comesTo()
  events = whole.events().length
  await whole.close()
}, 120_000)
afterAll(() => launches.remove())

async function inLanes(numbers: readonly number[], work: (number: number) => Promise<void>): Promise<void> {
  const lanes = [0, 1].map(async lane => {
    for (const [index, number] of numbers.entries()) if (index % 2 === lane) await work(number)
  })
  await Promise.all(lanes)
}

const upTo = (count: number): number[] => [...Array(count).keys()].map(index => index + 1)

test('N8: killed at every event, a launch resumes to the same end and repeats no completed step', async () => {
  await inLanes(upTo(events), at => killAndResume(launches, at, expected))
})

test('N8: killed at every event, and again at a random event of its resumption, a launch reaches the same end', async () => {
  const seed = seedOfRun()
  const random = new Random(seed)
  await inLanes(upTo(events), at => killAndResume(launches, at, expected, 1 + random.below(30)))
})
