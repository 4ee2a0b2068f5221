/**
 * A string whose every char code is one byte (0–255). V8 stores it one byte a
 * char, compares it like `memcmp` with `<`, hashes it as a Map key, and it
 * can't be changed behind our back: the cheapest immutable bytes that
 * JavaScript has. Keys and values of the storage port are byte strings.
 */
export type ByteString = string

const ASCII = /^[\0-\x7f]*$/

const NOT_A_BYTE = /[^\0-\xff]/

/** Whether every char is a byte. V8 sees this at once for a string that it stores with one byte a char. */
export function isBytes(text: string): text is ByteString {
  return !NOT_A_BYTE.test(text)
}

/** Whether every char is below 128. To let Node count UTF-8 bytes is the quickest look at all of a long text. */
export function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length
}

/** UTF-8 bytes of a well-formed string. ASCII, the common case, is its own UTF-8. */
export function utf8(text: string): ByteString {
  return ASCII.test(text) ? text : Buffer.from(text, 'utf8').latin1Slice()
}

/** The text whose UTF-8 bytes these are. */
export function fromUtf8(bytes: ByteString): string {
  return ASCII.test(bytes) ? bytes : Buffer.from(bytes, 'latin1').utf8Slice()
}

/** V8 copies parts of a string below this length, and lets longer ones lean on the whole. */
const LEANING_CHARS = 13

/** The same, with nothing but itself in memory: a part of a string keeps all of it alive. */
export function flat(bytes: ByteString): ByteString {
  return bytes.length < LEANING_CHARS ? bytes : Buffer.from(bytes, 'latin1').latin1Slice()
}

export function toBuffer(bytes: ByteString): Buffer {
  return Buffer.from(bytes, 'latin1')
}

export function fromBuffer(buffer: Uint8Array): ByteString {
  return Buffer.from(buffer.buffer, buffer.byteOffset, buffer.byteLength).latin1Slice()
}

/** Parts of one buffer that begin at the same place. Short ones are kept: to make one takes longer than to hash what it holds. */
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

/** So there are never more than so many of a buffer. */
const VIEW_KEPT_BYTES = 2_048

/** Most of what is shown in hexadecimal fits in here. */
const HEX_SCRATCH_BYTES = 64
const hexScratch = Buffer.alloc(HEX_SCRATCH_BYTES)

/** The first bytes, or all, in hexadecimal. */
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

export function fromU64(bytes: ByteString, at = 0): number {
  return u32(bytes, at) * 0x1_0000_0000 + u32(bytes, at + 4)
}

function u32(bytes: ByteString, at: number): number {
  const high = (bytes.charCodeAt(at) << 24) | (bytes.charCodeAt(at + 1) << 16)
  return (high | (bytes.charCodeAt(at + 2) << 8) | bytes.charCodeAt(at + 3)) >>> 0
}
