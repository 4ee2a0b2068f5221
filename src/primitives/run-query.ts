import { type ByteString, u64, utf8 } from '../core/bytes.ts'
import { checkEndTime, checkLimit, checkOrder, checkTime } from '../core/numbers.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import { checkTags } from '../core/text.ts'
import { indexKey, indexRange, timeOfIndexKey } from '../engine/indexes.ts'
import type { Scope } from '../engine/keys.ts'
import { getMany } from '../engine/many-gets.ts'
import { pages } from '../engine/pages.ts'
import type { Range, Reader, TreeId } from '../engine/storage.ts'
import { checkStatus, type RunHead, type RunStatus } from './run.ts'
import { BY_PARENT, BY_STATUS, BY_TAG, BY_TIME } from './run-records.ts'
import type { RunName, RunScopes } from './run-scopes.ts'

/** Conditions that runs must meet to be found. A run has to meet all of them. */
export interface RunQuery {
  /** The status of the runs. */
  readonly status?: RunStatus
  /** Tags, all of which a run must have. */
  readonly tags?: readonly string[]
  /** The earliest time of creation, inclusive, in milliseconds since 1970. */
  readonly createdAfter?: number
  /** The latest time of creation, exclusive, in milliseconds since 1970; `Infinity` by default. */
  readonly createdBefore?: number
  /** The id or namespace of the parent. */
  readonly parentRun?: Scope
  /** Whether archived runs are found too; false by default. */
  readonly includeArchived?: boolean
  /** The most runs to return, a positive integer; unlimited by default. */
  readonly limit?: number
  /** The id or namespace of the last run of the page before. The result starts after it. */
  readonly after?: Scope
}

/** How a query is answered: the index range to read, and the test that the runs found there must pass. */
export interface RunPlan {
  readonly range: Range
  readonly wanted: (run: RunHead) => boolean
  readonly limit: number | undefined
  readonly parent: RunName | undefined
  readonly after: RunName | undefined
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

/** Chooses the index that most likely leads to the fewest runs. Every index is ordered by time of creation. */
export function planQuery(tree: TreeId, query: RunQuery, scopes: RunScopes): RunPlan {
  checkOptions('query', query, OPTIONS)
  const { includeArchived = false, parentRun, tags: wantedTags = [] } = query
  checkFlag('includeArchived', includeArchived)
  const parent = parentRun === undefined ? undefined : scopes.named(parentRun, 'parentRun')
  const status = query.status === undefined ? undefined : checkStatus(query.status)
  const tags = checkTags(wantedTags)
  const { createdAfter = 0, createdBefore = Number.POSITIVE_INFINITY } = query
  const from = checkTime('createdAfter', createdAfter)
  const to = checkEndTime('createdBefore', createdBefore)
  checkOrder(from, to ?? Number.POSITIVE_INFINITY)
  const [kind, component] = indexFor(parent?.runId, tags, status)
  return {
    range: indexRange(tree, kind, utf8(component), from, to),
    wanted: run =>
      (status === undefined ? includeArchived || run.status !== 'Archived' : run.status === status) &&
      tags.every(tag => run.tags.includes(tag)) &&
      (parent === undefined || run.parentRun === parent.runId),
    limit: checkLimit(query.limit),
    parent,
    after: query.after === undefined ? undefined : scopes.named(query.after, 'after'),
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

/**
 * The keys of an index, newest run first, starting after the run `after`. Runs of one millisecond are ordered by the commits
 * that created them, which is the version of their entry in the index by time. That version is looked up only for runs
 * that share their millisecond.
 */
export async function* newestFirst(
  reader: Reader,
  range: Range,
  after: RunHead | undefined,
): AsyncGenerator<readonly ByteString[], void, void> {
  const cursor = after === undefined ? undefined : keyIn(range, after)
  // The keys of the last millisecond seen. The next page may have more of them.
  let held: ByteString[] = cursor === undefined ? [] : [cursor]
  const behindCursor = async (keys: readonly ByteString[]): Promise<readonly ByteString[]> => {
    const ordered = await inOrder(reader, range, keys)
    return cursor === undefined ? ordered : ordered.slice(ordered.indexOf(cursor) + 1)
  }
  const rest = cursor === undefined ? range : upTo(range, timeOfIndexKey(cursor))
  for await (const page of pages(reader, { ...rest, reverse: true })) {
    const keys = [...held, ...page.map(({ key }) => key).filter(key => key !== cursor)]
    const last = timeOfIndexKey(keys[keys.length - 1])
    held = keys.filter(key => timeOfIndexKey(key) === last)
    if (held.length < keys.length) yield behindCursor(keys.slice(0, keys.length - held.length))
  }
  if (held.length > 0) yield behindCursor(held)
}

async function inOrder(
  reader: Reader,
  tree: TreeId,
  keys: readonly ByteString[],
): Promise<readonly ByteString[]> {
  const times = keys.map(timeOfIndexKey)
  const entries = await getMany(
    reader,
    keys.map((key, i) => {
      if (times[i] !== times[i - 1] && times[i] !== times[i + 1]) return undefined
      return { scope: tree.scope, tag: tree.tag, key: BY_TIME + key.slice(key.indexOf('\0', 1)) }
    }),
  )
  // In a transaction, own entries have version 0, and they are the newest.
  const made = entries.map(entry => (entry?.version === 0 ? Number.POSITIVE_INFINITY : (entry?.version ?? 0)))
  const places = [...keys.keys()].sort((a, b) => times[b] - times[a] || made[b] - made[a])
  return places.map(i => keys[i])
}

/** The part of the range up to and including this millisecond. */
function upTo(range: Range, time: number): Range {
  const from = range.from as ByteString
  if (time < timeOfIndexKey(from)) return { ...range, to: from }
  const end = from.slice(0, from.indexOf('\0', 1) + 1) + u64(time + 1)
  return range.to === undefined || end < range.to ? { ...range, to: end } : range
}

/** The key that the run has in this index, or would have. */
function keyIn(range: Range, run: RunHead): ByteString {
  const from = range.from as ByteString
  const component = from.slice(1, from.indexOf('\0', 1))
  return indexKey(from[0], component, run.createdAt, utf8(run.runId))
}
