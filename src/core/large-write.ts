import { type InspectOptions, inspect } from 'node:util'
import { attachPieces } from './attached-bytes.ts'
import type { ByteString } from './bytes.ts'
import {
  attachedLeaf,
  BYTES_MAX,
  checkArray,
  checkObject,
  DEPTH_MAX,
  type JsonForm,
  type JsonLimits,
  NO_UNDEFINED,
  quotePiece,
  refuseAt,
  tryPart,
} from './canonical-json.ts'
import { sorted } from './long-sort.ts'

/**
 * Writes a large value with pauses. The bytes and the refusals are those of `writeRoot`. Parts with a short text are written by
 * `tryPart`; longer parts are taken apart here. The owner may change the value during a pause. Each part is read once, so
 * the checked part is the written one, from before or after the change.
 */
export function* writeLarge(
  value: unknown,
  form: JsonForm,
  /** The longest text, and the most attached bytes. */
  bytesMax: number = BYTES_MAX,
  /** The approximate size of a part that is written at once. Tests use very small ones. */
  partBytes: number = PART_BYTES,
): Generator<void, ByteString, void> {
  const writer = new LargeWriter(form, bytesMax, partBytes)
  yield* writer.write(value)
  return writer.stored()
}

const PART_BYTES = 16 * 1024

class LargeWriter {
  readonly #form: JsonForm
  readonly #bytesMax: number
  readonly #part: JsonLimits
  /** The chars of a string, or bytes for base64, that are written at a time. A multiple of three, so that base64 needs no padding. */
  readonly #pieceChars: number
  /** The path of the part that is being written. */
  readonly #path: (string | number)[] = []
  readonly #text: Pieces
  readonly #attached: Pieces

  constructor(form: JsonForm, bytesMax: number, partBytes: number) {
    this.#form = form
    this.#bytesMax = bytesMax
    this.#part = { depthMax: DEPTH_MAX, bytesMax: partBytes }
    this.#pieceChars = 3 * partBytes
    this.#text = new Pieces(partBytes)
    this.#attached = new Pieces(partBytes)
  }

  /** The whole value. Joining it takes V8 some milliseconds at most. */
  stored(): ByteString {
    return attachPieces(this.#text.all().join(''), this.#attached.all())
  }

  /** Writes a value whose text is long. `tryPart` has checked its type. */
  *write(value: unknown): Generator<void, void, void> {
    if (typeof value === 'string') yield* this.#writeString(value)
    else if (ArrayBuffer.isView(value)) yield* this.#writeBytes(value as Uint8Array)
    else if (Array.isArray(value)) yield* this.#writeArray(value)
    else yield* this.#writeObject(value as object)
  }

  #writeShort(value: unknown): boolean {
    const form = this.#form
    if (form.attached !== undefined) form.attached = ''
    const text = tryPart(value, this.#path, form, this.#part)
    if (text === undefined) return false
    this.#add(text)
    if (form.attached !== undefined) this.#attach(form.attached)
    return true
  }

  *#writeString(text: string): Generator<void, void, void> {
    if (text.length > this.#bytesMax) this.#refuseSize()
    // As `encodeLeaf` encodes it.
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
    const { byteLength } = bytes
    if (byteLength > this.#bytesMax) this.#refuseSize()
    const isAttached = this.#form.attached !== undefined
    this.#add(isAttached ? attachedLeaf(byteLength) : '"\\u0000b')
    for (let at = 0; at < byteLength; at += this.#pieceChars) {
      // The owner may resize or transfer the memory during a pause.
      if (bytes.byteLength !== byteLength) this.#refuse(CHANGED)
      const length = Math.min(this.#pieceChars, byteLength - at)
      const piece = Buffer.from(bytes.buffer, bytes.byteOffset + at, length)
      if (isAttached) this.#attach(piece.latin1Slice())
      else this.#add(piece.toString('base64'))
      if (this.#isPauseDue()) yield
    }
    if (!isAttached) this.#add('"')
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
        this.#refuse(Object.hasOwn(values, i) ? NO_UNDEFINED : 'a hole in an array')
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
    const given = checkObject(value, this.#path)
    const keys = this.#form.isSorted ? yield* sorted(given) : given
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
    if (this.#text.add(text) > this.#bytesMax) this.#refuseSize()
  }

  #attach(bytes: ByteString): void {
    if (this.#attached.add(bytes) > this.#bytesMax) this.#refuseSize()
  }

  /** Whether a piece is complete, after which the writer pauses. */
  #isPauseDue(): boolean {
    const isTextDue = this.#text.isPieceDue()
    return this.#attached.isPieceDue() || isTextDue
  }

  #refuseSize(): never {
    this.#refuse(`more than ${this.#bytesMax} bytes in its encoding`)
  }

  #refuse(reason: string): never {
    return refuseAt(this.#path, reason)
  }
}

/** A long string that is put together from pieces. */
class Pieces {
  readonly #pieceBytes: number
  readonly #pieces: ByteString[] = []
  #piece: ByteString = ''
  #bytes = 0

  constructor(pieceBytes: number) {
    this.#pieceBytes = pieceBytes
  }

  /** Adds bytes, and returns how many there are now. */
  add(bytes: ByteString): number {
    this.#piece += bytes
    this.#bytes += bytes.length
    return this.#bytes
  }

  /** Whether a piece is complete; then the next one begins. Reading a char makes V8 join the piece. */
  isPieceDue(): boolean {
    if (this.#piece.length < this.#pieceBytes) return false
    if (this.#piece.charCodeAt(0) <= 255) this.#pieces.push(this.#piece)
    this.#piece = ''
    return true
  }

  all(): readonly ByteString[] {
    return this.#piece === '' ? this.#pieces : [...this.#pieces, this.#piece]
  }
}

/** The owner removed a key, shortened an array, or resized bytes during a pause. */
const CHANGED = 'the value was changed while it was being stored'

const ELEMENTS_ONLY = /^\[( \.\.\. \d+ more items? )?\]$/

/** All options of `inspect`, because a program may have changed any of their defaults. */
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
 * Whether an array has other keys than its indexes. `Object.keys` would make a string for each index, which takes 300 ms for two
 * million. Only `inspect` can ask V8 for the other keys alone.
 */
function hasOwnKeys(values: readonly unknown[]): boolean {
  const shown = inspect(values, ELEMENTS_SHOWN)
  return Object.getOwnPropertySymbols(values).length === 0 && !ELEMENTS_ONLY.test(shown)
}

/** The end of a piece of text. A surrogate pair must not be cut apart. */
function endOfPiece(text: string, end: number): number {
  const unit = text.charCodeAt(end - 1)
  return unit >= 0xd800 && unit <= 0xdbff ? end + 1 : end
}
