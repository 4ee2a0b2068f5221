import { type ByteString, fromU64, hex, u64 } from '../core/bytes.ts'
import { HASH_BYTES, linkHash, ZERO_HASH } from '../core/hash.ts'
import type { Append, Appended, Entry, Operation } from './storage.ts'

/**
 * How every engine lays out a log, so that all chain alike:
 *
 *   entry   key: sequence (8 bytes big-endian); value: previous hash (32), hash (32), time (8), body
 *   head    value: length (8), hash of the last entry (32)
 *   dedupe  key: the dedupe key; value: sequence (8), time (8), hash (32), memo
 *   feed    key: version of the commit (8), a count (4); value: sequence (8), time (8), the log's scope
 *
 * The time is in the value, because a copied entry keeps its own while the
 * commit that brings it has another.
 */
const TIME_AT = 2 * HASH_BYTES
/** Where in an entry's value its body begins. */
export const BODY_AT: number = TIME_AT + 8

/** What the next append continues. */
export interface LogHead {
  readonly length: number
  readonly hash: ByteString
}

export const EMPTY_LOG: LogHead = { length: 0, hash: ZERO_HASH }

/** An entry of a log, taken apart. */
export interface LogEntry {
  readonly sequence: number
  readonly time: number
  readonly prevHash: ByteString
  readonly hash: ByteString
  readonly body: ByteString
}

export interface Linked {
  readonly sequence: number
  readonly hash: ByteString
  readonly time: number
  readonly key: ByteString
  readonly value: ByteString
  /** Sequence and time, as dedupe and feed have them. */
  readonly place: ByteString
}

/** Continues a log; `time` is the commit's. */
export function linkAppend({ length, hash: prevHash }: LogHead, append: Append, time: number): Linked {
  const stamp = append.time ?? time
  const hash = linkHash(prevHash, length, stamp, append.bodyHash)
  const key = u64(length)
  const time8 = u64(stamp)
  return {
    sequence: length,
    hash,
    time: stamp,
    key,
    value: prevHash + hash + time8 + append.body,
    place: key + time8,
  }
}

/**
 * The time of a commit. A copied event or entry may be ahead of the clock. The commit that brings it is not before it, so that
 * nothing after it is, even if only the commit's time is left after a crash.
 */
export function commitTime(operations: readonly Operation[], now: number): number {
  let time = now
  for (const operation of operations) {
    if (operation.op !== 'append' && operation.op !== 'put') continue
    if (operation.time !== undefined && operation.time > time) time = operation.time
  }
  return time
}

export function headAfter({ sequence, hash }: { sequence: number; hash: ByteString }): LogHead {
  return { length: sequence + 1, hash }
}

export function headValue({ length, hash }: LogHead): ByteString {
  return u64(length) + hash
}

/** Of the entry in which an engine keeps a log's head; undefined before the first append. */
export function parseHead(entry: Entry | undefined): LogHead {
  if (entry === undefined) return EMPTY_LOG
  return { length: fromU64(entry.value), hash: entry.value.slice(8, 8 + HASH_BYTES) }
}

export function parseLogEntry({ key, value }: Entry): LogEntry {
  return {
    sequence: fromU64(key),
    time: fromU64(value, TIME_AT),
    prevHash: value.slice(0, HASH_BYTES),
    hash: value.slice(HASH_BYTES, TIME_AT),
    body: value.slice(BODY_AT),
  }
}

export function timeOf({ value }: Entry): number {
  return fromU64(value, TIME_AT)
}

/** The hashes of an entry as users see them. Both at once: most of the cost is in the calls. */
export function hashesInHex({ value }: Entry): { readonly prevHash: string; readonly hash: string } {
  const digits = hex(value, TIME_AT)
  return { prevHash: digits.slice(0, TIME_AT), hash: digits.slice(TIME_AT) }
}

/** What is remembered of an append with a dedupe key. */
export function dedupeValue({ place, hash }: Linked, memo: ByteString): ByteString {
  return place + hash + memo
}

/** The answer to an append whose dedupe key is known. */
export function parseDedupe({ value }: Entry): Appended {
  return {
    sequence: fromU64(value),
    time: fromU64(value, 8),
    hash: value.slice(16, 16 + HASH_BYTES),
    memo: value.slice(16 + HASH_BYTES),
    duplicate: true,
  }
}

/** What a feed says of an append. */
export interface FeedEntry {
  /** Of the log. */
  readonly scope: ByteString
  readonly sequence: number
  readonly time: number
}

const FIRST_COUNT: ByteString = '\0\0\0\0'

/** `count` grows from append to append of a commit. */
export function feedKey(version: number, count: number): ByteString {
  return u64(version) + (count === 0 ? FIRST_COUNT : u64(count).slice(4))
}

export function feedValue({ place }: Linked, scope: ByteString): ByteString {
  return place + scope
}

const FEED_SCOPE_AT = 16

export function parseFeed({ value }: Entry): FeedEntry {
  return { sequence: fromU64(value), time: fromU64(value, 8), scope: value.slice(FEED_SCOPE_AT) }
}

/** Whether two entries of a feed are about the same log. From the end, where scopes differ first, and without a copy. */
export function isOfSameLog({ value: one }: Entry, { value: other }: Entry): boolean {
  if (one.length !== other.length) return false
  for (let i = one.length - 1; i >= FEED_SCOPE_AT; i--) {
    if (one.charCodeAt(i) !== other.charCodeAt(i)) return false
  }
  return true
}
