import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { lockFolder } from '../../src/disk/lock.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { checkReplay, DocsLaunches, type DocsPlace, killAndResume } from './docs-launches.ts'
import { fingerprint } from './small-launch.ts'

/** Kills a real process at some events. `npm run test:soak` does so at every event, and again while it resumes. */

const EVERY = 40

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
}, 600_000)
afterAll(async () => {
  await whole?.close()
  launches.remove()
})

describe('a docs launch that is killed', () => {
  test('N1: passes through every state of a successful run', async () => {
    const states = whole
      .events()
      .flatMap(({ type, payload }) => (type === 'RUN_STATE_CHANGED' ? [payload] : []))
    expect(new Set(states.map(state => (state as { new_state: string }).new_state)).size).toBe(12)
    whole.checkExecutions()
    whole.checkTrail()
    await checkReplay(whole)
  })

  test('N8: killed at any event, it resumes to the same end and repeats no finished work', async () => {
    const first = 1 + new Random(seedOfRun()).below(EVERY)
    console.log(`killed at every ${EVERY}th of ${events} events, from ${first} on`)
    const chosen = [...Array(events).keys()]
      .map(index => index + 1)
      .filter(at => at % EVERY === first % EVERY)
    const lanes = [0, 1].map(async lane => {
      for (const [index, at] of chosen.entries()) {
        if (index % 2 === lane) await killAndResume(launches, at, expected)
      }
    })
    await Promise.all(lanes)
  }, 400_000)

  test('N10: killed after its last event, its telemetry is completed by the next attempt to resume it', async () => {
    await killAndResume(launches, events, expected)
  }, 60_000)

  test('N8: killed again while it resumes, it still reaches the same end', async () => {
    await killAndResume(launches, Math.floor(events * 0.75), expected, 2)
  }, 60_000)

  test('ND12: a second process gets LOCKED at once, and the lock dies with its holder', async () => {
    const place = await launches.place('locked')
    expect(await place.work('start', 20)).toEqual({ status: 'killed' })
    // The process was killed while it held the lock.
    const lock = await lockFolder(place.runFolder)
    const before = fingerprint(place.runFolder)
    const refused = await place.work('resume')
    expect(refused).toMatchObject({ status: 'refused', code: 'LOCKED' })
    expect(await place.work('start')).toMatchObject({ status: 'refused', code: 'LOCKED' })
    expect(fingerprint(place.runFolder)).toEqual(before)
    lock.release()
    expect(await place.work('resume')).toMatchObject({ status: 'completed' })
    await place.close()
  }, 60_000)

  test('N9: a forced restart executes the whole launch again, to the same end', async () => {
    const before = whole.executions().size
    const asked = whole.writer.requests.length
    expect(await whole.work('force')).toMatchObject({ status: 'completed', generation: 2 })
    expect(whole.executions().size).toBe(2 * before)
    expect(whole.writer.requests, 'recorded answers are used').toHaveLength(asked)
    const { artifacts, issues, gates, section_states } = (await whole.comesTo()) as Record<string, unknown>
    expect(expected).toMatchObject({ artifacts, issues, gates, section_states })
    await checkReplay(whole)
  }, 60_000)
})
