import { parseRfc3339 } from '../core/time.ts'
import type { FlushReport } from '../telemetry/client.ts'
import type { ChildEnd, ChildStart, LaunchEnd, LaunchTelemetry, Span } from '../telemetry/launch-telemetry.ts'
import type { ToldFile } from '../telemetry/told.ts'
import { commitIn } from './docs/pipeline.ts'
import type { LaunchEvent, LaunchFailure } from './events.ts'
import { callEnd, callStart } from './llm/call-telemetry.ts'
import { ruleOf, type StateModel } from './states.ts'
import { spanIdAfter, turnOf } from './turns.ts'
import { INTERRUPTION, workOf } from './work-items.ts'
import { outcomeOf } from './workbench.ts'

type End = Pick<ChildEnd, 'status' | 'error' | 'metrics'>

interface OpenChild {
  readonly isWorker: boolean
  readonly span: Span
  readonly startedAt: number
}

/** The part of a launch that its telemetry needs. */
export interface ToldLaunch {
  readonly states: StateModel
  readonly nodes: ReadonlyMap<string, { readonly name: string }>
}

/**
 * N10: turns the log of a launch into telemetry records. Every process that
 * works on a run feeds it from the first event. The ids of records follow from
 * the spans, so the service recognizes duplicates, gets what a crashed process
 * did not send, and closes what a crash interrupted. N11: no method rejects,
 * and a launch waits for `settle` alone.
 */
export class TelemetryFeed {
  readonly #launch: ToldLaunch
  readonly #open: (root: LaunchEvent) => Promise<LaunchTelemetry>
  readonly #told: ToldFile
  readonly #warn: (message: string) => void
  /** How many events were pushed. */
  #events = 0
  #root: LaunchEvent | undefined
  #telemetry: Promise<LaunchTelemetry> | undefined
  #end: Promise<void> | undefined
  readonly #pending = new Set<Promise<void>>()
  readonly #children = new Map<string, OpenChild>()
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

  /** Makes durable that the run has telemetry, so that the next process completes it after a crash. */
  begin(): Promise<void> {
    return this.#told.begin()
  }

  /** Takes the next event of the log. Recalled events were written by an earlier process; they do not update the parent. */
  push(event: LaunchEvent, isRecalled = false): void {
    this.#events++
    this.#root ??= event
    try {
      this.#takeRun(event, this.#root, isRecalled)
      this.#takeActivity(event)
    } catch (error) {
      this.#warn(`telemetry of ${event.type} failed: ${String(error)}`)
    }
  }

  /** Resolves when all records are accepted or in the outbox, and the outbox was flushed. Must be the last call. */
  async settle(): Promise<FlushReport | undefined> {
    await this.#allTold()
    const telemetry = await this.#telemetry
    if (this.#end === undefined) await this.#safely(telemetry?.flush())
    else await this.#end
    if (telemetry?.hasLost === false)
      await (this.#end === undefined ? this.#told.advance(this.#events) : this.#told.remove())
    await this.#safely(telemetry?.close())
    return telemetry?.report
  }

  #takeRun(event: LaunchEvent, root: LaunchEvent, isRecalled: boolean): void {
    const { states, nodes } = this.#launch
    switch (event.type) {
      case 'RUN_CREATED':
        this.#telemetry = this.#told.begin().then(() => this.#open(event))
        this.#tell(telemetry => telemetry.launchStarted({ startedAt: timeOf(event) }))
        break
      case 'RUN_RESTARTED':
        this.#closeAll(event, failed(INTERRUPTION))
        break
      case 'RUN_RESUMED':
        if (event.span_id !== root.span_id) return
        // Interrupted workers have events of their own.
        this.#closeAll(event, failed(INTERRUPTION), child => !child.isWorker)
        if (isRecalled) break
        this.#end = undefined
        this.#tell(telemetry => telemetry.launchStarted({ startedAt: timeOf(root), resumed: true }))
        break
      case 'RUN_STATE_CHANGED': {
        const { new_state } = event.payload
        // The next event says why the node failed.
        if (new_state !== states.failed && new_state !== states.cancelled)
          this.#closeAll(event, { status: 'success' })
        if (!isRecalled && ruleOf(states, new_state)?.kind === 'stable') this.#flushUpTo(this.#events)
        break
      }
      case 'RUN_COMPLETED':
        this.#endBy(event, root, { status: 'success' }, isRecalled)
        break
      case 'RUN_FAILED':
        this.#endBy(event, root, failed(event.payload.error), isRecalled)
        break
      case 'RUN_CANCELLED':
        this.#endBy(event, root, { status: 'cancelled', error: event.payload.reason }, isRecalled)
        break
    }
    const commit = commitIn(event)
    if (commit !== undefined) this.#commit(event, commit)
    const state = turnOf(event, root.span_id, states)
    if (state === undefined) return
    const name = nodes.get(state)?.name ?? state
    const span = { spanId: spanIdAfter(event, 'node'), parentSpanId: root.span_id }
    const names = { id: name, agentName: 'launch.orchestrator', itemName: name }
    this.#start('node', event, { ...span, kind: 'node', ...names })
  }

  #takeActivity(event: LaunchEvent): void {
    switch (event.type) {
      case 'WORK_ITEM_STARTED': {
        const { work_item_id: id } = event.payload
        const names = { id, agentName: `launch.worker.${workOf(id).worker}`, itemName: id }
        const context = { work_item_id: id }
        this.#start(`worker ${id}`, event, { ...spanOf(event), kind: 'worker', ...names, context })
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
        return
      case 'GATE_RUN_STARTED': {
        const { gate } = event.payload
        const n = 1 + (this.#gateRuns.get(gate) ?? 0)
        this.#gateRuns.set(gate, n)
        const names = { id: `${gate}-${n}`, agentName: `launch.gate.${gate}`, itemName: gate }
        this.#start(`gate ${gate}`, event, { ...spanOf(event), kind: 'gate', ...names })
        return
      }
      case 'GATE_RUN_FINISHED': {
        const { gate, ok, issues } = event.payload
        const end: End = ok ? { status: 'success' } : { status: 'failure', error: `${issues} issues` }
        this.#close(`gate ${gate}`, event, { ...end, metrics: { issues } })
        return
      }
      case 'LLM_CALL_STARTED': {
        const call = callStart(event.payload, spanOf(event), timeOf(event))
        this.#opened(`llm ${call.callId}`, event, spanOf(event), false)
        this.#tell(telemetry => telemetry.llmStarted(call))
        return
      }
      case 'LLM_CALL_FINISHED':
      case 'LLM_CALL_FAILED': {
        const call = { ...callEnd(event.payload, spanOf(event)), endedAt: timeOf(event) }
        this.#children.delete(`llm ${call.callId}`)
        this.#tell(telemetry => telemetry.llmFinished(call))
      }
    }
  }

  #commit(event: LaunchEvent, commit_hash: string): void {
    if (!/^[0-9a-f]{7,40}$/i.test(commit_hash)) {
      this.#warn(`telemetry accepts commits of 7 to 40 hex digits: ${commit_hash} is not recorded`)
      return
    }
    const span = { spanId: spanIdAfter(event, 'commit'), parentSpanId: event.span_id }
    const commit = { commit_hash, commit_source: 'llm' as const, startedAt: timeOf(event) }
    this.#tell(telemetry => telemetry.commitMade({ ...span, ...commit }))
  }

  #endBy(event: LaunchEvent, root: LaunchEvent, end: End, isRecalled: boolean): void {
    this.#closeAll(event, end)
    if (isRecalled) return
    const status: LaunchEnd['status'] =
      end.status === 'success' || end.status === 'cancelled' ? end.status : 'failure'
    const endedAt = timeOf(event)
    const last = { ...end, status, endedAt, durationMs: endedAt - timeOf(root), items: { ...this.#items } }
    // The children's records come first: the parent's end is the last one.
    this.#end = this.#allTold().then(async () => this.#safely((await this.#telemetry)?.launchEnded(last)))
  }

  #start(key: string, event: LaunchEvent, child: ChildStart): void {
    const { spanId, parentSpanId } = child
    const span = parentSpanId === undefined ? { spanId } : { spanId, parentSpanId }
    this.#opened(key, event, span, child.kind === 'worker')
    this.#tell(telemetry => telemetry.childStarted({ ...child, startedAt: timeOf(event) }))
  }

  #opened(key: string, event: LaunchEvent, span: Span, isWorker: boolean): void {
    this.#children.set(key, { isWorker, span, startedAt: timeOf(event) })
  }

  #close(key: string, event: LaunchEvent, end: End): void {
    const child = this.#children.get(key)
    if (child === undefined) return
    this.#children.delete(key)
    const endedAt = timeOf(event)
    const times = { endedAt, durationMs: endedAt - child.startedAt }
    this.#tell(telemetry => telemetry.childEnded({ ...child.span, ...end, ...times }))
  }

  /** Closes children, the innermost first. */
  #closeAll(event: LaunchEvent, end: End, isMeant: (child: OpenChild) => boolean = () => true): void {
    for (const [key, child] of [...this.#children].reverse()) {
      if (isMeant(child)) this.#close(key, event, end)
    }
  }

  /** Calls are made in order, and the client keeps the order. No call waits for the one before. */
  #tell(work: (telemetry: LaunchTelemetry) => Promise<void>): void {
    const told = this.#safely(this.#telemetry?.then(work))
    this.#pending.add(told)
    void told.then(() => this.#pending.delete(told))
  }

  /** N11: a failure is a warning. */
  async #safely(work: Promise<void> | undefined): Promise<void> {
    try {
      await work
    } catch (error) {
      this.#warn(`telemetry failed: ${String(error)}`)
    }
  }

  /** Flushes the outbox, and records how far the service was told. */
  #flushUpTo(events: number): void {
    const before = this.#allTold()
    this.#tell(async telemetry => {
      await telemetry.flush()
      await before
      if (!telemetry.hasLost) await this.#told.advance(events)
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

function failed(failure: LaunchFailure): End {
  const { outcome } = outcomeOf(failure)
  return { status: outcome, error: `${failure.code}: ${failure.message}` }
}
