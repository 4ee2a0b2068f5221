import { type ByteString, fromU64, hex, u64 } from '../core/bytes.ts'
import { HASH_BYTES, linkHash, ZERO_HASH } from '../core/hash.ts'
import type { Append, Appended, Entry, Operation } from './storage.ts'

/**
 * The layout of a log, which all engines share so that their hash chains are equal:
 *
 *   entry   key: sequence (8 bytes big-endian); value: previous hash (32), hash (32), time (8), body
 *   head    value: length (8), hash of the last entry (32)
 *   dedupe  key: the dedupe key; value: sequence (8), time (8), hash (32), memo
 *   feed    key: version of the commit (8), a count (4); value: sequence (8), time (8), the log's scope
 *
 * An entry's value holds its time, because a copied entry keeps its own time
 * while the commit that copies it has a later one.
 */
const TIME_AT = 2 * HASH_BYTES
/** The offset of the body in an entry's value. */
export const BODY_AT: number = TIME_AT + 8

/** The end of a log, to which the next append is linked. */
export interface LogHead {
  /** The number of entries, which is the sequence of the next one. */
  readonly length: number
  /** The hash of the last entry; zeros if there is none. */
  readonly hash: ByteString
}

/** The head of a log without entries. */
export const EMPTY_LOG: LogHead = { length: 0, hash: ZERO_HASH }

/** A parsed entry of a log. */
export interface LogEntry {
  /** The entry's position in the log, from 0. */
  readonly sequence: number
  /** The entry's time in milliseconds since 1970. */
  readonly time: number
  /** The hash of the entry before it; zeros for the first one. */
  readonly prevHash: ByteString
  /** The entry's own hash. */
  readonly hash: ByteString
  /** The bytes that were appended. */
  readonly body: ByteString
}

/** An append that has its place in the log. */
export interface Linked {
  /** The entry's position in the log, from 0. */
  readonly sequence: number
  /** The entry's hash. */
  readonly hash: ByteString
  /** The entry's time in milliseconds since 1970. */
  readonly time: number
  /** The key of the entry to store. */
  readonly key: ByteString
  /** The value of the entry to store. */
  readonly value: ByteString
  /** Sequence and time, with which the values of dedupe and feed entries begin. */
  readonly place: ByteString
}

/** Links an append to the head of its log. `time` is the commit's time, which an append without its own time gets. */
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
 * The time of a commit: `now`, or the latest time of its operations. A copied entry may be ahead of the clock. No later commit
 * may be before it, and after a crash the engine knows only the times of commits.
 */
export function commitTime(operations: readonly Operation[], now: number): number {
  let time = now
  for (const operation of operations) {
    if (operation.op !== 'append' && operation.op !== 'put') continue
    if (operation.time !== undefined && operation.time > time) time = operation.time
  }
  return time
}

/** The head of a log whose last entry is the given one. */
export function headAfter({ sequence, hash }: { sequence: number; hash: ByteString }): LogHead {
  return { length: sequence + 1, hash }
}

/** The bytes of a head, as the engine stores them. */
export function headValue({ length, hash }: LogHead): ByteString {
  return u64(length) + hash
}

/** Parses the entry in which an engine stores a log's head. The entry is undefined before the first append. */
export function parseHead(entry: Entry | undefined): LogHead {
  if (entry === undefined) return EMPTY_LOG
  return { length: fromU64(entry.value), hash: entry.value.slice(8, 8 + HASH_BYTES) }
}

/** Parses an entry of a log. */
export function parseLogEntry({ key, value }: Entry): LogEntry {
  return {
    sequence: fromU64(key),
    time: fromU64(value, TIME_AT),
    prevHash: value.slice(0, HASH_BYTES),
    hash: value.slice(HASH_BYTES, TIME_AT),
    body: value.slice(BODY_AT),
  }
}

/** Both hashes of an entry, without parsing the rest. */
export function linksOf({ value }: Entry): Pick<LogEntry, 'prevHash' | 'hash'> {
  return { prevHash: value.slice(0, HASH_BYTES), hash: value.slice(HASH_BYTES, TIME_AT) }
}

/** The time of a log entry, without parsing the rest. */
export function timeOf({ value }: Entry): number {
  return fromU64(value, TIME_AT)
}

/** Both hashes of an entry in hex. One conversion for both, because each call costs more than its bytes. */
export function hashesInHex({ value }: Entry): { readonly prevHash: string; readonly hash: string } {
  const digits = hex(value, TIME_AT)
  return { prevHash: digits.slice(0, TIME_AT), hash: digits.slice(TIME_AT) }
}

/** The value of a dedupe entry. */
export function dedupeValue({ place, hash }: Linked, memo: ByteString): ByteString {
  return place + hash + memo
}

/** The result of a duplicate append, from the dedupe entry of the first one. */
export function parseDedupe({ value }: Entry): Appended {
  return {
    sequence: fromU64(value),
    time: fromU64(value, 8),
    hash: value.slice(16, 16 + HASH_BYTES),
    memo: value.slice(16 + HASH_BYTES),
    duplicate: true,
  }
}

/** A parsed entry of a feed, which points to an entry of a log. */
export interface FeedEntry {
  /** The scope of the log. */
  readonly scope: ByteString
  /** The entry's position in its log. */
  readonly sequence: number
  /** The entry's time in milliseconds since 1970. */
  readonly time: number
}

const FIRST_COUNT: ByteString = '\0\0\0\0'

/** The key of a feed entry. `count` distinguishes the appends of one commit and grows in their order. */
export function feedKey(version: number, count: number): ByteString {
  return u64(version) + (count === 0 ? FIRST_COUNT : u64(count).slice(4))
}

/** The value of a feed entry. */
export function feedValue({ place }: Linked, scope: ByteString): ByteString {
  return place + scope
}

const FEED_SCOPE_AT = 16

/** Parses an entry of a feed. */
export function parseFeed({ value }: Entry): FeedEntry {
  return { sequence: fromU64(value), time: fromU64(value, 8), scope: value.slice(FEED_SCOPE_AT) }
}

/** Whether two feed entries point to the same log. Compares from the end, where scopes usually differ, without a copy. */
export function isOfSameLog({ value: one }: Entry, { value: other }: Entry): boolean {
  if (one.length !== other.length) return false
  for (let i = one.length - 1; i >= FEED_SCOPE_AT; i--) {
    if (one.charCodeAt(i) !== other.charCodeAt(i)) return false
  }
  return true
}
