import { createHash, hash } from 'node:crypto'
import { type ByteString, toBuffer, u64, utf8, Views } from './bytes.ts'
import { invariant } from './invariant.ts'

/**
 * SHA-256 and the two hashes of the event chain; docs/hash-chain.md has their
 * exact bytes and vectors. A hash is a byte string of 32 bytes.
 */

export const HASH_BYTES = 32

/** Most input fits into the scratch buffer. Longer input gets a buffer of its own. */
const SCRATCH_BYTES = 16 * 1024
const scratch = Buffer.alloc(SCRATCH_BYTES)
const scratchViews = new Views(scratch)

/** The previous hash of a log's first event. */
export const ZERO_HASH: ByteString = '\0'.repeat(HASH_BYTES)

/** The SHA-256 of bytes, or of a text's UTF-8, as 64 lowercase hex digits. */
export function sha256Hex(data: string | Uint8Array): string {
  return hash('sha256', data, 'hex')
}

/** The SHA-256 of a byte string, in hex. */
export function sha256HexOf(bytes: ByteString): string {
  return hash('sha256', scratchOf(bytes), 'hex')
}

/** The SHA-256 of a byte string, as 32 bytes. */
export function sha256(bytes: ByteString): ByteString {
  return digest(scratchOf(bytes))
}

/** Pieces are hashed together up to this length, because each call of the hash function has a cost. */
const PIECE_CHARS = 16 * 1024

/** Computes the SHA-256 of bytes that come piece by piece. */
export class Sha256 {
  readonly #hash = createHash('sha256')
  #piece: ByteString = ''

  add(bytes: ByteString): void {
    this.#piece += bytes
    if (this.#piece.length < PIECE_CHARS) return
    this.#hash.update(this.#piece, 'latin1')
    this.#piece = ''
  }

  /** The hash in hex. Called once, at the end. */
  hex(): string {
    return this.#hash.update(this.#piece, 'latin1').digest('hex')
  }
}

/** Node can return the digest as a byte string, although its types allow only text encodings. */
function digest(data: Uint8Array): ByteString {
  return hash('sha256', data, 'latin1' as 'hex')
}

// Each kind of hash starts with its own tag, ended by U+0000, so that a hash of one kind never equals one of another.
const LINK_TAG = 'annals:link:1\0'
const BODY_TAG = 'annals:body:1\0'

const PREV_HASH_AT = LINK_TAG.length
const SEQUENCE_AT = PREV_HASH_AT + HASH_BYTES
const TIME_AT = SEQUENCE_AT + 8
const BODY_HASH_AT = TIME_AT + 8
/** One buffer for all links, which have the same length and are hashed synchronously. */
const link = Buffer.alloc(BODY_HASH_AT + HASH_BYTES)
link.latin1Write(LINK_TAG, 0, LINK_TAG.length)

/**
 * The hash of an event, which is the `prevHash` of the next event. It covers the event's place and time, and its content by
 * `bodyHash`. So an engine can link an event without knowing its content, and a payload could be removed without
 * breaking the chain.
 */
export function linkHash(
  prevHash: ByteString,
  sequence: number,
  time: number,
  bodyHash: ByteString,
): ByteString {
  invariant(prevHash.length === HASH_BYTES && bodyHash.length === HASH_BYTES, 'a hash has 32 bytes')
  link.latin1Write(prevHash, PREV_HASH_AT, HASH_BYTES)
  writeU64(link, SEQUENCE_AT, sequence)
  writeU64(link, TIME_AT, time)
  link.latin1Write(bodyHash, BODY_HASH_AT, HASH_BYTES)
  return digest(link)
}

/**
 * The hash of an event's content: the parts of the namespace, the type and the payload. Each has its length in front, so that no
 * two different lists have the same bytes.
 */
export function bodyHash(namespaceParts: readonly string[], type: string, payload: ByteString): ByteString {
  return bodyHashAfter(bodyPrefix(namespaceParts), utf8(type), payload)
}

/** The bytes with which the hash input of every event of a namespace begins. */
export function bodyPrefix(namespaceParts: readonly string[]): ByteString {
  return BODY_TAG + namespaceParts.map(part => lengthPrefixed(utf8(part))).join('')
}

function lengthPrefixed(bytes: ByteString): ByteString {
  return u64(bytes.length) + bytes
}

/** Computes `bodyHash` from a prefix, which is the same for every event of a log. */
export function bodyHashAfter(prefix: ByteString, type: ByteString, payload: ByteString): ByteString {
  const size = prefix.length + 16 + type.length + payload.length
  const isShort = size <= SCRATCH_BYTES
  const buffer = isShort ? scratch : Buffer.allocUnsafeSlow(size)
  const at = writeItem(buffer, writeItem(buffer, buffer.latin1Write(prefix, 0, prefix.length), type), payload)
  invariant(at === size, 'every byte of the body is hashed')
  return digest(isShort ? scratchViews.upTo(size) : buffer)
}

/** Writes an item with its length in front, and returns where it ends. */
function writeItem(buffer: Buffer, at: number, item: ByteString): number {
  writeU64(buffer, at, item.length)
  return at + 8 + buffer.latin1Write(item, at + 8, item.length)
}

/** The bytes in a buffer that is valid until the next call. */
function scratchOf(bytes: ByteString): Buffer {
  if (bytes.length > SCRATCH_BYTES) return toBuffer(bytes)
  scratch.latin1Write(bytes, 0, bytes.length)
  return scratchViews.upTo(bytes.length)
}

function writeU64(buffer: Buffer, at: number, value: number): void {
  invariant(Number.isSafeInteger(value) && value >= 0, 'a whole number that is not negative')
  const high = Math.floor(value / 0x1_0000_0000)
  const low = value >>> 0
  buffer[at] = high >>> 24
  buffer[at + 1] = high >>> 16
  buffer[at + 2] = high >>> 8
  buffer[at + 3] = high
  buffer[at + 4] = low >>> 24
  buffer[at + 5] = low >>> 16
  buffer[at + 6] = low >>> 8
  buffer[at + 7] = low
}
