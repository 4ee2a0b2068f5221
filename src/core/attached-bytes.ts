import { type ByteString, fromU32, toUint8Array, u32, writeBytes } from './bytes.ts'

/**
 * The layout of a stored value with bytes in it. The bytes of its `Uint8Array`s stand behind its text, as they are:
 *
 *   0  0x00     no JSON text begins with it
 *   1  length   of the text, 4 bytes, big-endian
 *   5  text     JSON; in place of each `Uint8Array`, a string with its length
 *      bytes    of all `Uint8Array`s, in the order in which they occur in the text
 *
 * A value without bytes is its text alone. Because the text holds lengths and no offsets, several values are joined by joining
 * their texts and their bytes.
 */
const TEXT_AT = 5

/** The offset of a stored value's text. */
export function textStart(stored: ByteString): number {
  return stored.charCodeAt(0) === 0 ? TEXT_AT : 0
}

/** The stored form of a text and its bytes. */
export function attach(text: ByteString, bytes: ByteString): ByteString {
  return bytes === '' ? text : `\0${u32(text.length)}${text}${bytes}`
}

/** Does the same for bytes in pieces. Joining all of them at once copies them once. */
export function attachPieces(text: ByteString, pieces: readonly ByteString[]): ByteString {
  return pieces.length === 0 ? text : [attach(text, pieces[0]), ...pieces.slice(1)].join('')
}

/** A stored value in its two parts. */
export interface Detached {
  readonly text: ByteString
  readonly bytes: ByteString
}

/** The parts of a stored value; undefined if they do not fit the layout. */
export function detach(stored: ByteString): Detached | undefined {
  if (stored.charCodeAt(0) !== 0) return { text: stored, bytes: '' }
  if (stored.length < TEXT_AT) return undefined
  const end = TEXT_AT + fromU32(stored, 1)
  // Without bytes, the value would have been stored as its text.
  return end < stored.length ? { text: stored.slice(TEXT_AT, end), bytes: stored.slice(end) } : undefined
}

/** The bytes that are copied without a pause. */
const PIECE_BYTES = 256 * 1024

/** Hands out the bytes of a stored value, in the order of its text. */
export class AttachedBytes {
  readonly #bytes: ByteString
  readonly #unfilled: { readonly copy: Uint8Array; readonly from: number }[] = []
  #at = 0

  constructor(bytes: ByteString) {
    this.#bytes = bytes
  }

  /** Whether all bytes were taken. */
  get isUsedUp(): boolean {
    return this.#at === this.#bytes.length
  }

  /** A new copy of the next bytes, which `fill` fills if they are many. Undefined if there are fewer. */
  take(length: number): Uint8Array | undefined {
    const from = this.#at
    if (length < 0 || length > this.#bytes.length - from) return undefined
    this.#at = from + length
    if (length <= PIECE_BYTES) return toUint8Array(this.#bytes.slice(from, from + length))
    const copy = new Uint8Array(length)
    this.#unfilled.push({ copy, from })
    return copy
  }

  /** Fills the long copies, with pauses. */
  *fill(): Generator<void, void, void> {
    for (const { copy, from } of this.#unfilled) {
      for (let at = 0; at < copy.length; at += PIECE_BYTES) {
        writeBytes(copy, at, this.#bytes.slice(from + at, from + Math.min(copy.length, at + PIECE_BYTES)))
        yield
      }
    }
  }
}
