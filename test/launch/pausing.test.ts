import { describe, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import type { AnyNodeContext } from '../../src/launch/context.ts'
import {
  cancelLaunch,
  pauseLaunch,
  resumeLaunch,
  startLaunch,
  unpauseLaunch,
} from '../../src/launch/launches.ts'
import {
  eventsIn,
  gateway,
  itemsIn,
  newRunsFolder,
  SMALL_STATES,
  smallLaunch,
  snapshotIn,
} from './small-launch.ts'

const runId = 'r1'

describe('pausing and cancelling', () => {
  async function busy(more: { db?: Awaited<ReturnType<typeof open>>; signal?: AbortSignal } = {}) {
    const runsFolder = newRunsFolder()
    const started = gateway()
    const release = gateway()
    const executed: string[] = []
    const launch = smallLaunch({
      concurrency: 1,
      work: async (_, { scope }) => {
        executed.push(scope)
        started.open()
        await release.passed
      },
      node: (ctx: AnyNodeContext) => Promise.all(['a', 'b'].map(scope => ctx.work('work', { scope }))),
    })
    const run = await startLaunch(launch, { runsFolder, runId, ...more })
    await started.passed
    return { runsFolder, launch, run, release, executed }
  }

  test('ND13: a paused run lets its workers end, starts no new work, and can continue', async () => {
    const db = await open({ memory: true })
    const { runsFolder, run, release, executed } = await busy({ db })
    const paused = pauseLaunch(runId, { runsFolder, reason: 'lunch' })
    release.open()
    await paused
    expect(snapshotIn(runsFolder, runId)).toMatchObject({ paused: true, run_state: 'WORKING' })
    expect(run.state.work_items.map(({ status }) => status)).toEqual(['finished', 'queued'])
    expect(executed).toEqual(['a'])
    await expect(pauseLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
    while ((await db.ledger.projectSnapshot(runId)).status !== 'PAUSED') await new Promise(setImmediate)
    await unpauseLaunch(runId, { runsFolder })
    await expect(unpauseLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
    expect(await run.result).toMatchObject({ status: 'completed' })
    expect(executed).toEqual(['a', 'b'])
    const { status, consistency } = await db.ledger.projectSnapshot(runId)
    expect({ status, consistency }).toEqual({ status: 'COMPLETED', consistency: 'CONSISTENT' })
    await db.close()
  })

  test('ND13: a run that was stopped while paused can be resumed', async () => {
    const { runsFolder, launch, run, release, executed } = await busy()
    const paused = run.pause()
    release.open()
    await paused
    expect(await run.stop()).toMatchObject({ status: 'stopped', state: 'WORKING' })
    expect(snapshotIn(runsFolder, runId).paused).toBe(true)
    const resumed = await resumeLaunch(launch, runId, { runsFolder })
    expect(await resumed.result).toMatchObject({ status: 'completed' })
    expect(executed).toEqual(['a', 'b'])
    const causes = eventsIn(runsFolder, runId).flatMap(event =>
      event.type === 'RUN_RESUMED' ? [event.payload.cause] : [],
    )
    expect(causes).toEqual(['unpause'])
    await expect(pauseLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
  })

  test('ND5: cancelling aborts running work and skips queued work, even while the run is paused', async () => {
    for (const isPaused of [false, true]) {
      const { runsFolder, run } = await busy()
      if (isPaused) run.pause().catch(() => undefined)
      await cancelLaunch(runId, { runsFolder, reason: 'enough' })
      expect(await run.result).toMatchObject({ status: 'cancelled', state: 'CANCELLED' })
      expect(itemsIn(runsFolder, runId)).toEqual(['r1:work:1:a failed', 'r1:work:1:b skipped'])
      expect(eventsIn(runsFolder, runId).at(-1)).toMatchObject({
        type: 'RUN_CANCELLED',
        payload: { reason: 'enough' },
      })
    }
  })

  test('ND5: an aborted signal cancels the run', async () => {
    const controller = new AbortController()
    const { run } = await busy({ signal: controller.signal })
    controller.abort('the user left')
    expect(await run.result).toMatchObject({ status: 'cancelled' })
  })

  test('ND5: a run that no process works on can be cancelled', async () => {
    const { runsFolder, run, release } = await busy()
    const stopped = run.stop()
    release.open()
    await stopped
    await cancelLaunch(runId, { runsFolder, states: SMALL_STATES })
    expect(snapshotIn(runsFolder, runId)).toMatchObject({ run_state: 'CANCELLED' })
    await expect(cancelLaunch(runId, { runsFolder, states: SMALL_STATES })).rejects.toMatchObject({
      code: 'ILLEGAL_STATE',
    })
  })
})
