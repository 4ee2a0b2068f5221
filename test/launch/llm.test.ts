import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { WorkerContext } from '../../src/launch/context.ts'
import { replayLaunch, resumeLaunch, startLaunch } from '../../src/launch/launches.ts'
import { type FakeOpenAi, type FakeOpenAiOptions, openFakeOpenAi } from '../../src/launch/llm/fake-openai.ts'
import { eventsIn, newRunsFolder, SMALL_STATES, smallLaunch } from './small-launch.ts'

/** `ctx.llm` in workers, gates and fixers. */

let model: FakeOpenAi
let runsFolder: string
const runId = 'r'

async function useModel(options: FakeOpenAiOptions = {}): Promise<void> {
  await model?.close()
  model = await openFakeOpenAi(options)
}

beforeEach(async () => {
  runsFolder = newRunsFolder()
  await useModel()
})
afterEach(() => model.close())

const ask = (content: string): { model: string; messages: { role: string; content: string }[] } => ({
  model: 'gpt-4o-mini',
  messages: [{ role: 'user', content }],
})

function llm(more: object = {}): { baseUrl: string } {
  return { baseUrl: model.baseUrl, retry: { sleep: async () => undefined }, ...more } as { baseUrl: string }
}

describe('models in a launch', () => {
  test('ND9: each call is a pair of events below the span of its worker, with evidence in the folder', async () => {
    const launch = smallLaunch({
      work: async (_, ctx) => (await ctx.llm.chat(ask('hello'))).content,
      node: async ctx => expect(await ctx.work('work')).toContain('hello'),
    })
    const run = await startLaunch(launch, { runsFolder, runId, llm: llm() })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const events = eventsIn(runsFolder, runId)
    const item = events.find(({ type }) => type === 'WORK_ITEM_STARTED')
    const calls = events.filter(({ type }) => type.startsWith('LLM_CALL_'))
    expect(calls.map(({ type }) => type)).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FINISHED'])
    for (const { parent_span_id, trace_id } of calls) {
      expect(parent_span_id).toBe(item?.span_id)
      expect(trace_id).toBe(item?.trace_id)
    }
    expect(new Set(calls.map(({ span_id }) => span_id)).size).toBe(1)
    const { call_id } = calls[0].payload as { call_id: string }
    const evidence = readFileSync(join(runsFolder, runId, 'evidence', 'llm', `${call_id}.json`), 'utf8')
    expect(JSON.parse(evidence)).toMatchObject({ span_id: calls[0].span_id, trace_id: calls[0].trace_id })
  })

  test('ND9: gates and fixers can call models, and an SDK gets a fetch', async () => {
    let isMended = false
    const launch = smallLaunch({
      node: async () => undefined,
      gate: async ctx => {
        await ctx.llm.chat(ask(`fine? ${isMended}`))
        return isMended ? [] : [{ severity: 'error', message: 'not fine' }]
      },
      mend: async (_, ctx) => {
        const body = JSON.stringify(ask('mend'))
        const response = await ctx.llm.fetch(`${model.baseUrl}/chat/completions`, { method: 'POST', body })
        await ctx.artifacts.write('mended', await response.text())
        isMended = true
      },
    })
    const run = await startLaunch(launch, { runsFolder, runId, llm: llm() })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const events = eventsIn(runsFolder, runId)
    const parents = events.filter(({ type }) => type === 'LLM_CALL_FINISHED').map(e => e.parent_span_id)
    const [gate, again] = events.filter(({ type }) => type === 'GATE_RUN_STARTED').map(e => e.span_id)
    const fixer = events.find(({ type }) => type === 'WORK_ITEM_STARTED')?.span_id
    expect(parents).toEqual([gate, fixer, again])
  })

  test('N8: a recorded answer is used again, whatever happened to its worker', async () => {
    let tries = 0
    const work = async (_: unknown, ctx: WorkerContext): Promise<string> => {
      const { content, cached } = await ctx.llm.chat(ask('once'))
      if (++tries < 3) throw new Error('the answer was lost')
      expect(cached).toBe(true)
      return content
    }
    const launch = smallLaunch({ work, worker: { backoffMs: 1 } })
    const run = await startLaunch(launch, { runsFolder, runId, llm: llm() })
    expect(await run.result).toMatchObject({ status: 'completed' })
    expect(model.requests).toHaveLength(1)
  })

  test('N9: a forced restart uses recorded answers even in live mode', async () => {
    const launch = smallLaunch({
      work: async (_, ctx) => (await ctx.llm.chat(ask('hello'))).content,
    })
    const options = { runsFolder, llm: llm({ mode: 'live' }) }
    await (await startLaunch(launch, { ...options, runId })).result
    const again = await resumeLaunch(launch, runId, { ...options, force: true })
    expect(await again.result).toMatchObject({ status: 'completed', generation: 2 })
    expect(model.requests).toHaveLength(1)
    await replayLaunch(runId, { runsFolder, states: SMALL_STATES })
    expect(model.requests, 'N7: replay calls nobody').toHaveLength(1)
  })

  test('ND9: the orchestrator retries a worker only after failures that may pass', async () => {
    const launch = smallLaunch({
      work: async (_, ctx) => (await ctx.llm.chat(ask('hello'))).content,
      worker: { attemptsMax: 3, backoffMs: 1 },
    })
    const failures = (id: string): unknown[] =>
      eventsIn(runsFolder, id)
        .filter(({ type }) => type === 'WORK_ITEM_FAILED')
        .map(({ payload }) => (payload as { error: unknown }).error)
    await useModel({ faults: { 1: { status: 503 } } })
    const first = await startLaunch(launch, { runsFolder, runId: 'a', llm: llm({ retry: { tries: 1 } }) })
    expect(await first.result).toMatchObject({ status: 'completed' })
    expect(failures('a')).toMatchObject([{ code: 'LLM_CALL_FAILED', retryable: true }])
    await useModel({ faults: () => ({ status: 401 }) })
    const second = await startLaunch(launch, { runsFolder, runId: 'b', llm: llm() })
    expect(await second.result).toMatchObject({ status: 'failed', error: { code: 'LLM_CALL_FAILED' } })
    expect(failures('b')).toMatchObject([{ code: 'LLM_CALL_FAILED', retryable: false }])
    const third = await startLaunch(launch, { runsFolder, runId: 'c', llm: llm({ mode: 'replay' }) })
    expect(await third.result).toMatchObject({ error: { code: 'LLM_REPLAY_MISS', retryable: false } })
    expect(model.requests).toHaveLength(1)
  })

  test('N4: an abandoned call and a call that hangs during cancellation have their end in the log', async () => {
    await useModel({ faults: () => 'timeout' })
    const launch = smallLaunch({
      work: (_, ctx) => {
        ctx.llm.chat(ask('forgotten')).catch(() => undefined)
        return 'done'
      },
    })
    const run = await startLaunch(launch, { runsFolder, runId: 'forgotten', llm: llm() })
    expect(await run.result).toMatchObject({ status: 'completed' })
    const hanging = smallLaunch({
      work: async (_, ctx) => (await ctx.llm.chat(ask('slow'))).content,
    })
    const off = new AbortController()
    const cancelled = await startLaunch(hanging, {
      runsFolder,
      runId: 'hanging',
      llm: llm(),
      signal: off.signal,
      observer: { llmStarted: () => off.abort('enough') },
    })
    expect(await cancelled.result).toMatchObject({ status: 'cancelled' })
    for (const id of ['forgotten', 'hanging']) {
      const types = eventsIn(runsFolder, id).map(({ type }) => type)
      const ends = types.filter(type => type.startsWith('LLM_CALL_') || type.startsWith('WORK_ITEM_F'))
      expect(ends.slice(0, 2), id).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FAILED'])
      expect(ends).toHaveLength(3)
    }
  })

  test('ND9: ctx.llm throws without models, a factory creates clients, invalid options are refused', async () => {
    const launch = smallLaunch({
      work: async (_, ctx) => (await ctx.llm.chat(ask('hello'))).content,
      worker: { attemptsMax: 1 },
    })
    const none = await startLaunch(launch, { runsFolder, runId: 'none' })
    expect(await none.result).toMatchObject({ error: { code: 'ILLEGAL_STATE' } })
    const spans: string[] = []
    const own = await startLaunch(launch, {
      runsFolder,
      runId: 'own',
      llm: ({ spanId }) => {
        spans.push(spanId)
        return { chat: async () => ({ content: 'mine' }) as never, fetch }
      },
    })
    expect(await own.result).toMatchObject({ status: 'completed' })
    expect(spans).toHaveLength(1)
    for (const bad of [{ baseUrl: 'nowhere' }, { baseUrl: model.baseUrl, events: {} }, 'gpt']) {
      const refused = startLaunch(launch, { runsFolder, llm: bad as never })
      await expect(refused).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
  })
})
