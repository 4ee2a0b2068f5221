import { sha256Hex } from '../core/hash.ts'
import { isUuidV4, newId } from '../core/id.ts'
import { formatRfc3339, parseRfc3339 } from '../core/time.ts'

/** A TelemetryRun, in the words of the service's interface. */

export type TelemetryStatus = 'running' | 'success' | 'failure' | 'partial' | 'timeout' | 'cancelled'

export const TELEMETRY_STATUSES: readonly TelemetryStatus[] = [
  'running',
  'success',
  'failure',
  'partial',
  'timeout',
  'cancelled',
]

export type JsonMap = Readonly<Record<string, unknown>>

export interface TelemetryRun {
  /** A UUID v4; the same when it is sent again. */
  readonly event_id: string
  /** Says what it is about, and holds no randomness. */
  readonly run_id: string
  readonly agent_name: string
  readonly job_type: string
  readonly start_time: string
  readonly parent_run_id?: string
  readonly status?: TelemetryStatus
  readonly end_time?: string
  readonly duration_ms?: number
  readonly item_name?: string
  readonly items_succeeded?: number
  readonly items_failed?: number
  readonly items_skipped?: number
  readonly input_summary?: string
  readonly output_summary?: string
  readonly error_summary?: string
  readonly error_details?: string
  readonly host?: string
  readonly environment?: string
  readonly trigger_type?: string
  readonly metrics_json?: JsonMap
  readonly context_json?: JsonMap
  readonly api_posted?: boolean
}

export interface TelemetryPatch {
  readonly status?: TelemetryStatus
  readonly end_time?: string
  readonly duration_ms?: number
  readonly items_succeeded?: number
  readonly items_failed?: number
  readonly items_skipped?: number
  readonly output_summary?: string
  readonly error_summary?: string
  readonly error_details?: string
  readonly metrics_json?: JsonMap
  readonly context_json?: JsonMap
  /** Not a field that a PATCH changes: it tells who reads the outbox. */
  readonly api_posted?: boolean
}

/** One request to the service, as it stands in the outbox. */
export interface TelemetryRecord {
  readonly method: 'POST' | 'PATCH'
  /** The path alone: which service, and with which token, is known only when it is sent. */
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

export interface Commit {
  /** 7 to 40 hex digits. */
  readonly commit_hash: string
  readonly commit_source: 'manual' | 'llm' | 'ci'
  readonly commit_author?: string
  readonly commit_timestamp?: string
}

export function associateCommit(eventId: string, commit: Commit, now: number): TelemetryRecord {
  const endpoint = `${RUNS}/${eventId}/associate-commit`
  return { method: 'POST', endpoint, payload: commit, timestamp: formatRfc3339(now) }
}

const ENDPOINT = /^\/api\/v1\/runs(?:\/([0-9a-f-]{36})(\/associate-commit)?)?$/i

/**
 * The record that a line of an outbox holds, or in words why it holds none. The line comes from a file that anybody may
 * have written: an endpoint that is no path of the service would take the token elsewhere.
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
    return 'endpoint is none of the service'
  if ((method === 'PATCH') !== (match[1] !== undefined && match[2] === undefined)) {
    return `endpoint does not take ${method}`
  }
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload))
    return 'payload is not an object'
  if (typeof timestamp !== 'string' || parseRfc3339(timestamp, { offset: 'any' }) === undefined) {
    return 'timestamp is no time'
  }
  return value as TelemetryRecord
}

/**
 * The UUID of the record about a span. It follows from the ids that the run's log has, so that a launch that was
 * resumed speaks of the same records, and posting one again is a duplicate. Trace ids are random, hence so is this.
 */
export function eventIdOf(traceId: string, spanId: string): string {
  const bytes = Buffer.from(sha256Hex(`annals:telemetry:1|${traceId}|${spanId}`), 'hex')
  return newId(count => bytes.subarray(0, count))
}

export type ChildKind = 'node' | 'worker' | 'gate' | 'llm' | 'commit' | 'telemetry'

/** TD8. */
export function childRunId(parentRunId: string, kind: ChildKind, id: string): string {
  return `${parentRunId}-${kind}-${id}`.replaceAll(':', '.')
}

/** TD8: `20261115T033000Z`, for a start time in an id. */
export function utcInId(ms: number): string {
  return `${formatRfc3339(Math.floor(ms)).slice(0, 19).replace(/[-:]/g, '')}Z`
}

/** What the service learns of records that were given up. */
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
    error_details: `the outbox was full: its oldest ${dropped} records were given up`,
    ...(runId === undefined ? {} : { parent_run_id: runId }),
  }
}
