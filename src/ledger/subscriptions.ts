import { type ByteString, fromBuffer, toBuffer, u64 } from '../core/bytes.ts'
import { deletedWhileRead, invalidArgument } from '../core/errors.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { Changes } from '../engine/changes.ts'
import { TAGS } from '../engine/keys.ts'
import { parseFeed, parseLogEntry } from '../engine/log.ts'
import { getMany } from '../engine/many-gets.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Reader, TreeId } from '../engine/storage.ts'
import type { RunName } from '../primitives/run-scopes.ts'
import type { LedgerContext } from './context.ts'
import type { RunEventRecord } from './run-events.ts'
import { feedTree, LOG, recordOf } from './stored.ts'

/** A record with its cursor in the feed of all runs. */
export interface FeedItem {
  /** The record. */
  readonly record: RunEventRecord
  /** Pass it to `subscribeAll` or `fetchAll` to continue after this record, in this process or a later one. */
  readonly cursor: string
}

/** Yields the records of one run, then new ones. They are read on demand, so a slow reader holds no memory. */
export async function* followRun(
  { database, scopes }: LedgerContext,
  name: RunName,
  afterSeq: number,
  end: AbortSignal,
): AsyncGenerator<RunEventRecord, void, void> {
  const { runId } = name
  let tree: TreeId = { scope: scopes.guess(name), tag: LOG }
  // Watching starts before the first read, so that no record is missed in between.
  const changes = await Changes.of(database, tree)
  // Until the first record is read, the run may still be created, or created anew, in another app or agent.
  const unwatchIndex =
    name.scope === undefined
      ? await changes.watch(database, { scope: scopes.index, tag: TAGS.run })
      : undefined
  let next = afterSeq
  let lastHash: ByteString | undefined
  const hashAt = async (runSeq: number): Promise<ByteString | undefined> => {
    const entry = await database.get(tree.scope, LOG, u64(runSeq - 1))
    return entry === undefined ? undefined : parseLogEntry(entry).hash
  }
  for await (const _ of wakings(changes, end)) {
    if (lastHash === undefined) {
      const scope = await scopes.find(database, name)
      if (scope !== tree.scope) {
        tree = { scope, tag: LOG }
        await changes.watch(database, tree)
      }
    }
    if (lastHash === undefined && next > 0) lastHash = await hashAt(next)
    // The last record is gone, or belongs to a later run with the same id.
    else if (lastHash !== undefined && (await hashAt(next)) !== lastHash) throw deletedWhileRead(runId)
    for await (const page of pages(database, { ...tree, from: u64(next) })) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        const { prevHash, hash } = parseLogEntry(entry)
        // The record may belong to a later run with the same id.
        if (lastHash !== undefined && prevHash !== lastHash) throw deletedWhileRead(runId)
        lastHash = hash
        unwatchIndex?.()
        next++
        yield recordOf(entry)
        if (end.aborted) return
      }
    }
  }
}

/** Yields the records of all runs in the order of their commits, then new ones. */
export async function* followAll(
  { database, shared }: LedgerContext,
  cursor: string | undefined,
  end: AbortSignal,
): AsyncGenerator<FeedItem, void, void> {
  const feed = feedTree(shared)
  let last = cursor === undefined ? undefined : parseCursor(cursor)
  // Watching starts before the first read, so that no record is missed in between.
  for await (const _ of wakings(await Changes.of(database, feed), end)) {
    const from = last === undefined ? undefined : `${last}\0`
    for await (const page of pages(database, { ...feed, from })) {
      const records = await recordsListed(database, page)
      for (const [i, entry] of page.entries()) {
        if (isSliceOver()) await nextSlice()
        last = entry.key
        const record = records[i]
        // The run was deleted since.
        if (record === undefined) continue
        yield Object.freeze({ record, cursor: cursorOf(last) })
        if (end.aborted) return
      }
    }
  }
}

const RECORDS_AT_ONCE = 64

/** Returns up to `limit` records after the cursor. */
export async function feedPage(
  { database, shared }: LedgerContext,
  cursor: string | undefined,
  limit: number,
): Promise<readonly FeedItem[]> {
  const from = cursor === undefined ? undefined : `${parseCursor(cursor)}\0`
  const items: FeedItem[] = []
  for await (const page of pages(database, { ...feedTree(shared), from })) {
    // Feed entries are small but records may be large, so records are read in small groups up to the limit.
    let start = 0
    while (start < page.length) {
      const listed = page.slice(start, start + Math.min(RECORDS_AT_ONCE, limit - items.length))
      for (const [i, record] of (await recordsListed(database, listed)).entries()) {
        // The run was deleted since.
        if (record !== undefined) items.push(Object.freeze({ record, cursor: cursorOf(listed[i].key) }))
      }
      if (items.length === limit) return items
      start += listed.length
    }
  }
  return items
}

/** Returns the cursor of the newest record; undefined if there is none. */
export async function lastCursor({ database, shared }: LedgerContext): Promise<string | undefined> {
  const [last] = await database.scan({ ...feedTree(shared), reverse: true, limit: 1 })
  return last === undefined ? undefined : cursorOf(last.key)
}

/** Reads the records that feed entries list. A record of another commit belongs to a later run with the same id. */
export async function recordsListed(
  reader: Reader,
  listed: readonly Entry[],
): Promise<readonly (RunEventRecord | undefined)[]> {
  const places = listed.map(entry => {
    const { scope, sequence } = parseFeed(entry)
    return { scope, tag: LOG, key: u64(sequence) }
  })
  const found = await getMany(reader, places)
  return mapInSlices(
    found,
    (entry, i) => (entry?.version === listed[i].version ? recordOf(entry) : undefined),
    entry => entry?.value.length ?? 0,
  )
}

/** Yields at once and after each change. Watching ends with the iteration. */
export async function* wakings(changes: Changes, end: AbortSignal): AsyncGenerator<void, void, void> {
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
  throw invalidArgument('cursor', 'was not given by subscribeAll or fetchAll', cursor)
}
