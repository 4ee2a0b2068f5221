import { type ByteString, fromU64, fromUtf8 } from '../core/bytes.ts'
import { bodyHashAfter } from '../core/hash.ts'
import { mapInSlices, nextSlice, valueBytes } from '../core/slices.ts'
import type { Given } from '../core/storable.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeGivenCanonical, isLarge, type Value } from '../core/value.ts'
import { bodyPrefixOf, type ChainReport, verifyChain } from '../engine/chain.ts'
import { TAGS } from '../engine/keys.ts'
import { BODY_AT, hashesInHex, timeOf } from '../engine/log.ts'
import type { Append, Entry, Reader } from '../engine/storage.ts'

const TAG = TAGS.event
const TYPE_BYTES_MAX = 256

/** An event of a run's own log. Events never change. */
export interface Event<K extends string = string, P = Value> {
  /** The position in the log: 0, 1, 2 … without gaps. */
  readonly sequence: number
  /** The type that the caller gave. */
  readonly type: K
  /** The value that the caller gave. */
  readonly payload: P
  /** When the event was appended, in milliseconds since 1970; never before the event before it. */
  readonly timestamp: number
  /** The hash of the event before it, in hex; 64 zeros for the first. */
  readonly prevHash: string
  /** The hash of the event, in hex. It covers the content, the place and `prevHash`. */
  readonly hash: string
}

/** The default types of events: any type with any payload. */
export type AnyEvents = Readonly<Record<string, Value>>

/** The names of event types. `E` has the type of the payload for each of them. */
export type EventType<E> = keyof E & string

/** An event of one of the types `K`. TypeScript tells the payload by `type`. */
export type EventOf<E, K extends EventType<E> = EventType<E>> = { [T in K]: Event<T, E[T]> }[K]

/** The payload that a call takes: of the type that `E` has, or any that can be stored if `E` is open. */
export type GivenPayload<E, K extends EventType<E>, T> = string extends keyof E
  ? Given<Value, T>
  : Given<E[K], T>

/** @internal Checks the type of an event, and returns its bytes. */
export function checkType(type: string): ByteString {
  return checkText('type', type, { bytesMax: TYPE_BYTES_MAX })
}

// The body of a log entry is the length of the type (2 bytes), the type, and the payload in its canonical encoding.

/** @internal The append of an event; a promise if the payload is large. */
export function appendOf(scope: ByteString, type: string, payload: unknown): Append | Promise<Append> {
  const typeBytes = checkType(type)
  const encoded = encodeGivenCanonical(payload)
  return typeof encoded === 'string'
    ? appendOfBytes(scope, typeBytes, encoded)
    : encoded.then(bytes => appendOfLarge(scope, typeBytes, bytes))
}

/** Hashing many megabytes gets a slice of its own, between encoding and committing. */
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

/** @internal The body of an entry. */
export function eventBody(type: ByteString, payload: ByteString): ByteString {
  return String.fromCharCode(type.length >> 8, type.length & 255) + type + payload
}

/** @internal Type and payload of the body that begins at `at`. */
export function contentOf(bytes: ByteString, at = 0): { type: ByteString; payload: ByteString } {
  const start = at + 2
  const end = start + (bytes.charCodeAt(at) << 8) + bytes.charCodeAt(at + 1)
  return { type: bytes.slice(start, end), payload: bytes.slice(end) }
}

/** @internal Verifies the chain of a scope's event log. */
export function verifyEvents(reader: Reader, scope: ByteString): Promise<ChainReport> {
  return verifyChain(reader, { scope, tag: TAG }, eventBodyHash(scope))
}

/** @internal Returns a function that hashes the bodies of entries of this scope. */
export function eventBodyHash(scope: ByteString): (body: ByteString) => ByteString {
  const prefix = bodyPrefixOf(scope)
  return body => {
    const { type, payload } = contentOf(body)
    return bodyHashAfter(prefix, type, payload)
  }
}

/** Decodes an event in one step. `readEvent` takes payloads of any size. */
function eventOf(entry: Entry): Event {
  const { type, payload } = contentOf(entry.value, BODY_AT)
  return eventWith(entry, type, decodeValue(payload))
}

/** @internal Decodes an event; a large payload in slices. */
export function readEvent(entry: Entry): Event | Promise<Event> {
  if (!isLarge(entry.value)) return eventOf(entry)
  const { type, payload } = contentOf(entry.value, BODY_AT)
  return Promise.resolve(decodeStored(payload)).then(value => eventWith(entry, type, value))
}

/** @internal Decodes events in slices. */
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
