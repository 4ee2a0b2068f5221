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

/** What the code of a launch gets to work with, and what programs plug into a launch. */

/** Where a client of a model writes its events. */
export interface LaunchEvents {
  /** Appends an event. Resolves once it is durable. */
  append<T extends LlmEventType>(type: T, payload: LaunchPayloads[T], options?: Spans): Promise<LaunchEvent>
}

/** What a client of a model is created with. Each work item and each run of a gate gets a client of its own. */
export interface LlmContext {
  /** The id of the run. */
  readonly runId: string
  /** 1, or more after forced restarts. */
  readonly generation: number
  /** The trace of the run: 32 hex digits. */
  readonly traceId: string
  /** The span of the worker or the gate: the parent of its calls. */
  readonly spanId: string
  /** The run's folder, for evidence. */
  readonly folder: string
  /** Aborts when the worker or the gate has ended or is cancelled. */
  readonly signal: AbortSignal
  /** Takes the events about the calls. */
  readonly events: LaunchEvents
  /** Returns a new span id. */
  newSpanId(): string
}

/** Creates a client of a model for a worker or a gate. */
export type LlmFactory = (context: LlmContext) => LlmClient

/** The artifacts of a run, to read. */
export interface ReadableArtifacts {
  /** Whether the run has an artifact of that name. */
  has(name: string): boolean
  /** The sorted names of all artifacts that start with the prefix. */
  names(prefix?: string): readonly string[]
  /** The content of an artifact. `CORRUPT` if the file does not have the recorded hash. */
  read(name: string): Buffer
  /** The content as text. */
  readText(name: string): string
  /** The content, parsed as JSON. */
  readJson(name: string): unknown
}

/** Options of `artifacts.write`. */
export interface WriteArtifactOptions {
  /** Names the format of the content; `application/octet-stream` by default. */
  readonly schemaId?: string
}

/** The artifacts of a run, to read and write. */
export interface WritableArtifacts extends ReadableArtifacts {
  /** Writes an artifact. Resolves once file and event are durable. The name is a path in the folder `artifacts`. */
  write(name: string, content: string | Uint8Array, options?: WriteArtifactOptions): Promise<ArtifactRef>
}

/** What nodes, workers and gates get. */
export interface RunContext {
  /** The id of the run. */
  readonly runId: string
  /** The configuration that the run was started with. */
  readonly config: { readonly [name: string]: unknown }
  /** The path of the run's folder. A worker may keep folders of its own there. */
  readonly folder: string
  /** Aborts when the run is cancelled, and when a worker's or a gate's time is up. */
  readonly signal: AbortSignal
}

/** What a worker gets. A worker may run twice for the same work if its process dies, so it must be idempotent. */
export interface WorkerContext extends RunContext {
  /** The id of the work item. */
  readonly workItemId: string
  /** What the work is about; `-` without a scope. */
  readonly scope: string
  /** Counted from 1 for this worker and scope. */
  readonly attempt: number
  /** The trace of the run: 32 hex digits. */
  readonly traceId: string
  /** The span of this attempt: 16 hex digits. */
  readonly spanId: string
  /** The artifacts of the run. Those that the worker writes are its outputs. */
  readonly artifacts: WritableArtifacts
  /** Takes events about calls of models that a client of your own makes. */
  readonly events: LaunchEvents
  /** The models of the launch's option `llm`. `ILLEGAL_STATE` without that option. */
  readonly llm: LlmClient
}

/** What a gate gets. */
export interface GateContext extends RunContext {
  /** The artifacts that the gate examines. */
  readonly artifacts: ReadableArtifacts
  /** The models of the launch's option `llm`. `ILLEGAL_STATE` without that option. */
  readonly llm: LlmClient
}

/** The input of a launch's fixer. */
export interface FixInput {
  /** The issue to fix. */
  readonly issue: Issue
  /** Counted from 1 for this issue. */
  readonly fixAttempt: number
}

/** What a node gets, without the types of its launch. */
export interface AnyNodeContext extends RunContext, DocsMethods {
  /** The artifacts of the run. */
  readonly artifacts: ReadableArtifacts
  /** Runs a worker, or returns its recorded result. */
  work(worker: string, options?: AnyWorkOptions): Promise<unknown>
  /** Runs all gates. */
  validate(): Promise<{ readonly ok: boolean; readonly issues: readonly Issue[] }>
  /** Runs the fixer on the worst issue that blocks the run. */
  fix(): Promise<void>
}

/** Options of `work`, without the types of its launch. */
export interface AnyWorkOptions {
  /** What the work is about; `-` by default. */
  readonly scope?: string
  /** What the worker gets. */
  readonly input?: unknown
  /** The artifacts that the worker reads. */
  readonly inputs?: readonly string[]
}

/** A node, a worker or a gate that has started. */
export interface Activity {
  /** The name of the node, the worker or the gate. */
  readonly name: string
  /** Distinguishes it from other activities of that name in the run. */
  readonly id: string
  /** The span of the activity. */
  readonly spanId: string
  /** The span in which it was started. */
  readonly parentSpanId?: string
  /** Milliseconds since 1970. */
  readonly startedAt: number
}

/** A node, a worker, a gate or a launch that has ended. */
export interface FinishedActivity extends Activity {
  /** How it ended. */
  readonly outcome: 'success' | 'failure' | 'cancelled' | 'timeout'
  /** How long it took. */
  readonly durationMs: number
  /** Why it failed. */
  readonly error?: LaunchFailure
}

/** A run that a process has started to work on. */
export interface LaunchDescription {
  /** The id of the run. */
  readonly runId: string
  /** The name of the launch. */
  readonly launch: string
  /** The version of the launch that created the run. */
  readonly launchVersion: string
  /** 1, or more after forced restarts. */
  readonly generation: number
  /** The path of the run's folder. */
  readonly folder: string
  /** The trace of the run: 32 hex digits. */
  readonly traceId: string
  /** The root span of the run: 16 hex digits. */
  readonly spanId: string
  /** Whether another process worked on the run before. */
  readonly isResumed: boolean
  /** When this process started to work on it, in milliseconds since 1970. */
  readonly startedAt: number
}

/**
 * Watches a launch. An observer that throws or rejects causes a warning and does not affect the run. The run waits for the
 * promise of `launchEnded`, and for no other.
 */
export interface LaunchObserver {
  /** This process starts to work on the run. */
  launchStarted?(launch: LaunchDescription): unknown
  /** This process has ended its work on the run. */
  launchEnded?(launch: LaunchDescription, end: FinishedActivity): unknown
  /** A node starts. */
  nodeStarted?(node: Activity): unknown
  /** A node has ended. */
  nodeFinished?(node: FinishedActivity): unknown
  /** A worker starts an attempt. */
  workerStarted?(worker: Activity): unknown
  /** A worker has ended an attempt. */
  workerFinished?(worker: FinishedActivity): unknown
  /** A gate starts. */
  gateStarted?(gate: Activity): unknown
  /** A gate has ended. Its outcome is `failure` if it found an error or a blocker. */
  gateFinished?(gate: FinishedActivity): unknown
  /** A call of a model starts. */
  llmStarted?(event: Extract<LaunchEvent, { type: 'LLM_CALL_STARTED' }>): unknown
  /** A call of a model has ended. */
  llmFinished?(event: Extract<LaunchEvent, { type: 'LLM_CALL_FINISHED' | 'LLM_CALL_FAILED' }>): unknown
  /** The run has reached a state from which it can be resumed. */
  stableState?(state: string): unknown
  /** An event is durable. The first one has the index 1. */
  eventAppended?(event: LaunchEvent, index: number): unknown
}
