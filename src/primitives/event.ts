import { type ByteString, fromU64, fromUtf8 } from '../core/bytes.ts'
import { bodyHashAfter } from '../core/hash.ts'
import { mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeGiven, isLarge, type Value } from '../core/value.ts'
import { bodyPrefixOf, type ChainReport, verifyChain } from '../engine/chain.ts'
import { TAGS } from '../engine/keys.ts'
import { BODY_AT, hashesInHex, timeOf } from '../engine/log.ts'
import type { Append, Entry, Reader } from '../engine/storage.ts'

const TAG = TAGS.event
const TYPE_BYTES_MAX = 256

/** An event as it was appended: nothing changes it any more. */
export interface Event {
  /** 0, 1, 2 …, without a gap. */
  readonly sequence: number
  readonly type: string
  readonly payload: Value
  /** When it was appended; never before the event before it. */
  readonly timestamp: number
  /** The hash of the event before it; 64 zeros for the first. */
  readonly prevHash: string
  readonly hash: string
}

/** @internal */
export function checkType(type: string): ByteString {
  return checkText('type', type, { bytesMax: TYPE_BYTES_MAX })
}

// The body of an entry: length of the type (2 bytes), type, payload in canonical encoding.

/** @internal At once, unless the payload is large. */
export function appendOf(scope: ByteString, type: string, payload: Value): Append | Promise<Append> {
  const typeBytes = checkType(type)
  const encoded = encodeGiven(payload)
  return typeof encoded === 'string'
    ? appendOfBytes(scope, typeBytes, encoded)
    : encoded.then(bytes => appendOfLarge(scope, typeBytes, bytes))
}

/** To hash many megabytes takes a slice of its own, between encoding and committing them. */
async function appendOfLarge(scope: ByteString, type: ByteString, payload: ByteString): Promise<Append> {
  await nextSlice()
  const append = appendOfBytes(scope, type, payload)
  await nextSlice()
  return append
}

function appendOfBytes(scope: ByteString, type: ByteString, payload: ByteString): Append {
  return {
    op: 'append',
    scope,
    tag: TAG,
    body: eventBody(type, payload),
    bodyHash: bodyHashAfter(bodyPrefixOf(scope), type, payload),
  }
}

/** @internal */
export function eventBody(type: ByteString, payload: ByteString): ByteString {
  return String.fromCharCode(type.length >> 8, type.length & 255) + type + payload
}

/** @internal Of the body that begins at `at`. */
export function contentOf(bytes: ByteString, at = 0): { type: ByteString; payload: ByteString } {
  const start = at + 2
  const end = start + (bytes.charCodeAt(at) << 8) + bytes.charCodeAt(at + 1)
  return { type: bytes.slice(start, end), payload: bytes.slice(end) }
}

/** @internal */
export function verifyEvents(reader: Reader, scope: ByteString): Promise<ChainReport> {
  return verifyChain(reader, { scope, tag: TAG }, eventBodyHash(scope))
}

/** @internal Of the body of an entry in this scope. */
export function eventBodyHash(scope: ByteString): (body: ByteString) => ByteString {
  const prefix = bodyPrefixOf(scope)
  return body => {
    const { type, payload } = contentOf(body)
    return bodyHashAfter(prefix, type, payload)
  }
}

/** Decodes at once. `readEvent` is for payloads of any size. */
function eventOf(entry: Entry): Event {
  const { type, payload } = contentOf(entry.value, BODY_AT)
  return eventWith(entry, type, decodeValue(payload))
}

/** @internal Decodes a large payload in slices. */
export function readEvent(entry: Entry): Event | Promise<Event> {
  if (!isLarge(entry.value)) return eventOf(entry)
  const { type, payload } = contentOf(entry.value, BODY_AT)
  return Promise.resolve(decodeStored(payload)).then(value => eventWith(entry, type, value))
}

/** @internal */
export function readEvents(entries: readonly Entry[]): Event[] | Promise<Event[]> {
  return mapInSlices(entries, readEvent, valueBytes)
}

function eventWith(entry: Entry, type: ByteString, payload: Value): Event {
  const { prevHash, hash } = hashesInHex(entry)
  return Object.freeze({
    sequence: fromU64(entry.key),
    type: fromUtf8(type),
    payload,
    timestamp: timeOf(entry),
    prevHash,
    hash,
  })
}
