import { formatRfc3339 } from '../core/time.ts'
import { type Delivery, type FlushReport, TelemetryClient, type TelemetryClientOptions } from './client.ts'
import {
  associateCommit,
  type ChildKind,
  type Commit,
  childRunId,
  eventIdOf,
  type JsonMap,
  patchRun,
  postRun,
  type TelemetryPatch,
  type TelemetryRecord,
  type TelemetryStatus,
} from './model.ts'

/** A span of a launch's trace. */
export interface Span {
  /** 16 hex digits. The events about the same activity have the same id. */
  readonly spanId: string
  /** The span in which this one was started. */
  readonly parentSpanId?: string
}

/** The start of a node, a worker, a gate or a call of a model. */
export interface ChildStart extends Span {
  readonly kind: ChildKind
  /** Distinguishes it from other children of its kind. */
  readonly id: string
  readonly agentName: string
  readonly itemName: string
  /** Milliseconds since 1970; the client's time by default. */
  readonly startedAt?: number
  /** More fields for `context_json`. */
  readonly context?: JsonMap
}

/** The end of a node, a worker, a gate or a call of a model. */
export interface ChildEnd extends Span {
  /** How it ended. */
  readonly status: Exclude<TelemetryStatus, 'running'>
  /** How long it took. */
  readonly durationMs?: number
  /** Milliseconds since 1970; the client's time by default. */
  readonly endedAt?: number
  /** Why it failed. The caller removes secrets. */
  readonly error?: string
  /** Numbers about it, for `metrics_json`. */
  readonly metrics?: JsonMap
}

/** The start of a call of a model. */
export interface LlmCallStart extends Span {
  /** The id of the call in its run. */
  readonly callId: string
  /** Milliseconds since 1970; the client's time by default. */
  readonly startedAt?: number
  /** The model that is called. */
  readonly model: string
  /** The endpoint, without credentials. */
  readonly providerBaseUrl: string
  /** The hash of the system messages. */
  readonly promptHash: string
  /** The temperature of the request. */
  readonly temperature?: number
  /** The most tokens that the answer may have. */
  readonly maxTokens?: number
  /** The file with request and answer, relative to the run's folder. */
  readonly evidencePath: string
}

/** The end of a call of a model. */
export interface LlmCallEnd extends ChildEnd {
  /** The id of the call in its run. */
  readonly callId: string
  /** The tokens that the provider counted. */
  readonly usage?: {
    /** Tokens of the request. */
    readonly input_tokens: number
    /** Tokens of the answer. */
    readonly output_tokens: number
    /** Tokens of both. */
    readonly total_tokens: number
  }
  /** Why the model stopped, such as `stop` or `length`. */
  readonly finishReason?: string
  /** The price of the call. */
  readonly costUsd?: number
}

/** The end of a launch. */
export interface LaunchEnd {
  readonly status: 'success' | 'failure' | 'cancelled'
  /** The time of the event that ended the run. */
  readonly endedAt?: number
  readonly durationMs?: number
  readonly error?: string
  readonly items?: { readonly succeeded: number; readonly failed: number; readonly skipped: number }
}

/** The part of a `TelemetryClient` that sends records. */
interface RecordSender {
  send(record: TelemetryRecord, ifWaiting?: TelemetryRecord): Promise<Delivery>
  flush(): Promise<FlushReport>
  close?(): Promise<void>
  /** How many records are in the outbox. */
  readonly waiting?: number
}

export interface LaunchTelemetryOptions {
  readonly client: RecordSender
  readonly runId: string
  readonly launch: string
  readonly launchVersion?: string
  /** 32 hex digits. */
  readonly traceId: string
  /** The root span of the launch. */
  readonly spanId: string
  readonly environment?: string
  readonly clock?: () => number
}

/** Error texts are cut at this length, far below the body size that the service accepts. */
const SUMMARY_CHARS_MAX = 2_000

const JOB_TYPES: Readonly<Record<ChildKind, string>> = {
  node: 'orchestrator_node',
  worker: 'worker',
  gate: 'gate',
  llm: 'llm_call',
  commit: 'commit_service',
  telemetry: 'telemetry',
}

/**
 * The telemetry records of a launch: a parent, and a child for each node,
 * worker, gate and call of a model. The ids of the records follow from the
 * spans in the launch's log. So a process that resumes a launch can update
 * records that another process created.
 */
export class LaunchTelemetry {
  readonly #options: LaunchTelemetryOptions
  readonly #clock: () => number
  readonly #parentId: string
  readonly #parentContext: JsonMap
  /** The event ids of the children so far. A commit is associated with all of them. */
  readonly #children = new Set<string>()
  readonly #deliveries: Record<Delivery, number> = { accepted: 0, waiting: 0, dead: 0, unwritten: 0 }

  constructor(options: LaunchTelemetryOptions) {
    this.#options = options
    this.#clock = options.clock ?? Date.now
    this.#parentId = eventIdOf(options.traceId, options.spanId)
    const { traceId, spanId, launch, launchVersion } = options
    const version = launchVersion === undefined ? {} : { launch_version: launchVersion }
    this.#parentContext = { trace_id: traceId, span_id: spanId, launch, ...version }
  }

  /** What happened to the records so far. */
  get report(): FlushReport {
    const { accepted, dead, waiting } = this.#deliveries
    const stillWaiting = this.#options.client.waiting ?? 0
    return { accepted: accepted + Math.max(0, waiting - stillWaiting), dead, waiting: stillWaiting }
  }

  /** Whether a record is neither at the service nor in the outbox. */
  get hasLost(): boolean {
    return this.#deliveries.unwritten > 0
  }

  /** Creates the parent, or sets it to `running` again. Flushes what an earlier process left in the outbox. */
  async launchStarted(
    start: { readonly startedAt?: number; readonly resumed?: boolean } = {},
  ): Promise<void> {
    const { client, runId, launch } = this.#options
    // Not awaited yet: while the outbox is not empty, later records join it and are durable at once.
    const flushed = client.flush()
    await this.#post(this.#parentId, runId.replaceAll(':', '.'), {
      agent_name: 'launch.orchestrator',
      job_type: 'launch',
      start_time: formatRfc3339(start.startedAt ?? this.#clock()),
      item_name: launch,
      context_json: this.#parentContext,
    })
    if (start.resumed === true) await this.#patch(this.#parentId, { status: 'running' })
    await flushed
  }

  /** Creates the record of a child. */
  async childStarted(child: ChildStart): Promise<void> {
    const { kind, id, agentName, itemName, spanId, parentSpanId, startedAt, context } = child
    const { runId, traceId } = this.#options
    const eventId = eventIdOf(traceId, spanId)
    this.#children.add(eventId)
    await this.#post(eventId, childRunId(runId, kind, id), {
      parent_run_id: runId.replaceAll(':', '.'),
      agent_name: agentName,
      job_type: JOB_TYPES[kind],
      start_time: formatRfc3339(startedAt ?? this.#clock()),
      item_name: itemName,
      context_json: {
        trace_id: traceId,
        span_id: spanId,
        ...(parentSpanId === undefined ? {} : { parent_span_id: parentSpanId }),
        ...context,
      },
    })
  }

  /** Updates the record of a child that has ended. */
  async childEnded(end: ChildEnd): Promise<void> {
    await this.#patch(eventIdOf(this.#options.traceId, end.spanId), ended(end, end.endedAt ?? this.#clock()))
  }

  llmStarted(call: LlmCallStart): Promise<void> {
    const { callId, model, providerBaseUrl, promptHash, temperature, maxTokens, evidencePath } = call
    const context = {
      call_id: callId,
      model,
      provider_base_url: providerBaseUrl,
      ...(temperature === undefined ? {} : { temperature }),
      ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
      prompt_hash: promptHash,
      evidence_path: evidencePath,
    }
    const names = { id: callId, agentName: 'launch.llm', itemName: model }
    return this.childStarted({ ...call, kind: 'llm', ...names, context })
  }

  llmFinished(end: LlmCallEnd): Promise<void> {
    const { usage, finishReason, costUsd } = end
    if (usage === undefined) return this.childEnded(end)
    const metrics = {
      ...usage,
      prompt_tokens: usage.input_tokens,
      completion_tokens: usage.output_tokens,
      ...(costUsd === undefined ? {} : { api_cost_usd: costUsd }),
      ...(finishReason === undefined ? {} : { finish_reason: finishReason }),
    }
    return this.childEnded({ ...end, metrics })
  }

  /** Creates a child for the commit, and associates the commit with the parent and every earlier child. */
  async commitMade(commit: Commit & Span & { readonly startedAt?: number }): Promise<void> {
    const { spanId, parentSpanId, startedAt = this.#clock(), ...fields } = commit
    const span = parentSpanId === undefined ? { spanId } : { spanId, parentSpanId }
    const earlier = [this.#parentId, ...this.#children]
    const id = fields.commit_hash
    const names = { id, agentName: 'launch.commit', itemName: id }
    await this.childStarted({ ...span, kind: 'commit', ...names, startedAt })
    const now = this.#clock()
    for (const eventId of earlier) await this.#send(associateCommit(eventId, fields, now))
    await this.childEnded({ ...span, status: 'success', durationMs: Math.max(0, now - startedAt) })
  }

  /** Sends what is in the outbox. */
  async flush(): Promise<void> {
    await this.#options.client.flush()
  }

  /** Updates the parent. While records still wait in the outbox, its status is `partial`. */
  async launchEnded(end: LaunchEnd): Promise<void> {
    await this.flush()
    const now = this.#clock()
    const { items } = end
    const patch: TelemetryPatch = {
      ...ended(end, end.endedAt ?? now),
      ...(items === undefined
        ? {}
        : {
            items_succeeded: items.succeeded,
            items_failed: items.failed,
            items_skipped: items.skipped,
          }),
    }
    const context = { ...this.#parentContext, launch_status: end.status }
    const partial: TelemetryPatch = { ...patch, status: 'partial', api_posted: false, context_json: context }
    await this.#send(patchRun(this.#parentId, patch, now), patchRun(this.#parentId, partial, now))
  }

  /** Waits for requests in progress. */
  async close(): Promise<void> {
    await this.#options.client.close?.()
  }

  async #post(
    event_id: string,
    run_id: string,
    fields: Omit<Parameters<typeof postRun>[0], 'event_id' | 'run_id'>,
  ): Promise<void> {
    const { environment } = this.#options
    const place = environment === undefined ? {} : { environment }
    await this.#send(postRun({ event_id, run_id, status: 'running', ...fields, ...place }, this.#clock()))
  }

  async #patch(eventId: string, patch: TelemetryPatch): Promise<void> {
    await this.#send(patchRun(eventId, patch, this.#clock()))
  }

  async #send(record: TelemetryRecord, ifWaiting?: TelemetryRecord): Promise<void> {
    this.#deliveries[await this.#options.client.send(record, ifWaiting)]++
  }
}

function ended(
  { status, durationMs, error, metrics }: Omit<ChildEnd, 'spanId'>,
  endedAt: number,
): TelemetryPatch {
  return {
    status,
    end_time: formatRfc3339(endedAt),
    ...(durationMs === undefined ? {} : { duration_ms: Math.max(0, Math.round(durationMs)) }),
    ...(error === undefined
      ? {}
      : { error_summary: error.toWellFormed().slice(0, SUMMARY_CHARS_MAX).toWellFormed() }),
    ...(metrics === undefined ? {} : { metrics_json: metrics }),
  }
}

/**
 * Opens the telemetry of a launch, with its outbox in the run's folder. An outbox that can't be read is an error in the
 * log, not a failure: records are then dropped, because writing could destroy what the outbox holds.
 */
export async function openLaunchTelemetry(
  options: Omit<LaunchTelemetryOptions, 'client'> & TelemetryClientOptions,
): Promise<LaunchTelemetry> {
  const client = await TelemetryClient.open(options).catch((error: unknown): RecordSender => {
    const { log } = options
    log.error(`this launch has no telemetry, because its outbox can't be read: ${String(error)}`)
    return { send: async () => 'unwritten', flush: async () => ({ accepted: 0, dead: 0, waiting: 0 }) }
  })
  return new LaunchTelemetry({ ...options, client })
}
