import { parseRfc3339 } from '../core/time.ts'
import type { FlushReport } from '../telemetry/client.ts'
import type { ChildEnd, LaunchTelemetry, Span } from '../telemetry/launch-telemetry.ts'
import type { ToldFile } from '../telemetry/told.ts'
import { commitIn } from './docs/pipeline.ts'
import type { LaunchEvent, LaunchFailure } from './events.ts'
import { EvidenceStore } from './llm/evidence.ts'
import { outcomeOf } from './session.ts'
import { ruleOf, type StateModel } from './states.ts'
import { spanIdAfter, turnOf } from './turns.ts'
import { INTERRUPTION } from './work-items.ts'

type End = Pick<ChildEnd, 'status' | 'error' | 'metrics'> & { readonly issues?: number }

interface OpenChild {
  readonly kind: 'node' | 'worker' | 'gate' | 'llm'
  readonly span: Span
  readonly startedAt: number
}

/** What of a launch its trail needs. */
export interface ToldLaunch {
  readonly states: StateModel
  readonly nodes: ReadonlyMap<string, { readonly name: string }>
}

/**
 * N10: the trail of a launch, made of its log alone. Each process that works
 * on a run tells it from the first event: the ids of records follow from the
 * spans, so what the service has it knows to be a duplicate, what a process
 * that died had not told is told now, and what was cut off is closed. N11: no
 * call fails, and none is waited for but `settle`.
 */
export class TelemetryFeed {
  readonly #launch: ToldLaunch
  readonly #open: (root: LaunchEvent) => Promise<LaunchTelemetry>
  readonly #told: ToldFile
  readonly #warn: (message: string) => void
  /** How many were pushed. */
  #events = 0
  #root: LaunchEvent | undefined
  #trail: Promise<LaunchTelemetry> | undefined
  #end: Promise<void> | undefined
  readonly #pending = new Set<Promise<void>>()
  readonly #children = new Map<string, OpenChild>()
  readonly #workers = new Map<string, string>()
  readonly #gateRuns = new Map<string, number>()
  readonly #items = { succeeded: 0, failed: 0, skipped: 0 }

  constructor(
    launch: ToldLaunch,
    open: (root: LaunchEvent) => Promise<LaunchTelemetry>,
    told: ToldFile,
    warn: (message: string) => void,
  ) {
    this.#launch = launch
    this.#open = open
    this.#told = told
    this.#warn = warn
  }

  /** Before the first event: whatever happens to this process, the next one knows that the run has telemetry. */
  begin(): Promise<void> {
    return this.#told.begin()
  }

  /** In the order of the log. Of what is only recalled the parent hears nothing: it is told how the run stands now. */
  push(event: LaunchEvent, isRecalled = false): void {
    this.#events++
    try {
      this.#takeRun(event, isRecalled)
      this.#takeWork(event)
      this.#takeGateOrCall(event)
    } catch (error) {
      this.#warn(`telemetry of ${event.type} failed: ${String(error)}`)
    }
  }

  /** Resolves when all that was told is accepted or in the outbox, and the outbox was flushed. The last call. */
  async settle(): Promise<FlushReport | undefined> {
    await this.#allTold()
    const trail = await this.#trail
    if (this.#end === undefined) await trail?.stableState()
    else await this.#end
    if (trail?.hasLost === false)
      await (this.#end === undefined ? this.#told.advance(this.#events) : this.#told.remove())
    await trail?.close()
    return trail?.report
  }

  #takeRun(event: LaunchEvent, isRecalled: boolean): void {
    const { states } = this.#launch
    this.#root ??= event
    switch (event.type) {
      case 'RUN_CREATED':
        this.#trail = this.#told.begin().then(() => this.#open(event))
        this.#tell(trail => trail.launchStarted({ startedAt: timeOf(event) }))
        break
      case 'RUN_RESTARTED':
        this.#closeAll(event, failed(INTERRUPTION))
        break
      case 'RUN_RESUMED':
        if (event.span_id !== this.#root.span_id) return
        this.#closeAll(event, failed(INTERRUPTION), 'worker')
        if (!isRecalled) this.#goOn(this.#root)
        break
      case 'RUN_STATE_CHANGED': {
        const { new_state } = event.payload
        // Why the node failed is said by the event that follows.
        if (new_state !== states.failed && new_state !== states.cancelled)
          this.#closeAll(event, { status: 'success' })
        if (!isRecalled && ruleOf(states, new_state)?.kind === 'stable') this.#flushUpTo(this.#events)
        break
      }
      case 'RUN_COMPLETED':
        this.#endBy(event, { status: 'success' }, isRecalled)
        break
      case 'RUN_FAILED':
        this.#endBy(event, failed(event.payload.error), isRecalled)
        break
      case 'RUN_CANCELLED':
        this.#endBy(event, { status: 'cancelled', error: event.payload.reason }, isRecalled)
        break
    }
    const commit = commitIn(event)
    if (commit !== undefined) this.#commit(event, commit)
    const state = turnOf(event, this.#root.span_id, states)
    if (state === undefined) return
    const name = this.#launch.nodes.get(state)?.name ?? state
    const span = { spanId: spanIdAfter(event, 'node'), parentSpanId: this.#root.span_id }
    const startedAt = this.#begin('node', 'node', span, event)
    this.#tell(trail => trail.nodeStarted({ ...span, name, startedAt }))
  }

  #goOn(root: LaunchEvent): void {
    this.#end = undefined
    this.#tell(trail => trail.launchStarted({ startedAt: timeOf(root), resumed: true }))
  }

  #takeWork(event: LaunchEvent): void {
    switch (event.type) {
      case 'WORK_ITEM_QUEUED':
        this.#workers.set(event.payload.work_item_id, event.payload.worker)
        return
      case 'WORK_ITEM_STARTED': {
        const { work_item_id: workItemId } = event.payload
        const worker = this.#workers.get(workItemId) ?? workItemId
        const span = spanOf(event)
        const startedAt = this.#begin('worker', `worker ${workItemId}`, span, event)
        this.#tell(trail => trail.workerStarted({ ...span, workItemId, worker, startedAt }))
        return
      }
      case 'WORK_ITEM_FINISHED':
        this.#items.succeeded++
        this.#close(`worker ${event.payload.work_item_id}`, event, { status: 'success' })
        return
      case 'WORK_ITEM_FAILED':
        this.#items.failed++
        this.#close(`worker ${event.payload.work_item_id}`, event, failed(event.payload.error))
        return
      case 'WORK_ITEM_SKIPPED':
        this.#items.skipped++
    }
  }

  #takeGateOrCall(event: LaunchEvent): void {
    switch (event.type) {
      case 'GATE_RUN_STARTED': {
        const { gate } = event.payload
        const n = 1 + (this.#gateRuns.get(gate) ?? 0)
        this.#gateRuns.set(gate, n)
        const span = spanOf(event)
        const startedAt = this.#begin('gate', `gate ${gate}`, span, event)
        this.#tell(trail => trail.gateStarted({ ...span, gate, n, startedAt }))
        return
      }
      case 'GATE_RUN_FINISHED': {
        const { gate, ok, issues } = event.payload
        const end: End = ok ? { status: 'success' } : { status: 'failure', error: `${issues} issues` }
        this.#close(`gate ${gate}`, event, { ...end, issues })
        return
      }
      case 'LLM_CALL_STARTED': {
        const {
          call_id: callId,
          model,
          provider_base_url,
          prompt_hash,
          temperature,
          max_tokens,
        } = event.payload
        const span = spanOf(event)
        const call = {
          ...span,
          callId,
          model,
          providerBaseUrl: provider_base_url,
          promptHash: prompt_hash,
          evidencePath: EvidenceStore.pathOf(callId),
          ...(temperature === undefined ? {} : { temperature }),
          ...(max_tokens === undefined ? {} : { maxTokens: max_tokens }),
          startedAt: this.#begin('llm', `llm ${callId}`, span, event),
        }
        this.#tell(trail => trail.llmStarted(call))
        return
      }
      case 'LLM_CALL_FINISHED': {
        const { call_id: callId, token_usage: usage, finish_reason: finishReason } = event.payload
        const { latency_ms: durationMs, api_cost_usd: costUsd } = event.payload
        this.#children.delete(`llm ${callId}`)
        const cost = costUsd === undefined ? {} : { costUsd }
        const end = { callId, status: 'success' as const, usage, finishReason, durationMs, ...cost }
        this.#tell(trail => trail.llmFinished({ ...spanOf(event), ...end, endedAt: timeOf(event) }))
        return
      }
      case 'LLM_CALL_FAILED': {
        const { call_id, error_class, error_summary } = event.payload
        const code = error_class === 'ABORTED' ? 'CANCELLED' : error_class
        this.#close(`llm ${call_id}`, event, failed({ code, message: error_summary, retryable: false }))
      }
    }
  }

  #commit(event: LaunchEvent, commit_sha: string): void {
    if (!/^[0-9a-f]{7,40}$/i.test(commit_sha)) {
      this.#warn(`telemetry takes commits of 7 to 40 hex digits: ${commit_sha} is on no record`)
      return
    }
    const span = { spanId: spanIdAfter(event, 'commit'), parentSpanId: event.span_id }
    const commit = { commit_hash: commit_sha, commit_source: 'llm' as const, startedAt: timeOf(event) }
    this.#tell(trail => trail.commitMade({ ...span, ...commit }))
  }

  #endBy(
    event: LaunchEvent,
    end: End & { readonly status: 'success' | 'failure' | 'cancelled' | 'timeout' },
    isRecalled: boolean,
  ): void {
    this.#closeAll(event, end)
    if (isRecalled) return
    const { succeeded, failed: itemsFailed, skipped } = this.#items
    const { status, error } = end
    const said = {
      status: status === 'timeout' ? ('failure' as const) : status,
      endedAt: timeOf(event),
      durationMs: timeOf(event) - timeOf(this.#root ?? event),
      itemsSucceeded: succeeded,
      itemsFailed,
      itemsSkipped: skipped,
      ...(error === undefined ? {} : { error }),
    }
    // The parent's end is the last word: its children have theirs before it.
    this.#end = this.#allTold().then(async () => (await this.#trail)?.launchEnded(said))
  }

  #begin(kind: OpenChild['kind'], key: string, span: Span, event: LaunchEvent): number {
    const startedAt = timeOf(event)
    this.#children.set(key, { kind, span, startedAt })
    return startedAt
  }

  #close(key: string, event: LaunchEvent, end: End): void {
    const child = this.#children.get(key)
    if (child === undefined) return
    this.#children.delete(key)
    const endedAt = timeOf(event)
    const said = { ...child.span, ...end, endedAt, durationMs: endedAt - child.startedAt }
    this.#tell(trail => {
      if (child.kind === 'gate') return trail.gateFinished(said)
      return child.kind === 'node' ? trail.nodeFinished(said) : trail.workerFinished(said)
    })
  }

  /** The innermost first. */
  #closeAll(event: LaunchEvent, end: End, except?: OpenChild['kind']): void {
    for (const [key, { kind }] of [...this.#children].reverse()) {
      if (kind !== except) this.#close(key, event, end)
    }
  }

  /** Hooks are called in order, and the client keeps it: none has to wait for the one before. */
  #tell(work: (trail: LaunchTelemetry) => Promise<void>): void {
    const told = this.#trail?.then(work).catch((error: unknown) => this.#warn(`telemetry failed: ${error}`))
    if (told === undefined) return
    this.#pending.add(told)
    void told.then(() => this.#pending.delete(told))
  }

  /** Sends what waits, and remembers how far the service was told. */
  #flushUpTo(events: number): void {
    const before = this.#allTold()
    this.#tell(async trail => {
      await trail.stableState()
      await before
      if (!trail.hasLost) await this.#told.advance(events)
    })
  }

  async #allTold(): Promise<void> {
    await Promise.all(this.#pending)
  }
}

function spanOf({ span_id, parent_span_id }: LaunchEvent): Span {
  return { spanId: span_id, ...(parent_span_id === undefined ? {} : { parentSpanId: parent_span_id }) }
}

function timeOf({ ts }: LaunchEvent): number {
  return parseRfc3339(ts, { offset: 'any' }) as number
}

function failed(failure: LaunchFailure): End & { status: 'failure' | 'timeout' | 'cancelled' } {
  const { outcome } = outcomeOf(failure)
  return { status: outcome === 'success' ? 'failure' : outcome, error: `${failure.code}: ${failure.message}` }
}
