import { formatRfc3339 } from '../core/time.ts'
import type { Delivery, FlushReport } from './client.ts'
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
  type TelemetryRun,
  type TelemetryStatus,
} from './model.ts'
import type { TelemetryLog } from './outbox.ts'

/**
 * The trail of a launch: a parent record, a child for each node, worker, gate
 * and LLM call, and updates of each. The records' ids follow from the spans in
 * the launch's log, so nothing has to be remembered: a launch that was resumed
 * closes what another process began. No hook ever rejects.
 */

export interface Span {
  /** 16 hex digits: that of the events about it. */
  readonly spanId: string
  readonly parentSpanId?: string
}

export interface NodeStart extends Span {
  readonly name: string
  readonly startedAt?: number
}

export interface WorkerStart extends Span {
  readonly workItemId: string
  readonly worker: string
  readonly startedAt?: number
}

export interface GateStart extends Span {
  readonly gate: string
  /** How often the gate has run, this time included. */
  readonly n: number
  readonly startedAt?: number
}

export interface LlmCallStart extends Span {
  readonly callId: string
  readonly startedAt?: number
  readonly model: string
  readonly providerBaseUrl: string
  readonly promptHash: string
  readonly temperature?: number
  readonly maxTokens?: number
  readonly evidencePath: string
}

export interface ChildEnd extends Span {
  readonly status: Exclude<TelemetryStatus, 'running'>
  readonly durationMs?: number
  readonly endedAt?: number
  /** Without secrets. */
  readonly error?: string
  readonly metrics?: JsonMap
}

export interface LlmCallEnd extends ChildEnd {
  readonly callId: string
  readonly usage?: {
    readonly input_tokens: number
    readonly output_tokens: number
    readonly total_tokens: number
  }
  readonly finishReason?: string
  readonly costUsd?: number
}

export interface LaunchEnd {
  readonly status: 'success' | 'failure' | 'cancelled'
  /** The time of the event that ended the run. */
  readonly endedAt?: number
  readonly durationMs?: number
  readonly error?: string
  readonly itemsSucceeded?: number
  readonly itemsFailed?: number
  readonly itemsSkipped?: number
  readonly metrics?: JsonMap
}

/** What of a `TelemetryClient` a trail needs. */
export interface RecordSender {
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
  /** The launch's own, the root of its trace. */
  readonly spanId: string
  readonly environment?: string
  readonly host?: string
  readonly clock?: () => number
  readonly log?: Pick<TelemetryLog, 'error'>
}

/** The service refuses bodies of a mebibyte; a stack of an error is cut long before. */
const SUMMARY_CHARS_MAX = 2_000

export class LaunchTelemetry {
  readonly #options: LaunchTelemetryOptions
  readonly #clock: () => number
  readonly #parentId: string
  readonly #parentContext: JsonMap
  /** Of the children so far, for a commit that is about them all. */
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

  /** What became of the records so far. */
  get report(): FlushReport {
    const { accepted, dead, waiting } = this.#deliveries
    const stillWaiting = this.#options.client.waiting ?? 0
    return { accepted: accepted + Math.max(0, waiting - stillWaiting), dead, waiting: stillWaiting }
  }

  /** Whether a record is neither at the service nor in the outbox. */
  get hasLost(): boolean {
    return this.#deliveries.unwritten > 0
  }

  /** What an earlier process left behind goes first. A resumed launch has a parent already: it runs again. */
  launchStarted(start: { readonly startedAt?: number; readonly resumed?: boolean } = {}): Promise<void> {
    return this.#safely(async () => {
      const { client, runId, launch, environment, host } = this.#options
      // Not waited for yet: while anything waits, what is sent now joins it, and is on disk at once.
      const flushed = client.flush()
      const run: TelemetryRun = {
        event_id: this.#parentId,
        run_id: runId.replaceAll(':', '.'),
        agent_name: 'launch.orchestrator',
        job_type: 'launch',
        start_time: formatRfc3339(start.startedAt ?? this.#clock()),
        status: 'running',
        item_name: launch,
        context_json: this.#parentContext,
        ...(environment === undefined ? {} : { environment }),
        ...(host === undefined ? {} : { host }),
      }
      await this.#post(run)
      if (start.resumed === true) await this.#patch(this.#parentId, { status: 'running' })
      await flushed
    })
  }

  nodeStarted(node: NodeStart): Promise<void> {
    return this.#child('node', [node.name], 'orchestrator_node', 'launch.orchestrator', node, node.name)
  }

  nodeFinished(end: ChildEnd): Promise<void> {
    return this.#end(end)
  }

  workerStarted(worker: WorkerStart): Promise<void> {
    const { workItemId, worker: name } = worker
    return this.#child('worker', [workItemId], 'worker', `launch.worker.${name}`, worker, workItemId, {
      work_item_id: workItemId,
    })
  }

  workerFinished(end: ChildEnd): Promise<void> {
    return this.#end(end)
  }

  gateStarted(gate: GateStart): Promise<void> {
    return this.#child('gate', [gate.gate, gate.n], 'gate', `launch.gate.${gate.gate}`, gate, gate.gate)
  }

  gateFinished(end: ChildEnd & { readonly issues?: number }): Promise<void> {
    const { issues, metrics } = end
    return this.#end(issues === undefined ? end : { ...end, metrics: { ...metrics, issues } })
  }

  llmStarted(call: LlmCallStart): Promise<void> {
    const { callId, model, providerBaseUrl, promptHash, temperature, maxTokens, evidencePath } = call
    return this.#child('llm', [callId], 'llm_call', 'launch.llm', call, model, {
      call_id: callId,
      model,
      provider_base_url: providerBaseUrl,
      ...(temperature === undefined ? {} : { temperature }),
      ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
      prompt_hash: promptHash,
      evidence_path: evidencePath,
    })
  }

  llmFinished(end: LlmCallEnd): Promise<void> {
    const { usage, finishReason, costUsd } = end
    if (usage === undefined) return this.#end(end)
    const metrics = {
      ...usage,
      prompt_tokens: usage.input_tokens,
      completion_tokens: usage.output_tokens,
      ...(costUsd === undefined ? {} : { api_cost_usd: costUsd }),
      ...(finishReason === undefined ? {} : { finish_reason: finishReason }),
    }
    return this.#end({ ...end, metrics })
  }

  /** A child for the commit itself, and the commit on the parent and every earlier child. */
  commitMade(
    commit: Commit & Span & { readonly earlierSpanIds?: readonly string[]; readonly startedAt?: number },
  ): Promise<void> {
    return this.#safely(async () => {
      const { spanId, parentSpanId, earlierSpanIds = [], startedAt = this.#clock(), ...fields } = commit
      const span = parentSpanId === undefined ? { spanId } : { spanId, parentSpanId }
      const earlier = new Set([
        this.#parentId,
        ...earlierSpanIds.map(id => eventIdOf(this.#options.traceId, id)),
        ...this.#children,
      ])
      const id = fields.commit_hash
      await this.#child('commit', [id], 'commit_service', 'launch.commit', { ...span, startedAt }, id)
      const now = this.#clock()
      for (const eventId of earlier) await this.#send(associateCommit(eventId, fields, now))
      await this.#end({ ...span, status: 'success', durationMs: Math.max(0, now - startedAt) })
    })
  }

  /** Sends what waits. Who does not want to wait for a service that is down need not wait for this. */
  stableState(): Promise<void> {
    return this.#safely(async () => {
      await this.#options.client.flush()
    })
  }

  /** If anything still waits then, the parent is `partial`: its trail in the service is not whole. */
  launchEnded(end: LaunchEnd): Promise<void> {
    return this.#safely(async () => {
      const { client } = this.#options
      await client.flush()
      const now = this.#clock()
      const patch: TelemetryPatch = {
        ...ended(end, end.endedAt ?? now),
        ...(end.itemsSucceeded === undefined ? {} : { items_succeeded: end.itemsSucceeded }),
        ...(end.itemsFailed === undefined ? {} : { items_failed: end.itemsFailed }),
        ...(end.itemsSkipped === undefined ? {} : { items_skipped: end.itemsSkipped }),
      }
      const context = { ...this.#parentContext, launch_status: end.status }
      const partial: TelemetryPatch = {
        ...patch,
        status: 'partial',
        api_posted: false,
        context_json: context,
      }
      await this.#send(patchRun(this.#parentId, patch, now), patchRun(this.#parentId, partial, now))
    })
  }

  /** Waits for what is under way. */
  close(): Promise<void> {
    return this.#safely(async () => this.#options.client.close?.())
  }

  #child(
    kind: ChildKind,
    id: readonly (string | number)[],
    jobType: string,
    agentName: string,
    span: Span & { readonly startedAt?: number },
    itemName: string,
    context: JsonMap = {},
  ): Promise<void> {
    return this.#safely(async () => {
      const { runId, traceId, environment } = this.#options
      const eventId = eventIdOf(traceId, span.spanId)
      this.#children.add(eventId)
      await this.#post({
        event_id: eventId,
        run_id: childRunId(runId, kind, ...id),
        parent_run_id: runId.replaceAll(':', '.'),
        agent_name: agentName,
        job_type: jobType,
        start_time: formatRfc3339(span.startedAt ?? this.#clock()),
        status: 'running',
        item_name: itemName,
        context_json: {
          trace_id: traceId,
          span_id: span.spanId,
          ...(span.parentSpanId === undefined ? {} : { parent_span_id: span.parentSpanId }),
          ...context,
        },
        ...(environment === undefined ? {} : { environment }),
      })
    })
  }

  #end(end: ChildEnd): Promise<void> {
    return this.#safely(async () => {
      const eventId = eventIdOf(this.#options.traceId, end.spanId)
      await this.#patch(eventId, ended(end, end.endedAt ?? this.#clock()))
    })
  }

  async #post(run: TelemetryRun): Promise<void> {
    await this.#send(postRun(run, this.#clock()))
  }

  async #patch(eventId: string, patch: TelemetryPatch): Promise<void> {
    await this.#send(patchRun(eventId, patch, this.#clock()))
  }

  async #send(record: TelemetryRecord, ifWaiting?: TelemetryRecord): Promise<void> {
    this.#deliveries[await this.#options.client.send(record, ifWaiting)]++
  }

  /** N11: whatever happens here, the launch goes on. */
  async #safely(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      const message = `telemetry failed: ${String(error)}`
      if (this.#options.log === undefined) process.emitWarning(message, { code: 'ANNALS_TELEMETRY_ERROR' })
      else this.#options.log.error(message)
    }
  }
}

function ended(
  end: {
    readonly status: TelemetryStatus
    readonly durationMs?: number
    readonly error?: string
    readonly metrics?: JsonMap
  },
  endedAt: number,
): TelemetryPatch {
  const { status, durationMs, error, metrics } = end
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
