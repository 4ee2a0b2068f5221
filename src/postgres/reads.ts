import { type ByteString, toBuffer } from '../core/bytes.ts'
import type { Entry, Place, Range } from '../engine/storage.ts'
import { headOfKey, keyRangeOf, sequenceOfKey, tailOfKey, treeAddress } from './address.ts'
import type { Connection, Row } from './connection.ts'
import { STATEMENTS } from './statements.ts'
import { arrayOf, encoded } from './wire.ts'
import { KEY_RANGE, PLACE } from './wire-types.ts'

/** The clock that decides which entries have expired; undefined for the server's. */
export type ClockMs = number | undefined

const PLACES = arrayOf(PLACE)

/** The places as a parameter. */
export function encodedPlaces(places: readonly Place[]): Buffer {
  const addressed = places.map(place => {
    const address = treeAddress(place)
    const { key } = place
    return {
      ...address,
      key: headOfKey(key),
      tail: tailOfKey(key),
      sequence: sequenceOfKey(address.kind, key),
    }
  })
  return encoded(PLACES, addressed)
}

/** Reads all places as of one moment; undefined for an absent entry. */
export async function readPoints(
  connection: Connection,
  places: readonly Place[],
  clockMs: ClockMs,
): Promise<(Entry | undefined)[]> {
  const rows = await connection.run(STATEMENTS.readPoints, [clockMs, encodedPlaces(places)])
  const found: (Entry | undefined)[] = new Array(places.length).fill(undefined)
  for (const row of rows) {
    const i = (row['i'] as number) - 1
    found[i] = entryOf(places[i].key, row)
  }
  return found
}

/** Reads one range as of one moment. */
export async function readRange(
  connection: Connection,
  range: Range,
  clockMs: ClockMs,
): Promise<readonly Entry[]> {
  const { scope, tag, kind } = treeAddress(range)
  const values = [clockMs, toBuffer(scope), tag, kind, encoded(KEY_RANGE, keyRangeOf(range))]
  const rows = await connection.run(STATEMENTS.readRange, values)
  return rows.map(row => entryOf(row['key'] as ByteString, row))
}

/** The entry in a row that a read returned. */
export function entryOf(key: ByteString, row: Row): Entry {
  return {
    key,
    value: row['value'] as ByteString,
    version: row['version'] as number,
    time: row['committed_at'] as number,
    expiresAt: row['expires_at'] as number,
  }
}
