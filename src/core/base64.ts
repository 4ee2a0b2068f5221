/** Base64 with padding (RFC 4648), strict: every sequence of bytes has exactly one text. Runs in browsers too. */

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
/** By char code, the six bits of the char; 64 if it is not in the alphabet. */
const SIX_BITS = new Uint8Array(256).fill(64)
for (let i = 0; i < ALPHABET.length; i++) SIX_BITS[ALPHABET.charCodeAt(i)] = i

/** The length of a part of a long text, a multiple of four. */
export const PART_CHARS: number = 64 * 1024

/** A call can't have more arguments than about this many. */
const CHARS_AT_ONCE = 0x8000

export function toBase64(bytes: Uint8Array): string {
  let binary = ''
  for (let i = 0; i < bytes.length; i += CHARS_AT_ONCE) {
    binary += String.fromCharCode(...bytes.subarray(i, i + CHARS_AT_ONCE))
  }
  return btoa(binary)
}

/** The decoded bytes; undefined if the text is not valid base64. */
export function fromBase64(text: string): Uint8Array | undefined {
  const length = decodedLength(text)
  if (length === undefined) return undefined
  const bytes = new Uint8Array(length)
  for (let at = 0; at < text.length; at += PART_CHARS) {
    if (!decodePart(text, at, bytes)) return undefined
  }
  return bytes
}

/** The number of bytes that a text decodes to; undefined if its length is invalid. */
export function decodedLength(text: string): number | undefined {
  if (text.length % 4 !== 0) return undefined
  return (text.length / 4) * 3 - paddingOf(text)
}

/** Decodes the part of a text that begins at `from`, a multiple of `PART_CHARS`; false if it is not base64. */
export function decodePart(text: string, from: number, bytes: Uint8Array): boolean {
  const isLast = from + PART_CHARS >= text.length
  const padding = isLast ? paddingOf(text) : 0
  const end = isLast ? text.length - (padding > 0 ? 4 : 0) : from + PART_CHARS
  let to = (from / 4) * 3
  for (let i = from; i < end; i += 4) {
    const a = bitsAt(text, i)
    const b = bitsAt(text, i + 1)
    const c = bitsAt(text, i + 2)
    const d = bitsAt(text, i + 3)
    if ((a | b | c | d) > 63) return false
    bytes[to++] = (a << 2) | (b >> 4)
    bytes[to++] = (b << 4) | (c >> 2)
    bytes[to++] = (c << 6) | d
  }
  if (padding === 0) return true
  const a = bitsAt(text, end)
  const b = bitsAt(text, end + 1)
  const c = padding === 2 ? 0 : bitsAt(text, end + 2)
  // Unused bits must be zero. Otherwise two texts would decode to the same bytes.
  const rest = padding === 2 ? b & 15 : c & 3
  if ((a | b | c) > 63 || rest !== 0) return false
  bytes[to++] = (a << 2) | (b >> 4)
  if (padding === 1) bytes[to] = (b << 4) | (c >> 2)
  return true
}

function paddingOf(text: string): 0 | 1 | 2 {
  if (!text.endsWith('=')) return 0
  return text.endsWith('==') ? 2 : 1
}

function bitsAt(text: string, i: number): number {
  const code = text.charCodeAt(i)
  return code < 256 ? SIX_BITS[code] : 64
}
