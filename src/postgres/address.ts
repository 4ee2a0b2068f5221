import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { dedupeTag, feedTag, isEngineTag, isLogTag, logOfHeadTag, TAGS } from '../engine/keys.ts'
import type { Append, Range, TreeId } from '../engine/storage.ts'
import type { KeyRange } from './wire-types.ts'

/**
 * How places and ranges of the port are addressed on the server. An index row
 * holds at most 2,700 bytes, so a key is sent in two parts, and the index holds
 * the first. The rows of a log also hold its head and its dedupe keys, which the
 * port shows as separate trees: on the server they are the log's tree, read as
 * another kind.
 */
const KEY_HEAD_BYTES = 2_000
const SCOPE_BYTES_MAX = 2_000

export type Kind = 0 | 1 | 2 | 3 | 4
const ENTRIES = 0
const LOG = 1
const HEAD = 2
const DEDUPE = 3
const FEED = 4

export interface TreeAddress {
  readonly scope: ByteString
  readonly tag: number
  readonly kind: Kind
}

const LOG_TAGS = Object.values(TAGS).filter(isLogTag)
const LOG_OF_DEDUPE_TAG: ReadonlyMap<number, number> = new Map(LOG_TAGS.map(tag => [dedupeTag(tag), tag]))
const FEED_TAGS: ReadonlySet<number> = new Set(LOG_TAGS.map(feedTag))

export function isScopeShort(scope: ByteString): boolean {
  return scope.length <= SCOPE_BYTES_MAX
}

export function checkScope(scope: ByteString): void {
  if (isScopeShort(scope)) return
  const message = `on PostgreSQL a scope has at most ${SCOPE_BYTES_MAX} bytes`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'scope', bytes: scope.length })
}

export function treeAddress({ scope, tag }: TreeId): TreeAddress {
  checkScope(scope)
  if (isLogTag(tag)) return { scope, tag, kind: LOG }
  const headOf = logOfHeadTag(tag)
  if (headOf !== undefined) return { scope, tag: headOf, kind: HEAD }
  const dedupeOf = LOG_OF_DEDUPE_TAG.get(tag)
  if (dedupeOf !== undefined) return { scope, tag: dedupeOf, kind: DEDUPE }
  return { scope, tag, kind: FEED_TAGS.has(tag) ? FEED : ENTRIES }
}

/** The tree in which the feed lists an append. */
export function feedOf({ tag }: Append, feed: ByteString): TreeId {
  return { scope: feed, tag: feedTag(tag) }
}

/** Whether trees with this tag hold entries. No append changes an entry. */
export function isEntryTag(tag: number): boolean {
  return !isLogTag(tag) && !isEngineTag(tag)
}

/** The first part of a scope, including its colon, as `tenant_of` finds it on the server. */
export function tenantOf(scope: ByteString): ByteString {
  return scope.slice(0, scope.indexOf(':') + 1)
}

export function headOfKey(key: ByteString): ByteString {
  return key.length <= KEY_HEAD_BYTES ? key : key.slice(0, KEY_HEAD_BYTES)
}

export function tailOfKey(key: ByteString): ByteString {
  return key.length <= KEY_HEAD_BYTES ? '' : key.slice(KEY_HEAD_BYTES)
}

/**
 * The number that a key begins with: the sequence in a log, the version in a feed. Undefined in other trees, and for a key
 * that no log and no feed can have.
 */
export function sequenceOfKey(kind: Kind, key: ByteString): bigint | undefined {
  if (!(kind === LOG && key.length === 8) && !(kind === FEED && key.length === FEED_KEY_BYTES))
    return undefined
  const sequence = bigintOf(key)
  return sequence >= INT8_MAX ? undefined : sequence
}

const FEED_KEY_BYTES = 12

/** A bound of keys that are numbers: sequences of a log, or versions and counts of a feed. */
interface NumberBound {
  readonly sequence: bigint
  readonly count: number
}

export function keyRangeOf(range: Range): KeyRange {
  const { from = '', to, reverse = false, limit } = range
  const numberOf = treeAddress(range).kind === FEED ? firstListed : firstSequence
  const first = numberOf(from)
  const end = to === undefined ? END : numberOf(to)
  return {
    fromKey: headOfKey(from),
    fromTail: tailOfKey(from),
    fromSequence: first.sequence,
    fromCount: first.count,
    toKey: to === undefined ? undefined : headOfKey(to),
    toTail: to === undefined ? '' : tailOfKey(to),
    toSequence: end.sequence,
    toCount: end.count,
    backwards: reverse,
    atMost: limit,
  }
}

const INT8_MAX = 2n ** 63n - 1n
const INT4_MAX = 2 ** 31 - 1
const END: NumberBound = { sequence: INT8_MAX, count: 0 }

/** The first sequence whose key is not below `bound`. */
function firstSequence(bound: ByteString): NumberBound {
  const padded = bigintOf(bound.padEnd(8, '\0'))
  const first = bound.length > 8 ? padded + 1n : padded
  return first > INT8_MAX ? END : { sequence: first, count: 0 }
}

/** The first place in a feed whose key is not below `bound`. */
function firstListed(bound: ByteString): NumberBound {
  const key = Buffer.from(bound.padEnd(FEED_KEY_BYTES, '\0'), 'latin1')
  const sequence = key.readBigUInt64BE()
  const count = key.readUInt32BE(8) + (bound.length > FEED_KEY_BYTES ? 1 : 0)
  return sequence > INT8_MAX ? END : { sequence, count: Math.min(count, INT4_MAX) }
}

function bigintOf(key: ByteString): bigint {
  return Buffer.from(key.slice(0, 8), 'latin1').readBigUInt64BE()
}
