import { type ByteString, u64 } from '../core/bytes.ts'
import { invalidArgument } from '../core/errors.ts'
import { checkOrder, checkWhole } from '../core/numbers.ts'
import { checkOptions } from '../core/options.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { parseRfc3339 } from '../core/time.ts'
import type { Database } from '../engine/database.ts'
import { feedKey, parseFeed } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Reader } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import { importedRanges, importedRecords, type LocatedRange } from './imported.ts'
import { byTime, type Position } from './position.ts'
import type { RunEventRecord } from './run-events.ts'
import { feedTree } from './stored.ts'
import { recordsListed } from './subscriptions.ts'
import { falseIfUnwritable } from './unwritable.ts'

/** The records that `audit` returns. A filter that is absent matches every record. */
export interface AuditQuery {
  /** Only records of this tenant. */
  readonly tenantId?: string
  /** Only records of this project. */
  readonly projectId?: string
  /** Only records of this environment. */
  readonly environmentId?: string
  /** Only records of this run. */
  readonly runId?: string
  /** Only records of this type. */
  readonly eventType?: string
  /**
   * The start of the window, inclusive: RFC 3339 with any offset, or milliseconds since 1970; `-Infinity` for no start. It is
   * compared with `persistedAt`, never with `emittedAt`.
   */
  readonly from: string | number
  /** The end of the window, exclusive; `Infinity` for no end. */
  readonly to: string | number
  /** Continues after this record. Any record will do, also one that was parsed from JSON. */
  readonly after?: Position
}

const FILTERS = ['tenantId', 'projectId', 'environmentId', 'runId', 'eventType'] as const

interface Window {
  readonly fromMs: number
  readonly toMs: number
  readonly after: AuditQuery['after'] | undefined
  matches(record: RunEventRecord): boolean
}

/**
 * Yields records by `persistedAt`, then run, then `runSeq`. The feed lists them
 * in the order of commits, whose times never go back. So the window is one range
 * of the feed, and only records with the same time have to be sorted.
 */
export async function* auditRecords(
  context: LedgerContext,
  query: AuditQuery,
): AsyncGenerator<RunEventRecord, void, void> {
  const window = checkAudit(query)
  const { database, shared, scopes } = context
  await settled(database, shared)
  const imported = await importedRanges(database, scopes)
  yield* merged([
    ownRecords(context, window),
    ...imported.map(range => importedWithin(database, range, window)),
  ])
}

async function* importedWithin(
  database: Database,
  range: LocatedRange,
  window: Window,
): AsyncGenerator<RunEventRecord, void, void> {
  for await (const record of importedRecords(database, range, window)) {
    if (window.matches(record)) yield* inOrder([record], window.after)
  }
}

/** Merges sorted streams into one. */
async function* merged(
  streams: readonly AsyncGenerator<RunEventRecord, void, void>[],
): AsyncGenerator<RunEventRecord, void, void> {
  const [own, ...others] = streams
  if (others.length === 0) {
    yield* own
    return
  }
  const heads = await Promise.all(
    streams.map(async stream => ({ stream, next: (await stream.next()).value ?? undefined })),
  )
  for (;;) {
    let least: (typeof heads)[number] | undefined
    for (const head of heads) {
      if (head.next !== undefined && (least?.next === undefined || byTime(head.next, least.next) < 0))
        least = head
    }
    if (least?.next === undefined) return
    if (isSliceOver()) await nextSlice()
    yield least.next
    least.next = (await least.stream.next()).value ?? undefined
  }
}

/** Yields the records that were appended to this store, not imported. */
async function* ownRecords(
  { database, shared }: LedgerContext,
  { fromMs, toMs, after, matches }: Window,
): AsyncGenerator<RunEventRecord, void, void> {
  const feed = feedTree(shared)
  let crowd: RunEventRecord[] = []
  let crowdMs = -1
  const start = await firstAt(database, shared, fromMs)
  if (start === undefined) return
  for await (const page of pages(database, { ...feed, from: start })) {
    const records = await recordsListed(database, page)
    for (const [i, entry] of page.entries()) {
      if (isSliceOver()) await nextSlice()
      const { time } = parseFeed(entry)
      if (time < fromMs) continue
      if (time !== crowdMs) {
        yield* inOrder(crowd, after)
        crowd = []
        crowdMs = time
      }
      if (time >= toMs) return
      const record = records[i]
      if (record !== undefined && matches(record)) crowd.push(record)
    }
  }
  yield* inOrder(crowd, after)
}

/**
 * Waits for commits in progress. They have their times already, so a reader that moves from window to window would miss the
 * ones that become visible after their window was read.
 */
async function settled(database: Database, shared: ByteString): Promise<void> {
  const anywhere = { ...feedTree(shared), key: feedKey(0, 0) }
  // A store that is not writable has no commits in progress that can become visible. On a full disk, the update fails if it
  // was written together with a commit that did not fit.
  await database.update([anywhere], () => ({ operations: [], result: undefined })).catch(falseIfUnwritable)
}

function inOrder(crowd: readonly RunEventRecord[], after: AuditQuery['after']): readonly RunEventRecord[] {
  const sorted = [...crowd].sort(byTime)
  return after === undefined ? sorted : sorted.filter(record => byTime(record, after) > 0)
}

/** Finds the key of the first entry at or after a time, by binary search: times grow with versions. */
async function firstAt(reader: Reader, shared: ByteString, time: number): Promise<ByteString | undefined> {
  const feed = feedTree(shared)
  const [last] = await reader.scan({ ...feed, reverse: true, limit: 1 })
  if (last === undefined || parseFeed(last).time < time) return undefined
  const entryFrom = async (version: number): Promise<Entry> => {
    const [entry] = await reader.scan({ ...feed, from: feedKey(version, 0), limit: 1 })
    return entry ?? last
  }
  // The first entry from `low` on may be before the time; the first entry from `high` on is not.
  let low = 0
  let high = last.version
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (parseFeed(await entryFrom(middle)).time < time) low = middle + 1
    else high = middle
  }
  // The commit before may hold records of this time too: a commit that copies has records of many times.
  const [before] = await reader.scan({ ...feed, to: u64(high), reverse: true, limit: 1 })
  return u64(before?.version ?? high)
}

function checkAudit(query: AuditQuery): Window {
  checkOptions('audit', query, [...FILTERS, 'from', 'to', 'after'])
  for (const name of FILTERS) {
    if (query[name] !== undefined && typeof query[name] !== 'string')
      throw invalidArgument(name, 'must be a string', query[name])
  }
  const { after } = query
  const fromMs = boundOf('from', query.from)
  const toMs = boundOf('to', query.to)
  checkOrder(fromMs, toMs)
  if (after !== undefined) checkPosition(after)
  const start =
    after === undefined ? fromMs : Math.max(fromMs, timeOf('after.persistedAt', after.persistedAt))
  const wanted = FILTERS.filter(name => query[name] !== undefined)
  return { fromMs: start, toMs, after, matches: record => wanted.every(name => record[name] === query[name]) }
}

function checkPosition(after: unknown): void {
  if (typeof after !== 'object' || after === null || typeof (after as Position).runId !== 'string') {
    throw invalidArgument('after', 'must be a record that audit has given', after)
  }
  checkWhole('after.runSeq', (after as Position).runSeq)
}

/** A time finer than a millisecond. */
const FINER = /\.\d{3}\d*[1-9]/

/** Records have whole milliseconds, so a bound within a millisecond equals the next one. */
function boundOf(name: string, value: unknown): number {
  if (Number.isSafeInteger(value) || Math.abs(value as number) === Number.POSITIVE_INFINITY)
    return value as number
  return timeOf(name, value) + (FINER.test(value as string) ? 1 : 0)
}

function timeOf(name: string, value: unknown): number {
  const ms = typeof value === 'string' ? parseRfc3339(value, { offset: 'any' }) : undefined
  if (ms !== undefined) return ms
  throw invalidArgument(name, 'must be an RFC 3339 time, whole milliseconds since 1970, or infinite', value)
}
