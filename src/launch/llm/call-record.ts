import { invariant } from '../../core/invariant.ts'
import { formatRfc3339 } from '../../core/time.ts'
import type { LlmCallEnd, LlmCallStart, Span } from '../../telemetry/launch-telemetry.ts'
import type { LaunchPayloads, LlmEventType, TokenUsage } from '../events.ts'
import { callEnd, callStart } from './call-telemetry.ts'
import { type ChatBody, hashesOf, type RequestHashes, sampling } from './chat-request.ts'
import { type Completion, firstChoice, NO_USAGE, outputHash, usageOf } from './completion.ts'
import { type AnsweredEvidence, type Evidence, EvidenceStore } from './evidence.ts'
import type { Failure, RawAnswer } from './failure.ts'
import { DEPTH_OF_PARTS_MAX, isDeeperThan, parseJsonText } from './json.ts'
import type { ChatResult } from './llm.ts'
import { costUsd, type PriceTable } from './prices.ts'
import { publicUrl, type Redactor } from './redaction.ts'
import type { Sending } from './transport.ts'
import type { FailedTry } from './tries.ts'

/** Where the events of calls go: the log of a launch, or any other log. */
export interface LlmEventSink {
  /** Appends an event. The call continues once the promise resolves. */
  append(
    type: LlmEventType,
    payload: Readonly<Record<string, unknown>>,
    span: { readonly spanId: string; readonly parentSpanId?: string },
  ): Promise<unknown>
}

/** Gets the start and the end of each call. */
export interface LlmTelemetry {
  /** Called after the event `LLM_CALL_STARTED`. */
  llmStarted(call: LlmCallStart): Promise<void>
  /** Called after the event `LLM_CALL_FINISHED` or `LLM_CALL_FAILED`. */
  llmFinished(call: LlmCallEnd): Promise<void>
}

/** What all calls of a client share. */
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

/** How an answer arrived. */
export interface Arrival {
  readonly answer: Omit<RawAnswer, 'text'>
  readonly streamed: boolean
  readonly attempts: number
  readonly failed: readonly FailedTry[]
}

export type Finished = { readonly ok: true } & Omit<ChatResult, 'content' | 'message' | 'toolCalls'>

export interface Failed {
  readonly ok: false
  readonly callId: string
  readonly failure: Failure
  readonly attempts: number
  readonly latencyMs: number
}

export type Outcome = Finished | Failed

/**
 * The record of one call, from its start to its end. Each step writes the
 * evidence first, then the event, then telemetry. So every event has its
 * evidence, and telemetry knows nothing that is not in the log.
 */
export class CallRecord {
  readonly callId: string
  readonly hashes: RequestHashes
  readonly #recording: Recording
  readonly #start: CallStart
  readonly #span: Span
  readonly #startedAt: number
  readonly #evidence: Evidence
  #hasEnded = false

  private constructor(recording: Recording, start: CallStart) {
    const { store, clock, mode, traceId } = recording
    const { body, redactor, sending, parentSpanId } = start
    this.#recording = recording
    this.#start = start
    this.#startedAt = clock()
    this.hashes = hashesOf(body)
    this.callId = store.claim(this.hashes.cacheKey, start.callId)
    const spanId = recording.newSpanId()
    this.#span = parentSpanId === undefined ? { spanId } : { spanId, parentSpanId }
    this.#evidence = {
      evidence_version: 1,
      call_id: this.callId,
      cache_key: this.hashes.cacheKey,
      mode,
      trace_id: traceId,
      span_id: spanId,
      started_at: formatRfc3339(this.#startedAt),
      request: {
        url: redactor.text(publicUrl(sending.url)),
        headers: redactor.headers(sending.headers),
        body: redactor.value(body) as ChatBody,
      },
      hashes: this.#hashFields(),
    }
  }

  /** Writes the request as evidence, and then the event that the call has started. */
  static async start(recording: Recording, start: CallStart): Promise<CallRecord> {
    const record = new CallRecord(recording, start)
    await recording.store.write(record.#evidence)
    await record.#appendStart()
    return record
  }

  /** The request without secrets, as the evidence has it. */
  get request(): ChatBody {
    return this.#evidence.request.body
  }

  async finish(completion: Completion, { answer, streamed, attempts, failed }: Arrival): Promise<Finished> {
    const { redactor } = this.#start
    const before = redactor.count
    const body = redactor.value(completion) as Completion
    const redacted = redactor.count > before
    const usage = usageOf(completion)
    const kept = {
      status: answer.status,
      headers: redactor.headers(answer.headers),
      streamed,
      body,
      output_hash: outputHash(completion),
      redacted,
    }
    const notes = usage === undefined ? ['the provider counted no tokens: they are recorded as 0'] : []
    await this.#end({ attempts, failed_tries: failed, answer: kept, notes })
    const cost = usage && costUsd(this.#recording.prices, this.#start.body.model, usage)
    return this.#finished(completion, usage ?? NO_USAGE, { attempts, cached: false }, cost)
  }

  /** Ends the call with an answer that was recorded before. It costs nothing. */
  async finishFrom(recorded: AnsweredEvidence): Promise<Finished> {
    const completion = recorded.answer.body
    await this.#end({ attempts: 0, cached_from: recorded.call_id })
    return this.#finished(completion, usageOf(completion) ?? NO_USAGE, { attempts: 0, cached: true }, 0)
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
    await this.#recording.telemetry?.llmFinished(callEnd(payload, this.#span))
    return { ok: false, callId: this.callId, failure, attempts, latencyMs }
  }

  async #finished(
    completion: Completion,
    usage: TokenUsage,
    how: { readonly attempts: number; readonly cached: boolean },
    cost: number | undefined,
  ): Promise<Finished> {
    const { callId } = this
    const { finishReason } = firstChoice(completion)
    const latencyMs = this.#latencyMs()
    const payload = {
      call_id: callId,
      latency_ms: latencyMs,
      token_usage: usage,
      finish_reason: finishReason,
      output_hash: outputHash(completion),
      ...how,
      ...(cost === undefined ? {} : { api_cost_usd: cost }),
    }
    await this.#append('LLM_CALL_FINISHED', payload)
    await this.#recording.telemetry?.llmFinished(callEnd(payload, this.#span))
    const evidencePath = EvidenceStore.pathOf(callId)
    const priced = cost === undefined ? {} : { costUsd: cost }
    return { ok: true, callId, completion, usage, finishReason, ...how, latencyMs, ...priced, evidencePath }
  }

  async #appendStart(): Promise<void> {
    const { body, redactor, sending } = this.#start
    const payload = {
      call_id: this.callId,
      model: redactor.text(body.model),
      provider_base_url: redactor.text(publicUrl(sending.url).replace(/\/chat\/completions$/, '')),
      ...this.#hashFields(),
      ...sampling(body),
    }
    await this.#append('LLM_CALL_STARTED', payload)
    await this.#recording.telemetry?.llmStarted(callStart(payload, this.#span, this.#startedAt))
  }

  #hashFields(): Evidence['hashes'] {
    const { promptHash, inputHash, toolSchemaHash } = this.hashes
    return { prompt_hash: promptHash, input_hash: inputHash, tool_schema_hash: toolSchemaHash }
  }

  async #end(rest: Partial<Evidence>): Promise<void> {
    invariant(!this.#hasEnded, 'a call ends once')
    this.#hasEnded = true
    const finished_at = formatRfc3339(this.#recording.clock())
    await this.#recording.store.write({ ...this.#evidence, ...rest, finished_at })
  }

  #latencyMs(): number {
    return Math.max(0, this.#recording.clock() - this.#startedAt)
  }

  #append<T extends LlmEventType>(type: T, payload: LaunchPayloads[T]): Promise<unknown> {
    return this.#recording.events.append(type, payload, this.#span)
  }
}
