import type { ByteString } from '../core/bytes.ts'
import { idOfIndexKey } from '../engine/indexes.ts'
import { pages } from '../engine/pages.ts'
import type { Range, Reader } from '../engine/storage.ts'
import type { TelemetryStatus } from './model.ts'
import { recordsInTurn } from './records-in-turn.ts'
import type { RunRecord } from './run-record.ts'
import { parseTime } from './run-time.ts'
import { BY_AGENT, BY_JOB, BY_PARENT, BY_RUN, BY_STATUS, BY_TIME, runsRange } from './stored-run.ts'

/** Filters for runs. Times are milliseconds since 1970. */
export interface RunSelection {
  readonly agent_name?: string
  readonly job_type?: string
  readonly status?: TelemetryStatus
  readonly parent_run_id?: string
  readonly run_id?: string
  /** Exclusive, both. */
  readonly created_after?: number
  readonly created_before?: number
  /** Inclusive, both. */
  readonly start_time_from?: number
  readonly start_time_to?: number
  readonly limit: number
  readonly offset: number
}

/** The indexes, the most selective first. */
const INDEX_OF_FILTER = [
  ['run_id', BY_RUN],
  ['parent_run_id', BY_PARENT],
  ['agent_name', BY_AGENT],
  ['job_type', BY_JOB],
  ['status', BY_STATUS],
] as const

/** The ids of matching runs, the newest `created_at` first; of equal times the later insert first. */
export async function selectRuns(
  reader: Reader,
  scope: ByteString,
  selection: RunSelection,
): Promise<ByteString[]> {
  const { range, isExact } = planOf(scope, selection)
  const { limit, offset } = selection
  const last = offset + limit
  const found: ByteString[] = []
  // With one filter at most, the index alone decides.
  for await (const page of pages(reader, { ...range, reverse: true, limit: isExact ? last : undefined })) {
    const ids = page.map(({ key }) => idOfIndexKey(key)).filter(id => id !== undefined)
    if (isExact) {
      found.push(...ids)
      continue
    }
    for await (const { id, run } of recordsInTurn(reader, scope, ids)) {
      if (!matches(run, selection)) continue
      found.push(id)
      if (found.length === last) return found.slice(offset)
    }
  }
  return found.slice(offset)
}

interface Plan {
  readonly range: Range
  /** Whether every run of the range matches. */
  readonly isExact: boolean
}

function planOf(scope: ByteString, selection: RunSelection): Plan {
  const { created_after: after, created_before: before } = selection
  const filters = INDEX_OF_FILTER.filter(([name]) => selection[name] !== undefined)
  const [name, kind] = filters[0] ?? [undefined, BY_TIME]
  const component = name === undefined ? '' : (selection[name] as string)
  const from = after === undefined ? undefined : after + 1
  const isTimed = selection.start_time_from !== undefined || selection.start_time_to !== undefined
  return { range: runsRange(scope, kind, component, from, before), isExact: filters.length <= 1 && !isTimed }
}

export function matches(run: RunRecord, selection: RunSelection): boolean {
  const { start_time_from: from, start_time_to: to } = selection
  if (!INDEX_OF_FILTER.every(([name]) => selection[name] === undefined || run[name] === selection[name])) {
    return false
  }
  const start = parseTime(run.start_time) as number
  return (from === undefined || start >= from) && (to === undefined || start <= to)
}
