import type { JsonMap, TelemetryStatus } from './model.ts'

/**
 * A run as the service keeps and shows it. The fields are a table, so that
 * what is checked, stored, shown and documented is the same list.
 */

export const REQUIRED_TEXTS = ['run_id', 'agent_name', 'job_type'] as const

/** Texts without a meaning to the service. */
export const OPTIONAL_TEXTS = [
  'product',
  'product_family',
  'platform',
  'subdomain',
  'website',
  'website_section',
  'item_name',
  'input_summary',
  'output_summary',
  'source_ref',
  'target_ref',
  'error_summary',
  'error_details',
  'git_repo',
  'git_branch',
  'git_commit_hash',
  'git_run_tag',
  'host',
  'environment',
  'trigger_type',
  'insight_id',
  'parent_run_id',
] as const

/** Whole numbers, 0 or more. */
export const COUNTS = [
  'items_discovered',
  'items_succeeded',
  'items_failed',
  'items_skipped',
  'duration_ms',
  'api_retry_count',
] as const

/** Times that may be absent; kept and shown in UTC with milliseconds. */
export const OPTIONAL_TIMES = ['end_time', 'api_posted_at'] as const

export const JSON_FIELDS = ['metrics_json', 'context_json'] as const

export const COMMIT_SOURCES = ['manual', 'llm', 'ci'] as const

/** What a POST does not take: a commit is told of afterwards. */
const COMMIT_FIELDS = ['git_commit_source', 'git_commit_author', 'git_commit_timestamp'] as const

/** What a PATCH may change. */
export const PATCHED_FIELDS = [
  'status',
  'end_time',
  'duration_ms',
  'items_succeeded',
  'items_failed',
  'items_skipped',
  'output_summary',
  'error_summary',
  'error_details',
  'metrics_json',
  'context_json',
  'git_commit_source',
  'git_commit_author',
  'git_commit_timestamp',
] as const

type Texts = Partial<Readonly<Record<(typeof OPTIONAL_TEXTS)[number], string>>>
type Counts = Partial<Readonly<Record<(typeof COUNTS)[number], number>>>
type Times = Partial<Readonly<Record<(typeof OPTIONAL_TIMES)[number], string>>>
type Jsons = Partial<Readonly<Record<(typeof JSON_FIELDS)[number], JsonMap>>>

interface CommitOfRun {
  readonly git_commit_source?: (typeof COMMIT_SOURCES)[number]
  readonly git_commit_author?: string
  readonly git_commit_timestamp?: string
}

/** What was posted, checked: times in UTC with milliseconds, a status that is one, JSON as objects. */
export interface NewRun extends Texts, Counts, Times, Jsons {
  /** A UUID v4, as it was written: upper or lower case mean the same. */
  readonly event_id: string
  readonly run_id: string
  readonly agent_name: string
  readonly job_type: string
  readonly start_time: string
  readonly status: TelemetryStatus
  /** Without it, when it was stored. */
  readonly created_at?: string
  readonly api_posted?: boolean
}

export interface RunRecord extends NewRun, CommitOfRun {
  readonly created_at: string
}

/** Of these fields each replaces what is there as a whole; undefined takes it away. */
export type RunChange = {
  readonly [F in (typeof PATCHED_FIELDS)[number] | 'git_commit_hash']?: RunRecord[F] | undefined
}

export function changedRun(run: RunRecord, change: RunChange): RunRecord {
  const fields = Object.entries({ ...run, ...change }).filter(([, value]) => value !== undefined)
  return Object.fromEntries(fields) as unknown as RunRecord
}

/** Every field, in the order in which it is shown. */
export const RECORD_FIELDS: readonly (keyof RunRecord)[] = [
  'event_id',
  ...REQUIRED_TEXTS,
  'status',
  'created_at',
  'start_time',
  ...OPTIONAL_TIMES,
  ...COUNTS,
  ...OPTIONAL_TEXTS,
  ...COMMIT_FIELDS,
  ...JSON_FIELDS,
  'api_posted',
]

/** Of what runs are found by. */
export const NAME_BYTES_MAX = 1024

/** Whether a run can be found by this text: stored ones are such, and keys are put together with U+0000. */
export function isName(text: string): boolean {
  return (
    text !== '' && !text.includes('\0') && text.isWellFormed() && Buffer.byteLength(text) <= NAME_BYTES_MAX
  )
}

const ALIASES: Readonly<Record<string, TelemetryStatus>> = {
  failed: 'failure',
  completed: 'success',
  succeeded: 'success',
}

/** What others call a status. */
export const STATUS_ALIASES: readonly string[] = Object.keys(ALIASES)

/** The status that is meant by an alias; anything else as it is. */
export function foldStatus(status: string): string {
  return Object.hasOwn(ALIASES, status) ? ALIASES[status] : status
}
