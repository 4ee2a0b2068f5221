import { invariant } from '../../core/invariant.ts'
import { formatRfc3339 } from '../../core/time.ts'
import type { LlmCallEnd, LlmCallStart } from '../../telemetry/launch-telemetry.ts'
import type { LlmEventType, TokenUsage } from '../events.ts'
import { type ChatBody, hashesOf, type RequestHashes, sampling } from './chat-request.ts'
import { type Completion, firstChoice, NO_USAGE, outputHash, usageOf } from './completion.ts'
import { type AnsweredEvidence, type Evidence, EvidenceStore } from './evidence.ts'
import type { Failure, RawAnswer } from './failure.ts'
import { DEPTH_OF_PARTS_MAX, isDeeperThan, parseJsonText } from './json.ts'
import { costUsd, type PriceTable } from './prices.ts'
import { publicUrl, type Redactor } from './redaction.ts'
import type { Sending } from './transport.ts'
import type { FailedTry } from './tries.ts'

/**
 * One call, from its start to its one end: first the evidence, then the event,
 * then telemetry. So whatever the log says has its evidence, and whatever
 * telemetry says is in the log.
 */

/** Where events go: the log of a launch, or anything that appends. */
export interface LlmEventSink {
  append(
    type: LlmEventType,
    payload: Readonly<Record<string, unknown>>,
    span: { readonly spanId: string; readonly parentSpanId?: string },
  ): Promise<unknown>
}

export interface LlmTelemetry {
  llmStarted(call: LlmCallStart): Promise<void>
  llmFinished(call: LlmCallEnd): Promise<void>
}

export interface Recording {
  readonly events: LlmEventSink
  readonly store: EvidenceStore
  readonly telemetry: LlmTelemetry | undefined
  readonly prices: PriceTable
  readonly clock: () => number
  readonly mode: string
  readonly traceId: string
  readonly newSpanId: () => string
}

export interface CallStart {
  readonly sending: Sending
  readonly body: ChatBody
  readonly redactor: Redactor
  readonly callId?: string | undefined
  readonly parentSpanId?: string | undefined
}

/** How an answer came. */
export interface Arrival {
  readonly answer: Omit<RawAnswer, 'text'>
  readonly streamed: boolean
  readonly attempts: number
  readonly failed: readonly FailedTry[]
}

export interface Finished {
  readonly ok: true
  readonly callId: string
  readonly completion: Completion
  readonly usage: TokenUsage
  readonly finishReason: string
  readonly attempts: number
  readonly cached: boolean
  readonly latencyMs: number
  readonly costUsd?: number
  readonly evidencePath: string
}

export interface Failed {
  readonly ok: false
  readonly callId: string
  readonly failure: Failure
  readonly attempts: number
  readonly latencyMs: number
}

export type Outcome = Finished | Failed

export class CallRecord {
  readonly callId: string
  readonly hashes: RequestHashes
  readonly spanId: string
  readonly #recording: Recording
  readonly #start: CallStart
  readonly #startedAt: number
  readonly #evidence: Evidence
  #hasEnded = false

  private constructor(recording: Recording, start: CallStart) {
    const { store, clock, mode, traceId } = recording
    const { body, redactor, sending } = start
    this.#recording = recording
    this.#start = start
    this.#startedAt = clock()
    this.hashes = hashesOf(body)
    this.callId = store.claim(this.hashes.cacheKey, start.callId)
    this.spanId = recording.newSpanId()
    this.#evidence = {
      evidence_version: 1,
      call_id: this.callId,
      cache_key: this.hashes.cacheKey,
      mode,
      trace_id: traceId,
      span_id: this.spanId,
      started_at: formatRfc3339(this.#startedAt),
      request: {
        url: redactor.text(publicUrl(sending.url)),
        headers: redactor.headers(sending.headers),
        body: redactor.value(body) as ChatBody,
      },
      hashes: {
        prompt_hash: this.hashes.promptHash,
        input_hash: this.hashes.inputHash,
        tool_schema_hash: this.hashes.toolSchemaHash,
      },
    }
  }

  /** The request is kept before the log knows of the call. */
  static async start(recording: Recording, start: CallStart): Promise<CallRecord> {
    const record = new CallRecord(recording, start)
    await recording.store.write(record.#evidence)
    await record.#appendStart()
    return record
  }

  /** The request as it is kept: without secrets. */
  get request(): ChatBody {
    return this.#evidence.request.body
  }

  async finish(completion: Completion, arrival: Arrival): Promise<Finished> {
    const { redactor } = this.#start
    const before = redactor.count
    const body = redactor.value(completion) as Completion
    const redacted = redactor.count > before
    const { status, headers } = arrival.answer
    const usage = usageOf(completion)
    const hash = outputHash(completion)
    const answer = {
      status,
      headers: redactor.headers(headers),
      streamed: arrival.streamed,
      body,
      output_hash: hash,
      redacted,
    }
    const notes = usage === undefined ? ['the provider counted no tokens: they are recorded as 0'] : []
    const { attempts, failed } = arrival
    await this.#end({ attempts, failed_tries: failed, answer, notes })
    const cost = usage && costUsd(this.#recording.prices, this.#start.body.model, usage)
    return this.#finished({ completion, usage: usage ?? NO_USAGE, hash, attempts, cached: false, cost })
  }

  /** The answer was recorded before. It costs nothing. */
  async finishFrom(recorded: AnsweredEvidence): Promise<Finished> {
    const completion = recorded.answer.body
    await this.#end({ attempts: 0, cached_from: recorded.call_id })
    const usage = usageOf(completion) ?? NO_USAGE
    return this.#finished({
      completion,
      usage,
      hash: outputHash(completion),
      attempts: 0,
      cached: true,
      cost: 0,
    })
  }

  async fail(failure: Failure, attempts: number, failed: readonly FailedTry[]): Promise<Failed> {
    const { redactor } = this.#start
    const { errorClass, summary, retryable, answer } = failure
    const value = answer === undefined ? undefined : parseJsonText(answer.text)
    const body = value === undefined || isDeeperThan(value, DEPTH_OF_PARTS_MAX) ? answer?.text : value
    const said = answer === undefined ? {} : { status: answer.status, body: redactor.value(body) }
    const error = { error_class: errorClass, error_summary: summary }
    await this.#end({ attempts, failed_tries: failed, failure: { ...error, ...said } })
    const latencyMs = this.#latencyMs()
    const payload = { call_id: this.callId, ...error, retryable, latency_ms: latencyMs, attempts }
    await this.#append('LLM_CALL_FAILED', payload)
    await this.#recording.telemetry?.llmFinished({
      ...this.#span(),
      status: errorClass === 'TIMEOUT' ? 'timeout' : errorClass === 'ABORTED' ? 'cancelled' : 'failure',
      durationMs: latencyMs,
      error: `${errorClass}: ${summary}`,
    })
    return { ok: false, callId: this.callId, failure, attempts, latencyMs }
  }

  async #finished(end: {
    readonly completion: Completion
    readonly usage: TokenUsage
    readonly hash: string
    readonly attempts: number
    readonly cached: boolean
    readonly cost: number | undefined
  }): Promise<Finished> {
    const { completion, usage, attempts, cached, cost } = end
    const { finishReason } = firstChoice(completion)
    const latencyMs = this.#latencyMs()
    await this.#append('LLM_CALL_FINISHED', {
      call_id: this.callId,
      latency_ms: latencyMs,
      token_usage: usage,
      finish_reason: finishReason,
      output_hash: end.hash,
      attempts,
      cached,
      ...(cost === undefined ? {} : { api_cost_usd: cost }),
    })
    const priced = cost === undefined ? {} : { costUsd: cost }
    await this.#recording.telemetry?.llmFinished({
      ...this.#span(),
      status: 'success',
      durationMs: latencyMs,
      usage,
      finishReason,
      ...priced,
    })
    const evidencePath = EvidenceStore.pathOf(this.callId)
    const common = { callId: this.callId, completion, usage, finishReason, attempts, cached, latencyMs }
    return { ok: true, ...common, ...priced, evidencePath }
  }

  async #appendStart(): Promise<void> {
    const { body, redactor, sending } = this.#start
    const { promptHash, inputHash, toolSchemaHash } = this.hashes
    const model = redactor.text(body.model)
    const providerBaseUrl = redactor.text(publicUrl(sending.url).replace(/\/chat\/completions$/, ''))
    const asked = sampling(body)
    await this.#append('LLM_CALL_STARTED', {
      call_id: this.callId,
      model,
      provider_base_url: providerBaseUrl,
      prompt_hash: promptHash,
      input_hash: inputHash,
      tool_schema_hash: toolSchemaHash,
      ...asked,
    })
    await this.#recording.telemetry?.llmStarted({
      ...this.#span(),
      startedAt: this.#startedAt,
      model,
      providerBaseUrl,
      promptHash,
      evidencePath: EvidenceStore.pathOf(this.callId),
      ...(asked.temperature === undefined ? {} : { temperature: asked.temperature }),
      ...(asked.max_tokens === undefined ? {} : { maxTokens: asked.max_tokens }),
    })
  }

  async #end(rest: Partial<Evidence>): Promise<void> {
    // Two ends of one call would be a call too many in the log.
    invariant(!this.#hasEnded, 'a call ends once')
    this.#hasEnded = true
    await this.#recording.store.write({
      ...this.#evidence,
      ...rest,
      finished_at: formatRfc3339(this.#recording.clock()),
    })
  }

  #latencyMs(): number {
    return Math.max(0, this.#recording.clock() - this.#startedAt)
  }

  #span(): { callId: string; spanId: string; parentSpanId?: string } {
    const { parentSpanId } = this.#start
    const parent = parentSpanId === undefined ? {} : { parentSpanId }
    return { callId: this.callId, spanId: this.spanId, ...parent }
  }

  #append(type: LlmEventType, payload: Readonly<Record<string, unknown>>): Promise<unknown> {
    const { callId: _, ...span } = this.#span()
    return this.#recording.events.append(type, payload, span)
  }
}
