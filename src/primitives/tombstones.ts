import { type ByteString, fromUtf8, hex, utf8 } from '../core/bytes.ts'
import { newOrderedId } from '../core/id.ts'
import { checkTime } from '../core/numbers.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { decodeValue, encodeValue } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { idOfIndexKey, indexKey, indexRange, timeOfIndexKey } from '../engine/indexes.ts'
import { TAGS } from '../engine/keys.ts'
import { parseHead } from '../engine/log.ts'
import { behind, pages } from '../engine/pages.ts'
import type { Entry, Place, Put, Range } from '../engine/storage.ts'
import type { Run, Tombstone } from './run.ts'

/** The letter of their keys. Tombstones are keyed like index entries, but have a value. */
const TOMBSTONE = 'x'

/** @internal A tombstone with its place in the list. */
export interface MarkedTombstone {
  readonly tombstone: Tombstone
  readonly deletedAt: number
  readonly mark: string
}

/** The place and time of a tombstone that is about to be written. */
export interface Grave extends Place {
  readonly deletedAt: number
}

/** A new place for a tombstone. It is chosen before the step that writes there, because a step may run twice. */
export function newGrave(index: ByteString, now: number): Grave {
  const key = indexKey(TOMBSTONE, '', now, utf8(newOrderedId(now)))
  return { scope: index, tag: TAGS.run, key, deletedAt: now }
}

/** The tombstone of a run, and the write that stores it. `events` is the head of the run's own log. */
export function buried(
  { deletedAt, ...place }: Grave,
  { runId, app, agent }: Pick<Run, 'runId' | 'app' | 'agent'>,
  events: Entry | undefined,
  reason?: string,
): { readonly tombstone: Tombstone; readonly put: Put } {
  const { length, hash } = parseHead(events)
  const tombstone: Tombstone = {
    runId,
    ...(app === undefined ? {} : { app }),
    ...(agent === undefined ? {} : { agent }),
    deletedAt,
    ...(reason === undefined ? {} : { reason }),
    events: length,
    headHash: hex(hash),
  }
  return { tombstone, put: { op: 'put', ...place, value: encodeValue(tombstone) } }
}

/** All tombstones, newest first. */
export async function allTombstones(database: Database, index: ByteString): Promise<readonly Tombstone[]> {
  const found = await database.scan(newestFirst(index))
  return Object.freeze(await mapInSlices(found, tombstoneIn))
}

/** The tombstones after a given one, each with a mark that tells it from others of its millisecond. */
export async function* iterateTombstones(
  database: Database,
  index: ByteString,
  after: Omit<MarkedTombstone, 'tombstone'> | undefined,
): AsyncGenerator<MarkedTombstone, void, void> {
  const range = newestFirst(index)
  const rest =
    after === undefined
      ? range
      : behind(range, indexKey(TOMBSTONE, '', checkTime('after', after.deletedAt), utf8(after.mark)))
  for await (const page of pages(database, rest)) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const mark = fromUtf8(idOfIndexKey(entry.key) ?? '')
      yield { tombstone: tombstoneIn(entry), deletedAt: timeOfIndexKey(entry.key), mark }
    }
  }
}

function newestFirst(index: ByteString): Range {
  return { ...indexRange({ scope: index, tag: TAGS.run }, TOMBSTONE, ''), reverse: true }
}

function tombstoneIn({ value }: Entry): Tombstone {
  return decodeValue<Tombstone>(value)
}
