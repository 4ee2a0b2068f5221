import type { ByteString } from '../core/bytes.ts'
import {
  arrayOf,
  bigInt8,
  bool,
  bytea,
  int2,
  int4,
  int4Array,
  int8,
  nullable,
  type RecordCodec,
  record,
} from './wire.ts'

/**
 * The composite types of `migrations/0002_wire_types.sql` and `0009_updates.sql`,
 * which say what the fields mean. Fields are matched by their order; a test compares the names.
 */
export interface Place {
  readonly scope: ByteString
  readonly tag: number
  readonly kind: number
  readonly key: ByteString
  readonly tail: ByteString
  readonly sequence: bigint | undefined
}

export const PLACE: RecordCodec<Place> = record({
  scope: bytea,
  tag: int2,
  kind: int2,
  key: bytea,
  tail: bytea,
  sequence: nullable(bigInt8),
})

export interface KeyRange {
  readonly fromKey: ByteString
  readonly fromTail: ByteString
  readonly fromSequence: bigint
  readonly fromCount: number
  readonly toKey: ByteString | undefined
  readonly toTail: ByteString
  readonly toSequence: bigint
  readonly toCount: number
  readonly backwards: boolean
  readonly atMost: number | undefined
}

export const KEY_RANGE: RecordCodec<KeyRange> = record({
  fromKey: bytea,
  fromTail: bytea,
  fromSequence: bigInt8,
  fromCount: int4,
  toKey: nullable(bytea),
  toTail: bytea,
  toSequence: bigInt8,
  toCount: int4,
  backwards: bool,
  atMost: nullable(int8),
})

export interface TreeRange {
  readonly scope: ByteString
  readonly tag: number
  readonly kind: number
  readonly range: KeyRange
}

export const TREE_RANGE: RecordCodec<TreeRange> = record({
  scope: bytea,
  tag: int2,
  kind: int2,
  range: KEY_RANGE,
})

export interface BatchTree {
  readonly scope: ByteString
  readonly tag: number
  readonly kind: number
  readonly isWritten: boolean
  readonly isCreated: boolean
}

export const BATCH_TREE: RecordCodec<BatchTree> = record({
  scope: bytea,
  tag: int2,
  kind: int2,
  isWritten: bool,
  isCreated: bool,
})

export interface BatchPoint {
  readonly tree: number
  readonly kind: number
  readonly key: ByteString
  readonly tail: ByteString
  readonly sequence: bigint | undefined
  readonly version: number
  readonly txs: readonly number[]
}

export const BATCH_POINT: RecordCodec<BatchPoint> = record({
  tree: int4,
  kind: int2,
  key: bytea,
  tail: bytea,
  sequence: nullable(bigInt8),
  version: int8,
  txs: int4Array,
})

export interface BatchRange {
  readonly tx: number
  readonly tree: number
  readonly range: KeyRange
  readonly digest: ByteString
}

export const BATCH_RANGE: RecordCodec<BatchRange> = record({
  tx: int4,
  tree: int4,
  range: KEY_RANGE,
  digest: bytea,
})

export interface BatchDrop {
  readonly tx: number
  readonly step: number
  readonly tree: number
}

export const BATCH_DROP: RecordCodec<BatchDrop> = record({ tx: int4, step: int4, tree: int4 })

export interface BatchPut {
  readonly tx: number
  readonly step: number
  readonly tree: number
  readonly key: ByteString
  readonly tail: ByteString
  readonly value: ByteString | undefined
  readonly expiresAt: number
  readonly time: number | undefined
}

export const BATCH_PUT: RecordCodec<BatchPut> = record({
  tx: int4,
  step: int4,
  tree: int4,
  key: bytea,
  tail: bytea,
  value: nullable(bytea),
  expiresAt: int8,
  time: nullable(int8),
})

export interface BatchAppend {
  readonly place: number
  readonly tx: number
  readonly step: number
  readonly tree: number
  readonly time: number | undefined
  readonly bodyHash: ByteString
  readonly body: ByteString
  readonly dedupe: ByteString | undefined
  readonly dedupeTail: ByteString
  readonly memo: ByteString
  readonly feed: number | undefined
  readonly feedCount: number
}

export const BATCH_APPEND: RecordCodec<BatchAppend> = record({
  place: int4,
  tx: int4,
  step: int4,
  tree: int4,
  time: nullable(int8),
  bodyHash: bytea,
  body: bytea,
  dedupe: nullable(bytea),
  dedupeTail: bytea,
  memo: bytea,
  feed: nullable(int4),
  feedCount: int4,
})

export interface BatchConflict {
  readonly tx: number
  readonly point: number | undefined
  readonly range: number | undefined
}

export const BATCH_CONFLICT: RecordCodec<BatchConflict> = record({
  tx: int4,
  point: nullable(int4),
  range: nullable(int4),
})

export interface BatchAppended {
  readonly place: number
  readonly sequence: number
  readonly time: number
  readonly hash: ByteString
  readonly isDuplicate: boolean
  readonly memo: ByteString | undefined
}

export const BATCH_APPENDED: RecordCodec<BatchAppended> = record({
  place: int4,
  sequence: int8,
  time: int8,
  hash: bytea,
  isDuplicate: bool,
  memo: nullable(bytea),
})

export interface BatchOutcome {
  readonly version: number
  readonly committedAt: number
  readonly conflicts: readonly BatchConflict[] | undefined
  readonly appended: readonly BatchAppended[] | undefined
}

export const BATCH_OUTCOME: RecordCodec<BatchOutcome> = record({
  version: int8,
  committedAt: int8,
  conflicts: nullable(arrayOf(BATCH_CONFLICT)),
  appended: nullable(arrayOf(BATCH_APPENDED)),
})

export interface LoneAppend {
  readonly scope: ByteString
  readonly tag: number
  readonly time: number | undefined
  readonly bodyHash: ByteString
  readonly body: ByteString
  readonly dedupe: ByteString | undefined
  readonly dedupeTail: ByteString
  readonly memo: ByteString
  readonly feedScope: ByteString | undefined
  readonly feedTag: number | undefined
}

export const LONE_APPEND: RecordCodec<LoneAppend> = record({
  scope: bytea,
  tag: int2,
  time: nullable(int8),
  bodyHash: bytea,
  body: bytea,
  dedupe: nullable(bytea),
  dedupeTail: bytea,
  memo: bytea,
  feedScope: nullable(bytea),
  feedTag: nullable(int2),
})

export interface LonePoint {
  readonly tag: number
  readonly key: ByteString
  readonly tail: ByteString
  readonly version: number
}

export const LONE_POINT: RecordCodec<LonePoint> = record({
  tag: int2,
  key: bytea,
  tail: bytea,
  version: int8,
})
