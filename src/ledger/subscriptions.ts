import { type ByteString, fromBuffer, toBuffer, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { Changes } from '../engine/changes.ts'
import { parseFeed, parseLogEntry } from '../engine/log.ts'
import { getMany } from '../engine/many-gets.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Reader, TreeId } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import type { RunEventRecord } from './run-events.ts'
import { feedTree, LOG, recordOf } from './stored.ts'

/** A record of any run, and from where to go on after it. */
export interface FeedItem {
  readonly record: RunEventRecord
  /** Kept by the reader, it survives restarts. */
  readonly cursor: string
}

/** The records of one run, then new ones as they come. Read when they are asked for: a slow reader costs nothing. */
export async function* followRun(
  { database, scopeOf }: LedgerContext,
  runId: string,
  afterSeq: number,
  end: AbortSignal,
): AsyncGenerator<RunEventRecord, void, void> {
  const tree: TreeId = { scope: scopeOf(runId), tag: LOG }
  let next = afterSeq
  let lastHash: ByteString | undefined
  const hashAt = async (runSeq: number): Promise<ByteString | undefined> => {
    const entry = await database.get(tree.scope, LOG, u64(runSeq - 1))
    return entry === undefined ? undefined : parseLogEntry(entry).hash
  }
  for await (const _ of wakings(database, tree, end)) {
    if (lastHash === undefined && next > 0) lastHash = await hashAt(next)
    // The last one that was read is there no more, or one of a later run with the same id is in its place.
    else if (lastHash !== undefined && (await hashAt(next)) !== lastHash) throw deleted(runId)
    for await (const page of pages(database, { ...tree, from: u64(next) })) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        const { prevHash, hash } = parseLogEntry(entry)
        // It may be of a later run with the same id.
        if (lastHash !== undefined && prevHash !== lastHash) throw deleted(runId)
        lastHash = hash
        next++
        yield recordOf(entry)
        if (end.aborted) return
      }
    }
  }
}

/** The records of one run that are there, page by page. */
export async function* recordPages(
  { database, scopeOf }: LedgerContext,
  runId: string,
  afterSeq: number,
): AsyncGenerator<readonly RunEventRecord[], void, void> {
  let lastHash: ByteString | undefined
  for await (const page of pages(database, { scope: scopeOf(runId), tag: LOG, from: u64(afterSeq) })) {
    // Between two pages the run may have been deleted, and another have begun under its id.
    if (lastHash !== undefined && parseLogEntry(page[0]).prevHash !== lastHash) throw deleted(runId)
    lastHash = parseLogEntry(page[page.length - 1]).hash
    yield await mapInSlices(page, recordOf)
  }
}

export async function allRecords(
  context: LedgerContext,
  runId: string,
  afterSeq: number,
): Promise<RunEventRecord[]> {
  const records: RunEventRecord[] = []
  // Not push(...page): a page may have more items than a call may have arguments.
  for await (const page of recordPages(context, runId, afterSeq)) for (const one of page) records.push(one)
  return records
}

function deleted(runId: string): AnnalsError {
  const message = `run ${JSON.stringify(runId)} was deleted while it was read`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { runId })
}

/** The records of all runs in the order of their commits, then new ones as they come. */
export async function* followAll(
  { database, shared }: LedgerContext,
  cursor: string | undefined,
  end: AbortSignal,
): AsyncGenerator<FeedItem, void, void> {
  const feed = feedTree(shared)
  let last = cursor === undefined ? undefined : parseCursor(cursor)
  for await (const _ of wakings(database, feed, end)) {
    const from = last === undefined ? undefined : `${last}\0`
    for await (const page of pages(database, { ...feed, from })) {
      const records = await recordsListed(database, page)
      for (const [i, entry] of page.entries()) {
        if (isSliceOver()) await nextSlice()
        last = entry.key
        const record = records[i]
        // Listed, but its run was deleted since.
        if (record === undefined) continue
        yield Object.freeze({ record, cursor: cursorOf(last) })
        if (end.aborted) return
      }
    }
  }
}

const RECORDS_AT_ONCE = 64

/** As many as are asked for, from behind the cursor on. */
export async function feedPage(
  { database, shared }: LedgerContext,
  cursor: string | undefined,
  limit: number,
): Promise<readonly FeedItem[]> {
  const from = cursor === undefined ? undefined : `${parseCursor(cursor)}\0`
  const items: FeedItem[] = []
  for await (const page of pages(database, { ...feedTree(shared), from })) {
    // Entries of a feed are small, and records may be large: no more of these are read than are asked for, or nearly.
    let start = 0
    while (start < page.length) {
      const listed = page.slice(start, start + Math.min(RECORDS_AT_ONCE, limit - items.length))
      for (const [i, record] of (await recordsListed(database, listed)).entries()) {
        // Listed, but its run was deleted since.
        if (record !== undefined) items.push(Object.freeze({ record, cursor: cursorOf(listed[i].key) }))
      }
      if (items.length === limit) return items
      start += listed.length
    }
  }
  return items
}

/** From where whoever wants only what is new goes on; undefined while there is nothing. */
export async function lastCursor({ database, shared }: LedgerContext): Promise<string | undefined> {
  const [last] = await database.scan({ ...feedTree(shared), reverse: true, limit: 1 })
  return last === undefined ? undefined : cursorOf(last.key)
}

/** The records that a feed lists. One that is not of the commit that listed it is of a later run with the same id. */
export async function recordsListed(
  reader: Reader,
  listed: readonly Entry[],
): Promise<readonly (RunEventRecord | undefined)[]> {
  const places = listed.map(entry => {
    const { scope, sequence } = parseFeed(entry)
    return { scope, tag: LOG, key: u64(sequence) }
  })
  const found = await getMany(reader, places)
  return mapInSlices(found, (entry, i) =>
    entry?.version === listed[i].version ? recordOf(entry) : undefined,
  )
}

/** At once, and again after each change. */
export async function* wakings(
  source: LedgerContext['database'],
  tree: TreeId,
  end: AbortSignal,
): AsyncGenerator<void, void, void> {
  // Before the first read, so that nothing is missed in between.
  const changes = await Changes.of(source, tree)
  try {
    while (!end.aborted) {
      const seen = changes.count
      yield
      await changes.beyond(seen, end)
    }
  } finally {
    changes.end()
  }
}

function cursorOf(key: ByteString): string {
  return toBuffer(key).toString('hex')
}

const CURSOR = /^[0-9a-f]{24}$/

function parseCursor(cursor: string): string {
  if (typeof cursor === 'string' && CURSOR.test(cursor)) return fromBuffer(Buffer.from(cursor, 'hex'))
  throw new AnnalsError('INVALID_ARGUMENT', 'cursor is none that subscribeAll has given', {
    name: 'cursor',
    value: cursor,
  })
}
