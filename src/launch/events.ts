import type { SectionState } from './states.ts'

/** The events of a launch, as they are on disk: names and words are the contract's. */

export type Severity = 'info' | 'warn' | 'error' | 'blocker'

export interface IssueLocation {
  readonly path?: string
  readonly line?: number
  readonly column?: number
}

/** Something that a gate has found wrong. */
export interface Issue {
  readonly issue_id: string
  readonly gate: string
  readonly severity: Severity
  readonly message: string
  readonly error_code?: string
  readonly files?: readonly string[]
  readonly location?: IssueLocation
  readonly suggested_fix?: string
}

export interface LaunchFailure {
  readonly code: string
  readonly message: string
  readonly retryable: boolean
}

/** An artifact by its name, with the hash that it had. */
export interface ArtifactRef {
  readonly name: string
  readonly sha256: string
}

export interface ClonedInput {
  readonly name: string
  readonly ref: string
  readonly sha256?: string
}

export interface PullRequest {
  readonly branch: string
  readonly commit_sha: string
  readonly url?: string
}

interface WorkItemName {
  readonly work_item_id: string
}

export interface LlmCallStarted {
  readonly call_id: string
  readonly model: string
  readonly provider_base_url: string
  readonly prompt_hash: string
  readonly input_hash: string
  readonly tool_schema_hash: string
  readonly temperature?: number
  readonly max_tokens?: number
}

export interface TokenUsage {
  readonly input_tokens: number
  readonly output_tokens: number
  readonly total_tokens: number
}

export interface LlmCallFinished {
  readonly call_id: string
  readonly latency_ms: number
  readonly token_usage: TokenUsage
  readonly finish_reason: string
  readonly output_hash: string
  readonly attempts: number
  readonly cached: boolean
  readonly api_cost_usd?: number
}

export interface LlmCallFailed {
  readonly call_id: string
  readonly error_class: string
  readonly error_summary: string
  readonly retryable: boolean
  readonly latency_ms: number
  readonly attempts: number
}

/** What each type of event says. */
export interface LaunchPayloads {
  readonly RUN_CREATED: {
    readonly run_id: string
    readonly launch: string
    readonly launch_version: string
    readonly run_config: { readonly [name: string]: unknown }
  }
  readonly INPUTS_CLONED: { readonly inputs: readonly ClonedInput[] }
  readonly ARTIFACT_WRITTEN: {
    readonly name: string
    readonly path: string
    readonly sha256: string
    readonly schema_id: string
    readonly writer_worker: string
  }
  readonly WORK_ITEM_QUEUED: {
    readonly work_item_id: string
    readonly worker: string
    readonly scope_key: string
    readonly attempt: number
    readonly inputs: readonly ArtifactRef[]
  }
  readonly WORK_ITEM_STARTED: WorkItemName
  readonly WORK_ITEM_FINISHED: WorkItemName & { readonly outputs: readonly ArtifactRef[] }
  readonly WORK_ITEM_FAILED: WorkItemName & { readonly error: LaunchFailure }
  readonly WORK_ITEM_SKIPPED: WorkItemName & { readonly reason: string }
  readonly GATE_RUN_STARTED: { readonly gate: string }
  readonly GATE_RUN_FINISHED: { readonly gate: string; readonly ok: boolean; readonly issues: number }
  readonly ISSUE_OPENED: { readonly issue: Issue }
  readonly ISSUE_RESOLVED: { readonly issue_id: string }
  readonly RUN_STATE_CHANGED: { readonly old_state: string; readonly new_state: string }
  readonly SECTION_STATE_CHANGED: {
    readonly section: string
    readonly old_state: SectionState
    readonly new_state: SectionState
  }
  readonly PR_OPENED: PullRequest
  readonly RUN_COMPLETED: Readonly<Record<string, never>>
  readonly RUN_FAILED: { readonly error: LaunchFailure }
  readonly RUN_CANCELLED: { readonly reason: string }
  readonly RUN_PAUSED: { readonly reason?: string }
  readonly RUN_RESUMED: { readonly from_state: string; readonly cause: 'resume' | 'unpause' }
  readonly RESUME_REWIND: { readonly from_state: string; readonly to_state: string }
  readonly RUN_RESTARTED: { readonly generation: number; readonly from_state: string }
  readonly LLM_CALL_STARTED: LlmCallStarted
  readonly LLM_CALL_FINISHED: LlmCallFinished
  readonly LLM_CALL_FAILED: LlmCallFailed
}

export type LaunchEventType = keyof LaunchPayloads
/** Those that a worker may append itself. */
export type LlmEventType = Extract<LaunchEventType, `LLM_CALL_${string}`>

interface EventOf<T extends LaunchEventType> {
  readonly event_id: string
  readonly run_id: string
  /** RFC 3339; never before that of the event before it. */
  readonly ts: string
  readonly type: T
  readonly payload: LaunchPayloads[T]
  /** 32 hex digits, the same for all events of a run. */
  readonly trace_id: string
  /** 16 hex digits. */
  readonly span_id: string
  readonly parent_span_id?: string
  /** The hash of the event before it; empty for the first. */
  readonly prev_hash: string
  readonly event_hash: string
}

/** A line of a launch's log: by its type one knows its payload. */
export type LaunchEvent = { readonly [T in LaunchEventType]: EventOf<T> }[LaunchEventType]

/** Any event, before its type was looked at. */
export type AnyLaunchEvent = EventOf<LaunchEventType>
