import { sha256Hex } from '../core/hash.ts'
import { isUuidV4, newId } from '../core/id.ts'
import { formatRfc3339, parseRfc3339 } from '../core/time.ts'
import type { COMMIT_SOURCES, NewRun, PATCHED_FIELDS, RunRecord } from './run-record.ts'

export const TELEMETRY_STATUSES = [
  'running',
  'success',
  'failure',
  'partial',
  'timeout',
  'cancelled',
] as const

/** The status of a telemetry run. */
export type TelemetryStatus = 'running' | 'success' | 'failure' | 'partial' | 'timeout' | 'cancelled'

/** A JSON object of a telemetry run. */
export type JsonMap = Readonly<Record<string, unknown>>

/** A run as it is posted to the service. */
export type TelemetryRun = Omit<NewRun, 'status'> & { readonly status?: TelemetryStatus }

/** A change of a run. `api_posted` is not a field that the service changes: it informs readers of the outbox. */
export type TelemetryPatch = Partial<Pick<RunRecord, (typeof PATCHED_FIELDS)[number] | 'api_posted'>>

/** A request to the service, as the outbox stores it. */
export interface TelemetryRecord {
  readonly method: 'POST' | 'PATCH'
  /** The path only. Service and token are chosen when it is sent. */
  readonly endpoint: string
  readonly payload: object
  readonly timestamp: string
}

const RUNS = '/api/v1/runs'

export function postRun(run: TelemetryRun, now: number): TelemetryRecord {
  return { method: 'POST', endpoint: RUNS, payload: run, timestamp: formatRfc3339(now) }
}

export function patchRun(eventId: string, patch: TelemetryPatch, now: number): TelemetryRecord {
  return { method: 'PATCH', endpoint: `${RUNS}/${eventId}`, payload: patch, timestamp: formatRfc3339(now) }
}

/** A commit that runs are associated with. */
export interface Commit {
  /** 7 to 40 hex digits. */
  readonly commit_hash: string
  readonly commit_source: (typeof COMMIT_SOURCES)[number]
  readonly commit_author?: string
  readonly commit_timestamp?: string
}

export function associateCommit(eventId: string, commit: Commit, now: number): TelemetryRecord {
  const endpoint = `${RUNS}/${eventId}/associate-commit`
  return { method: 'POST', endpoint, payload: commit, timestamp: formatRfc3339(now) }
}

const ENDPOINT = /^\/api\/v1\/runs(?:\/([0-9a-f-]{36})(\/associate-commit)?)?$/i

/**
 * The record of a line of an outbox, or a text that says why the line is invalid. Any program may have written the file,
 * and a foreign endpoint must not get the token.
 */
export function readRecord(line: string): TelemetryRecord | string {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch (error) {
    if (error instanceof SyntaxError) return 'not JSON'
    throw error
  }
  if (typeof value !== 'object' || value === null) return 'not an object'
  const { method, endpoint, payload, timestamp } = value as Partial<Record<keyof TelemetryRecord, unknown>>
  if (method !== 'POST' && method !== 'PATCH') return 'method is not POST or PATCH'
  const match = typeof endpoint === 'string' ? ENDPOINT.exec(endpoint) : null
  if (match === null || (match[1] !== undefined && !isUuidV4(match[1])))
    return 'endpoint is not one of the service'
  if ((method === 'PATCH') !== (match[1] !== undefined && match[2] === undefined)) {
    return `endpoint does not take ${method}`
  }
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload))
    return 'payload is not an object'
  if (typeof timestamp !== 'string' || parseRfc3339(timestamp, { offset: 'any' }) === undefined) {
    return 'timestamp is not a time'
  }
  return value as TelemetryRecord
}

/**
 * The UUID of the record about a span. It is derived from the ids in the run's log, so a resumed launch updates the same
 * records, and posting one again is a duplicate. It is as random as the trace id.
 */
export function eventIdOf(traceId: string, spanId: string): string {
  const bytes = Buffer.from(sha256Hex(`annals:telemetry:1|${traceId}|${spanId}`), 'hex')
  return newId(count => bytes.subarray(0, count))
}

/** The kinds of records below the parent. */
export type ChildKind = 'node' | 'worker' | 'gate' | 'llm' | 'commit' | 'telemetry'

/** TD8: the run id of a child, with `.` for `:`. */
export function childRunId(parentRunId: string, kind: ChildKind, id: string): string {
  return `${parentRunId}-${kind}-${id}`.replaceAll(':', '.')
}

/** TD8: a time in an id, such as `20261115T033000Z`. */
export function utcInId(ms: number): string {
  return `${formatRfc3339(Math.floor(ms)).slice(0, 19).replace(/[-:]/g, '')}Z`
}

/** The record about records that were dropped. */
export function truncationRun(dropped: number, runId: string | undefined, now: number): TelemetryRun {
  const time = formatRfc3339(now)
  return {
    event_id: newId(),
    run_id: runId === undefined ? `telemetry-${utcInId(now)}` : childRunId(runId, 'telemetry', utcInId(now)),
    agent_name: 'launch.telemetry',
    job_type: 'telemetry',
    start_time: time,
    end_time: time,
    status: 'failure',
    items_failed: dropped,
    error_summary: 'TELEMETRY_OUTBOX_TRUNCATED',
    error_details: `the outbox was full: its oldest ${dropped} records were dropped`,
    ...(runId === undefined ? {} : { parent_run_id: runId }),
  }
}
