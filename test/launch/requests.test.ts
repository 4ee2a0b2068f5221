import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { lockFolder } from '../../src/disk/lock.ts'
import { cancelLaunch, pauseLaunch, unpauseLaunch } from '../../src/launch/launches.ts'
import { eventsIn, newRunsFolder, SMALL_STATES, snapshotIn } from './small-launch.ts'

const PROGRAM = fileURLToPath(new URL('requested-process.mjs', import.meta.url))
const runId = 'r1'

/** Another process works on a run, and this one sends it requests. */
describe('a run that another process works on', () => {
  let runsFolder: string
  let files: string
  let children: ChildProcess[]

  beforeEach(() => {
    runsFolder = newRunsFolder()
    files = newRunsFolder()
    children = []
  })
  afterEach(async () => {
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
  })

  function work(
    mode: 'start' | 'resume',
    more: object = {},
  ): { child: ChildProcess; result: Promise<unknown> } {
    const settings = { mode, runsFolder, runId, files, states: SMALL_STATES, ...more }
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify(settings)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    let text = ''
    child.stdout?.on('data', data => {
      text += String(data)
    })
    const result = once(child, 'exit').then(() => (text === '' ? undefined : (JSON.parse(text) as unknown)))
    return { child, result }
  }
  const file = (name: string): string => join(files, name)
  const began = (scope: string): Promise<void> =>
    expect.poll(() => existsSync(file(`${scope}-began`)), { timeout: 20_000 }).toBe(true)
  const types = (): string[] => eventsIn(runsFolder, runId).map(({ type }) => type)

  test('ND13: can be paused, continued and cancelled by a request', async () => {
    const { result } = work('start')
    await began('a')
    const paused = pauseLaunch(runId, { runsFolder, reason: 'lunch' })
    await expect.poll(() => types().at(-1)).toBe('RUN_PAUSED')
    writeFileSync(file('a'), '')
    await paused
    expect(snapshotIn(runsFolder, runId).paused).toBe(true)
    expect(types().at(-1)).toBe('WORK_ITEM_FINISHED')
    expect(existsSync(file('b-began'))).toBe(false)
    await unpauseLaunch(runId, { runsFolder })
    await began('b')
    await expect(unpauseLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
    await cancelLaunch(runId, { runsFolder, states: SMALL_STATES, reason: 'enough' })
    expect(await result).toMatchObject({ status: 'cancelled' })
    expect(eventsIn(runsFolder, runId).at(-1)).toMatchObject({
      type: 'RUN_CANCELLED',
      payload: { reason: 'enough' },
    })
    expect(readdirSync(join(runsFolder, runId, 'requests')).filter(name => !name.includes('answer'))).toEqual(
      [],
    )
  }, 60_000)

  test('ND5: is cancelled by the asking process if its own process is killed first', async () => {
    const { child } = work('start', { deaf: true })
    await began('a')
    const cancelled = cancelLaunch(runId, { runsFolder, states: SMALL_STATES })
    await expect.poll(() => existsSync(join(runsFolder, runId, 'requests'))).toBe(true)
    child.kill('SIGKILL')
    await cancelled
    expect(types().slice(-2)).toEqual(['RUN_STATE_CHANGED', 'RUN_CANCELLED'])
    expect(readdirSync(join(runsFolder, runId, 'requests'))).toEqual([])
    await expect(pauseLaunch(runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
  }, 60_000)

  test('ND5: acts on a request after both processes died, once it is resumed', async () => {
    const { child } = work('start', { deaf: true })
    await began('a')
    child.kill('SIGKILL')
    await once(child, 'exit')
    const requests = join(runsFolder, runId, 'requests')
    mkdirSync(requests)
    writeFileSync(join(requests, 'earlier.taken.json'), '{"kind":"cancel","reason":"asked before"}')
    writeFileSync(join(requests, 'nonsense.json'), '{"kind":"explode"}')
    const { result } = work('resume')
    expect(await result).toMatchObject({ status: 'cancelled' })
    expect(eventsIn(runsFolder, runId).at(-1)).toMatchObject({ payload: { reason: 'asked before' } })
    expect(readdirSync(requests).sort()).toEqual(['earlier.answer.json', 'nonsense.answer.json'])
  }, 60_000)

  test('ND12: is LOCKED within bounded time if its process takes no requests', async () => {
    const { child } = work('start', { deaf: true })
    await began('a')
    child.kill('SIGKILL')
    await once(child, 'exit')
    const lock = await lockFolder(join(runsFolder, runId))
    const before = types()
    const asked = pauseLaunch(runId, { runsFolder })
    await expect(asked).rejects.toMatchObject({
      code: 'LOCKED',
      message: expect.stringContaining('no requests'),
    })
    lock.release()
    expect(types()).toEqual(before)
    expect(readdirSync(join(runsFolder, runId, 'requests'))).toEqual([])
  }, 60_000)
})
