import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { dedupeTag, isLogTag, logOfHeadTag, TAGS } from '../engine/keys.ts'
import type { Range, TreeId } from '../engine/storage.ts'

/**
 * How places and ranges of the port are said to the server. Its index rows
 * hold at most 2,700 bytes, so a key is sent in two parts, of which the index
 * has the first. What the port shows as trees beside a log is kept in the
 * log's own rows: such a tree is the log's, read as another kind.
 */
const KEY_HEAD_BYTES = 2_000
const SCOPE_BYTES_MAX = 2_000

export type Kind = 0 | 1 | 2 | 3
const ENTRIES = 0
const LOG = 1
const HEAD = 2
const DEDUPE = 3

export interface TreeAddress {
  readonly scope: ByteString
  readonly tag: number
  readonly kind: Kind
}

const LOG_OF_DEDUPE_TAG: ReadonlyMap<number, number> = new Map(
  Object.values(TAGS)
    .filter(isLogTag)
    .map(tag => [dedupeTag(tag), tag]),
)

export function treeAddress({ scope, tag }: TreeId): TreeAddress {
  if (scope.length > SCOPE_BYTES_MAX) {
    const message = `on PostgreSQL a scope has at most ${SCOPE_BYTES_MAX} bytes`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'scope', bytes: scope.length })
  }
  if (isLogTag(tag)) return { scope, tag, kind: LOG }
  const headOf = logOfHeadTag(tag)
  if (headOf !== undefined) return { scope, tag: headOf, kind: HEAD }
  const dedupeOf = LOG_OF_DEDUPE_TAG.get(tag)
  if (dedupeOf !== undefined) return { scope, tag: dedupeOf, kind: DEDUPE }
  return { scope, tag, kind: ENTRIES }
}

export function headOfKey(key: ByteString): ByteString {
  return key.length <= KEY_HEAD_BYTES ? key : key.slice(0, KEY_HEAD_BYTES)
}

export function tailOfKey(key: ByteString): ByteString {
  return key.length <= KEY_HEAD_BYTES ? '' : key.slice(KEY_HEAD_BYTES)
}

/** The sequence whose key this is; undefined if no entry of a log can have it. */
export function sequenceOfKey(kind: Kind, key: ByteString): bigint | undefined {
  if (kind !== LOG || key.length !== 8) return undefined
  const sequence = bigintOf(key)
  return sequence > INT8_MAX ? undefined : sequence
}

export interface Bounds {
  readonly from: ByteString
  readonly fromTail: ByteString
  /** Undefined: no end. */
  readonly to: ByteString | undefined
  readonly toTail: ByteString
  readonly fromSequence: bigint
  readonly toSequence: bigint
}

export function boundsOf(range: Range): Bounds {
  const { from = '', to } = range
  return {
    from: headOfKey(from),
    fromTail: tailOfKey(from),
    to: to === undefined ? undefined : headOfKey(to),
    toTail: to === undefined ? '' : tailOfKey(to),
    fromSequence: firstSequence(from),
    toSequence: to === undefined ? INT8_MAX : firstSequence(to),
  }
}

const INT8_MAX = 2n ** 63n - 1n

/** The first sequence whose key is not below `bound`. */
function firstSequence(bound: ByteString): bigint {
  const padded = bigintOf(bound.slice(0, 8).padEnd(8, '\0'))
  const first = bound.length > 8 ? padded + 1n : padded
  return first > INT8_MAX ? INT8_MAX : first
}

function bigintOf(key: ByteString): bigint {
  return Buffer.from(key, 'latin1').readBigUInt64BE()
}
