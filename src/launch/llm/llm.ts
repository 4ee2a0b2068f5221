import { randomBytes } from 'node:crypto'
import { checkFunction, checkSignal } from '../../core/options.ts'
import type { TokenUsage } from '../events.ts'
import type { Outcome } from './call-record.ts'
import { type ChatMessage, checkChatBody, withoutUndefined } from './chat-request.ts'
import { ChunkAssembler, type Delta } from './chunks.ts'
import { type Completion, firstChoice } from './completion.ts'
import { EvidenceStore, evidenceOf } from './evidence.ts'
import { type Exchange, Exchanges, type LlmMode } from './exchange.ts'
import { callError } from './failure.ts'
import { type JsonObject, parseJsonText } from './json.ts'
import { checkLlmOptions, type LlmOptions } from './llm-options.ts'
import { LIST_PRICES } from './prices.ts'
import { recordedFetch } from './recorded-fetch.ts'
import { Redactor, secretsIn } from './redaction.ts'
import { SseParser } from './sse.ts'
import type { Fetch } from './transport.ts'

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

/** What a worker asks models with. */
export interface LlmClient {
  chat(request: ChatRequest): Promise<ChatResult>
  /** For an SDK that takes a `fetch`: its chat completions are recorded like those of `chat`. */
  readonly fetch: Fetch
}

/** A piece of work that makes calls. */
export interface LlmScope {
  /** Of calls that name no other. */
  readonly parentSpanId: string
  /** Calls are called off with it, and refused after it. */
  readonly signal: AbortSignal
}

/** Calls models, and records every call: events, evidence, cost, telemetry. */
export function createLlm(options: LlmOptions): Llm {
  return new Llm(options)
}

export class Llm implements LlmClient {
  readonly #options: LlmOptions
  readonly #url: string
  readonly #shared: Shared
  readonly #signal: AbortSignal | undefined
  readonly #pending = new Set<Promise<unknown>>()
  readonly fetch: Fetch = recordedFetch(this)

  /** @internal Use `createLlm`. */
  constructor(options: LlmOptions, shared: Shared = {}, signal?: AbortSignal) {
    checkLlmOptions(options)
    this.#options = { ...options }
    this.#url = `${options.baseUrl.replace(/\/+$/, '')}/chat/completions`
    this.#shared = shared
    this.#signal = signal
  }

  /** The same client and the same evidence, for one piece of work: `settled` then waits for its calls alone. */
  within({ parentSpanId, signal }: LlmScope): Llm {
    return new Llm({ ...this.#options, parentSpanId }, this.#shared, signal)
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

  /** @internal What sends. */
  get transport(): Fetch {
    return this.#options.fetch ?? globalThis.fetch
  }

  async #exchange(raw: RawRequest): Promise<Exchange> {
    this.#signal?.throwIfAborted()
    const body = checkChatBody(parseJsonText(raw.body))
    const redactor = new Redactor([this.#options.apiKey, ...secretsIn(raw.headers)])
    this.#shared.exchanges ??= this.#open()
    const exchange = await (await this.#shared.exchanges).make({
      sending: { url: raw.url, headers: raw.headers, body: raw.body },
      body,
      redactor,
      signal: either(this.#signal, raw.signal),
      callId: raw.callId,
      parentSpanId: raw.parentSpanId ?? this.#options.parentSpanId,
    })
    // Whoever reads the response may never ask for the outcome; `settled` does.
    this.#track(exchange.outcome).catch(() => undefined)
    return exchange
  }

  async #open(): Promise<Exchanges> {
    const {
      events,
      folder,
      openEvidence = evidenceOf(folder),
      traceId,
      telemetry,
      prices,
      retry = {},
      timeoutMs = 120_000,
    } = this.#options
    const { clock = Date.now, newSpanId = () => randomBytes(8).toString('hex') } = this.#options
    const { mode, transport: fetch } = this
    const store = await EvidenceStore.open(openEvidence)
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

/** @internal What the clients for all pieces of work have in common; opened with the first call. */
export interface Shared {
  exchanges?: Promise<Exchanges>
}

function either(a: AbortSignal | undefined, b: AbortSignal | undefined): AbortSignal | undefined {
  return a === undefined || b === undefined ? (a ?? b) : AbortSignal.any([a, b])
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
