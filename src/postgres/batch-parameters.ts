import type { ByteString } from '../core/bytes.ts'
import { sha256 } from '../core/hash.ts'
import type { Append, Delete, Put, RangeRead } from '../engine/storage.ts'
import { type Bounds, headOfKey, sequenceOfKey, type TreeAddress, tailOfKey } from './address.ts'
import { boolArray, byteaArray, int2Array, int4Array, int8Array } from './wire.ts'

/**
 * The parts of a batch as the server takes them: an array for each column.
 * Trees, transactions' reads and appends are counted from 1, as the server does.
 */

/** An operation with the transaction and the step that it belongs to. */
export interface Placed<T> {
  readonly tx: number
  readonly step: number
  readonly tree: number
  readonly operation: T
}

export interface PlacedAppend extends Placed<Append> {
  /** Among all appends of the batch. */
  readonly place: number
  /** Among those of its transaction. */
  readonly count: number
  /** The feed's tree. */
  readonly feed: number | undefined
}

/** What was found at a place; transactions that found the same there share it. */
export interface PointRead {
  readonly tree: number
  readonly key: ByteString
  readonly version: number
  readonly txs: number[]
}

export interface PlacedRange {
  readonly tx: number
  readonly tree: number
  readonly range: RangeRead
  readonly bounds: Bounds
}

export function pointParameters(points: readonly PointRead[], addresses: readonly TreeAddress[]): unknown[] {
  const readers = points.flatMap(({ txs }) => txs)
  const read = points.flatMap(({ txs }, i) => txs.map(() => i + 1))
  return [
    int4Array(readers),
    int4Array(read),
    int4Array(points.map(({ tree }) => tree)),
    int2Array(points.map(({ tree }) => addresses[tree - 1].kind)),
    byteaArray(points.map(({ key }) => headOfKey(key))),
    byteaArray(points.map(({ key }) => tailOfKey(key))),
    int8Array(points.map(({ tree, key }) => sequenceOfKey(addresses[tree - 1].kind, key))),
    int8Array(points.map(({ version }) => version)),
  ]
}

export function rangeParameters(ranges: readonly PlacedRange[]): unknown[] {
  return [
    int4Array(ranges.map(({ tx }) => tx)),
    int4Array(ranges.map(({ tree }) => tree)),
    byteaArray(ranges.map(({ bounds }) => bounds.from)),
    byteaArray(ranges.map(({ bounds }) => bounds.fromTail)),
    byteaArray(ranges.map(({ bounds }) => bounds.to)),
    byteaArray(ranges.map(({ bounds }) => bounds.toTail)),
    int8Array(ranges.map(({ bounds }) => bounds.fromNumber.sequence)),
    int8Array(ranges.map(({ bounds }) => bounds.toNumber.sequence)),
    int4Array(ranges.map(({ bounds }) => bounds.fromNumber.count)),
    int4Array(ranges.map(({ bounds }) => bounds.toNumber.count)),
    boolArray(ranges.map(({ range }) => range.reverse ?? false)),
    int8Array(ranges.map(({ range }) => range.limit)),
    byteaArray(ranges.map(({ range }) => digestOf(range))),
  ]
}

export function putParameters(puts: readonly Placed<Put | Delete>[]): unknown[] {
  return [
    int4Array(puts.map(({ tx }) => tx)),
    int4Array(puts.map(({ step }) => step)),
    int4Array(puts.map(({ tree }) => tree)),
    byteaArray(puts.map(({ operation }) => headOfKey(operation.key))),
    byteaArray(puts.map(({ operation }) => tailOfKey(operation.key))),
    byteaArray(puts.map(({ operation }) => (operation.op === 'put' ? operation.value : undefined))),
    int8Array(puts.map(({ operation }) => (operation.op === 'put' ? (operation.expiresAt ?? 0) : 0))),
    int8Array(puts.map(({ operation }) => (operation.op === 'put' ? operation.time : undefined))),
  ]
}

export function appendParameters(
  appends: readonly PlacedAppend[],
  twins: readonly (number | undefined)[],
): unknown[] {
  return [
    int4Array(appends.map(({ tx }) => tx)),
    int4Array(appends.map(({ step }) => step)),
    int4Array(appends.map(({ tree }) => tree)),
    int8Array(appends.map(({ operation }) => operation.time)),
    byteaArray(appends.map(({ operation }) => operation.bodyHash)),
    byteaArray(appends.map(({ operation }) => operation.body)),
    byteaArray(appends.map(({ operation: { dedupe } }) => dedupe && headOfKey(dedupe.key))),
    byteaArray(appends.map(({ operation: { dedupe } }) => (dedupe ? tailOfKey(dedupe.key) : ''))),
    byteaArray(appends.map(({ operation: { dedupe } }) => dedupe?.memo ?? '')),
    int4Array(twins),
    int4Array(appends.map(({ feed }) => feed)),
    int4Array(appends.map(({ count }) => count)),
  ]
}

/** For each append the last one before it with the same dedupe key in the same log and step, counted from 1. */
export function twinsOf(appends: readonly Placed<Append>[]): (number | undefined)[] {
  let [step, tree] = [0, 0]
  const seen = new Map<ByteString, number>()
  // They come log by log.
  return appends.map((append, i) => {
    if (append.step !== step || append.tree !== tree) seen.clear()
    ;({ step, tree } = append)
    const key = append.operation.dedupe?.key
    if (key === undefined) return undefined
    const twin = seen.get(key)
    seen.set(key, i + 1)
    return twin
  })
}

/** Of what a range found, as the server computes it of what it finds. */
function digestOf({ found }: RangeRead): ByteString {
  const buffer = Buffer.allocUnsafe(found.reduce((sum, { key }) => sum + 12 + key.length, 0))
  let at = 0
  for (const { key, version } of found) {
    at = buffer.writeBigInt64BE(BigInt(version), at)
    at = buffer.writeInt32BE(key.length, at)
    at += buffer.latin1Write(key, at, key.length)
  }
  return sha256(buffer.latin1Slice())
}
