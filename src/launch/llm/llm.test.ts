import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { AnnalsError } from '../../core/errors.ts'
import { sha256Hex } from '../../core/hash.ts'
import { type FakeOpenAi, type FakeOpenAiOptions, openFakeOpenAi } from './fake-openai.ts'
import { hashJson } from './json.ts'
import { createLlm, type Llm } from './llm.ts'
import type { LlmOptions } from './llm-options.ts'
import { recordedFetch } from './recorded-fetch.ts'

interface Recorded {
  readonly type: string
  readonly payload: Readonly<Record<string, unknown>>
  readonly span: { readonly spanId: string; readonly parentSpanId?: string }
}

const API_KEY = 'sk-test-0123456789abcdef0123456789'
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const MESSAGES = [
  { role: 'system', content: 'You are terse.' },
  { role: 'user', content: 'How are you? 🙂 fine' },
]
const ASKED = { model: 'fake-1', messages: MESSAGES, temperature: 0.5, max_tokens: 100 }

let folder: string
let fake: FakeOpenAi
let events: Recorded[]
let waits: number[]

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'annals-llm-'))
  events = []
  waits = []
})

afterEach(async () => {
  await fake.close()
  rmSync(folder, { recursive: true })
})

async function start(options: FakeOpenAiOptions = {}, llm: Partial<LlmOptions> = {}): Promise<Llm> {
  fake = await openFakeOpenAi(options)
  return open(llm)
}

function open(options: Partial<LlmOptions> = {}): Llm {
  return createLlm({
    baseUrl: fake.baseUrl,
    apiKey: API_KEY,
    folder,
    traceId: TRACE,
    events: {
      append: async (type, payload, span) => {
        events.push({ type, payload: structuredClone(payload), span })
      },
    },
    ...options,
    retry: { sleep: async ms => void waits.push(ms), random: () => 1, ...options.retry },
  })
}

const typesOf = (): string[] => events.map(event => event.type)
const lastPayload = (): Readonly<Record<string, unknown>> => events.at(-1)!.payload

async function failureOf(work: Promise<unknown>): Promise<AnnalsError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(AnnalsError)
  return error as AnnalsError
}

/** Everything that a call writes. */
function written(): string {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8', withFileTypes: true })
  const texts = files
    .filter(file => file.isFile())
    .map(file => readFileSync(join(file.parentPath, file.name), 'utf8'))
  return [...texts, JSON.stringify(events)].join('\n')
}

describe('N4: the events of a call', () => {
  test('N4: a call is one STARTED and one FINISHED, with the payloads of the contract', async () => {
    const llm = await start()
    const result = await llm.chat({ ...ASKED, parentSpanId: 'b7ad6b7169203331' })
    expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FINISHED'])
    const promptHash = hashJson([MESSAGES[0]])
    const inputHash = hashJson({ messages: [null, MESSAGES[1]], temperature: 0.5, max_tokens: 100 })
    expect(events[0].payload).toEqual({
      call_id: result.callId,
      model: 'fake-1',
      provider_base_url: fake.baseUrl,
      prompt_hash: promptHash,
      input_hash: inputHash,
      tool_schema_hash: hashJson([]),
      temperature: 0.5,
      max_tokens: 100,
    })
    expect(events[1].payload).toEqual({
      call_id: result.callId,
      latency_ms: expect.any(Number),
      token_usage: result.usage,
      finish_reason: 'stop',
      output_hash: hashJson([{ index: 0, message: result.message, finish_reason: 'stop' }]),
      attempts: 1,
      cached: false,
    })
    expect(events[0].span).toEqual({
      spanId: expect.stringMatching(/^[0-9a-f]{16}$/),
      parentSpanId: 'b7ad6b7169203331',
    })
    expect(events[1].span).toEqual(events[0].span)
    const evidence = JSON.parse(readFileSync(join(folder, result.evidencePath), 'utf8'))
    expect(evidence.cache_key).toBe(sha256Hex(`fake-1|${promptHash}|${inputHash}|${hashJson([])}`))
    expect(evidence.request.body).toEqual(ASKED)
    expect(evidence.answer.body).toEqual(result.completion)
  })

  test('N4: a streamed answer equals the complete one, with its hash and usage', async () => {
    const llm = await start()
    const whole = await llm.chat(ASKED)
    const pieces: string[] = []
    const streamed = await llm.chat({ ...ASKED, onDelta: delta => pieces.push(delta.content) })
    expect(pieces.length).toBeGreaterThan(3)
    expect(pieces.join('')).toBe(whole.content)
    expect(streamed.content).toBe(whole.content)
    expect(streamed.usage).toEqual(whole.usage)
    expect(events[3].payload['output_hash']).toBe(events[1].payload['output_hash'])
    expect(events[2].payload['input_hash']).toBe(events[0].payload['input_hash'])
  })

  test('N4: streamed tool calls are assembled', async () => {
    const llm = await start()
    const tools = [{ type: 'function', function: { name: 'look_up', parameters: { type: 'object' } } }]
    const asked = { model: 'fake-1', messages: [{ role: 'user', content: 'use a tool' }], tools }
    const whole = await llm.chat(asked)
    const streamed = await llm.chat({ ...asked, stream: true })
    expect(whole.toolCalls).toHaveLength(1)
    expect(streamed.toolCalls).toEqual(whole.toolCalls)
    expect(streamed.finishReason).toBe('tool_calls')
    expect(events[0].payload['tool_schema_hash']).toBe(hashJson(tools))
    expect(events[3].payload['output_hash']).toBe(events[1].payload['output_hash'])
  })

  test('N4: tokens that the provider did not count are 0, without a cost', async () => {
    const llm = await start({ faults: { 1: 'no-usage' } }, { prices: { 'fake-1': { input: 3, output: 15 } } })
    const result = await llm.chat(ASKED)
    expect(lastPayload()['token_usage']).toEqual({ input_tokens: 0, output_tokens: 0, total_tokens: 0 })
    expect(lastPayload()).not.toHaveProperty('api_cost_usd')
    expect(readFileSync(join(folder, result.evidencePath), 'utf8')).toContain('counted no tokens')
  })
})

describe('ND9: retries', () => {
  test.each([429, 500, 502, 503, 504])(
    'ND9: after %i a retry succeeds: one call, three tries',
    async status => {
      const llm = await start({ faults: { 1: { status }, 2: { status } } })
      const result = await llm.chat(ASKED)
      expect(result.attempts).toBe(3)
      expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FINISHED'])
      expect(lastPayload()['attempts']).toBe(3)
      expect(waits).toEqual([500, 1000])
    },
  )

  test.each([400, 401, 403, 404, 422, 501])('ND9: %i is final', async status => {
    const llm = await start({ faults: () => ({ status }) })
    const error = await failureOf(llm.chat(ASKED))
    expect(error.code).toBe('LLM_CALL_FAILED')
    expect(error.details).toMatchObject({ status, attempts: 1, retryable: false })
    expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FAILED'])
    expect(fake.requests).toHaveLength(1)
  })

  test('ND9: after five tries the call fails as retryable', async () => {
    const llm = await start({ faults: () => ({ status: 503 }) })
    await failureOf(llm.chat(ASKED))
    expect(fake.requests).toHaveLength(5)
    expect(lastPayload()).toEqual({
      call_id: events[0].payload['call_id'],
      error_class: 'SERVER_ERROR',
      error_summary: 'HTTP 503: told to answer 503',
      retryable: true,
      latency_ms: expect.any(Number),
      attempts: 5,
    })
  })

  test('ND9: Retry-After is honoured unless it is too long', async () => {
    const llm = await start({
      faults: { 1: { status: 429, retryAfter: '7' }, 3: { status: 429, retryAfter: '3600' } },
    })
    await llm.chat(ASKED)
    expect(waits).toEqual([7000])
    const error = await failureOf(llm.chat(ASKED))
    expect(error.details).toMatchObject({ errorClass: 'RATE_LIMITED', retryable: true, attempts: 1 })
  })

  test('ND9: time-outs and closed connections are retried', async () => {
    const llm = await start({ faults: { 1: 'timeout', 2: 'disconnect' } }, { timeoutMs: 200 })
    expect((await llm.chat(ASKED)).attempts).toBe(3)
  })

  test('ND9: the time-out of a stream is for each piece', async () => {
    await start()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      /** The delay before each piece. */
      const streamWith = (pauses: readonly number[]): Llm => {
        const left = [...pauses]
        const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
          const pause = left.shift()
          if (pause !== undefined) await vi.advanceTimersByTimeAsync(pause)
          const choice = {
            index: 0,
            delta: { content: 'x' },
            finish_reason: left.length === 0 ? 'stop' : null,
          }
          controller.enqueue(Buffer.from(`data: ${JSON.stringify({ choices: [choice] })}\n\n`))
          if (left.length === 0) controller.close()
        }
        const headers = { 'content-type': 'text/event-stream' }
        const fetch = async (): Promise<Response> => new Response(new ReadableStream({ pull }), { headers })
        return open({ fetch, timeoutMs: 100 })
      }
      expect((await streamWith([80, 80, 80, 80, 80]).chat({ ...ASKED, stream: true })).content).toBe('xxxxx')
      const error = await failureOf(streamWith([80, 80, 120]).chat({ ...ASKED, stream: true }))
      expect(error.details).toMatchObject({ errorClass: 'TIMEOUT', retryable: true })
    } finally {
      vi.useRealTimers()
    }
  })

  test('ND9: an invalid answer fails the call at once', async () => {
    const llm = await start({ faults: { 1: 'malformed' } })
    const error = await failureOf(llm.chat(ASKED))
    expect(error.details).toMatchObject({ errorClass: 'MALFORMED_ANSWER', attempts: 1, retryable: false })
  })

  test.each(['cut', 'stream-error'] as const)(
    'ND9: a stream that breaks (%s) fails the call once',
    async fault => {
      const llm = await start({ faults: { 1: fault } })
      const pieces: string[] = []
      const error = await failureOf(llm.chat({ ...ASKED, onDelta: delta => pieces.push(delta.content) }))
      expect(pieces.length).toBeGreaterThan(0)
      expect(error.details).toMatchObject({ retryable: true, attempts: 1 })
      expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FAILED'])
    },
  )

  test('ND9: an aborted call fails, even while it waits for a retry', async () => {
    const stop = new AbortController()
    const sleep = (): Promise<void> => {
      stop.abort()
      return new Promise(() => undefined)
    }
    const llm = await start({ faults: () => ({ status: 500 }) }, { retry: { sleep } })
    const error = await failureOf(llm.chat({ ...ASKED, signal: stop.signal }))
    expect(error.details).toMatchObject({ errorClass: 'ABORTED', attempts: 1 })
    expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FAILED'])
    await failureOf(llm.chat({ ...ASKED, signal: stop.signal }))
    expect(fake.requests).toHaveLength(1)
  })

  test('an error of onDelta is passed on unchanged and ends the call', async () => {
    const llm = await start()
    const onDelta = (): never => {
      throw new RangeError('enough')
    }
    await expect(llm.chat({ ...ASKED, onDelta })).rejects.toThrow('enough')
    expect(typesOf()).toHaveLength(2)
  })
})

describe('ND9: modes', () => {
  test('ND9: record uses recorded answers, even after a restart', async () => {
    const llm = await start({}, { mode: 'record', prices: { 'fake-1': { input: 3, output: 15 } } })
    const first = await llm.chat(ASKED)
    const second = await llm.chat(ASKED)
    const pieces: string[] = []
    const third = await open({ mode: 'record' }).chat({
      ...ASKED,
      onDelta: delta => pieces.push(delta.content),
    })
    expect(fake.requests).toHaveLength(1)
    expect([first.cached, second.cached, third.cached]).toEqual([false, true, true])
    expect(second.completion).toEqual(first.completion)
    expect(third.completion).toEqual(first.completion)
    expect(pieces.join('')).toBe(first.content)
    expect(new Set([first.callId, second.callId, third.callId]).size).toBe(3)
    const finished = events.filter(event => event.type === 'LLM_CALL_FINISHED').map(event => event.payload)
    expect(finished.map(payload => payload['cached'])).toEqual([false, true, true])
    expect(finished[1]).toMatchObject({
      attempts: 0,
      api_cost_usd: 0,
      output_hash: finished[0]['output_hash'],
    })
    await llm.chat({ ...ASKED, temperature: 0.6 })
    expect(fake.requests).toHaveLength(2)
  })

  test('ND9: live always calls; replay gives the n-th answer to the n-th request', async () => {
    let n = 0
    const llm = await start({ reply: () => `answer ${++n}` })
    for (let i = 0; i < 3; i++) await llm.chat(ASKED)
    expect(fake.requests).toHaveLength(3)
    const again = open({ mode: 'replay' })
    const answers = []
    for (let i = 0; i < 4; i++) answers.push((await again.chat(ASKED)).content)
    expect(answers).toEqual(['answer 1', 'answer 2', 'answer 3', 'answer 3'])
    expect(fake.requests).toHaveLength(3)
  })

  test('ND9: replay never calls; a miss describes the nearest recorded request', async () => {
    const llm = await start()
    await llm.chat({ ...ASKED, messages: [{ role: 'user', content: 'Something else entirely' }] })
    const near = await llm.chat(ASKED)
    const replay = open({ mode: 'replay', fetch: () => Promise.reject(new Error('the network was touched')) })
    const changed = { role: 'user', content: 'How are you? 🙂 well' }
    const error = await failureOf(
      replay.chat({ ...ASKED, temperature: 0.7, messages: [MESSAGES[0], changed] }),
    )
    expect(error.code).toBe('LLM_REPLAY_MISS')
    expect(error.details['nearest']).toBe(near.callId)
    expect(error.message).toContain('temperature: recorded 0.5, asked 0.7')
    expect(error.message).toContain('messages[1].content')
    expect(lastPayload()).toMatchObject({ error_class: 'REPLAY_MISS', retryable: false, attempts: 0 })
    const before = fake.requests.length
    await failureOf(recordedFetch(replay)(`${fake.baseUrl}/models`) as Promise<unknown>)
    expect(fake.requests).toHaveLength(before)
  })

  test('ND9: an answer whose line in the index was torn is found in its file', async () => {
    const llm = await start()
    const first = await llm.chat(ASKED)
    const index = join(folder, 'evidence', 'llm', 'index.jsonl')
    truncateSync(index, statSync(index).size - 10)
    const again = await open({ mode: 'replay' }).chat(ASKED)
    expect(again.content).toBe(first.content)
    expect((await open({ mode: 'replay' }).chat(ASKED)).content).toBe(first.content)
  })
})

describe('secrets', () => {
  const SECRETS = [
    API_KEY,
    'ghp_0123456789abcdefghijABCDEFGHIJ012345',
    'AKIAIOSFODNN7EXAMPLE',
    'hunter2hunter2',
  ]

  test('never reach an event, evidence, or an error', async () => {
    const content = `Use ghp_0123456789abcdefghijABCDEFGHIJ012345, AKIAIOSFODNN7EXAMPLE, {"password": "hunter2hunter2"}, ${API_KEY}`
    const llm = await start({
      reply: () => content,
      faults: { 2: { status: 401, message: `bad key ${API_KEY}` } },
    })
    const asked = { ...ASKED, messages: [{ role: 'user', content }], onDelta: () => undefined }
    const result = await llm.chat(asked)
    expect(result.content).toBe(content)
    const error = await failureOf(llm.chat(asked))
    const seen = `${written()}${error.message}${JSON.stringify(error.details)}${String(error.stack)}`
    for (const secret of SECRETS) expect(seen).not.toContain(secret)
    expect(written()).toContain('[redacted]')
  })

  test('of an SDK are taken from its headers, whatever they look like', async () => {
    const llm = await start({ reply: () => 'you sent plainlookingkey' })
    const fetch = recordedFetch(llm)
    const headers = { 'api-key': 'plainlookingkey', 'content-type': 'application/json' }
    const response = await fetch(`${fake.baseUrl}/chat/completions?api-version=1`, {
      method: 'POST',
      headers,
      body: JSON.stringify(ASKED),
    })
    expect(await response.text()).toContain('plainlookingkey')
    expect(written()).not.toContain('plainlookingkey')
    expect(fake.requests[0].headers['api-key']).toBe('plainlookingkey')
  })

  test('in a base URL are refused without being shown', async () => {
    fake = await openFakeOpenAi()
    expect(() => open({ baseUrl: 'https://me:secretsecret@host/v1' })).toThrow(/must not contain credentials/)
  })
})

describe('recordedFetch', () => {
  const post = (body: unknown): RequestInit => ({
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

  test('returns the endpoint’s response, with the events and retries of chat', async () => {
    const llm = await start({ faults: { 1: { status: 503 } } })
    const response = await recordedFetch(llm)(`${fake.baseUrl}/chat/completions`, post(ASKED))
    const body = (await response.json()) as { choices: { message: { content: string } }[] }
    expect(typesOf()).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FINISHED'])
    const again = await open({ mode: 'replay' }).chat(ASKED)
    expect(again.content).toBe(body.choices[0].message.content)
    expect(fake.requests).toHaveLength(2)
  })

  test('passes a stream on as it arrives; its end is logged before the reader sees it', async () => {
    const llm = await start()
    const response = await recordedFetch(llm)(
      `${fake.baseUrl}/chat/completions`,
      post({ ...ASKED, stream: true }),
    )
    let text = ''
    let typesAtDone: string[] | undefined
    for await (const piece of response.body!) {
      text += Buffer.from(piece).toString('utf8')
      // An SDK continues as soon as it reads this, before the body ends.
      if (text.includes('[DONE]')) typesAtDone ??= typesOf()
    }
    expect(typesAtDone).toEqual(['LLM_CALL_STARTED', 'LLM_CALL_FINISHED'])
    expect(text).toContain('data: [DONE]')
    const replayed = recordedFetch(open({ mode: 'replay' }))
    const again = await replayed(`${fake.baseUrl}/chat/completions`, post({ ...ASKED, stream: true }))
    expect(await again.text()).toContain('data: [DONE]')
    expect(fake.requests).toHaveLength(1)
  })

  test('a stream that its reader cancels is an aborted call', async () => {
    const llm = await start({ faults: { 1: 'timeout' } })
    const forever = new ReadableStream<Uint8Array>({
      pull: controller => {
        controller.enqueue(Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'))
        return new Promise(resolve => setImmediate(resolve))
      },
    })
    const endless = open({
      fetch: async () => new Response(forever, { headers: { 'content-type': 'text/event-stream' } }),
    })
    const response = await recordedFetch(endless)(
      `${fake.baseUrl}/chat/completions`,
      post({ ...ASKED, stream: true }),
    )
    await response.body!.cancel()
    await endless.settled()
    await llm.settled()
    expect(lastPayload()).toMatchObject({ error_class: 'ABORTED', retryable: false })
  })

  test('an error of the endpoint is its response, and tells the SDK not to retry', async () => {
    const llm = await start({ faults: () => ({ status: 400, message: 'no such model' }) })
    const response = await recordedFetch(llm)(`${fake.baseUrl}/chat/completions`, post(ASKED))
    expect(response.status).toBe(400)
    expect(response.headers.get('x-should-retry')).toBe('false')
    expect(await response.text()).toContain('no such model')
  })

  test('passes other requests', async () => {
    const llm = await start()
    const response = await recordedFetch(llm)(`${fake.baseUrl}/models`)
    expect(await response.json()).toMatchObject({ object: 'list' })
    expect(events).toEqual([])
  })
})

test('concurrent calls each have their own pair of events', async () => {
  const llm = await start({ faults: n => (n <= 9 && n % 3 === 0 ? { status: 500 } : undefined) })
  await Promise.all(Array.from({ length: 20 }, (_, i) => llm.chat({ ...ASKED, seed: i % 4 })))
  const started = events
    .filter(event => event.type === 'LLM_CALL_STARTED')
    .map(event => event.payload['call_id'])
  const finished = events
    .filter(event => event.type === 'LLM_CALL_FINISHED')
    .map(event => event.payload['call_id'])
  expect(new Set(started).size).toBe(20)
  expect(finished.toSorted()).toEqual(started.toSorted())
})

test('invalid options and requests are refused before anything is written', async () => {
  const llm = await start()
  expect(() => open({ retry: { tries: 6 } })).toThrow(/1 to 5/)
  expect(() => open({ baseUrl: 'ftp://x' })).toThrow(/baseUrl/)
  expect(() => open({ traceId: 'x' })).toThrow(/traceId/)
  expect(() => open({ prices: { x: { input: -1, output: 0 } } })).toThrow(/x.input/)
  await expect(llm.chat({ model: '', messages: MESSAGES })).rejects.toThrow(/no model/)
  await expect(llm.chat({ model: 'm', messages: [] })).rejects.toThrow(/no messages/)
  await expect(llm.chat({ model: 'm', messages: [{ role: 'user', content: '\ud800' }] })).rejects.toThrow(
    /surrogate/,
  )
  await expect(llm.chat({ ...ASKED, callId: '../x' })).rejects.toThrow(/callId/)
  expect(events).toEqual([])
})
