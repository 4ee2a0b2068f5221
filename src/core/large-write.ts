import { type InspectOptions, inspect } from 'node:util'
import type { ByteString } from './bytes.ts'
import {
  BYTES_MAX,
  checkArray,
  checkObject,
  DEPTH_MAX,
  type EncodeLeaf,
  type JsonLimits,
  quotePiece,
  refuseAt,
  tryPart,
} from './canonical-json.ts'
import { sorted } from './long-sort.ts'

/**
 * Canonical JSON of a value that is too large to be written in one go: the same
 * bytes, with pauses, and what is refused is the same. Whatever has a short text is written
 * at once by `tryPart`; only what is longer is taken apart here. Between two
 * pauses the value may be changed by its owner: each part is read once, so what
 * was checked is what is written, before the change or after it.
 */
export function* writeLarge(
  value: unknown,
  encodeLeaf: EncodeLeaf,
  /** What is written at once, about; no number is longer. The tests take everything else apart. */
  partBytes: number = PART_BYTES,
): Generator<void, ByteString, void> {
  const writer = new LargeWriter(encodeLeaf, partBytes)
  yield* writer.write(value)
  return writer.text()
}

const PART_BYTES = 16 * 1024

class LargeWriter {
  readonly #encodeLeaf: EncodeLeaf
  readonly #part: JsonLimits
  /** Chars of a text, and bytes that become base64, at a time. Three bytes are four chars, so nothing is left over. */
  readonly #pieceChars: number
  /** Where in the value it is. */
  readonly #path: (string | number)[] = []
  readonly #pieces: ByteString[] = []
  #piece: ByteString = ''
  #bytes = 0

  constructor(encodeLeaf: EncodeLeaf, partBytes: number) {
    this.#encodeLeaf = encodeLeaf
    this.#part = { depthMax: DEPTH_MAX, bytesMax: partBytes }
    this.#pieceChars = 3 * partBytes
  }

  /** Joined by V8 in one go, some milliseconds for the largest. */
  text(): ByteString {
    return this.#pieces.join('') + this.#piece
  }

  /** A value whose text is known to be long. Only these have one; what they are was checked when it was tried. */
  *write(value: unknown): Generator<void, void, void> {
    if (typeof value === 'string') yield* this.#writeString(value)
    else if (ArrayBuffer.isView(value)) yield* this.#writeBytes(value as Uint8Array)
    else if (Array.isArray(value)) yield* this.#writeArray(value)
    else yield* this.#writeObject(value as object)
  }

  #writeShort(value: unknown): boolean {
    const text = tryPart(value, this.#path, this.#encodeLeaf, this.#part)
    if (text === undefined) return false
    this.#add(text)
    return true
  }

  *#writeString(text: string): Generator<void, void, void> {
    if (text.length > BYTES_MAX) this.#refuseSize()
    // As `encodeLeaf` does it.
    this.#add(text.charCodeAt(0) === 0 ? '"\\u0000s' : '"')
    yield* this.#writeText(text)
    this.#add('"')
  }

  *#writeText(text: string): Generator<void, void, void> {
    for (let at = 0; at < text.length; ) {
      const end = endOfPiece(text, at + this.#pieceChars)
      this.#add(quotePiece(text.slice(at, end), this.#path))
      at = end
      if (this.#isPauseDue()) yield
    }
  }

  *#writeBytes(bytes: Uint8Array): Generator<void, void, void> {
    if (bytes.byteLength > BYTES_MAX) this.#refuseSize()
    this.#add('"\\u0000b')
    for (let at = 0; at < bytes.byteLength; at += this.#pieceChars) {
      const length = Math.min(this.#pieceChars, bytes.byteLength - at)
      this.#add(Buffer.from(bytes.buffer, bytes.byteOffset + at, length).toString('base64'))
      if (this.#isPauseDue()) yield
    }
    this.#add('"')
  }

  *#writeArray(values: readonly unknown[]): Generator<void, void, void> {
    checkArray(values, this.#path)
    const { length } = values
    const depth = this.#path.length
    this.#add('[')
    for (let i = 0; i < length; i++) {
      if (i > 0) this.#add(',')
      this.#path[depth] = i
      const value = values[i]
      if (value === undefined) {
        if (values.length !== length) this.#refuse(CHANGED)
        this.#refuse(Object.hasOwn(values, i) ? 'undefined is not a value' : 'a hole in an array')
      }
      if (!this.#writeShort(value)) yield* this.write(value)
      if (this.#isPauseDue()) yield
    }
    this.#path.length = depth
    if (hasOwnKeys(values)) this.#refuse('an array with keys of its own')
    if (Object.getOwnPropertySymbols(values).length !== 0) this.#refuse('an array with symbols as keys')
    this.#add(']')
  }

  *#writeObject(value: object): Generator<void, void, void> {
    const keys = yield* sorted(checkObject(value, this.#path))
    const depth = this.#path.length
    this.#add('{')
    for (const [i, key] of keys.entries()) {
      if (!key.isWellFormed()) this.#refuse('a key with a lone surrogate')
      this.#path[depth] = key
      const property = Object.getOwnPropertyDescriptor(value, key)
      if (property === undefined) this.#refuse(CHANGED)
      if (property.get !== undefined || property.set !== undefined) {
        this.#refuse('an accessor property')
      }
      this.#add(i === 0 ? '"' : ',"')
      yield* this.#writeText(key)
      this.#add('":')
      if (!this.#writeShort(property.value)) yield* this.write(property.value)
      if (this.#isPauseDue()) yield
      this.#path.length = depth
    }
    this.#add('}')
  }

  #add(text: ByteString): void {
    this.#piece += text
    this.#bytes += text.length
    if (this.#bytes > BYTES_MAX) this.#refuseSize()
  }

  /** A piece is complete. To read a char of it makes V8 join what it was put together from. */
  #isPauseDue(): boolean {
    if (this.#piece.length < this.#part.bytesMax) return false
    if (this.#piece.charCodeAt(0) !== 0) this.#pieces.push(this.#piece)
    this.#piece = ''
    return true
  }

  #refuseSize(): never {
    this.#refuse(`more than ${BYTES_MAX} bytes in its canonical encoding`)
  }

  #refuse(reason: string): never {
    return refuseAt(this.#path, reason)
  }
}

/** A key that is gone, or an array that is shorter than it was: its owner changed the value during a pause. */
const CHANGED = 'it was changed while it was being stored'

const ELEMENTS_ONLY = /^\[( \.\.\. \d+ more items? )?\]$/

/** All options that `inspect` has, because an application may set other defaults for each of them. */
const ELEMENTS_SHOWN: Required<InspectOptions> = {
  showHidden: false,
  depth: 0,
  colors: false,
  customInspect: false,
  showProxy: false,
  maxArrayLength: 0,
  maxStringLength: 0,
  breakLength: Number.POSITIVE_INFINITY,
  compact: 3,
  sorted: false,
  getters: false,
  numericSeparator: false,
}

/**
 * Whether an array has other keys than its elements. `Object.keys` makes a text for each element, in one go: 300 ms for two
 * million. `inspect` asks V8 for the other keys alone; nothing else in JavaScript can.
 */
function hasOwnKeys(values: readonly unknown[]): boolean {
  const shown = inspect(values, ELEMENTS_SHOWN)
  return Object.getOwnPropertySymbols(values).length === 0 && !ELEMENTS_ONLY.test(shown)
}

/** Where a piece of the text ends: a char of two units stays whole. */
function endOfPiece(text: string, end: number): number {
  const unit = text.charCodeAt(end - 1)
  return unit >= 0xd800 && unit <= 0xdbff ? end + 1 : end
}
