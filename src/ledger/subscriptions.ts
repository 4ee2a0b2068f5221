import { type ByteString, fromBuffer, toBuffer, u64 } from '../core/bytes.ts'
import { AnnalsError, deletedWhileRead } from '../core/errors.ts'
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

/** A record of any run, and from where to go on after it. */
export interface FeedItem {
  readonly record: RunEventRecord
  /** Kept by the reader, it survives restarts. */
  readonly cursor: string
}

/** The records of one run, then new ones as they come. Read when they are asked for: a slow reader costs nothing. */
export async function* followRun(
  { database, scopes }: LedgerContext,
  name: RunName,
  afterSeq: number,
  end: AbortSignal,
): AsyncGenerator<RunEventRecord, void, void> {
  const { runId } = name
  let tree: TreeId = { scope: scopes.guess(name), tag: LOG }
  // Before the first read, so that nothing is missed in between.
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
    // The last one that was read is there no more, or one of a later run with the same id is in its place.
    else if (lastHash !== undefined && (await hashAt(next)) !== lastHash) throw deletedWhileRead(runId)
    for await (const page of pages(database, { ...tree, from: u64(next) })) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        const { prevHash, hash } = parseLogEntry(entry)
        // It may be of a later run with the same id.
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

/** The records of all runs in the order of their commits, then new ones as they come. */
export async function* followAll(
  { database, shared }: LedgerContext,
  cursor: string | undefined,
  end: AbortSignal,
): AsyncGenerator<FeedItem, void, void> {
  const feed = feedTree(shared)
  let last = cursor === undefined ? undefined : parseCursor(cursor)
  // Before the first read, so that nothing is missed in between.
  for await (const _ of wakings(await Changes.of(database, feed), end)) {
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
  return mapInSlices(
    found,
    (entry, i) => (entry?.version === listed[i].version ? recordOf(entry) : undefined),
    entry => entry?.value.length ?? 0,
  )
}

/** At once, and again after each change; then nothing is watched any more. */
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
  throw new AnnalsError('INVALID_ARGUMENT', 'cursor is none that subscribeAll has given', {
    name: 'cursor',
    value: cursor,
  })
}
