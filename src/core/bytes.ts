/**
 * A string in which every char code is one byte (0–255). V8 stores one byte per char, compares such strings like `memcmp`, and
 * hashes them as Map keys. They are the cheapest immutable bytes in JavaScript. Keys and values of the storage port are
 * byte strings.
 */
export type ByteString = string

const ASCII = /^[\0-\x7f]*$/

const NOT_A_BYTE = /[^\0-\xff]/

/** Whether every char is a byte. V8 sees this at once for a string that it stores with one byte a char. */
export function isBytes(text: string): text is ByteString {
  return !NOT_A_BYTE.test(text)
}

/** Whether every char is below 128. Counting UTF-8 bytes is the fastest way to check a long text. */
export function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length
}

/** The UTF-8 bytes of a well-formed string. ASCII text is its own UTF-8. */
export function utf8(text: string): ByteString {
  return ASCII.test(text) ? text : Buffer.from(text, 'utf8').latin1Slice()
}

/** The text of UTF-8 bytes. */
export function fromUtf8(bytes: ByteString): string {
  return ASCII.test(bytes) ? bytes : Buffer.from(bytes, 'latin1').utf8Slice()
}

/** V8 copies slices shorter than this. Longer slices refer to the whole string. */
const LEANING_CHARS = 13

/** A copy of the bytes. A slice of a string keeps the whole string in memory; the copy does not. */
export function flat(bytes: ByteString): ByteString {
  return bytes.length < LEANING_CHARS ? bytes : Buffer.from(bytes, 'latin1').latin1Slice()
}

/** A new buffer with a copy of the bytes. */
export function toBuffer(bytes: ByteString): Buffer {
  return Buffer.from(bytes, 'latin1')
}

// The methods of `Buffer` work on any `Uint8Array`. Making a buffer of it first would take as long as copying a kilobyte.
const { latin1Slice, latin1Write } = Buffer.prototype

/** The bytes of a buffer, copied into a string. */
export function fromBuffer(buffer: Uint8Array): ByteString {
  return latin1Slice.call(buffer as Buffer)
}

/** A new `Uint8Array` with a copy of the bytes and memory of its own. */
export function toUint8Array(bytes: ByteString): Uint8Array {
  const copy = new Uint8Array(bytes.length)
  writeBytes(copy, 0, bytes)
  return copy
}

/** Writes bytes into an array. */
export function writeBytes(into: Uint8Array, at: number, bytes: ByteString): void {
  latin1Write.call(into as Buffer, bytes, at, bytes.length)
}

/** Views of one buffer from a fixed start. Short views are cached, because creating one takes longer than hashing its bytes. */
export class Views {
  readonly #buffer: Buffer
  readonly #start: number
  readonly #kept = new Map<number, Buffer>()

  constructor(buffer: Buffer, start = 0) {
    this.#buffer = buffer
    this.#start = start
  }

  upTo(end: number): Buffer {
    const kept = this.#kept.get(end)
    if (kept !== undefined) return kept
    const view = this.#buffer.subarray(this.#start, end)
    if (view.length <= VIEW_KEPT_BYTES) this.#kept.set(end, view)
    return view
  }
}

/** The longest view that is cached, and so the most views of a buffer. */
const VIEW_KEPT_BYTES = 2_048

/** Hashes and ids fit into the scratch buffer. */
const HEX_SCRATCH_BYTES = 64
const hexScratch = Buffer.alloc(HEX_SCRATCH_BYTES)

/** The first `length` bytes in hexadecimal; all by default. */
export function hex(bytes: ByteString, length: number = bytes.length): string {
  if (length > HEX_SCRATCH_BYTES) return toBuffer(bytes).hexSlice(0, length)
  hexScratch.latin1Write(bytes, 0, length)
  return hexScratch.hexSlice(0, length)
}

/** A whole number as 8 bytes, big-endian, so that byte order is numeric order. */
export function u64(value: number): ByteString {
  const high = Math.floor(value / 0x1_0000_0000)
  const low = value >>> 0
  return String.fromCharCode(
    (high >>> 24) & 255,
    (high >>> 16) & 255,
    (high >>> 8) & 255,
    high & 255,
    (low >>> 24) & 255,
    (low >>> 16) & 255,
    (low >>> 8) & 255,
    low & 255,
  )
}

/** The whole number that `u64` encoded into the 8 bytes from `at`. It is exact up to `Number.MAX_SAFE_INTEGER`. */
export function fromU64(bytes: ByteString, at = 0): number {
  return fromU32(bytes, at) * 0x1_0000_0000 + fromU32(bytes, at + 4)
}

/** A whole number below 2³² as 4 bytes, big-endian. */
export function u32(value: number): ByteString {
  return String.fromCharCode(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255)
}

/** The whole number that `u32` encoded into the 4 bytes from `at`. */
export function fromU32(bytes: ByteString, at: number): number {
  const high = (bytes.charCodeAt(at) << 24) | (bytes.charCodeAt(at + 1) << 16)
  return (high | (bytes.charCodeAt(at + 2) << 8) | bytes.charCodeAt(at + 3)) >>> 0
}
