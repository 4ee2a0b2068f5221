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

/** A chat request, in the words of OpenAI's API. */
export interface ChatRequest {
  /** The model to call. */
  readonly model: string
  /** The conversation so far. */
  readonly messages: readonly ChatMessage[]
  /** The tools that the model may call. */
  readonly tools?: readonly unknown[]
  /** The sampling temperature. */
  readonly temperature?: number
  /** The most tokens that the answer may have. */
  readonly max_tokens?: number
  /** Asks the endpoint for a stream. The result is still the complete answer. */
  readonly stream?: boolean
  /** Gets each piece of the answer. Implies `stream`. */
  readonly onDelta?: (delta: Delta) => void
  /** Aborts the call. */
  readonly signal?: AbortSignal
  /** The id of the call, unique in its run; derived from the request by default. */
  readonly callId?: string
  /** The span in which the call is made. */
  readonly parentSpanId?: string
  /** Other parameters of the endpoint (`response_format`, `seed`, `tool_choice` …). They are sent unchanged. */
  readonly [parameter: string]: unknown
}

/** The answer to a chat request. */
export interface ChatResult {
  /** The id of the call in its run. */
  readonly callId: string
  /** The text of the answer; empty if the answer only calls tools. */
  readonly content: string
  /** The message of the first choice. */
  readonly message: JsonObject
  /** The tool calls of the message. */
  readonly toolCalls: readonly unknown[]
  /** Why the model stopped, such as `stop` or `length`. */
  readonly finishReason: string
  /** The tokens that the provider counted; zeros if it counted none. */
  readonly usage: TokenUsage
  /** Whether the answer is a recorded one. */
  readonly cached: boolean
  /** How often the request was sent: 0 for a recorded answer. */
  readonly attempts: number
  /** How long the call took. */
  readonly latencyMs: number
  /** The price of the call. Absent if the model has no price or the provider counted no tokens. */
  readonly costUsd?: number
  /** The file with request and answer, relative to the run's folder. */
  readonly evidencePath: string
  /** The complete answer. */
  readonly completion: Completion
}

/** A client of models, as workers and gates get it. */
export interface LlmClient {
  /** Makes a recorded call. */
  chat(request: ChatRequest): Promise<ChatResult>
  /** A `fetch` for an SDK. Its chat completions are recorded like those of `chat`. */
  readonly fetch: Fetch
}

/** A piece of work that makes calls. */
export interface LlmScope {
  /** The parent span of its calls. */
  readonly parentSpanId: string
  /** Aborts its calls, and refuses later ones. */
  readonly signal: AbortSignal
}

/** Creates a client that records each call: events, evidence, cost, telemetry. */
export function createLlm(options: LlmOptions): Llm {
  return new Llm(options)
}

/** A client that records each call. */
export class Llm implements LlmClient {
  readonly #options: LlmOptions
  readonly #url: string
  readonly #shared: Shared
  readonly #signal: AbortSignal | undefined
  readonly #pending = new Set<Promise<unknown>>()
  /** A `fetch` for an SDK. Its chat completions are recorded like those of `chat`. */
  readonly fetch: Fetch = recordedFetch(this)

  /** @internal Use `createLlm`. */
  constructor(options: LlmOptions, shared: Shared = {}, signal?: AbortSignal) {
    checkLlmOptions(options)
    this.#options = { ...options }
    this.#url = `${options.baseUrl.replace(/\/+$/, '')}/chat/completions`
    this.#shared = shared
    this.#signal = signal
  }

  /** A client for one piece of work, with the same evidence. Its `settled` waits only for its own calls. */
  within({ parentSpanId, signal }: LlmScope): Llm {
    return new Llm({ ...this.#options, parentSpanId }, this.#shared, signal)
  }

  /** Makes one call, with as many tries as it needs. Rejects with `LLM_CALL_FAILED` or `LLM_REPLAY_MISS`. */
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

  /** Resolves when all calls have ended, including streams that are not read to their end. */
  async settled(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending)
  }

  /** @internal Makes a call for `chat` or `recordedFetch`. */
  exchange(raw: RawRequest): Promise<Exchange> {
    return this.#track(this.#exchange(raw))
  }

  /** @internal */
  get mode(): LlmMode {
    return this.#options.mode ?? 'live'
  }

  /** @internal The `fetch` that sends requests. */
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
    // The reader of a response may never ask for the outcome. `settled` waits for it.
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

/** @internal What all clients of a run share. It is opened by the first call. */
export interface Shared {
  exchanges?: Promise<Exchanges>
}

function either(...signals: (AbortSignal | undefined)[]): AbortSignal | undefined {
  const given = signals.filter(signal => signal !== undefined)
  return given.length > 0 ? AbortSignal.any(given) : undefined
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
      // A broken stream has a failed outcome, which says more than the reader's error.
      for (const data of done || value === undefined ? parser.end() : parser.push(value)) {
        const delta = assembler.push(data)
        if (delta !== undefined) onDelta(delta)
      }
      if (done) return
    }
  } catch (error) {
    // The callback threw. The call is ended before the error is passed on.
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
