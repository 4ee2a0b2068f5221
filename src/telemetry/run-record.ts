import type { JsonMap, TelemetryStatus } from './model.ts'

/** The fields of a run, as lists. The server checks, stores, shows and documents the same fields from them. */

export const REQUIRED_TEXTS = ['run_id', 'agent_name', 'job_type'] as const

/** Texts that the service only stores. */
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

/** Integers, 0 or more. */
export const COUNTS = [
  'items_discovered',
  'items_succeeded',
  'items_failed',
  'items_skipped',
  'duration_ms',
  'api_retry_count',
] as const

/** Optional times. They are stored and shown in UTC with milliseconds. */
export const OPTIONAL_TIMES = ['end_time', 'api_posted_at'] as const

export const JSON_FIELDS = ['metrics_json', 'context_json'] as const

export const COMMIT_SOURCES = ['manual', 'llm', 'ci'] as const

/** Fields of a commit. A POST does not accept them: a commit is associated afterwards. */
const COMMIT_FIELDS = ['git_commit_source', 'git_commit_author', 'git_commit_timestamp'] as const

/** The fields that a PATCH may change. */
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

/** A valid posted run: times in UTC with milliseconds, JSON as objects. */
export interface NewRun extends Texts, Counts, Times, Jsons {
  /** A UUID v4. Upper and lower case are equal. */
  readonly event_id: string
  readonly run_id: string
  readonly agent_name: string
  readonly job_type: string
  readonly start_time: string
  readonly status: TelemetryStatus
  /** The time at which the run is stored, by default. */
  readonly created_at?: string
  readonly api_posted?: boolean
}

/** A stored run. */
export interface RunRecord extends NewRun, CommitOfRun {
  readonly created_at: string
}

/** Changes of a stored run. Each field is replaced as a whole; undefined removes it. */
export type RunChange = {
  readonly [F in (typeof PATCHED_FIELDS)[number] | 'git_commit_hash']?: RunRecord[F] | undefined
}

export function changedRun(run: RunRecord, change: RunChange): RunRecord {
  const fields = Object.entries({ ...run, ...change }).filter(([, value]) => value !== undefined)
  return Object.fromEntries(fields) as unknown as RunRecord
}

/** All fields, in the order in which they are shown. */
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

/** The most bytes of a name by which runs are found. */
export const NAME_BYTES_MAX = 1024

/** Whether runs can be found by this name. Index keys contain U+0000, so a name must not. */
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

/** Other names of statuses. */
export const STATUS_ALIASES: readonly string[] = Object.keys(ALIASES)

/** The status of an alias; any other text unchanged. */
export function foldStatus(status: string): string {
  return Object.hasOwn(ALIASES, status) ? ALIASES[status] : status
}
