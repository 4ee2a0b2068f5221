import { randomBytes } from 'node:crypto'
import { AnnalsError } from '../../core/errors.ts'
import { checkFunction, checkOptions, checkSignal } from '../../core/options.ts'
import { checkText } from '../../core/text.ts'
import type { LlmEventSink, LlmTelemetry, Outcome } from './call-record.ts'
import { type ChatMessage, checkChatBody, withoutUndefined } from './chat-request.ts'
import { ChunkAssembler, type Delta } from './chunks.ts'
import { type Completion, firstChoice, type TokenUsage } from './completion.ts'
import { EvidenceStore } from './evidence.ts'
import { type Exchange, Exchanges, type LlmMode } from './exchange.ts'
import { callError } from './failure.ts'
import { isPlainObject, type JsonObject, parseJsonText } from './json.ts'
import { checkPrices, LIST_PRICES, type PriceTable } from './prices.ts'
import { Redactor, secretsIn } from './redaction.ts'
import { SseParser } from './sse.ts'
import type { Fetch } from './transport.ts'
import { type LlmRetryOptions, TRIES_MAX } from './tries.ts'

export interface LlmOptions {
  /** Such as `https://api.openai.com/v1`: any endpoint that speaks the same language. */
  readonly baseUrl: string
  readonly apiKey?: string
  /** More headers for each request of `chat`. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * `live` calls; `record` answers from what this run recorded, and calls for the rest; `replay` never calls. Without it,
   * `live`. All keep evidence.
   */
  readonly mode?: LlmMode
  readonly events: LlmEventSink
  /** The run's folder: evidence goes to `evidence/llm` in it. */
  readonly folder: string
  /** 32 hex digits, one for the run. */
  readonly traceId: string
  /** Of calls that name no other. */
  readonly parentSpanId?: string
  readonly newSpanId?: () => string
  readonly telemetry?: LlmTelemetry
  /** Go before the list prices. */
  readonly prices?: PriceTable
  readonly fetch?: Fetch
  readonly retry?: LlmRetryOptions
  /** Of one try: until the whole answer is there; of a stream, the longest silence. 120 s without it. */
  readonly timeoutMs?: number
  /** Milliseconds since 1970. */
  readonly clock?: () => number
}

export interface ChatRequest {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly unknown[]
  readonly temperature?: number
  readonly max_tokens?: number
  /** Without `onDelta`, the answer still comes at once when it is whole. */
  readonly stream?: boolean
  /** Gets every piece of a streamed answer; asks for a stream by itself. */
  readonly onDelta?: (delta: Delta) => void
  readonly signal?: AbortSignal
  /** Fixes the id of the call: once in a run. */
  readonly callId?: string
  readonly parentSpanId?: string
  /** Whatever else the endpoint knows (`response_format`, `seed`, `tool_choice` …), as it is. */
  readonly [parameter: string]: unknown
}

export interface ChatResult {
  readonly callId: string
  /** Empty where the answer is tool calls alone. */
  readonly content: string
  readonly message: JsonObject
  readonly toolCalls: readonly unknown[]
  readonly finishReason: string
  /** As the provider counted; zeros where it did not. */
  readonly usage: TokenUsage
  /** Whether it was answered from what was recorded. */
  readonly cached: boolean
  /** How often the request was sent: 0 if cached. */
  readonly attempts: number
  readonly latencyMs: number
  /** Absent where the model has no price, or the provider counted nothing. */
  readonly costUsd?: number
  /** Relative to the run's folder. */
  readonly evidencePath: string
  readonly completion: Completion
}

const OPTIONS = [
  'baseUrl',
  'apiKey',
  'headers',
  'mode',
  'events',
  'folder',
  'traceId',
  'parentSpanId',
  'newSpanId',
  'telemetry',
  'prices',
  'fetch',
  'retry',
  'timeoutMs',
  'clock',
]
const RETRY_OPTIONS = ['tries', 'firstMs', 'maxMs', 'retryAfterMaxMs', 'sleep', 'random']
const MODES: readonly unknown[] = ['live', 'record', 'replay']

/** Calls models, and records every call: events, evidence, cost, telemetry. */
export function createLlm(options: LlmOptions): Llm {
  return new Llm(options)
}

export class Llm {
  readonly #options: LlmOptions
  readonly #url: string
  /** Opened with the first call: until then nothing touches the disk. */
  #exchanges: Promise<Exchanges> | undefined
  readonly #pending = new Set<Promise<unknown>>()

  /** @internal Use `createLlm`. */
  constructor(options: LlmOptions) {
    checkLlmOptions(options)
    this.#options = { ...options }
    this.#url = `${options.baseUrl.replace(/\/+$/, '')}/chat/completions`
  }

  /** One call: one pair of events, however many tries it takes. Fails with `LLM_CALL_FAILED` or `LLM_REPLAY_MISS`. */
  async chat(request: ChatRequest): Promise<ChatResult> {
    const { onDelta, signal, callId, parentSpanId, ...asked } = request
    checkSignal(signal)
    if (onDelta !== undefined) checkFunction('onDelta', onDelta)
    const isStream = asked.stream === true || onDelta !== undefined
    const streaming = isStream ? { stream: true, stream_options: { include_usage: true } } : {}
    const body = { ...(withoutUndefined(asked) as JsonObject), ...streaming }
    const { apiKey, headers } = this.#options
    const sent: Record<string, string> = { 'content-type': 'application/json', ...headers }
    if (apiKey !== undefined) sent['authorization'] = `Bearer ${apiKey}`
    const exchange = await this.exchange({
      url: this.#url,
      headers: Object.entries(sent),
      body: JSON.stringify(body),
      signal,
      callId,
      parentSpanId,
    })
    const { response } = exchange
    if (onDelta !== undefined && response?.ok && response.body !== null) {
      await readDeltas(response.body, onDelta, exchange.outcome)
    }
    return resultOf(await exchange.outcome)
  }

  /** Waits for calls that are under way, such as streams that nobody reads to their end. Close nothing before. */
  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending)
  }

  /** @internal What `chat` and `recordedFetch` have in common. */
  exchange(raw: RawRequest): Promise<Exchange> {
    return this.#track(this.#exchange(raw))
  }

  /** @internal */
  get mode(): LlmMode {
    return this.#options.mode ?? 'live'
  }

  /** @internal */
  get fetch(): Fetch {
    return this.#options.fetch ?? globalThis.fetch
  }

  async #exchange(raw: RawRequest): Promise<Exchange> {
    const body = checkChatBody(parseJsonText(raw.body))
    const redactor = new Redactor([this.#options.apiKey, ...secretsIn(raw.headers)])
    this.#exchanges ??= this.#open()
    const exchange = await (await this.#exchanges).make({
      sending: { url: raw.url, headers: raw.headers, body: raw.body },
      body,
      redactor,
      signal: raw.signal,
      callId: raw.callId,
      parentSpanId: raw.parentSpanId ?? this.#options.parentSpanId,
    })
    // Whoever reads the response may never ask for the outcome; `settled` does.
    this.#track(exchange.outcome).catch(() => undefined)
    return exchange
  }

  async #open(): Promise<Exchanges> {
    const { events, folder, traceId, telemetry, prices, retry = {}, timeoutMs = 120_000 } = this.#options
    const { clock = Date.now, newSpanId = () => randomBytes(8).toString('hex') } = this.#options
    const { mode, fetch } = this
    const store = await EvidenceStore.open(folder)
    const table = { ...LIST_PRICES, ...prices }
    const recording = { events, store, telemetry, prices: table, clock, mode, traceId, newSpanId }
    return new Exchanges(recording, { mode, fetch, retry, timeoutMs })
  }

  #track<T>(work: Promise<T>): Promise<T> {
    this.#pending.add(work)
    const forget = (): void => {
      this.#pending.delete(work)
    }
    work.then(forget, forget)
    return work
  }
}

/** @internal */
export interface RawRequest {
  readonly url: string
  readonly headers: readonly (readonly [string, string])[]
  readonly body: string
  readonly signal: AbortSignal | undefined
  readonly callId?: string | undefined
  readonly parentSpanId?: string | undefined
}

async function readDeltas(
  stream: ReadableStream<Uint8Array>,
  onDelta: (delta: Delta) => void,
  outcome: Promise<Outcome>,
): Promise<void> {
  const parser = new SseParser()
  const assembler = new ChunkAssembler()
  const reader = stream.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }))
      // A stream that breaks has a failed outcome, which says more than the reader's error.
      for (const data of done || value === undefined ? parser.end() : parser.push(value)) {
        const delta = assembler.push(data)
        if (delta !== undefined) onDelta(delta)
      }
      if (done) return
    }
  } catch (error) {
    // The callback threw: nobody wants the rest, and the call ends before the error is heard.
    await reader.cancel()
    await outcome
    throw error
  }
}

function resultOf(outcome: Outcome): ChatResult {
  if (!outcome.ok) throw callError(outcome.callId, outcome.failure, outcome.attempts)
  const { ok: _, ...rest } = outcome
  const { message } = firstChoice(outcome.completion)
  const { content, tool_calls: calls } = message
  return {
    ...rest,
    content: typeof content === 'string' ? content : '',
    message,
    toolCalls: Array.isArray(calls) ? calls : [],
  }
}

function checkLlmOptions(options: LlmOptions): void {
  checkOptions('createLlm', options, OPTIONS)
  const { baseUrl, mode, events, folder, traceId, prices, retry, timeoutMs, parentSpanId } = options
  if (typeof baseUrl !== 'string' || !/^https?:\/\//.test(baseUrl) || !URL.canParse(baseUrl)) {
    // Not shown: it may hold a password.
    refuse('baseUrl', 'must be a URL that starts with http:// or https://')
  }
  const { username, password, search } = new URL(baseUrl)
  if (username !== '' || password !== '')
    refuse('baseUrl', 'must hold no credentials: pass apiKey or headers')
  if (search !== '') refuse('baseUrl', 'must have no query')
  if (mode !== undefined && !MODES.includes(mode)) refuse('mode', 'must be live, record or replay')
  if (!isPlainObject(events) || typeof events.append !== 'function') refuse('events', 'must have append')
  checkText('folder', folder, { bytesMax: 4_096 })
  if (!/^[0-9a-f]{32}$/.test(traceId)) refuse('traceId', 'must be 32 lowercase hex digits')
  if (parentSpanId !== undefined && !/^[0-9a-f]{16}$/.test(parentSpanId)) {
    refuse('parentSpanId', 'must be 16 lowercase hex digits')
  }
  if (prices !== undefined) checkPrices(prices)
  if (retry !== undefined) checkOptions('retry', retry, RETRY_OPTIONS)
  const tries = retry?.tries ?? TRIES_MAX
  if (!Number.isInteger(tries) || tries < 1 || tries > TRIES_MAX)
    refuse('retry.tries', `must be 1 to ${TRIES_MAX}`)
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= 2 ** 31 - 1)) {
    refuse('timeoutMs', 'must be positive milliseconds')
  }
}

function refuse(name: string, why: string): never {
  throw new AnnalsError('INVALID_ARGUMENT', `${name} ${why}`, { name })
}
