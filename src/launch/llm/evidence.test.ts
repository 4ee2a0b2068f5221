import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openFaultyTelemetry } from '../../../test/telemetry/faulty-service.ts'
import { openNodeDisk } from '../../disk/node-disk.ts'
import { TelemetryClient } from '../../telemetry/client.ts'
import { LaunchTelemetry } from '../../telemetry/launch-telemetry.ts'
import { childRunId } from '../../telemetry/model.ts'
import { type FakeOpenAi, openFakeOpenAi } from './fake-openai.ts'
import { createLlm, type Llm } from './llm.ts'
import type { LlmOptions } from './llm-options.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const ROOT = '00f067aa0ba902b7'
const ASKED = { model: 'fake-1', messages: [{ role: 'user', content: 'Hello' }] }

interface Recorded {
  readonly type: string
  readonly payload: Readonly<Record<string, unknown>>
  readonly span: { readonly spanId: string; readonly parentSpanId?: string }
}

let folder: string
let fake: FakeOpenAi
let events: Recorded[]

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'annals-evidence-'))
  fake = await openFakeOpenAi()
  events = []
})

afterEach(async () => {
  await fake.close()
  rmSync(folder, { recursive: true })
})

function open(options: Partial<LlmOptions> = {}): Llm {
  return createLlm({
    baseUrl: fake.baseUrl,
    folder,
    traceId: TRACE,
    parentSpanId: ROOT,
    events: {
      append: async (type, payload, span) => {
        events.push({ type, payload, span })
      },
    },
    retry: { sleep: async () => undefined },
    ...options,
  })
}

const place = (): string => join(folder, 'evidence', 'llm')
const pathOf = (callId: string): string => join(place(), `${callId}.json`)

describe('evidence', () => {
  test('of the request is written before STARTED, of the answer before FINISHED', async () => {
    const seen: (readonly [string, boolean])[] = []
    const llm = open({
      events: {
        append: async (type, payload) => {
          const evidence = JSON.parse(readFileSync(pathOf(String(payload['call_id'])), 'utf8'))
          seen.push([type, evidence.answer !== undefined])
        },
      },
    })
    await llm.chat(ASKED)
    expect(seen).toEqual([
      ['LLM_CALL_STARTED', false],
      ['LLM_CALL_FINISHED', true],
    ])
  })

  test('an interrupted call keeps its id: the next one has another', async () => {
    const dying = open({
      events: {
        append: async (type, payload) => {
          events.push({ type, payload, span: { spanId: '' } })
          throw new Error('the process dies here')
        },
      },
    })
    await expect(dying.chat(ASKED)).rejects.toThrow('dies here')
    const again = await open({ mode: 'record' }).chat(ASKED)
    const [cutOff, started] = events.map(event => String(event.payload['call_id']))
    expect(started).toBe(again.callId)
    expect(started).not.toBe(cutOff)
    expect(again.cached).toBe(false)
    expect([cutOff.slice(-2), started.slice(-2)]).toEqual(['-1', '-2'])
  })

  test('an answer whose event was lost in a crash is used again', async () => {
    const dying = open({
      events: {
        append: async type => {
          if (type === 'LLM_CALL_FINISHED') throw new Error('the process dies here')
        },
      },
    })
    await expect(dying.chat(ASKED)).rejects.toThrow('dies here')
    expect((await open({ mode: 'record' }).chat(ASKED)).cached).toBe(true)
    expect(fake.requests).toHaveLength(1)
  })

  test('that was changed is not used', async () => {
    const { callId, content } = await open().chat(ASKED)
    const text = readFileSync(pathOf(callId), 'utf8')
    writeFileSync(pathOf(callId), text.replace(content, 'something else'))
    await expect(open({ mode: 'replay' }).chat(ASKED)).rejects.toMatchObject({ code: 'CORRUPT' })
    writeFileSync(pathOf(callId), text.slice(0, 100))
    await expect(open({ mode: 'replay' }).chat(ASKED)).rejects.toMatchObject({ code: 'CORRUPT' })
  })

  test('of a failure is kept and is never used as an answer', async () => {
    await fake.close()
    fake = await openFakeOpenAi({ faults: { 1: { status: 400, message: 'no such thing' } } })
    await expect(open().chat(ASKED)).rejects.toMatchObject({ code: 'LLM_CALL_FAILED' })
    const evidence = JSON.parse(readFileSync(pathOf(String(events[0].payload['call_id'])), 'utf8'))
    expect(evidence.failure).toMatchObject({ error_class: 'BAD_REQUEST', status: 400 })
    expect(evidence.failure.body.error.message).toBe('no such thing')
    await expect(open({ mode: 'replay' }).chat(ASKED)).rejects.toMatchObject({ code: 'LLM_REPLAY_MISS' })
  })

  test('temporary files of a crashed process are removed', async () => {
    await open().chat(ASKED)
    writeFileSync(join(place(), 'x-1.json.123.tmp'), '{')
    await open({ mode: 'replay' }).chat(ASKED)
    expect(readdirSync(place()).filter(name => name.endsWith('.tmp'))).toEqual([])
  })

  test('a given call id can be used once', async () => {
    const llm = open()
    expect((await llm.chat({ ...ASKED, callId: 'intro.1' })).callId).toBe('intro.1')
    await expect(llm.chat({ ...ASKED, callId: 'intro.1' })).rejects.toThrow(/already/)
    await expect(open().chat({ ...ASKED, callId: 'intro.1' })).rejects.toThrow(/already/)
  })
})

describe('N10: telemetry of calls', () => {
  test('N10: every call in the log has an llm_call child with the same ids and its end', async () => {
    await fake.close()
    fake = await openFakeOpenAi({ faults: { 2: { status: 503 }, 4: { status: 400 } } })
    await using service = await openFaultyTelemetry()
    const client = await TelemetryClient.open({
      baseUrl: service.baseUrl,
      disk: openNodeDisk(folder),
      runId: 'run-1',
      log: { warn: () => undefined, error: () => undefined },
    })
    const options = { client, runId: 'run-1', launch: 'test', traceId: TRACE, spanId: ROOT }
    const telemetry = new LaunchTelemetry(options)
    await telemetry.launchStarted()
    const prices = { 'fake-1': { input: 3, output: 15 } }
    const llm = open({ mode: 'record', telemetry, prices })
    await llm.chat({ ...ASKED, temperature: 0 })
    await llm.chat({ ...ASKED, temperature: 1, max_tokens: 5 })
    await llm.chat({ ...ASKED, temperature: 1, max_tokens: 5 })
    await expect(llm.chat({ ...ASKED, temperature: 2 })).rejects.toThrow()
    await telemetry.launchEnded({ status: 'success' })
    const children = [...service.runs.values()].filter(run => run['job_type'] === 'llm_call')
    const started = events.filter(event => event.type === 'LLM_CALL_STARTED')
    expect(started).toHaveLength(4)
    expect(children).toHaveLength(4)
    for (const [i, { payload, span }] of started.entries()) {
      const child = children[i]
      expect(child['run_id']).toBe(childRunId('run-1', 'llm', String(payload['call_id'])))
      expect(child['context_json']).toMatchObject({
        trace_id: TRACE,
        span_id: span.spanId,
        parent_span_id: ROOT,
        call_id: payload['call_id'],
        prompt_hash: payload['prompt_hash'],
        model: 'fake-1',
        evidence_path: `evidence/llm/${payload['call_id']}.json`,
      })
    }
    expect(children.map(child => child['status'])).toEqual(['success', 'success', 'success', 'failure'])
    const costs = children.map(
      child => (child['metrics_json'] as Record<string, unknown> | undefined)?.['api_cost_usd'],
    )
    expect(costs[1]).toBeGreaterThan(0)
    expect([costs[2], costs[3]]).toEqual([0, undefined])
    expect(children[3]['error_summary']).toContain('BAD_REQUEST: HTTP 400')
  })
})
