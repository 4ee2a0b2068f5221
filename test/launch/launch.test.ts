import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { AnnalsError } from '../../src/core/errors.ts'
import { open } from '../../src/index.ts'
import type { AnyNodeContext, LaunchObserver } from '../../src/launch/context.ts'
import { contractProblems } from '../../src/launch/contracts.ts'
import { defineGate, defineLaunch, defineWorker } from '../../src/launch/definition.ts'
import { worstFirst } from '../../src/launch/fix-loop.ts'
import {
  cancelLaunch,
  pauseLaunch,
  replayLaunch,
  resumeLaunch,
  startLaunch,
  unpauseLaunch,
} from '../../src/launch/launches.ts'
import { readLogDatabase } from '../../src/launch/log-database.ts'
import { RUN_STATES } from '../../src/launch/states.ts'
import { workItemId } from '../../src/launch/work-items.ts'
import {
  eventsIn,
  fingerprint,
  gateway,
  newRunsFolder,
  SMALL_STATES,
  smallLaunch,
  snapshotIn,
} from './small-launch.ts'

const runId = 'r1'
const typesIn = (folder: string): string[] => eventsIn(folder, runId).map(({ type }) => type)
/** Of the items in a snapshot, what became of them. */
const itemsIn = (folder: string): string[] =>
  snapshotIn(folder, runId).work_items.map(({ work_item_id, status }) => `${work_item_id} ${status}`)

describe('definitions', () => {
  const worker = defineWorker({ run: async ({ page }: { page: string }) => ({ words: page.length }) })
  const gate = defineGate<'DEAD_LINK'>({ run: () => [] })
  const nodes = [
    { name: 'begin', state: 'READY', run: async () => 'WORKING' as const },
    { name: 'work', state: 'WORKING', run: async () => 'DONE' as const },
    { name: 'check', state: 'CHECKING', run: async () => 'DONE' as const },
    { name: 'mend', state: 'MENDING', run: async () => 'CHECKING' as const },
  ] as const
  const base = { name: 'x', version: '1', states: SMALL_STATES, workers: { worker }, gates: { gate }, nodes }

  test('ND7: inputs, outputs, issues and states are typed from the definition', () => {
    defineLaunch({
      ...base,
      nodes: [
        {
          name: 'begin',
          state: 'READY',
          run: async ctx => {
            const { words } = await ctx.work('worker', { input: { page: 'x' } })
            const count: number = words
            const { issues } = await ctx.validate()
            const code: 'DEAD_LINK' | undefined = issues[0]?.error_code
            // @ts-expect-error: there is no such worker
            ctx.work('walker', { input: { page: String(count) + code } }).catch(() => undefined)
            // @ts-expect-error: its input has no such field
            ctx.work('worker', { input: { pages: 'x' } }).catch(() => undefined)
            return 'WORKING'
          },
        },
        // @ts-expect-error: READY does not follow WORKING
        { name: 'work', state: 'WORKING', run: async () => 'READY' },
        ...nodes.slice(2),
      ],
      // @ts-expect-error: a fixer takes an issue
      fixer: 'worker',
    })
  })

  test('ND1: a definition that could not work is refused', () => {
    const refused = (definition: unknown): string => {
      try {
        defineLaunch(definition as typeof base)
      } catch (error) {
        expect(error).toBeInstanceOf(AnnalsError)
        expect((error as AnnalsError).code).toBe('INVALID_ARGUMENT')
        return (error as AnnalsError).message
      }
      return 'nothing'
    }
    expect(refused(base)).toBe('nothing')
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], name: 'again' }] })).toContain(
      'two for the state READY',
    )
    expect(refused({ ...base, nodes: nodes.slice(1) })).toContain('none for the state READY')
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], state: 'NOWHERE', name: 'n' }] })).toContain(
      'no state',
    )
    expect(refused({ ...base, nodes: [...nodes, { ...nodes[0], state: 'DONE', name: 'n' }] })).toContain(
      'nothing is done',
    )
    expect(refused({ ...base, name: 'a|b' })).toContain('name')
    expect(refused({ ...base, workers: { 'a/b': worker } })).toContain('name')
    expect(refused({ ...base, fixer: 'nobody' })).toContain('none of the workers')
    expect(refused({ ...base, concurrency: 0 })).toContain('concurrency')
    expect(refused({ ...base, wrokers: {} })).toContain('wrokers')
  })
})

describe('work', () => {
  test('ND7: ids are unambiguous, attempts are counted per worker and scope', async () => {
    expect(workItemId('r', 'w', 2, 'a:b%')).toBe('r:w:2:a%3Ab%25')
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
    expect(itemsIn(runsFolder)).toEqual([
      ...[
        'r1:work:1:a%3Ab failed',
        'r1:work:2:a%3Ab failed',
        'r1:work:3:a%3Ab finished',
        'r1:work:1:- finished',
      ],
    ])
  })

  test('ND7: retries end, at once for what can not pass, and the run fails with the reason', async () => {
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

  test('ND7: a worker whose time is up has failed, and may not write any more', async () => {
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

  test('ND7: no more run at once than the launch and the worker allow', async () => {
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

  test('ND7: a worker may not change state: it has no events but those of its calls', async () => {
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

  test('N8: work is out of date once an artifact that it reads has changed', async () => {
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
    // The last has the inputs of the first; but what that one left was replaced since.
    expect(seen).toEqual(['one', 'two', 'one'])
    expect(readFileSync(join(runsFolder, runId, 'artifacts', 'source.txt'), 'utf8')).toBe('one')
  })

  test('ND10: names of artifacts and ids of runs never leave their folder', async () => {
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

test('ND7: whatever a worker throws can be told', async () => {
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
    expect(itemsIn(runsFolder)).toEqual(['r1:work:1:- failed'])
  }
})

test('N8: bad options are refused before anything is made', async () => {
  const runsFolder = newRunsFolder()
  const launch = smallLaunch({})
  const bad: object[] = [
    { config: [] },
    { config: { at: new Date() } },
    { log: 'database' },
    { log: 'tape' },
    { llm: 'gpt' },
    { signal: {} },
    { runsFolder: '' },
    { runsFoldr: '' },
  ]
  for (const options of bad) {
    const all = { runsFolder, runId, ...options } as Parameters<typeof startLaunch>[1]
    await expect(startLaunch(launch, all), JSON.stringify(options)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  }
  expect(existsSync(join(runsFolder, runId))).toBe(false)
})

describe('gates and fixes', () => {
  /** Issues are lines of an artifact; a fix removes one. */
  const withIssues = (
    lines: string,
    mend: (text: string, message: string) => string,
    runsFolder = newRunsFolder(),
  ) => {
    const launch = smallLaunch({
      work: (_, { artifacts }) => artifacts.write('page', lines).then(() => undefined),
      gate: ({ artifacts }) =>
        artifacts
          .readText('page')
          .split('\n')
          .filter(Boolean)
          .map(line => ({ severity: line.split(' ')[0] as 'error', message: line })),
      mend: async ({ issue }, { artifacts }) => {
        await artifacts.write('page', mend(artifacts.readText('page'), issue.message))
      },
    })
    return { runsFolder, run: startLaunch(launch, { runsFolder, runId }).then(({ result }) => result) }
  }
  const removed = (text: string, message: string): string =>
    text
      .split('\n')
      .filter(line => line !== message)
      .join('\n')

  test('ND8: issues are fixed one at a time, worst first, and those that do not block stay open', async () => {
    const { runsFolder, run } = withIssues('warn w\nerror b\nblocker c\nerror a', removed)
    expect(await run).toMatchObject({ status: 'completed' })
    const { issues, gates } = snapshotIn(runsFolder, runId)
    expect(issues.map(({ message, status }) => `${message} ${status}`)).toEqual([
      ...['warn w OPEN', 'error b RESOLVED', 'blocker c RESOLVED', 'error a RESOLVED'],
    ])
    const resolved = eventsIn(runsFolder, runId).flatMap(event =>
      event.type === 'ISSUE_RESOLVED'
        ? [issues.find(i => i.issue_id === event.payload.issue_id)?.message]
        : [],
    )
    expect(resolved[0]).toBe('blocker c')
    expect(gates).toMatchObject([{ name: 'gate', ok: true, issues: 1 }])
    const report = JSON.parse(
      readFileSync(join(runsFolder, runId, 'artifacts', 'validation_report.json'), 'utf8'),
    ) as unknown
    expect(contractProblems('validation-report', report)).toEqual([])
  })

  test('ND8: the order is severity, gate, path, line, id', () => {
    const issue = (
      issue_id: string,
      severity: 'error' | 'warn',
      gate: string,
      path: string,
      line: number,
    ) => ({
      issue_id,
      severity,
      gate,
      message: '',
      location: { path, line },
    })
    const sorted = [
      issue('5', 'error', 'a', 'a', 1),
      issue('6', 'error', 'a', 'a', 1),
      issue('4', 'error', 'a', 'a', 2),
      issue('3', 'error', 'a', 'b', 1),
      issue('2', 'error', 'b', 'a', 1),
      issue('1', 'warn', 'a', 'a', 1),
    ]
    expect(worstFirst(sorted.toReversed())).toEqual(sorted)
  })

  test('ND8: a fix that changes nothing fails the run', async () => {
    const { run } = withIssues('error a', text => text)
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_CHANGED_NOTHING' } })
  })

  test('ND8: a fix that opens a blocker elsewhere fails the run', async () => {
    const { run } = withIssues('error a', () => 'blocker new')
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_OPENED_BLOCKER' } })
  })

  test('ND8: an issue is fixed three times at most', async () => {
    let fixes = 0
    const { runsFolder, run } = withIssues('error a', text => `${text}\ninfo ${++fixes}`)
    expect(await run).toMatchObject({ status: 'failed', error: { code: 'FIX_ATTEMPTS_EXHAUSTED' } })
    expect(fixes).toBe(3)
    expect(itemsIn(runsFolder).filter(item => item.includes(':mend:'))).toHaveLength(3)
  })
})

describe('going on', () => {
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

  test('N8: what is finished stays, what was running is tried again, what was queued is taken up', async () => {
    const { launch, runsFolder, executed } = await killedWhileRunning()
    executed.length = 0
    const { result } = await resumeLaunch(launch, runId, { runsFolder })
    expect(await result).toMatchObject({ status: 'completed', generation: 1 })
    expect(executed.sort()).toEqual(['second', 'third'])
    expect(itemsIn(runsFolder)).toEqual([
      ...['r1:work:1:first finished', 'r1:work:1:second failed', 'r1:work:1:third finished'],
      'r1:work:2:second finished',
    ])
    const interrupted = snapshotIn(runsFolder, runId).work_items[1]
    expect(interrupted.error).toMatchObject({ code: 'INTERRUPTED', retryable: true })
    expect(typesIn(runsFolder)).toEqual(expect.arrayContaining(['RUN_RESUMED', 'RESUME_REWIND']))
    await expect(resumeLaunch(launch, runId, { runsFolder })).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
  })

  test('N8: an artifact that somebody changed does not count as done', async () => {
    const { launch, runsFolder, executed } = await killedWhileRunning()
    executed.length = 0
    writeFileSync(join(runsFolder, runId, 'artifacts', 'output', 'work', 'first.json'), '{"scope":"forged"}')
    await (await resumeLaunch(launch, runId, { runsFolder })).result
    expect(executed.sort()).toEqual(['first', 'second', 'third'])
  })

  test('N8: without its snapshot, or with a damaged one, a run resumes all the same', async () => {
    for (const damage of [(path: string) => rmSync(path), (path: string) => writeFileSync(path, '{"run')]) {
      const { launch, runsFolder } = await killedWhileRunning()
      damage(join(runsFolder, runId, 'snapshot.json'))
      const { result } = await resumeLaunch(launch, runId, { runsFolder })
      expect(await result).toMatchObject({ status: 'completed' })
    }
  })

  test('ND4: a torn line is set aside, and the run goes on', async () => {
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

  test('N9: by force everything is done again, and the log goes on', async () => {
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
    // A run that crashed may be started over as well.
    const crashed = await killedWhileRunning()
    crashed.executed.length = 0
    const again = await resumeLaunch(crashed.launch, runId, { runsFolder: crashed.runsFolder, force: true })
    expect(await again.result).toMatchObject({ status: 'completed', generation: 2 })
    expect(crashed.executed.length).toBe(3)
    expect(itemsIn(crashed.runsFolder).filter(item => item.endsWith('skipped'))).toEqual([
      'r1:work:1:third skipped',
    ])
  })

  test('N7: replay runs nobody, and gives the live snapshot byte for byte', async () => {
    const { runsFolder } = await killedWhileRunning()
    const before = fingerprint(runsFolder)
    const { snapshot, written } = await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    // The log is ahead of the last snapshot: that of the last event takes its place.
    expect(written).toBe(true)
    expect(snapshot.work_items.map(({ status }) => status)).toEqual(['finished', 'running', 'queued'])
    const at = await replayLaunch(runId, { runsFolder, states: SMALL_STATES, atEvent: 2 })
    expect(at.snapshot).toMatchObject({ run_state: 'WORKING', log: { events: 2 } })
    const after = fingerprint(runsFolder)
    const changed = Object.keys(after).filter(path => after[path] !== before[path])
    expect(changed).toEqual([join(runsFolder, runId, 'snapshot.json')])
  })

  test('N7: a run that is being worked on can be replayed, and is not disturbed', async () => {
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
      resumeLaunch(launch, runId, { runsFolder }),
      startLaunch(launch, { runsFolder, runId }),
    ]) {
      await expect(call).rejects.toMatchObject({ code: 'LOCKED' })
    }
    expect(fingerprint(runsFolder)).toEqual(files)
    release.open()
    await run.result
  })

  test('N8: what is no run, or not this one, is refused and left as it is', async () => {
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

  test('ND13: a paused run lets its workers end, takes no new work, and goes on', async () => {
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

  test('ND13: a run that is stopped while it is paused is resumed from there', async () => {
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

  test('ND5: a cancelled run ends what is running and skips what is queued, also while it is paused', async () => {
    for (const isPaused of [false, true]) {
      const { runsFolder, run } = await busy()
      if (isPaused) run.pause().catch(() => undefined)
      await cancelLaunch(runId, { runsFolder, reason: 'enough' })
      expect(await run.result).toMatchObject({ status: 'cancelled', state: 'CANCELLED' })
      expect(itemsIn(runsFolder)).toEqual(['r1:work:1:a failed', 'r1:work:1:b skipped'])
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

  test('ND5: a run that nobody works on can be cancelled too', async () => {
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

  test('ND11: what a process that died had not told the ledger is told by the next', async () => {
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

  test('N2: a log in the database is the log in the file, and resumes like it', async () => {
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
  test('N10: every node, worker and gate is told of with its spans, and a failing observer changes nothing', async () => {
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

test('ND2: the default states are those of the documentation launch', () => {
  const kinds = Object.entries(RUN_STATES.states).filter(([, { kind }]) => kind === 'stable')
  expect(kinds.map(([state]) => state)).toEqual([
    ...['CREATED', 'CLONED_INPUTS', 'INGESTED', 'FACTS_READY', 'PLAN_READY', 'DRAFT_READY', 'READY_FOR_PR'],
    'PR_OPENED',
  ])
})
