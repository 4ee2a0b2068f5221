import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { checkReplay, DocsLaunches, type DocsPlace, killAndResume } from './docs-launches.ts'

/** A real process, killed for real. Every event is tried by `npm run test:soak`. */

let launches: DocsLaunches
let whole: DocsPlace
let expected: unknown
let events = 0

beforeAll(async () => {
  launches = DocsLaunches.make()
  whole = await launches.place('whole')
  expect(await whole.work('start')).toMatchObject({ status: 'completed', state: 'DONE' })
  expected = await whole.comesTo()
  events = whole.events().length
}, 120_000)
afterAll(() => launches.remove())

describe('a documentation launch that is killed', () => {
  test('N1 goes through every state of a run that succeeds', async () => {
    const states = whole
      .events()
      .flatMap(({ type, payload }) => (type === 'RUN_STATE_CHANGED' ? [payload] : []))
    expect(new Set(states.map(state => (state as { new_state: string }).new_state)).size).toBe(12)
    whole.checkExecutions()
    await checkReplay(whole)
  })

  test('N8 resumes at whatever event it was killed, to the same end, and does nothing twice', async () => {
    const step = Math.max(1, Math.floor(events / 8))
    const chosen = [...Array(events).keys()].map(index => index + 1).filter(at => at % step === 1)
    const lanes = [0, 1].map(async lane => {
      for (const [index, at] of chosen.entries()) {
        if (index % 2 === lane) await killAndResume(launches, at, expected)
      }
    })
    await Promise.all(lanes)
  }, 180_000)

  test('N8 also if it is killed again while it resumes', async () => {
    await killAndResume(launches, Math.floor(events * 0.75), expected, 2)
  }, 60_000)
})
