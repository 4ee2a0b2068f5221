import type { FromFields, FromName } from '../core/schema.ts'
import type { DOCS_PAYLOADS, DOCS_RECORDS, DOCS_VALUES } from './docs/formats.ts'
import type { PAYLOADS, RECORDS, VALUES } from './formats.ts'

/** The types of a launch's events and snapshots. They follow from the formats, field by field. */

/** The formats that events and snapshots are made of. */
export type LaunchFormats = {
  /** Single values. */
  readonly values: typeof VALUES & typeof DOCS_VALUES
  /** Objects. */
  readonly records: typeof RECORDS & typeof DOCS_RECORDS
  /** The payloads of events. */
  readonly payloads: typeof PAYLOADS & typeof DOCS_PAYLOADS
}
/** The type of the values of a format. */
export type LaunchFormat<N extends string> = FromName<N, LaunchFormats>

/** How bad an issue is. A run can't complete with open issues that are errors or blockers. */
export type Severity = LaunchFormat<'severity'>
/** The place of an issue in a file. */
export type IssueLocation = LaunchFormat<'issue-location'>
/** A problem that a gate found. */
export type Issue = LaunchFormat<'issue'>
/** Why a work item or a run failed. */
export type LaunchFailure = LaunchFormat<'failure'>
/** The name of an artifact and the hash of its content at that time. */
export type ArtifactRef = LaunchFormat<'artifact-ref'>
/** An input of a run, and where it came from. */
export type ClonedInput = LaunchFormat<'cloned-input'>
/** A pull request that a run opened. */
export type PullRequest = LaunchFormat<'pull-request'>
/** How many tokens a model read and wrote. */
export type TokenUsage = LaunchFormat<'token-usage'>
/** An artifact in a snapshot. */
export type ArtifactEntry = LaunchFormat<'artifact'>
/** An artifact with its name. */
export type NamedArtifact = ArtifactEntry & { readonly name: string }
/** One execution of a worker on a scope. A retry is another work item. */
export type WorkItem = LaunchFormat<'work-item'>
/** The status of a work item. */
export type WorkItemStatus = LaunchFormat<'item-status'>
/** An issue, and whether it is still open. */
export type TrackedIssue = LaunchFormat<'tracked-issue'>
/** The result of a gate's last run. */
export type GateResult = LaunchFormat<'gate-result'>
/** The part of the log that a snapshot covers. It seals the ids that the hash chain leaves out, and reveals a lost end. */
export type LogSeal = LaunchFormat<'seal'>
/** `snapshot.json`: the state of a run after an event of its log. */
export type LaunchSnapshot = LaunchFormat<'snapshot'>

/** The payload of each event type. */
export type LaunchPayloads = {
  readonly [T in keyof LaunchFormats['payloads']]: FromFields<LaunchFormats['payloads'][T], LaunchFormats>
}
/** The start of a call of a model. */
export type LlmCallStarted = LaunchPayloads['LLM_CALL_STARTED']
/** The end of a call that a model answered. */
export type LlmCallFinished = LaunchPayloads['LLM_CALL_FINISHED']
/** The end of a call that failed. */
export type LlmCallFailed = LaunchPayloads['LLM_CALL_FAILED']

/** The type of an event. */
export type LaunchEventType = keyof LaunchPayloads
/** The event types that workers and gates may append: those about calls of models. */
export type LlmEventType = Extract<LaunchEventType, `LLM_CALL_${string}`>

/** An event of a type. */
export type LaunchEventOf<T extends LaunchEventType> = Omit<LaunchFormat<'event'>, 'type' | 'payload'> & {
  readonly type: T
  readonly payload: LaunchPayloads[T]
}
/** A line of a launch's log. Its `type` tells the type of its payload. */
export type LaunchEvent = { readonly [T in LaunchEventType]: LaunchEventOf<T> }[LaunchEventType]
/** An event whose type was not examined yet. */
export type AnyLaunchEvent = LaunchEventOf<LaunchEventType>
