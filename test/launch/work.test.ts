import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { sha256Hex } from '../../src/core/hash.ts'
import {
  cancelLaunch,
  pauseLaunch,
  replayLaunch,
  resumeLaunch,
  startLaunch,
} from '../../src/launch/launches.ts'
import { nextAttempt, workOf } from '../../src/launch/work-items.ts'
import {
  eventsIn,
  fingerprint,
  gateway,
  itemsIn,
  newRunsFolder,
  smallLaunch,
  snapshotIn,
} from './small-launch.ts'

const runId = 'r1'
const typesIn = (folder: string): string[] => eventsIn(folder, runId).map(({ type }) => type)

describe('work', () => {
  test('ND7: ids are unambiguous, and attempts are counted per worker and scope', async () => {
    const key = { worker: 'w', scope_key: 'a:b%', inputs: [] }
    const first = { ...nextAttempt({ run_id: 'r', work_items: [] }, key), outputs: [], queued_at: '' }
    const work_items = [{ ...first, status: 'failed' } as const]
    expect(nextAttempt({ run_id: 'r', work_items }, key)).toEqual({
      ...key,
      work_item_id: 'r:w:2:a%3Ab%25',
      attempt: 2,
    })
    expect(workOf('r:w:2:a%3Ab%25')).toEqual({ worker: 'w', scope_key: 'a:b%' })
    const runsFolder = newRunsFolder()
    let failures = 2
    const launch = smallLaunch({
      worker: { attemptsMax: 3, backoffMs: 1 },
      work: () => {
        if (failures-- > 0) throw new Error('not yet')
      },
      node: async ctx => {
        await ctx.work('work', { scope: 'a:b' })
        await ctx.work('work')
      },
    })
    const { result } = await startLaunch(launch, { runsFolder, runId })
    expect(await result).toMatchObject({ status: 'completed' })
    expect(itemsIn(runsFolder, runId)).toEqual([
      ...[
        'r1:work:1:a%3Ab failed',
        'r1:work:2:a%3Ab failed',
        'r1:work:3:a%3Ab finished',
        'r1:work:1:- finished',
      ],
    ])
  })

  test('ND7: retries end, at once after a final failure, and the run fails with the reason', async () => {
    for (const [retryable, tries] of [
      [true, 2],
      [false, 1],
    ] as const) {
      const runsFolder = newRunsFolder()
      let runs = 0
      const launch = smallLaunch({
        worker: { attemptsMax: 2, backoffMs: 1 },
        work: () => {
          runs++
          throw Object.assign(new Error('no'), { code: 'NOPE', retryable })
        },
      })
      const { result } = await startLaunch(launch, { runsFolder, runId })
      expect(await result).toMatchObject({ status: 'failed', error: { code: 'NOPE', message: 'no' } })
      expect(runs).toBe(tries)
      expect(typesIn(runsFolder).slice(-2)).toEqual(['RUN_STATE_CHANGED', 'RUN_FAILED'])
    }
  })

  test('ND7: a worker that exceeds its time fails and cannot write any more', async () => {
    const runsFolder = newRunsFolder()
    const late = gateway()
    let refusal: unknown
    const launch = smallLaunch({
      worker: { attemptsMax: 1, timeoutMs: 20 },
      work: async (_, { artifacts, signal }) => {
        await new Promise(resolve => signal.addEventListener('abort', resolve))
        await artifacts.write('late', 'x').catch(error => {
          refusal = error
        })
        late.open()
      },
    })
    const { result } = await startLaunch(launch, { runsFolder, runId })
    expect(await result).toMatchObject({ status: 'failed', error: { code: 'TIMEOUT' } })
    await late.passed
    expect(refusal).toMatchObject({ code: 'TIMEOUT' })
    expect(typesIn(runsFolder)).not.toContain('ARTIFACT_WRITTEN')
  })

  test('ND7: the limits of the launch and of the worker hold', async () => {
    for (const [limits, most] of [
      [{ concurrency: 3 }, 3],
      [{ concurrency: 3, worker: { concurrency: 2 } }, 2],
    ] as const) {
      let running = 0
      let seen = 0
      const full = gateway()
      const launch = smallLaunch({
        ...limits,
        work: async () => {
          seen = Math.max(seen, ++running)
          if (running === most) full.open()
          await full.passed
          await new Promise(resolve => setImmediate(resolve))
          running--
        },
        node: ctx => Promise.all([1, 2, 3, 4, 5, 6].map(n => ctx.work('work', { scope: `s${n}` }))),
      })
      const { result } = await startLaunch(launch, { runsFolder: newRunsFolder(), runId })
      await result
      expect(seen).toBe(most)
    }
  })

  test('ND7: a worker can append only events about calls of models', async () => {
    let refusal: unknown
    const launch = smallLaunch({
      work: async (_, { events }) => {
        const append = events.append as (type: string, payload: unknown) => Promise<unknown>
        await append('RUN_COMPLETED', {}).catch(error => {
          refusal = error
        })
      },
    })
    await (await startLaunch(launch, { runsFolder: newRunsFolder(), runId })).result
    expect(refusal).toMatchObject({ code: 'ILLEGAL_STATE' })
  })

  test('N8: work is executed again after an artifact that it reads has changed', async () => {
    const runsFolder = newRunsFolder()
    const seen: string[] = []
    const launch = smallLaunch({
      work: async (input, { artifacts, scope }) => {
        if (scope === 'source') await artifacts.write('source.txt', String(input))
        else seen.push(artifacts.readText('source.txt'))
      },
      node: async ctx => {
        for (const text of ['one', 'one', 'two', 'one']) {
          await ctx.work('work', { scope: 'source', input: text })
          await ctx.work('work', { scope: 'copy', inputs: ['source.txt'] })
        }
      },
    })
    await (await startLaunch(launch, { runsFolder, runId })).result
    // The last one has the inputs of the first, whose outputs were replaced since.
    expect(seen).toEqual(['one', 'two', 'one'])
    expect(readFileSync(join(runsFolder, runId, 'artifacts', 'source.txt'), 'utf8')).toBe('one')
  })

  test('N8: if two workers write one artifact at once, the file is the last version of the log', async () => {
    const runsFolder = newRunsFolder()
    const secondIsRecorded = gateway()
    const launch = smallLaunch({
      concurrency: 2,
      work: async (_, { artifacts, scope }) => {
        if (scope === 'first') await artifacts.write('shared.txt', 'one')
        if (scope === 'second') await artifacts.write('shared.txt', 'two')
        if (scope === 'third') {
          // The event of the second version is durable, but its file is not in place yet, so this writer finds its own content.
          await secondIsRecorded.passed
          await artifacts.write('shared.txt', 'one')
        }
      },
      node: async ctx => {
        await ctx.work('work', { scope: 'first' })
        await Promise.all(['third', 'second'].map(scope => ctx.work('work', { scope })))
      },
    })
    let written = 0
    const observer = {
      eventAppended: ({ type }: { readonly type: string }) => {
        if (type === 'ARTIFACT_WRITTEN' && ++written === 2) secondIsRecorded.open()
      },
    }
    expect(await (await startLaunch(launch, { runsFolder, runId, observer })).result).toMatchObject({
      status: 'completed',
    })
    const file = readFileSync(join(runsFolder, runId, 'artifacts', 'shared.txt'))
    expect(sha256Hex(file)).toBe(snapshotIn(runsFolder, runId).artifacts_index['shared.txt']?.sha256)
  })

  test('ND10: artifact names and run ids cannot leave their folder', async () => {
    const runsFolder = newRunsFolder()
    const refused: unknown[] = []
    const launch = smallLaunch({
      work: async (_, { artifacts }) => {
        for (const name of ['../x', '/x', 'a/../b', '.hidden', 'a//b', '', 'x.pending', 'a\0b', 'ä']) {
          await artifacts.write(name, 'x').catch(error => refused.push(error.code))
        }
      },
    })
    await (await startLaunch(launch, { runsFolder, runId })).result
    expect(refused).toEqual(Array(9).fill('INVALID_ARGUMENT'))
    const before = fingerprint(runsFolder)
    for (const id of ['../x', '..', '.', '', 'a/b', 'a\0', 'a'.repeat(129), '%2e%2e', 'ä', 7]) {
      const calls = [
        startLaunch(launch, { runsFolder, runId: id as string }),
        resumeLaunch(launch, id as string, { runsFolder }),
        replayLaunch(id as string, { runsFolder }),
        cancelLaunch(id as string, { runsFolder }),
        pauseLaunch(id as string, { runsFolder }),
      ]
      for (const call of calls)
        await expect(call, String(id)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
    expect(fingerprint(runsFolder)).toEqual(before)
  })
})

test('ND7: anything that a worker throws can be recorded', async () => {
  for (const thrown of [
    new Error('\ud800'.repeat(9_000)),
    'text',
    undefined,
    null,
    { code: '' },
    Symbol('s'),
  ]) {
    const runsFolder = newRunsFolder()
    const launch = smallLaunch({
      worker: { attemptsMax: 1 },
      work: () => {
        throw thrown
      },
    })
    expect(await (await startLaunch(launch, { runsFolder, runId })).result).toMatchObject({
      status: 'failed',
    })
    expect(itemsIn(runsFolder, runId)).toEqual(['r1:work:1:- failed'])
  }
})
