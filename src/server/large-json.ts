import { isUtf8 } from 'node:buffer'
import { type JsonDialect, parseLarge, stringParts } from '../core/large-parse.ts'
import { isSliceOver, nextSlice, runInSlices } from '../core/slices.ts'
import { CONTAINERS_MAX, checkNumber, notJson, refused } from './json-text.ts'

/** The most values in one body, counted as commas and opening brackets. More would take too much memory. */
const VALUES_MAX = 2_000_000
/** The most members of one object. Listing the keys of an object cannot be interrupted; 50,000 take about 10 ms. */
const MEMBERS_MAX = 50_000
/** `JSON.parse` takes about a millisecond for this many bytes. */
const PIECE_BYTES = 64 * 1024
const NAME_BYTES_MAX = 64 * 1024
const UTF8_BYTES = 1024 * 1024
const NUMBER_CHARS_MAX = 1_000

export interface LargeJsonOptions {
  /** The most members of an object; default `MEMBERS_MAX`. */
  readonly membersMax?: number
  /** Changes the text of a piece that may contain a number that JavaScript would round. Default: such a number is refused. */
  readonly mend?: (text: string) => string
  /** The length of a piece, for tests. */
  readonly pieceBytes?: number
}

/** Parses a large body in slices, with the same result as `parseJsonText`, within the limits. */
export async function parseLargeJson(bytes: Uint8Array, options: LargeJsonOptions = {}): Promise<unknown> {
  await checkUtf8(bytes)
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  try {
    return await runInSlices(parseLarge(buffer, bodyJson(options), options.pieceBytes ?? PIECE_BYTES))
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw notJson()
  }
}

async function checkUtf8(bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; ) {
    if (isSliceOver()) await nextSlice()
    let end = Math.min(bytes.length, at + UTF8_BYTES)
    // Not inside a character, which has up to three bytes after the first.
    for (let back = 0; back < 3 && end < bytes.length && (bytes[end] & 0xc0) === 0x80; back++) end--
    if (!isUtf8(bytes.subarray(at, end))) throw refused('it is not UTF-8')
    at = end
  }
}

function longText(
  bytes: Buffer,
  from: number,
  to: number,
  pieceBytes: number,
): Generator<void, string, void> {
  const parse = (start: number, end: number): string => JSON.parse(`"${bytes.utf8Slice(start, end)}"`)
  return stringParts(bytes, from, to, pieceBytes, parse)
}

function bodyJson({ membersMax = MEMBERS_MAX, mend }: LargeJsonOptions): JsonDialect {
  return {
    limits: {
      depthMax: CONTAINERS_MAX,
      valuesMax: VALUES_MAX,
      membersMax,
      nameBytesMax: NAME_BYTES_MAX,
      numberCharsMax: NUMBER_CHARS_MAX,
    },
    parse(json, _, isSuspect) {
      const parsed: unknown = JSON.parse(json)
      // Mends only valid JSON.
      return isSuspect && mend !== undefined ? JSON.parse(mend(json)) : parsed
    },
    textOf: (bytes, from, to) => bytes.utf8Slice(from, to),
    longString: longText,
    longName: longText,
    ...(mend === undefined ? { checkNumber } : {}),
    refuse: reason => {
      throw reason === undefined ? notJson() : refused(reason)
    },
  }
}
