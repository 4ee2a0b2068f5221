import type { ByteString } from '../core/bytes.ts'
import { recordsOf } from '../engine/indexes.ts'
import { pages } from '../engine/pages.ts'
import type { Range, Reader } from '../engine/storage.ts'
import type { TelemetryStatus } from './model.ts'
import type { RunRecord } from './run-record.ts'
import { parseTime } from './run-time.ts'
import { BY_AGENT, BY_JOB, BY_PARENT, BY_RUN, BY_STATUS, BY_TIME, recordOf, runsRange } from './stored-run.ts'

/** Which runs; times are milliseconds since 1970. */
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

/** In the order of preference: the index that leads to the fewest runs, most likely. */
const INDEX_OF_FILTER = [
  ['run_id', BY_RUN],
  ['parent_run_id', BY_PARENT],
  ['agent_name', BY_AGENT],
  ['job_type', BY_JOB],
  ['status', BY_STATUS],
] as const

/** Newest created_at first, the later insert first where they are equal. */
export async function selectRuns(
  reader: Reader,
  scope: ByteString,
  selection: RunSelection,
): Promise<RunRecord[]> {
  const { range, isExact } = planOf(scope, selection)
  const { limit } = selection
  let skip = selection.offset
  const found: RunRecord[] = []
  // Without another filter the index alone says which runs are skipped, and how many are needed.
  const wanted = isExact ? { ...range, limit: skip + limit } : range
  for await (const page of pages(reader, { ...wanted, reverse: true })) {
    let keys = page.map(({ key }) => key)
    if (isExact) {
      const skipped = Math.min(skip, keys.length)
      keys = keys.slice(skipped)
      skip -= skipped
    }
    for (const entry of await recordsOf(reader, range, keys)) {
      const run = recordOf(entry)
      if (!isExact && !matches(run, selection)) continue
      if (!isExact && skip > 0) {
        skip--
        continue
      }
      found.push(run)
      if (found.length === limit) return found
    }
  }
  return found
}

interface Plan {
  readonly range: Range
  /** Whether all in the range is selected. */
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

function matches(run: RunRecord, selection: RunSelection): boolean {
  const { start_time_from: from, start_time_to: to } = selection
  if (!INDEX_OF_FILTER.every(([name]) => selection[name] === undefined || run[name] === selection[name])) {
    return false
  }
  const start = parseTime(run.start_time) as number
  return (from === undefined || start >= from) && (to === undefined || start <= to)
}
