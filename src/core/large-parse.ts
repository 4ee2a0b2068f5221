import type { ByteString } from './bytes.ts'

/**
 * Reads the stored encoding of a value that is too large to be parsed in one go.
 * Parts with a short text go to `decodePart`, which is `JSON.parse` and what
 * follows it; only containers and texts that are longer are taken apart here,
 * with pauses.
 */
export interface PartDecoder {
  /** The value of a part found within so many containers, deeply frozen; refuses what is none. */
  decodePart(bytes: ByteString, depth: number): unknown
  /** What a text stands for. */
  decodeText(text: string): unknown
  /** Refuses a container within so many others, if that is too many. */
  checkDepth(depth: number): void
}

const PART_BYTES = 16 * 1024
const QUOTE = 34
const COMMA = 44
const COLON = 58
const OPEN_ARRAY = 91
const BACKSLASH = 92
const CLOSE_ARRAY = 93
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125
/** How the encoding of bytes begins: U+0000, and a letter. */
const BYTES = '\\u0000b'
/** An escape such as \u0000. */
const LONG_ESCAPE = 6

export function* readLarge(
  bytes: ByteString,
  decoder: PartDecoder,
  /** What is parsed at once, about. The tests take everything apart. */
  partBytes: number = PART_BYTES,
): Generator<void, unknown, void> {
  const reader = new LargeReader(bytes, decoder, partBytes)
  const value = yield* reader.read(0)
  // Whatever is behind it makes it no JSON.
  return reader.isAtEnd ? value : decoder.decodePart(bytes, 0)
}

class LargeReader {
  readonly #bytes: ByteString
  readonly #decoder: PartDecoder
  readonly #partBytes: number
  #at = 0

  constructor(bytes: ByteString, decoder: PartDecoder, partBytes: number) {
    this.#bytes = bytes
    this.#decoder = decoder
    this.#partBytes = partBytes
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  /** The value that begins here. Its text is long, or that of its key is. */
  *read(depth: number): Generator<void, unknown, void> {
    switch (this.#bytes.charCodeAt(this.#at)) {
      case OPEN_ARRAY:
        return yield* this.#readArray(depth)
      case OPEN_OBJECT:
        return yield* this.#readObject(depth)
      case QUOTE:
        return yield* this.#readText()
      default:
        return this.#readShort(depth)
    }
  }

  /** A number, a word, or what is none of these. */
  #readShort(depth: number): unknown {
    const end = endOfItem(this.#bytes, this.#at, this.#bytes.length)
    const value = this.#decoder.decodePart(this.#bytes.slice(this.#at, end), depth)
    this.#at = end ?? this.#bytes.length
    return value
  }

  *#readArray(depth: number): Generator<void, readonly unknown[], void> {
    this.#decoder.checkDepth(depth)
    const items: unknown[] = []
    const take = (part: unknown): void => {
      for (const item of part as readonly unknown[]) items.push(item)
    }
    yield* this.#readItems(CLOSE_ARRAY, depth, take, function* (this: LargeReader): Generator<
      void,
      void,
      void
    > {
      items.push(yield* this.read(depth + 1))
    })
    return Object.freeze(items)
  }

  *#readObject(depth: number): Generator<void, object, void> {
    this.#decoder.checkDepth(depth)
    const object: Record<string, unknown> = {}
    const take = (part: unknown): void => {
      for (const key of Object.keys(part as object))
        setOwn(object, key, (part as Record<string, unknown>)[key])
    }
    yield* this.#readItems(CLOSE_OBJECT, depth, take, function* (this: LargeReader): Generator<
      void,
      void,
      void
    > {
      const end = endOfText(this.#bytes, this.#at)
      const isKey = this.#bytes.charCodeAt(this.#at) === QUOTE && this.#bytes.charCodeAt(end) === COLON
      if (!isKey) this.#refuse()
      const key = this.#decodePiece(this.#at + 1, end - 1)
      this.#at = end + 1
      setOwn(object, key, yield* this.read(depth + 1))
    })
    return Object.freeze(object)
  }

  /** Short items together, as a container of their own; each long one by itself. */
  *#readItems(
    close: number,
    depth: number,
    take: (part: unknown) => void,
    readLong: (this: LargeReader) => Generator<void, void, void>,
  ): Generator<void, void, void> {
    const bytes = this.#bytes
    const [before, after] = close === CLOSE_ARRAY ? '[]' : '{}'
    const first = ++this.#at
    let start = first
    const flush = (end: number): void => {
      if (end > start) take(this.#decoder.decodePart(before + bytes.slice(start, end) + after, depth))
    }
    for (;;) {
      const end = endOfItem(bytes, this.#at, this.#at + this.#partBytes)
      if (end === undefined) {
        // Without the comma behind the one before.
        flush(this.#at - 1)
        yield* readLong.call(this)
        start = this.#at
      } else {
        const isEmpty = end === this.#at
        // Nothing between two commas; but a container may be empty.
        if (isEmpty && (end !== first || bytes.charCodeAt(end) !== close)) this.#refuse()
        this.#at = end
      }
      const next = bytes.charCodeAt(this.#at)
      if (next === close) break
      if (next !== COMMA) this.#refuse()
      const isLongEnough = this.#at - start >= this.#partBytes
      if (isLongEnough || end === undefined) {
        if (isLongEnough) flush(this.#at)
        start = this.#at + 1
        yield
      }
      this.#at++
    }
    flush(this.#at)
    this.#at++
  }

  *#readText(): Generator<void, unknown, void> {
    const bytes = this.#bytes
    const start = this.#at + 1
    const end = endOfText(bytes, this.#at) - 1
    this.#at = end + 1
    if (bytes.startsWith(BYTES, start)) return yield* this.#readBytes(start + BYTES.length, end)
    let text = ''
    for (let at = start; at < end; ) {
      const cut = Math.min(end, endOfPiece(bytes, at, at + this.#partBytes))
      text += this.#decodePiece(at, cut)
      at = cut
      yield
    }
    return this.#decoder.decodeText(text)
  }

  /** A piece of a text. Behind an x, since a text that begins with U+0000 stands for something else. */
  #decodePiece(from: number, to: number): string {
    const [text] = this.#decoder.decodePart(`["x${this.#bytes.slice(from, to)}"]`, 0) as readonly string[]
    return text.slice(1)
  }

  *#readBytes(from: number, to: number): Generator<void, unknown, void> {
    const base64 = this.#bytes.slice(from, to)
    const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0
    const all = new Uint8Array(Math.max(0, Math.floor(base64.length / 4) * 3 - padding))
    // Four chars are three bytes.
    for (let at = 0, used = 0; at < base64.length; at += 4 * this.#partBytes) {
      const piece = base64.slice(at, at + 4 * this.#partBytes)
      const bytes = Buffer.from(piece, 'base64')
      if (bytes.toString('base64') !== piece) return this.#decoder.decodeText(`\0b${base64}`)
      all.set(bytes, used)
      used += bytes.length
      yield
    }
    return all
  }

  /** It is no JSON. */
  #refuse(): never {
    this.#decoder.decodePart('', 0)
    throw new Error('nothing is no JSON')
  }
}

/** What JSON.parse makes, `__proto__` too, are properties of the object's own. */
function setOwn(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') object[key] = value
  else Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true })
}

/** Where the item that begins at `at` ends: at the comma or the bracket behind it; undefined if that is beyond `most`. */
function endOfItem(bytes: ByteString, at: number, most: number): number | undefined {
  let depth = 0
  for (let i = at; i < bytes.length; i++) {
    if (i > most) return undefined
    const char = bytes.charCodeAt(i)
    if (char === QUOTE) i = endOfText(bytes, i) - 1
    else if (char === OPEN_ARRAY || char === OPEN_OBJECT) depth++
    else if (char === CLOSE_ARRAY || char === CLOSE_OBJECT) {
      if (depth === 0) return i
      depth--
    } else if (char === COMMA && depth === 0) return i
  }
  return bytes.length
}

/** Behind the closing quote of the text whose opening quote is at `at`. */
function endOfText(bytes: ByteString, at: number): number {
  for (let quote = at; ; ) {
    quote = bytes.indexOf('"', quote + 1)
    if (quote < 0) return bytes.length + 1
    let escapes = 0
    while (bytes.charCodeAt(quote - 1 - escapes) === BACKSLASH) escapes++
    if (escapes % 2 === 0) return quote + 1
  }
}

/** The first place from `end` on at which a text can be cut: neither in an escape nor in a char of several bytes. */
function endOfPiece(bytes: ByteString, at: number, end: number): number {
  let cut = end
  for (let slash = bytes.indexOf('\\', at); slash >= 0 && slash < cut; ) {
    const behind = slash + (bytes[slash + 1] === 'u' ? LONG_ESCAPE : 2)
    if (behind > cut) cut = behind
    slash = bytes.indexOf('\\', behind)
  }
  while ((bytes.charCodeAt(cut) & 0xc0) === 0x80) cut++
  return cut
}
