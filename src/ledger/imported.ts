import { type ByteString, fromU64, fromUtf8, hex, u64, utf8 } from '../core/bytes.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { decodeJson } from '../core/value.ts'
import { parseLogEntry, timeOf } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Place, Put, Reader } from '../engine/storage.ts'
import type { RunScopes } from '../primitives/run-scopes.ts'
import type { RunEventRecord } from './run-events.ts'
import { IMPORTED, importedIn, LOG, placeOf, putJson, recordOf } from './stored.ts'

/**
 * A range of a run's records that was imported from another store. Imported
 * records keep the times at which they were persisted there. The times in the
 * feed never decrease, so the feed can't list them. They have a list of their
 * own, which audits and other readers of all records also read.
 */
export interface ImportedRange {
  readonly runId: string
  /** The `runSeq` of the first record. */
  readonly first: number
  /** The `runSeq` of the last record. */
  readonly last: number
  /** The hash of the last record, in hex. If the log has another hash there, the imported run was deleted. */
  readonly hash: string
  /** When the first record was persisted. */
  readonly fromMs: number
  /** When the last record was persisted. */
  readonly toMs: number
}

/** An imported range with the scope of its run. */
export interface LocatedRange extends ImportedRange {
  readonly scope: ByteString
}

function importedPlace(shared: ByteString, runId: string, first: number): Place {
  return placeOf(shared, `${IMPORTED}${utf8(runId)}\0${u64(first)}`)
}

/** Adds a range to the list of imported records. */
export function importedPut(shared: ByteString, { runId, first, ...rest }: ImportedRange): Put {
  return putJson(importedPlace(shared, runId, first), rest)
}

/**
 * Lists the imported ranges whose run still exists, in order for each run. Overlapping ranges are merged, so that no record
 * appears twice: a run may have been deleted and imported again.
 */
export async function importedRanges(reader: Reader, scopes: RunScopes): Promise<readonly LocatedRange[]> {
  const ranges: LocatedRange[] = []
  for await (const page of pages(reader, importedIn(scopes.index))) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const range = rangeIn(entry)
      const scope = await scopes.find(reader, { runId: range.runId, scope: undefined })
      const last = await reader.get(scope, LOG, u64(range.last - 1))
      if (last === undefined || hex(parseLogEntry(last).hash) !== range.hash) continue
      const before = ranges.at(-1)
      if (before?.runId === range.runId && before.last >= range.first) {
        ranges[ranges.length - 1] = { scope, ...union(before, range) }
      } else ranges.push({ scope, ...range })
    }
  }
  return ranges
}

function union(a: ImportedRange, b: ImportedRange): ImportedRange {
  const { last, hash, toMs } = a.last >= b.last ? a : b
  return { runId: a.runId, first: a.first, last, hash, fromMs: Math.min(a.fromMs, b.fromMs), toMs }
}

function rangeIn({ key, value }: Entry): ImportedRange {
  const end = key.length - 9
  const runId = fromUtf8(key.slice(1, end))
  return {
    runId,
    first: fromU64(key, end + 1),
    ...(decodeJson(value) as Omit<ImportedRange, 'runId' | 'first'>),
  }
}

/** Yields the records of a range that were persisted within a time window, in order. */
export async function* importedRecords(
  reader: Reader,
  { scope, first, last, fromMs, toMs }: LocatedRange,
  window: { readonly fromMs: number; readonly toMs: number },
): AsyncGenerator<RunEventRecord, void, void> {
  if (toMs < window.fromMs || fromMs >= window.toMs) return
  for await (const page of pages(reader, { scope, tag: LOG, from: u64(first - 1), to: u64(last) })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const time = timeOf(entry)
      if (time >= window.toMs) return
      if (time >= window.fromMs) yield recordOf(entry)
    }
  }
}
