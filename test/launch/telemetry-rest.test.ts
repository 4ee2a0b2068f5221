import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import { formatRfc3339, parseRfc3339 } from '../../src/core/time.ts'
import type { LaunchEvent } from '../../src/launch/events.ts'
import { flushTelemetry } from '../../src/launch/flush-telemetry.ts'
import { startLaunch } from '../../src/launch/launches.ts'
import { DatabaseLog } from '../../src/launch/log-database.ts'
import type { TelemetryOptions } from '../../src/launch/run-telemetry.ts'
import { type FaultyTelemetry, openFaultyTelemetry } from '../telemetry/faulty-service.ts'
import { eventsIn, newRunsFolder, SMALL_STATES, smallLaunch } from './small-launch.ts'

/** The next start in the same folder sends the telemetry that a killed process did not. */

const PROGRAM = fileURLToPath(new URL('told-process.mjs', import.meta.url))
const runId = 'r'

let service: FaultyTelemetry
let runsFolder: string
beforeEach(async () => {
  service = await openFaultyTelemetry()
  runsFolder = newRunsFolder()
})
afterEach(() => service.close())

const telemetry = (): TelemetryOptions => ({ url: service.baseUrl, sleep: async () => undefined })

/** Starts a run in a process that kills itself right after an event of this type. */
async function startAndKill(killAt: LaunchEvent['type']): Promise<readonly LaunchEvent[]> {
  const told = { runsFolder, runId, url: service.baseUrl, states: SMALL_STATES, killAt }
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(told)], { stdio: 'inherit' })
  const [, signal] = await once(child, 'exit')
  expect(signal).toBe('SIGKILL')
  const events = eventsIn(runsFolder, runId)
  expect(events.at(-1)?.type).toBe(killAt)
  return events
}

async function startNext(id: string): Promise<void> {
  const run = await startLaunch(smallLaunch({}), { runsFolder, runId: id, telemetry: telemetry() })
  expect(await run.result).toMatchObject({ status: 'completed' })
}

type Stored = Record<string, unknown>

/** The records about the run, the parent first. */
function records(): Stored[] {
  return [...service.runs.values()].filter(run => run['run_id'] === runId || run['parent_run_id'] === runId)
}

const statuses = (): string[] => records().map(run => `${run['run_id']} ${run['status']}`)
const timeOf = ({ ts }: LaunchEvent): number => parseRfc3339(ts, { offset: 'any' }) as number
const told = (): string => join(runsFolder, runId, 'telemetry_told.json')

describe('a process that was killed before its telemetry was complete', () => {
  test('N10: killed right after RUN_COMPLETED, its end is sent by the next start, once, with the times of the log', async () => {
    const events = await startAndKill('RUN_COMPLETED')
    expect(records()[0]).toMatchObject({ run_id: runId, status: 'running' })
    await startNext('second')
    expect(statuses()).toEqual([
      'r success',
      'r-node-begin success',
      'r-node-toil success',
      'r-worker-r.work.1.- success',
    ])
    const [created, completed] = [events[0], events[events.length - 1]]
    expect(records()[0]).toMatchObject({
      start_time: formatRfc3339(timeOf(created)),
      end_time: formatRfc3339(timeOf(completed)),
      duration_ms: timeOf(completed) - timeOf(created),
      items_succeeded: 1,
    })
    const ends = service.accepted.filter(
      ({ method, path, payload }) =>
        method === 'PATCH' && path.endsWith(String(records()[0]['event_id'])) && 'end_time' in payload,
    )
    expect(ends).toHaveLength(1)
    expect(existsSync(told())).toBe(false)
    const before = service.arrived.length
    await startNext('third')
    const ids = records().map(run => String(run['event_id']))
    const again = service.arrived
      .slice(before)
      .filter(({ path, payload }) => ids.some(id => path.endsWith(id) || payload['event_id'] === id))
    expect(again).toEqual([])
  })

  test('N10: killed in the middle of its work, its open records are sent once, and the run is still running', async () => {
    await startAndKill('WORK_ITEM_FINISHED')
    const flushed = await flushTelemetry({ runsFolder, telemetry: telemetry() })
    expect(flushed).toMatchObject([{ runId, dead: 0, waiting: 0 }])
    expect(statuses()).toEqual([
      'r running',
      'r-node-begin success',
      'r-node-toil running',
      'r-worker-r.work.1.- success',
    ])
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry() })).toEqual([])
  })

  test('N10: the telemetry of a log in a database is completed too', async () => {
    await startAndKill('RUN_COMPLETED')
    const events = readFileSync(join(runsFolder, runId, 'events.ndjson'), 'utf8')
    await using db = await open({ memory: true })
    const log = new DatabaseLog(db.events, runId)
    for (const line of events.trimEnd().split('\n')) await log.append(`${line}\n`)
    writeFileSync(join(runsFolder, runId, 'events.ndjson'), '')
    writeFileSync(told(), readFileSync(told(), 'utf8').replace('"log":"file"', '"log":"database"'))
    const warnings: string[] = []
    const warn = (message: string): number => warnings.push(message)
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry(), warn })).toEqual([])
    expect(warnings).toEqual([expect.stringContaining('the log of this run is in a database')])
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry(), db })).toMatchObject([
      { runId, waiting: 0 },
    ])
    expect(statuses()[0]).toBe('r success')
  })

  test('N11: a damaged telemetry_told.json is a warning and does not affect other runs', async () => {
    await startAndKill('RUN_COMPLETED')
    writeFileSync(told(), '{"schema_version":1')
    const warnings: string[] = []
    const warn = (message: string): number => warnings.push(message)
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry(), warn })).toEqual([])
    expect(warnings).toEqual([expect.stringContaining('telemetry_told.json is damaged')])
  })
})

test('N10: without a service a process warns once, and not at all if telemetry is false', async () => {
  const warnings: string[] = []
  const warn = (message: string): number => warnings.push(message)
  const start = async (id: string, off: { telemetry?: false }): Promise<unknown> =>
    (await startLaunch(smallLaunch({}), { runsFolder, runId: id, warn, ...off })).result
  await start('a', { telemetry: false })
  expect(warnings).toEqual([])
  await start('b', {})
  await start('c', {})
  expect(warnings).toEqual([expect.stringContaining('no telemetry is sent: set TELEMETRY_API_URL')])
})
