import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { open } from '../../src/index.ts'
import { replayLaunch, resumeLaunch, startLaunch } from '../../src/launch/launches.ts'
import {
  eventsIn,
  fingerprint,
  gateway,
  itemsIn,
  newRunsFolder,
  SMALL_STATES,
  smallLaunch,
  snapshotIn,
} from './small-launch.ts'

const runId = 'r1'
const typesIn = (folder: string): string[] => eventsIn(folder, runId).map(({ type }) => type)

describe('resuming', () => {
  /** A run whose work item was running when it was abandoned: a copy of its folder, as a killed process leaves it. */
  async function killedWhileRunning(db?: Awaited<ReturnType<typeof open>>) {
    const runsFolder = newRunsFolder()
    const copy = newRunsFolder()
    const started = gateway()
    const release = gateway()
    const executed: string[] = []
    const launch = smallLaunch({
      concurrency: 1,
      work: async (_, { scope }) => {
        executed.push(scope)
        if (scope === 'second' && executed.length === 2) {
          started.open()
          await release.passed
        }
        return { scope }
      },
      node: async ctx => {
        await Promise.all(['first', 'second', 'third'].map(scope => ctx.work('work', { scope })))
      },
    })
    const run = await startLaunch(launch, { runsFolder, runId, ...(db === undefined ? {} : { db }) })
    await started.passed
    execFileSync('cp', ['-r', `${runsFolder}/.`, copy])
    release.open()
    await run.stop()
    return { launch, runsFolder: copy, executed }
  }

  test('N8: finished work stays, interrupted work is tried again, queued work is executed', async () => {
    const { launch, runsFolder, executed } = await killedWhileRunning()
    executed.length = 0
    const { result } = await resumeLaunch(launch, runId, { runsFolder })
    expect(await result).toMatchObject({ status: 'completed', generation: 1 })
    expect(executed.sort()).toEqual(['second', 'third'])
    expect(itemsIn(runsFolder, runId)).toEqual([
      ...['r1:work:1:first finished', 'r1:work:1:second failed', 'r1:work:1:third finished'],
      'r1:work:2:second finished',
    ])
    const interrupted = snapshotIn(runsFolder, runId).work_items[1]
    expect(interrupted.error).toMatchObject({ code: 'INTERRUPTED', retryable: true })
    expect(typesIn(runsFolder)).toEqual(expect.arrayContaining(['RUN_RESUMED', 'RESUME_REWIND']))
    await expect(resumeLaunch(launch, runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
  })

  test('N8: work whose artifact was changed is executed again', async () => {
    const { launch, runsFolder, executed } = await killedWhileRunning()
    executed.length = 0
    writeFileSync(join(runsFolder, runId, 'artifacts', 'output', 'work', 'first.json'), '{"scope":"forged"}')
    await (await resumeLaunch(launch, runId, { runsFolder })).result
    expect(executed.sort()).toEqual(['first', 'second', 'third'])
  })

  test('N8: a run resumes without its snapshot and with a damaged one', async () => {
    for (const damage of [(path: string) => rmSync(path), (path: string) => writeFileSync(path, '{"run')]) {
      const { launch, runsFolder } = await killedWhileRunning()
      damage(join(runsFolder, runId, 'snapshot.json'))
      const { result } = await resumeLaunch(launch, runId, { runsFolder })
      expect(await result).toMatchObject({ status: 'completed' })
    }
  })

  test('ND4: a torn line is set aside, and the run continues', async () => {
    const { launch, runsFolder } = await killedWhileRunning()
    const path = join(runsFolder, runId, 'events.ndjson')
    writeFileSync(path, `${readFileSync(path, 'utf8')}{"event_h`)
    const warnings: string[] = []
    const before = await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    expect(before.tornBytes).toBe(9)
    const run = await resumeLaunch(launch, runId, { runsFolder, warn: message => warnings.push(message) })
    expect(await run.result).toMatchObject({ status: 'completed' })
    expect(readFileSync(`${path}.torn`, 'utf8')).toBe('{"event_h')
    expect(warnings).toHaveLength(1)
    eventsIn(runsFolder, runId)
  })

  test('N9: a forced restart executes everything again and continues the log', async () => {
    const runsFolder = newRunsFolder()
    const executed: string[] = []
    const launch = smallLaunch({
      work: async (_, { workItemId: id, artifacts }) => {
        executed.push(id)
        await artifacts.write('page', 'the same')
      },
    })
    await (await startLaunch(launch, { runsFolder, runId })).result
    const before = readFileSync(join(runsFolder, runId, 'events.ndjson'), 'utf8')
    const { result } = await resumeLaunch(launch, runId, { runsFolder, force: true })
    expect(await result).toMatchObject({ status: 'completed', generation: 2 })
    expect(executed).toEqual(['r1:work:1:-', 'r1:work:2:-'])
    expect(readFileSync(join(runsFolder, runId, 'events.ndjson'), 'utf8').startsWith(before)).toBe(true)
    const { snapshot } = await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    expect(snapshot).toEqual(snapshotIn(runsFolder, runId))
    // A crashed run can be restarted too.
    const crashed = await killedWhileRunning()
    crashed.executed.length = 0
    const again = await resumeLaunch(crashed.launch, runId, { runsFolder: crashed.runsFolder, force: true })
    expect(await again.result).toMatchObject({ status: 'completed', generation: 2 })
    expect(crashed.executed.length).toBe(3)
    expect(itemsIn(crashed.runsFolder, runId).filter(item => item.endsWith('skipped'))).toEqual([
      'r1:work:1:third skipped',
    ])
  })

  test('N7: replay runs no worker and gives the live snapshot byte for byte', async () => {
    const { runsFolder } = await killedWhileRunning()
    const before = fingerprint(runsFolder)
    const { snapshot, written } = await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    // The log is ahead of the last snapshot, so the snapshot is replaced.
    expect(written).toBe(true)
    expect(snapshot.work_items.map(({ status }) => status)).toEqual(['finished', 'running', 'queued'])
    const at = await replayLaunch(runId, { runsFolder, states: SMALL_STATES, atEvent: 2 })
    expect(at.snapshot).toMatchObject({ run_state: 'WORKING', log: { events: 2 } })
    const after = fingerprint(runsFolder)
    const changed = Object.keys(after).filter(path => after[path] !== before[path])
    expect(changed).toEqual([join(runsFolder, runId, 'snapshot.json')])
  })

  test('N7: replay does not disturb a process that works on the run', async () => {
    const runsFolder = newRunsFolder()
    const started = gateway()
    const release = gateway()
    const launch = smallLaunch({
      work: async () => {
        started.open()
        await release.passed
      },
    })
    const run = await startLaunch(launch, { runsFolder, runId })
    await started.passed
    const before = snapshotIn(runsFolder, runId)
    const { snapshot, written } = await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    expect(written).toBe(false)
    expect(snapshot.work_items).toMatchObject([{ status: 'running' }])
    expect(snapshotIn(runsFolder, runId)).toEqual(before)
    // ND12
    const files = fingerprint(runsFolder)
    for (const call of [
      () => resumeLaunch(launch, runId, { runsFolder }),
      () => startLaunch(launch, { runsFolder, runId }),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'LOCKED' })
    }
    expect(fingerprint(runsFolder)).toEqual(files)
    release.open()
    await run.result
  })

  test('N8: a folder without this run is refused and not changed', async () => {
    const { launch, runsFolder } = await killedWhileRunning()
    const folder = join(runsFolder, runId)
    const other = smallLaunch({})
    mkdirSync(join(runsFolder, 'empty'))
    const snapshot = readFileSync(join(folder, 'snapshot.json'), 'utf8')
    const log = readFileSync(join(folder, 'events.ndjson'), 'utf8')
    const refusal = async (id: string, code: string): Promise<void> => {
      const before = fingerprint(runsFolder)
      await expect(resumeLaunch(launch, id, { runsFolder })).rejects.toMatchObject({ code })
      await expect(replayLaunch(id, { runsFolder, states: SMALL_STATES })).rejects.toMatchObject({ code })
      expect(fingerprint(runsFolder)).toEqual(before)
    }
    await refusal('nobody', 'RUN_NOT_FOUND')
    await refusal('empty', 'RUN_NOT_FOUND')
    writeFileSync(join(folder, 'snapshot.json'), snapshot.replaceAll('"r1"', '"r2"'))
    await refusal(runId, 'CORRUPT')
    writeFileSync(join(folder, 'snapshot.json'), snapshot)
    writeFileSync(join(folder, 'events.ndjson'), log.replace('"WORKING"', '"WORKINK"'))
    await refusal(runId, 'EVENT_CHAIN_BROKEN')
    writeFileSync(join(folder, 'events.ndjson'), '')
    await refusal(runId, 'RUN_NOT_FOUND')
    writeFileSync(join(folder, 'events.ndjson'), log)
    await expect(startLaunch(other, { runsFolder, runId })).rejects.toMatchObject({ code: 'RUN_EXISTS' })
    await expect(resumeLaunch({ ...launch, name: 'another' }, runId, { runsFolder })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    expect(existsSync(join(runsFolder, 'nobody'))).toBe(false)
    await expect(replayLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'EVENT_CHAIN_BROKEN' })
    const { result } = await resumeLaunch(launch, runId, { runsFolder })
    expect(await result).toMatchObject({ status: 'completed' })
  })
})
