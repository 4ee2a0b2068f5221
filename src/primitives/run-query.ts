import { type ByteString, utf8 } from '../core/bytes.ts'
import { checkLimit, checkTime } from '../core/numbers.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import { checkTags, checkText } from '../core/text.ts'
import { indexKey, indexRange, timeOfIndexKey } from '../engine/indexes.ts'
import type { Range, TreeId } from '../engine/storage.ts'
import { checkStatus, type Run, type RunStatus } from './run.ts'
import { BY_PARENT, BY_STATUS, BY_TAG, BY_TIME } from './run-records.ts'

export interface RunQuery {
  readonly status?: RunStatus
  /** All of them must be there. */
  readonly tags?: readonly string[]
  /** Inclusive; milliseconds since 1970. */
  readonly createdAfter?: number
  /** Exclusive. */
  readonly createdBefore?: number
  readonly parentRun?: string
  readonly includeArchived?: boolean
  /** A positive integer; without it all come. */
  readonly limit?: number
  /** A run id, exclusive: goes on behind this run. */
  readonly after?: string
}

/** Which index to read, and what to look for in what it leads to. */
export interface RunPlan {
  readonly range: Range
  readonly wanted: (run: Run) => boolean
  readonly limit: number | undefined
}

const OPTIONS: readonly (keyof RunQuery)[] = [
  'status',
  'tags',
  'createdAfter',
  'createdBefore',
  'parentRun',
  'includeArchived',
  'limit',
  'after',
]

/** Every index is ordered by time of creation; the one is read that leads to the fewest runs, most likely. */
export function planQuery(tree: TreeId, query: RunQuery): RunPlan {
  checkOptions('query', query, OPTIONS)
  const { includeArchived = false, parentRun, tags: wantedTags = [] } = query
  checkFlag('includeArchived', includeArchived)
  if (parentRun !== undefined) checkText('parentRun', parentRun, { bytesMax: 256 })
  const status = query.status === undefined ? undefined : checkStatus(query.status)
  const tags = checkTags(wantedTags)
  const from = query.createdAfter === undefined ? 0 : checkTime('createdAfter', query.createdAfter)
  const to = query.createdBefore === undefined ? undefined : checkTime('createdBefore', query.createdBefore)
  const [kind, component] = indexFor(parentRun, tags, status)
  return {
    range: indexRange(tree, kind, utf8(component), from, to),
    wanted: run =>
      (status === undefined ? includeArchived || run.status !== 'Archived' : run.status === status) &&
      tags.every(tag => run.tags.includes(tag)) &&
      (parentRun === undefined || run.parentRun === parentRun),
    limit: checkLimit(query.limit),
  }
}

function indexFor(
  parentRun: string | undefined,
  tags: readonly string[],
  status: RunStatus | undefined,
): readonly [kind: string, component: string] {
  if (parentRun !== undefined) return [BY_PARENT, parentRun]
  if (tags.length > 0) return [BY_TAG, tags[0]]
  return status === undefined ? [BY_TIME, ''] : [BY_STATUS, status]
}

/** What comes behind that run, newest first: what is older, or as old with an id that sorts before. */
export function rangeBehind(range: Range, run: Run): Range {
  const from = range.from as ByteString
  const prefix = from.slice(0, from.indexOf('\0', 1))
  const bound = indexKey(prefix[0], prefix.slice(1), run.createdAt, utf8(run.runId))
  if (timeOfIndexKey(bound) < timeOfIndexKey(from)) return { ...range, to: from }
  return range.to === undefined || bound < range.to ? { ...range, to: bound } : range
}
