import type { ByteString } from './bytes.ts'
import { type JsonDialect, parseLarge, stringParts } from './large-parse.ts'

/** Decodes a stored value part by part. */
export interface PartDecoder {
  /** Decodes a part that stands within `depth` containers, and freezes it deeply. */
  decodePart(bytes: ByteString, depth: number): unknown
  /** Decodes a string, which may stand for another leaf. */
  decodeText(text: string): unknown
  /** The deepest nesting of containers. */
  readonly depthMax: number
  refuse(reason: string): never
}

const PART_BYTES = 16 * 1024
/** The beginning of encoded bytes: U+0000 and a letter. */
const BYTES = '\\u0000b'

/** Decodes a large stored value with pauses. The result is the same as that of `decodeValue`. */
export function readLarge(
  bytes: ByteString,
  decoder: PartDecoder,
  /** The approximate size of a part. Tests use very small ones. */
  partBytes: number = PART_BYTES,
): Generator<void, unknown, void> {
  return parseLarge(Buffer.from(bytes, 'latin1'), storedJson(decoder), partBytes)
}

/** Stored values were checked when they were written, so only the depth is limited: damaged bytes could be deep. */
function storedJson(decoder: PartDecoder): JsonDialect {
  const most = Number.POSITIVE_INFINITY
  const { depthMax } = decoder
  const readText: JsonDialect['longName'] = (bytes, from, to, pieceBytes) =>
    stringParts(bytes, from, to, pieceBytes, (start, end) => {
      // An x in front, because a string that begins with U+0000 would be decoded as another leaf.
      const part = decoder.decodePart(`["x${bytes.latin1Slice(start, end)}"]`, 0)
      return (part as readonly string[])[0].slice(1)
    })
  return {
    limits: { depthMax, valuesMax: most, membersMax: most, nameBytesMax: most, numberCharsMax: most },
    parse: (json, depth) => decoder.decodePart(json, depth),
    textOf: (bytes, from, to) => bytes.latin1Slice(from, to),
    longName: readText,
    *longString(bytes, from, to, pieceBytes) {
      const isOfBytes = bytes.latin1Slice(from, Math.min(to, from + BYTES.length)) === BYTES
      if (isOfBytes) return yield* readBytes(bytes, from + BYTES.length, to, pieceBytes, decoder)
      return decoder.decodeText(yield* readText(bytes, from, to, pieceBytes))
    },
    close: Object.freeze,
    refuse: (reason = 'not JSON') => decoder.refuse(reason),
  }
}

function* readBytes(
  bytes: Buffer,
  from: number,
  to: number,
  pieceBytes: number,
  decoder: PartDecoder,
): Generator<void, unknown, void> {
  const last = bytes.latin1Slice(Math.max(from, to - 2), to)
  const padding = last.endsWith('==') ? 2 : last.endsWith('=') ? 1 : 0
  const all = new Uint8Array(Math.max(0, Math.floor((to - from) / 4) * 3 - padding))
  // Four chars decode to three bytes.
  for (let at = from, used = 0; at < to; at += 4 * pieceBytes) {
    const piece = bytes.latin1Slice(at, Math.min(to, at + 4 * pieceBytes))
    const decoded = Buffer.from(piece, 'base64')
    if (decoded.toString('base64') !== piece) return decoder.refuse('bytes')
    all.set(decoded, used)
    used += decoded.length
    yield
  }
  return all
}
