import type { ByteString } from '../core/bytes.ts'
import type { Entry, Place, Range } from '../engine/storage.ts'
import { boundsOf, headOfKey, sequenceOfKey, tailOfKey, treeAddress } from './address.ts'
import type { Connection, Row } from './connection.ts'
import { STATEMENTS } from './statements.ts'
import { byteaArray, int2Array, int8Array } from './wire.ts'

/** When an entry must not have expired; undefined means now, by the server's clock. */
export type ClockMs = number | undefined

/** All places as of one moment; undefined for what is absent. */
export async function readPoints(
  connection: Connection,
  places: readonly Place[],
  clockMs: ClockMs,
): Promise<(Entry | undefined)[]> {
  const addresses = places.map(treeAddress)
  const rows = await connection.run(STATEMENTS.readPoints, [
    clockMs,
    byteaArray(addresses.map(address => address.scope)),
    int2Array(addresses.map(address => address.tag)),
    int2Array(addresses.map(address => address.kind)),
    byteaArray(places.map(({ key }) => headOfKey(key))),
    byteaArray(places.map(({ key }) => tailOfKey(key))),
    int8Array(places.map(({ key }, i) => sequenceOfKey(addresses[i].kind, key))),
  ])
  const found: (Entry | undefined)[] = new Array(places.length).fill(undefined)
  for (const row of rows) {
    const i = (row['i'] as number) - 1
    found[i] = entryOf(places[i].key, row)
  }
  return found
}

export async function readRange(
  connection: Connection,
  range: Range,
  clockMs: ClockMs,
): Promise<readonly Entry[]> {
  const { scope, tag, kind } = treeAddress(range)
  const bounds = boundsOf(range)
  const rows = await connection.run(STATEMENTS.readRange, [
    clockMs,
    bytes(scope),
    tag,
    kind,
    bytes(bounds.from),
    bytes(bounds.fromTail),
    bounds.to === undefined ? undefined : bytes(bounds.to),
    bytes(bounds.toTail),
    bounds.fromNumber.sequence,
    bounds.toNumber.sequence,
    range.reverse ?? false,
    range.limit,
    bounds.fromNumber.count,
    bounds.toNumber.count,
  ])
  return rows.map(row => entryOf(row['key'] as ByteString, row))
}

export function bytes(value: ByteString): Buffer {
  return Buffer.from(value, 'latin1')
}

function entryOf(key: ByteString, row: Row): Entry {
  return {
    key,
    value: row['value'] as ByteString,
    version: row['version'] as number,
    time: row['committed_at'] as number,
    expiresAt: row['expires_at'] as number,
  }
}
