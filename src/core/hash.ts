import { createHash, hash } from 'node:crypto'
import { type ByteString, toBuffer, u64, utf8, Views } from './bytes.ts'
import { invariant } from './invariant.ts'

/**
 * SHA-256 and the two hashes of the event chain; docs/hash-chain.md has their
 * exact bytes and vectors. A hash is a byte string of 32 bytes.
 */

export const HASH_BYTES = 32

/** Most of what is hashed fits in here; for the rest a buffer is made. */
const SCRATCH_BYTES = 16 * 1024
const scratch = Buffer.alloc(SCRATCH_BYTES)
const scratchViews = new Views(scratch)

/** What the first event of a log has as its previous hash. */
export const ZERO_HASH: ByteString = '\0'.repeat(HASH_BYTES)

/** Of a text's UTF-8 or of bytes, as 64 lowercase hex digits. */
export function sha256Hex(data: string | Uint8Array): string {
  return hash('sha256', data, 'hex')
}

/** Of bytes, in hex. */
export function sha256HexOf(bytes: ByteString): string {
  return hash('sha256', scratchOf(bytes), 'hex')
}

export function sha256(bytes: ByteString): ByteString {
  return digest(scratchOf(bytes))
}

/** What is hashed at a time: each call has its price, and a text of many megabytes is not to be put together for it. */
const PIECE_CHARS = 16 * 1024

/** SHA-256 of bytes that come piece by piece. */
export class Sha256 {
  readonly #hash = createHash('sha256')
  #piece: ByteString = ''

  add(bytes: ByteString): void {
    this.#piece += bytes
    if (this.#piece.length < PIECE_CHARS) return
    this.#hash.update(this.#piece, 'latin1')
    this.#piece = ''
  }

  /** Once, at the end. */
  hex(): string {
    return this.#hash.update(this.#piece, 'latin1').digest('hex')
  }
}

/** Node gives the digest as a byte string at once; its types know only the encodings that are texts. */
function digest(data: Uint8Array): ByteString {
  return hash('sha256', data, 'latin1' as 'hex')
}

// A domain tag in front, ended by U+0000, so that no hash of one kind can pass for one of another.
const LINK_TAG = 'annals:link:1\0'
const BODY_TAG = 'annals:body:1\0'

const PREV_HASH_AT = LINK_TAG.length
const SEQUENCE_AT = PREV_HASH_AT + HASH_BYTES
const TIME_AT = SEQUENCE_AT + 8
const BODY_HASH_AT = TIME_AT + 8
/** One buffer for all links: they have all the same length, and hashing is synchronous. */
const link = Buffer.alloc(BODY_HASH_AT + HASH_BYTES)
link.latin1Write(LINK_TAG, 0, LINK_TAG.length)

/**
 * The hash of an event: what the chain's next event has as `prevHash`. It
 * binds the event to its place and time; `bodyHash` stands for the rest, so
 * that an engine can link an event without knowing it, and a payload can be
 * pruned without breaking the chain.
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
 * The hash of what an event says and where: each of the namespace's parts, the
 * type and the payload, with its length in front, so that no two different
 * lists give the same bytes.
 */
export function bodyHash(namespaceParts: readonly string[], type: string, payload: ByteString): ByteString {
  return bodyHashAfter(bodyPrefix(namespaceParts), utf8(type), payload)
}

/** What all bodies of one namespace begin with. */
export function bodyPrefix(namespaceParts: readonly string[]): ByteString {
  return BODY_TAG + namespaceParts.map(part => lengthPrefixed(utf8(part))).join('')
}

function lengthPrefixed(bytes: ByteString): ByteString {
  return u64(bytes.length) + bytes
}

/** `bodyHash`, with the part done that is the same for every event of a log. */
export function bodyHashAfter(prefix: ByteString, type: ByteString, payload: ByteString): ByteString {
  const size = prefix.length + 16 + type.length + payload.length
  const isShort = size <= SCRATCH_BYTES
  const buffer = isShort ? scratch : Buffer.allocUnsafeSlow(size)
  const at = writeItem(buffer, writeItem(buffer, buffer.latin1Write(prefix, 0, prefix.length), type), payload)
  invariant(at === size, 'every byte of the body is hashed')
  return digest(isShort ? scratchViews.upTo(size) : buffer)
}

/** With its length in front; answers where it ends. */
function writeItem(buffer: Buffer, at: number, item: ByteString): number {
  writeU64(buffer, at, item.length)
  return at + 8 + buffer.latin1Write(item, at + 8, item.length)
}

/** Valid until the next of these. */
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
