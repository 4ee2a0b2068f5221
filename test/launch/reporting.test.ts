import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { open } from '../../src/index.ts'
import type { LaunchObserver } from '../../src/launch/context.ts'
import { replayLaunch, resumeLaunch, startLaunch } from '../../src/launch/launches.ts'
import { readLogDatabase } from '../../src/launch/log-database.ts'
import { eventsIn, newRunsFolder, SMALL_STATES, smallLaunch } from './small-launch.ts'

const runId = 'r1'
const typesIn = (folder: string): string[] => eventsIn(folder, runId).map(({ type }) => type)

describe('in a database', () => {
  test('ND11: a launch is a run of the ledger: its generations, its steps, its retries', async () => {
    const db = await open({ memory: true })
    const runsFolder = newRunsFolder()
    let failures = 1
    const launch = smallLaunch({
      worker: { backoffMs: 1 },
      work: (_, { scope }) => {
        if (scope === 'a' && failures-- > 0) throw new Error('not yet')
      },
      node: async ctx => {
        await ctx.work('work', { scope: 'a', input: 1 })
        await ctx.work('work', { scope: 'a', input: 2 })
        await ctx.work('work', { scope: 'b|c' })
      },
    })
    await (await startLaunch(launch, { runsFolder, runId, db, project: 'docs' })).result
    await (await resumeLaunch(launch, runId, { runsFolder, db, project: 'docs', force: true })).result
    const first = await db.ledger.projectSnapshot(runId)
    expect(first).toMatchObject({ status: 'COMPLETED', planId: 'small', planVersion: '1', projectId: 'docs' })
    expect(first).toMatchObject({ tenantId: 'default', consistency: 'CONSISTENT' })
    const steps = first.steps.map(({ stepId, logicalAttemptId, status }) => [
      stepId,
      logicalAttemptId,
      status,
    ])
    expect(steps).toEqual([
      ['work/a/1', 2, 'SUCCESS'],
      ['work/a/2', 1, 'SUCCESS'],
      ['work/b%7Cc/1', 1, 'SUCCESS'],
    ])
    const second = await db.ledger.projectSnapshot(`${runId}~2`)
    expect(second).toMatchObject({ status: 'COMPLETED', consistency: 'CONSISTENT' })
    expect((await db.runs.children(runId)).map(run => run.runId)).toEqual([`${runId}~2`])
    expect(await db.runs.query({ tags: ['launch'], status: 'Completed' })).toHaveLength(2)
    await db.close()
  })

  test('ND11: the next process sends the ledger what a crashed process did not', async () => {
    const runsFolder = newRunsFolder()
    const launch = smallLaunch({})
    const run = await startLaunch(launch, { runsFolder, runId })
    await run.stop()
    const db = await open({ memory: true })
    await (await resumeLaunch(launch, runId, { runsFolder, db })).result
    const { status, consistency, steps } = await db.ledger.projectSnapshot(runId)
    expect({ status, consistency, steps: steps.length }).toEqual({
      status: 'COMPLETED',
      consistency: 'CONSISTENT',
      steps: 1,
    })
    await db.close()
  })

  test('N2: a log in a database equals the log file, and can be resumed', async () => {
    const db = await open({ memory: true })
    const runsFolder = newRunsFolder()
    const launch = smallLaunch({ work: () => ({ text: 'bäume \0' }) })
    const place = { runsFolder, db, log: 'database' } as const
    const run = await startLaunch(launch, { ...place, runId })
    await run.stop()
    await expect(startLaunch(launch, { ...place, runId })).rejects.toMatchObject({ code: 'RUN_EXISTS' })
    expect(await (await resumeLaunch(launch, runId, place)).result).toMatchObject({ status: 'completed' })
    expect(existsSync(join(runsFolder, runId, 'events.ndjson'))).toBe(false)
    const text = await readLogDatabase(db.events, runId)
    const fileFolder = newRunsFolder()
    mkdirSync(join(fileFolder, runId))
    writeFileSync(join(fileFolder, runId, 'events.ndjson'), text)
    const fromFile = await replayLaunch(runId, { runsFolder: fileFolder, states: SMALL_STATES })
    const fromDatabase = await replayLaunch(runId, { ...place, states: SMALL_STATES })
    expect(fromFile.text).toBe(fromDatabase.text)
    expect(fromFile.snapshot.log.bytes).toBe(text.length)
    await db.close()
  })
})

describe('observers', () => {
  test('N10: an observer gets every node, worker and gate with its spans, and its errors do not affect the run', async () => {
    const runsFolder = newRunsFolder()
    const seen: string[] = []
    const warnings: string[] = []
    const observer = new Proxy({} as LaunchObserver, {
      get: (_, hook) => (first: { name?: string; spanId?: string }) => {
        seen.push(`${String(hook)} ${first.name ?? ''}`)
        if (hook === 'nodeStarted') throw new Error('no network')
        return hook === 'launchEnded' ? Promise.reject(new Error('no network')) : undefined
      },
    })
    const launch = smallLaunch({ gate: () => [] })
    const options = { runsFolder, runId, observer, warn: (message: string) => warnings.push(message) }
    expect(await (await startLaunch(launch, options)).result).toMatchObject({ status: 'completed' })
    expect(seen.filter(name => !name.startsWith('eventAppended'))).toEqual([
      ...['launchStarted ', 'stableState ', 'nodeStarted begin', 'nodeFinished begin', 'nodeStarted work'],
      ...['workerStarted work', 'workerFinished work', 'nodeFinished work', 'nodeStarted check'],
      ...['gateStarted gate', 'gateFinished gate', 'nodeFinished check', 'launchEnded '],
    ])
    expect(seen.filter(name => name.startsWith('eventAppended'))).toHaveLength(typesIn(runsFolder).length)
    expect(warnings).toHaveLength(4)
  })
})
