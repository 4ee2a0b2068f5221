import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { writeFullLog } from '../../test/launch/written-log.ts'
import {
  type FaultyTelemetry,
  openFaultyTelemetry,
  type ServiceScript,
} from '../../test/telemetry/faulty-service.ts'
import { isUuidV4 } from '../core/id.ts'
import { openNodeDisk } from '../disk/node-disk.ts'
import { DOCS_STATES } from '../launch/docs/pipeline.ts'
import { TelemetryFeed } from '../launch/telemetry-feed.ts'
import { type ChildStart, LaunchTelemetry, openLaunchTelemetry } from './launch-telemetry.ts'
import { childRunId, eventIdOf, utcInId } from './model.ts'
import { DEAD_FILE, OUTBOX_FILE } from './outbox.ts'
import { ToldFile } from './told.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const ROOT = '00f067aa0ba902b7'
const RUN = 'docs-20261115T033000Z'
const NOW = Date.UTC(2026, 10, 15, 3, 30)

let folder: string
let service: FaultyTelemetry
let time: number

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'annals-trail-'))
  service = await openFaultyTelemetry()
  time = NOW
})

afterEach(async () => {
  await service.close()
  rmSync(folder, { recursive: true })
})

function open(): Promise<LaunchTelemetry> {
  return openLaunchTelemetry({
    baseUrl: service.baseUrl,
    disk: openNodeDisk(folder),
    clock: () => time++,
    sleep: async () => undefined,
    log: { warn: () => undefined, error: () => undefined },
    runId: RUN,
    launch: 'docs',
    traceId: TRACE,
    spanId: ROOT,
  })
}

const span = (n: number): { spanId: string; parentSpanId: string } => ({
  spanId: n.toString(16).padStart(16, '0'),
  parentSpanId: ROOT,
})

const USAGE = { input_tokens: 1500, output_tokens: 3000, total_tokens: 4500 }
const CALL = {
  callId: 'call-1',
  model: 'm',
  providerBaseUrl: 'http://host/v1',
  promptHash: 'f'.repeat(64),
  temperature: 0,
  maxTokens: 10,
  evidencePath: 'evidence/llm/call-1.json',
}

const child = (n: number, kind: ChildStart['kind'], id: string): ChildStart => ({
  ...span(n),
  kind,
  id,
  agentName: `launch.${kind}`,
  itemName: id,
})
const NODE = child(1, 'node', 'DRAFTING')
const WORKER = child(2, 'worker', `${RUN}:writer:1:intro`)
const GATE = child(4, 'gate', 'links-1')

/** Sends the records of a small launch. */
async function tell(telemetry: LaunchTelemetry): Promise<void> {
  await telemetry.launchStarted()
  await telemetry.childStarted(NODE)
  await telemetry.childStarted(WORKER)
  await telemetry.llmStarted({ ...span(3), ...CALL })
  await telemetry.llmFinished({
    ...span(3),
    callId: 'call-1',
    status: 'success',
    durationMs: 12,
    usage: USAGE,
    finishReason: 'stop',
    costUsd: 0.0495,
  })
  await telemetry.childEnded({ ...span(2), status: 'success', durationMs: 20 })
  await telemetry.childEnded({ ...span(1), status: 'success' })
  await telemetry.flush()
  await telemetry.childStarted(GATE)
  await telemetry.childEnded({ ...span(4), status: 'failure', metrics: { issues: 2 }, error: '2 issues' })
  await telemetry.flush()
  const items = { succeeded: 1, failed: 0, skipped: 0 }
  await telemetry.launchEnded({ status: 'success', durationMs: 100, items })
}

interface Trail {
  readonly run: Record<string, unknown>
  readonly children: readonly Record<string, unknown>[]
}

async function trail(): Promise<Trail> {
  const response = await fetch(`${service.baseUrl}/telemetry/${RUN}`)
  expect(response.status).toBe(200)
  return (await response.json()) as Trail
}

const CHILDREN = [
  `${RUN}-node-DRAFTING`,
  `${RUN}-worker-${RUN}.writer.1.intro`,
  `${RUN}-llm-call-1`,
  `${RUN}-gate-links-1`,
]

describe('TD8: ids', () => {
  test('TD8: child ids have a dot for each colon, and times without punctuation', () => {
    expect(childRunId('p', 'worker', 'run-1:writer:2:a%3Ab')).toBe('p-worker-run-1.writer.2.a%3Ab')
    expect(childRunId('p', 'gate', 'links-3')).toBe('p-gate-links-3')
    expect(utcInId(NOW + 999)).toBe('20261115T033000Z')
  })

  test('an event id follows from trace and span, and is a UUID v4', () => {
    expect(isUuidV4(eventIdOf(TRACE, ROOT))).toBe(true)
    expect(eventIdOf(TRACE, ROOT)).toBe(eventIdOf(TRACE, ROOT))
    expect(eventIdOf(TRACE, span(1).spanId)).not.toBe(eventIdOf(TRACE, ROOT))
  })
})

describe('N10: the trail of a launch', () => {
  test('N10: one parent, a child for each node, worker, gate and LLM call, with their ids and ends', async () => {
    await tell(await open())
    const { run, children } = await trail()
    expect(run).toMatchObject({
      run_id: RUN,
      agent_name: 'launch.orchestrator',
      job_type: 'launch',
      status: 'success',
      duration_ms: 100,
      items_succeeded: 1,
      context_json: { trace_id: TRACE, span_id: ROOT },
    })
    expect(children.map(child => child['run_id'])).toEqual(CHILDREN)
    expect(children.map(child => child['job_type'])).toEqual([
      'orchestrator_node',
      'worker',
      'llm_call',
      'gate',
    ])
    expect(children.map(child => child['status'])).toEqual(['success', 'success', 'success', 'failure'])
    expect(children[2]['context_json']).toEqual({
      trace_id: TRACE,
      span_id: span(3).spanId,
      parent_span_id: ROOT,
      call_id: 'call-1',
      model: 'm',
      provider_base_url: 'http://host/v1',
      temperature: 0,
      max_tokens: 10,
      prompt_hash: 'f'.repeat(64),
      evidence_path: 'evidence/llm/call-1.json',
    })
    expect(children[2]['metrics_json']).toEqual({
      input_tokens: 1500,
      output_tokens: 3000,
      prompt_tokens: 1500,
      completion_tokens: 3000,
      total_tokens: 4500,
      api_cost_usd: 0.0495,
      finish_reason: 'stop',
    })
    expect(children[3]).toMatchObject({ metrics_json: { issues: 2 }, error_summary: '2 issues' })
  })

  test('N10: sending the records again, as after a crash, changes nothing', async () => {
    await tell(await open())
    const before = service.runs.size
    await tell(await open())
    expect(service.runs.size).toBe(before)
    expect((await trail()).run['status']).toBe('success')
  })

  test('N10: a resumed launch closes what another process began', async () => {
    const first = await open()
    await first.launchStarted()
    await first.childStarted(WORKER)
    const second = await open()
    await second.launchStarted({ resumed: true })
    await second.childEnded({ ...span(2), status: 'failure', error: 'INTERRUPTED' })
    await second.launchEnded({ status: 'failure', error: 'no more' })
    const { run, children } = await trail()
    expect(run).toMatchObject({ status: 'failure', error_summary: 'no more' })
    expect(children[0]).toMatchObject({ status: 'failure', error_summary: 'INTERRUPTED' })
  })

  test('a commit is on the parent and every earlier child', async () => {
    const telemetry = await open()
    await telemetry.launchStarted()
    await telemetry.childStarted(NODE)
    await telemetry.commitMade({ ...span(9), commit_hash: 'abcdef1234', commit_source: 'llm' })
    const { run, children } = await trail()
    expect([run, ...children].map(one => one['git_commit_hash'])).toEqual(['abcdef1234', 'abcdef1234', null])
    expect(children[1]).toMatchObject({ job_type: 'commit_service', status: 'success' })
  })
})

describe('N11: whatever the service does', () => {
  const scripts: Record<string, ServiceScript> = {
    'down for the whole run': () => 'down',
    'down for half of it': (_, n) => (n <= 4 ? 'down' : undefined),
    flapping: (_, n) => (n % 3 === 0 ? undefined : { status: 500 }),
    'always 500': () => ({ status: 500 }),
    'always 429': () => ({ status: 429, retryAfter: '1' }),
    'without a token': () => ({ status: 401 }),
    'losing its answers': (_, n) => (n % 2 === 0 ? 'accepts-silently' : undefined),
  }
  test.each(Object.entries(scripts))(
    'N11: %s: the run ends, and the next start completes the trail',
    async (_, script) => {
      service.script = script
      await tell(await open())
      const wasWhole = !existsSync(join(folder, OUTBOX_FILE))
      service.script = () => undefined
      const next = await open()
      await next.flush()
      const { run, children } = await trail()
      expect(children.map(child => child['run_id'])).toEqual(CHILDREN)
      expect(children.map(child => child['status'])).toEqual(['success', 'success', 'success', 'failure'])
      expect(run['status']).toBe(wasWhole ? 'success' : 'partial')
      expect(existsSync(join(folder, OUTBOX_FILE))).toBe(false)
      expect(existsSync(join(folder, DEAD_FILE))).toBe(false)
    },
  )

  test('N11: with records left at the end, the parent is partial and has the status of the launch', async () => {
    service.script = () => 'down'
    await tell(await open())
    const last = readFileSync(join(folder, OUTBOX_FILE), 'utf8').trimEnd().split('\n').at(-1)!
    expect(JSON.parse(last)).toMatchObject({
      method: 'PATCH',
      payload: {
        status: 'partial',
        api_posted: false,
        context_json: { trace_id: TRACE, launch_status: 'success' },
      },
    })
  })

  test('N11: a refused record becomes a dead record, and the rest of the trail is complete', async () => {
    service.script = ({ method, payload }) =>
      method === 'POST' && payload['job_type'] === 'gate' ? { status: 422 } : undefined
    await tell(await open())
    const { run, children } = await trail()
    expect(run['status']).toBe('success')
    expect(children.map(child => child['run_id'])).toEqual(CHILDREN.slice(0, 3))
    const dead = readFileSync(join(folder, DEAD_FILE), 'utf8')
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
    // The gate itself, and then the update of the missing record.
    expect(dead.map(line => [line.method, line.status])).toEqual([
      ['POST', 422],
      ['PATCH', 404],
    ])
    expect(dead[0].reason).toContain('told to answer 422')
  })

  test('N11: an outbox that is not a file does not fail the launch and is not changed', async () => {
    mkdirSync(join(folder, OUTBOX_FILE))
    const errors: string[] = []
    const log = { warn: () => undefined, error: (message: string) => errors.push(message) }
    const telemetry = await openLaunchTelemetry({
      baseUrl: service.baseUrl,
      disk: openNodeDisk(folder),
      log,
      runId: RUN,
      launch: 'docs',
      traceId: TRACE,
      spanId: ROOT,
    })
    await tell(telemetry)
    expect(errors).toHaveLength(1)
    expect(errors[0]).toContain('this launch has no telemetry')
    expect(service.arrived).toEqual([])
  })

  test('N11: a client that throws causes warnings, not failures', async () => {
    const warnings: string[] = []
    const fail = (): never => {
      throw new Error('broken')
    }
    const ids = { runId: RUN, launch: 'docs', traceId: TRACE, spanId: ROOT }
    const disk = openNodeDisk(folder)
    const warn = (message: string): void => void warnings.push(message)
    const launch = { states: DOCS_STATES, nodes: new Map() }
    const told = new ToldFile(disk, { log: 'file', states: DOCS_STATES, nodes: {} }, warn)
    const broken = async () => new LaunchTelemetry({ ...ids, client: { send: fail, flush: fail } })
    const feed = new TelemetryFeed(launch, broken, told, warn)
    const { events } = await writeFullLog()
    for (const event of events) feed.push(event)
    await feed.settle()
    disk.close()
    const failures = warnings.filter(message => message === 'telemetry failed: Error: broken')
    expect(failures.length).toBeGreaterThan(5)
  })
})
