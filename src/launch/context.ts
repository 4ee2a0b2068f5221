import type { DocsMethods } from './docs/pipeline.ts'
import type {
  ArtifactRef,
  Issue,
  LaunchEvent,
  LaunchFailure,
  LaunchPayloads,
  LlmEventType,
} from './events.ts'
import type { Spans } from './journal.ts'
import type { LlmClient } from './llm/llm.ts'

/** What the code of a user is given, and what others plug into a launch. */

/** Where a client of a model writes what it does. */
export interface LaunchEvents {
  append<T extends LlmEventType>(type: T, payload: LaunchPayloads[T], options?: Spans): Promise<LaunchEvent>
}

/** What a client of a model is made with: one for each work item, and each run of a gate. */
export interface LlmContext {
  readonly runId: string
  readonly generation: number
  readonly traceId: string
  /** Of the worker or the gate: the parent of the spans of its calls. */
  readonly spanId: string
  /** The run's folder, for evidence. */
  readonly folder: string
  /** Aborts when whoever asks has ended, or was called off. */
  readonly signal: AbortSignal
  readonly events: LaunchEvents
  newSpanId(): string
}

export type LlmFactory = (context: LlmContext) => LlmClient

export interface ReadableArtifacts {
  has(name: string): boolean
  /** Of all that start with the prefix, sorted. */
  names(prefix?: string): readonly string[]
  /** The bytes, compared with the hash that was recorded; `CORRUPT` if somebody changed the file. */
  read(name: string): Buffer
  readText(name: string): string
  readJson(name: string): unknown
}

export interface WriteArtifactOptions {
  /** What its content is like; `application/octet-stream` without it. */
  readonly schemaId?: string
}

export interface WritableArtifacts extends ReadableArtifacts {
  /** Durable, and in the log, once it resolves. The name is also the file's, in the folder `artifacts`. */
  write(name: string, content: string | Uint8Array, options?: WriteArtifactOptions): Promise<ArtifactRef>
}

interface RunContext {
  readonly runId: string
  readonly config: { readonly [name: string]: unknown }
  /** The run's folder: a worker may have folders of its own there. */
  readonly folder: string
  /** Aborts when the run is cancelled, and for a worker when its time is up. */
  readonly signal: AbortSignal
}

/** What a worker gets. It may run more than once for the same thing, if a process dies: what it does must bear that. */
export interface WorkerContext extends RunContext {
  readonly workItemId: string
  readonly scope: string
  readonly attempt: number
  readonly traceId: string
  readonly spanId: string
  readonly artifacts: WritableArtifacts
  readonly events: LaunchEvents
  /** Models, as the launch's option `llm` says; `ILLEGAL_STATE` without it. */
  readonly llm: LlmClient
}

export interface GateContext extends RunContext {
  readonly artifacts: ReadableArtifacts
  /** Models, as the launch's option `llm` says; `ILLEGAL_STATE` without it. */
  readonly llm: LlmClient
}

export interface FixInput {
  readonly issue: Issue
  /** From 1. */
  readonly fixAttempt: number
}

/** What a node gets, whatever the types of its launch. */
export interface AnyNodeContext extends RunContext, DocsMethods {
  readonly artifacts: ReadableArtifacts
  work(worker: string, options?: AnyWorkOptions): Promise<unknown>
  validate(): Promise<{ readonly ok: boolean; readonly issues: readonly Issue[] }>
  fix(): Promise<void>
}

export interface AnyWorkOptions {
  /** What the work is about; the same worker can do the same for many. */
  readonly scope?: string
  /** What the worker gets. */
  readonly input?: unknown
  /** Names of artifacts that it reads: once one of them changes, finished work is out of date. */
  readonly inputs?: readonly string[]
}

export interface Activity {
  readonly name: string
  /** What tells it apart from others of that name in the run. */
  readonly id: string
  readonly spanId: string
  readonly parentSpanId?: string
  /** Milliseconds since 1970. */
  readonly startedAt: number
}

export interface FinishedActivity extends Activity {
  readonly outcome: 'success' | 'failure' | 'cancelled' | 'timeout'
  readonly durationMs: number
  readonly error?: LaunchFailure
}

export interface LaunchDescription {
  readonly runId: string
  readonly launch: string
  readonly launchVersion: string
  readonly generation: number
  readonly folder: string
  readonly traceId: string
  readonly spanId: string
  readonly isResumed: boolean
  readonly startedAt: number
}

/**
 * Who wants to see a launch at work. Nothing that it throws, and no promise of its that is rejected, has a part in the
 * run: it is reported as a warning. The promise of `launchEnded` is waited for, others are not.
 */
export interface LaunchObserver {
  launchStarted?(launch: LaunchDescription): unknown
  launchEnded?(launch: LaunchDescription, end: FinishedActivity): unknown
  nodeStarted?(node: Activity): unknown
  nodeFinished?(node: FinishedActivity): unknown
  workerStarted?(worker: Activity): unknown
  workerFinished?(worker: FinishedActivity): unknown
  gateStarted?(gate: Activity): unknown
  gateFinished?(gate: FinishedActivity): unknown
  llmStarted?(event: Extract<LaunchEvent, { type: 'LLM_CALL_STARTED' }>): unknown
  llmFinished?(event: Extract<LaunchEvent, { type: 'LLM_CALL_FINISHED' | 'LLM_CALL_FAILED' }>): unknown
  /** The run has come to a state in which it could go on after a crash. */
  stableState?(state: string): unknown
  /** Each event, once it is durable; the first is 1. */
  eventAppended?(event: LaunchEvent, index: number): unknown
}
