import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { open } from '../../src/annals.ts'
import type { Launch } from '../../src/launch/definition.ts'
import type { LaunchEvent } from '../../src/launch/events.ts'
import { flushTelemetry } from '../../src/launch/flush-telemetry.ts'
import { resumeLaunch, startLaunch } from '../../src/launch/launches.ts'
import { type FakeOpenAi, openFakeOpenAi } from '../../src/launch/llm/fake-openai.ts'
import type { TelemetryOptions } from '../../src/launch/run-telemetry.ts'
import { createServer } from '../../src/server/server.ts'
import { telemetrySettings } from '../../src/server/telemetry-settings.ts'
import { eventIdOf } from '../../src/telemetry/model.ts'
import { type FaultyTelemetry, openFaultyTelemetry, type ServiceScript } from '../telemetry/faulty-service.ts'
import { eventsIn, gateway, newRunsFolder, smallLaunch } from './small-launch.ts'

/** The telemetry of launches, with working and failing services. */

let service: FaultyTelemetry
let model: FakeOpenAi
let runsFolder: string
let warnings: string[]
const runId = 'r'

beforeEach(async () => {
  service = await openFaultyTelemetry()
  model = await openFakeOpenAi()
  runsFolder = newRunsFolder()
  warnings = []
})
afterEach(async () => {
  await service.close()
  await model.close()
})

const telemetry = (): TelemetryOptions => ({ url: service.baseUrl, sleep: async () => undefined })
const options = (): {
  runsFolder: string
  telemetry: TelemetryOptions
  llm: { baseUrl: string }
  warn: (message: string) => void
} => ({
  runsFolder,
  telemetry: telemetry(),
  llm: { baseUrl: model.baseUrl },
  warn: message => warnings.push(message),
})

/** Two pieces of work that call a model, an issue that is fixed, and a commit. */
function busyLaunch(): Launch {
  return smallLaunch({
    work: async (_, ctx) => {
      const messages = [{ role: 'user', content: `about ${ctx.scope}` }]
      return (await ctx.llm.chat({ model: 'gpt-4o-mini', messages })).content
    },
    node: async ctx => {
      for (const scope of ['a', 'b']) await ctx.work('work', { scope })
      await ctx.prOpened({ branch: 'b', commit_sha: 'abcdef1' })
    },
    gate: ({ artifacts }) => (artifacts.has('mended') ? [] : [{ severity: 'error', message: 'not mended' }]),
    mend: async (_, { artifacts }) => {
      await artifacts.write('mended', 'yes')
    },
  })
}

type Stored = Record<string, unknown>

async function trail(of = runId): Promise<{ run: Stored; children: Stored[] }> {
  const response = await fetch(`${service.baseUrl}/telemetry/${of}`)
  expect(response.status).toBe(200)
  return (await response.json()) as { run: Stored; children: Stored[] }
}

/** The kind and the status of each child, in the order in which they were posted. */
function posted(): string[] {
  return [...service.runs.values()].map(run => `${run['job_type']} ${run['run_id']} ${run['status']}`)
}

const CHILDREN = [
  'orchestrator_node r-node-begin success',
  'orchestrator_node r-node-work success',
  'worker r-worker-r.work.1.a success',
  'worker r-worker-r.work.1.b success',
  'commit_service r-commit-abcdef1 success',
  'orchestrator_node r-node-check success',
  'gate r-gate-gate-1 failure',
  'orchestrator_node r-node-mend success',
  'orchestrator_node r-node-check success',
  'gate r-gate-gate-2 success',
]

/** The ids of calls and of fixed issues vary, so they are left out. */
function isPlain(child: string): boolean {
  return !child.startsWith('llm_call') && !child.includes('.mend.')
}

function checkOrder(events: readonly LaunchEvent[]): void {
  const keys = service.accepted.map(({ method, path, payload }) => JSON.stringify([method, path, payload]))
  expect(new Set(keys).size, 'nothing twice').toBe(keys.length)
  const started = events.filter(({ type }) => type === 'LLM_CALL_STARTED')
  expect(started.length).toBeGreaterThan(0)
  for (const { trace_id, span_id, parent_span_id, payload } of started) {
    const call = service.runs.get(eventIdOf(trace_id, span_id))
    const { call_id } = payload as { call_id: string }
    expect(call).toMatchObject({
      job_type: 'llm_call',
      run_id: `${runId}-llm-${call_id}`,
      context_json: { trace_id, span_id, parent_span_id, call_id },
      status: 'success',
    })
  }
}

describe('a launch in telemetry', () => {
  test('N10: one parent, and a child for each node, worker, gate, call and commit, with the ids of the events', async () => {
    const run = await startLaunch(busyLaunch(), { ...options(), runId })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const [parent, ...children] = posted()
    expect(parent).toBe('launch r success')
    expect(children.filter(isPlain)).toEqual(CHILDREN)
    expect(children).toHaveLength(CHILDREN.length + 3)
    checkOrder(eventsIn(runsFolder, runId))
    const { run: whole, children: below } = await trail()
    expect(whole).toMatchObject({ items_succeeded: 3, items_failed: 0, git_commit_hash: 'abcdef1' })
    const spans = new Map(
      below.map(child => [(child['context_json'] as Stored)['span_id'], child['job_type']]),
    )
    for (const { type, span_id } of eventsIn(runsFolder, runId)) {
      if (type === 'WORK_ITEM_STARTED') expect(spans.get(span_id)).toBe('worker')
      if (type === 'GATE_RUN_STARTED') expect(spans.get(span_id)).toBe('gate')
      if (type === 'PR_OPENED') expect(spans.get(span_id)).toBe('orchestrator_node')
    }
    expect(warnings).toEqual([])
  })

  test('N10: a failed launch has the reason on its node and on itself', async () => {
    const launch = smallLaunch({
      work: () => {
        throw Object.assign(new Error('no'), { retryable: false })
      },
    })
    const run = await startLaunch(launch, { ...options(), runId })
    expect(await run.result).toMatchObject({ status: 'failed' })
    const { run: whole, children } = await trail()
    expect(whole).toMatchObject({ status: 'failure', error_summary: 'Error: no', items_failed: 1 })
    const worker = children.find(child => child['job_type'] === 'worker')
    expect(worker).toMatchObject({ status: 'failure', error_summary: 'Error: no' })
    expect(posted()).toContain('orchestrator_node r-node-work failure')
  })

  test('N10: without the option and without TELEMETRY_API_URL nothing is sent', async () => {
    const { telemetry: _, ...others } = options()
    const run = await startLaunch(busyLaunch(), { ...others, runId })
    expect(await run.result).toMatchObject({ status: 'completed' })
    expect(service.arrived).toEqual([])
    const bad = startLaunch(busyLaunch(), { ...others, telemetry: { url: 5 } as never })
    await expect(bad).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('N10: the process that resumes a run closes the records of the one that died', async () => {
    let isFirst = true
    const launch = smallLaunch({
      work: async (_, ctx) => {
        const messages = [{ role: 'user', content: 'hello' }]
        await ctx.llm.chat({ model: 'gpt-4o-mini', messages })
        await ctx.artifacts.write(isFirst ? 'first' : 'second', 'x')
      },
    })
    // As after a crash: the log ends in the middle of the work, and the last records were never sent.
    const first = await startLaunch(launch, { ...options(), runId, telemetry: false })
    await first.result
    isFirst = false
    const log = join(runsFolder, runId, 'events.ndjson')
    const lines = readFileSync(log, 'utf8').trimEnd().split('\n')
    const cut = lines.findIndex(line => line.includes('"LLM_CALL_STARTED"')) + 1
    writeFileSync(log, `${lines.slice(0, cut).join('\n')}\n`)
    rmSync(join(runsFolder, runId, 'snapshot.json'))
    const second = await resumeLaunch(launch, runId, options())
    expect(await second.result).toMatchObject({ status: 'completed' })
    expect(posted().filter(child => !child.startsWith('llm_call'))).toEqual([
      'launch r success',
      'orchestrator_node r-node-begin success',
      'orchestrator_node r-node-work failure',
      'worker r-worker-r.work.1.- failure',
      'orchestrator_node r-node-begin success',
      'orchestrator_node r-node-work success',
      'worker r-worker-r.work.2.- success',
    ])
    const calls = [...service.runs.values()].filter(run => run['job_type'] === 'llm_call')
    expect(calls.map(call => call['status'])).toEqual(['failure', 'success'])
    expect(calls[0]).toMatchObject({ error_summary: expect.stringContaining('INTERRUPTED') })
    expect(model.requests, 'its answer was recorded').toHaveLength(1)
  })
})

describe('a server of telemetry in the same database as the launch', () => {
  test('N10, TD6: with a token and over its own socket, the trail is complete and is in lists, names and metrics', async () => {
    const token = 'a-token-of-telemetry'
    await using db = await open({ path: join(runsFolder, 'store') })
    const env = { TELEMETRY_API_AUTH_ENABLED: '1', TELEMETRY_API_AUTH_TOKEN: token }
    await using server = createServer(db, { port: 0, ...telemetrySettings(env) })
    const { url } = await server.listen()
    const get = async <T>(path: string): Promise<T> => {
      const response = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } })
      expect(response.status).toBe(200)
      return (await response.json()) as T
    }
    const folder = join(runsFolder, 'runs')
    const run = await startLaunch(busyLaunch(), {
      ...options(),
      runsFolder: folder,
      runId,
      db,
      telemetry: { url, token },
    })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const { run: whole, children } = await get<{ run: Stored; children: Stored[] }>(`/telemetry/${runId}`)
    expect(whole).toMatchObject({ status: 'success', git_commit_hash: 'abcdef1', items_succeeded: 3 })
    const told = children.map(child => `${child['job_type']} ${child['run_id']} ${child['status']}`)
    expect(told.filter(isPlain).sort()).toEqual([...CHILDREN].sort())
    expect(children).toHaveLength(CHILDREN.length + 3)
    const starts = children.map(child => String(child['start_time']))
    expect(starts).toEqual([...starts].sort())
    const calls = await get<Stored[]>(
      `/api/v1/runs?job_type=llm_call&parent_run_id=${runId}&status=completed`,
    )
    expect(calls).toHaveLength(2)
    expect(await get<Stored>('/api/v1/metadata')).toMatchObject({
      job_types: ['commit_service', 'gate', 'launch', 'llm_call', 'orchestrator_node', 'worker'],
    })
    expect(await get<Stored>('/metrics')).toMatchObject({ total_runs: children.length + 1 })
    expect(existsSync(join(folder, runId, 'telemetry_outbox.jsonl'))).toBe(false)
    expect(existsSync(join(folder, runId, 'telemetry_dead.jsonl'))).toBe(false)
    expect(warnings).toEqual([])
  })
})

describe('whatever the service does', () => {
  const scripts: Record<string, ServiceScript> = {
    'down for the whole run': () => 'down',
    'down for half of the run': (_, n) => (n <= 8 ? 'down' : undefined),
    'down from the middle on': (_, n) => (n > 12 ? 'down' : undefined),
    flapping: (_, n) => (n % 3 === 0 ? undefined : 'down'),
    'always 500': () => ({ status: 500 }),
    'always 429': () => ({ status: 429, retryAfter: '1' }),
    'without a token': () => ({ status: 401 }),
    'losing its answers': (_, n) => (n % 5 === 0 ? 'accepts-silently' : undefined),
  }
  test.each(Object.entries(scripts))(
    'N11: %s: the run ends the same, and the trail is whole, in order and once after the next start',
    async (_, script) => {
      service.script = script
      const run = await startLaunch(busyLaunch(), { ...options(), runId })
      expect(await run.result).toMatchObject({ status: 'completed', state: 'DONE' })
      const outbox = join(runsFolder, runId, 'telemetry_outbox.jsonl')
      const wasWhole = !existsSync(outbox)
      service.script = () => undefined
      const next = await startLaunch(smallLaunch({}), { ...options(), runId: 'next' })
      await next.result
      expect(existsSync(outbox)).toBe(false)
      expect(existsSync(join(runsFolder, runId, 'telemetry_dead.jsonl'))).toBe(false)
      const own = posted().filter(child => / r(-|\b)/.test(child))
      const [parent, ...children] = own
      expect(parent).toBe(wasWhole ? 'launch r success' : 'launch r partial')
      expect(children.filter(isPlain)).toEqual(CHILDREN)
      expect(children).toHaveLength(CHILDREN.length + 3)
      if (!script.toString().includes('silently')) checkOrder(eventsIn(runsFolder, runId))
    },
  )

  test('N11: a service that never answers delays the end of a run by a bounded time', async () => {
    const silent = (_: string, { signal }: RequestInit): Promise<Response> =>
      new Promise((_, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason))
      })
    const hanging = { ...telemetry(), fetch: silent, settleMs: 300 }
    const since = performance.now()
    const run = await startLaunch(busyLaunch(), { ...options(), telemetry: hanging, runId })
    expect(await run.result).toMatchObject({ status: 'completed' })
    // One try alone takes ten seconds.
    expect(performance.now() - since).toBeLessThan(8_000)
    expect(existsSync(join(runsFolder, runId, 'telemetry_outbox.jsonl'))).toBe(true)
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry() })).toMatchObject([
      { runId, waiting: 0 },
    ])
    const [parent, ...children] = posted()
    expect(parent).toBe('launch r partial')
    expect(children.filter(isPlain)).toEqual(CHILDREN)
    const bad = startLaunch(busyLaunch(), { ...options(), telemetry: { ...telemetry(), settleMs: 0 } })
    await expect(bad).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('N11: a record that gets 422 becomes a dead record and delays nothing', async () => {
    service.script = ({ payload, method }) =>
      method === 'POST' && payload['job_type'] === 'gate' ? { status: 422 } : undefined
    const run = await startLaunch(busyLaunch(), { ...options(), runId })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const dead = readFileSync(join(runsFolder, runId, 'telemetry_dead.jsonl'), 'utf8')
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line) as { method: string; status: number; payload: Stored })
    const refused = dead.filter(({ status }) => status === 422)
    expect(refused.map(({ payload }) => payload['run_id'])).toEqual(['r-gate-gate-1', 'r-gate-gate-2'])
    // The update of a missing record is refused too.
    expect(dead.filter(({ status }) => status === 404).map(({ method }) => method)).toEqual([
      'PATCH',
      'PATCH',
    ])
    const [parent, ...children] = posted()
    expect(parent).toBe('launch r success')
    expect(children.filter(isPlain)).toEqual(CHILDREN.filter(child => !child.startsWith('gate')))
  })

  test('N11: flushTelemetry sends what runs left behind, except for runs in progress', async () => {
    service.script = () => 'down'
    const run = await startLaunch(busyLaunch(), { ...options(), runId })
    await run.result
    service.script = () => undefined
    const flushed = await flushTelemetry({ runsFolder, telemetry: telemetry() })
    expect(flushed).toMatchObject([{ runId, dead: 0, waiting: 0 }])
    expect(await flushTelemetry({ runsFolder, telemetry: telemetry() })).toEqual([])
    expect(posted()[0]).toBe('launch r partial')
  })

  test('N11: a run whose outbox is being flushed can be resumed', async () => {
    service.script = () => 'down'
    await (await startLaunch(busyLaunch(), { ...options(), runId })).result
    const flushing = gateway()
    service.script = ({ payload }) => {
      if (payload['run_id'] === runId) flushing.open()
      return undefined
    }
    const next = await startLaunch(smallLaunch({}), { ...options(), runId: 'next' })
    await flushing.passed
    const again = await resumeLaunch(busyLaunch(), runId, { ...options(), force: true })
    expect(await again.result).toMatchObject({ status: 'completed', generation: 2 })
    await next.result
    expect(posted()).toContain('launch r success')
    expect(posted().filter(child => child.endsWith('running'))).toEqual([])
  })
})
