import { isUtf8 } from 'node:buffer'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { CONTAINERS_MAX, checkNumber, DIGITS_EXACT, notJson, refused } from './json-text.ts'

/** Values in one body; more would take more memory than a body is worth. Counted as commas and opening brackets. */
const VALUES_MAX = 2_000_000
/** Members of one object. JavaScript lists the keys of an object in one go: 50,000 take about 10 ms. */
const MEMBERS_MAX = 50_000
/** The native parser takes about a millisecond for so much, and the scanner looks at the clock as often. */
const PIECE_BYTES = 64 * 1024
const SCAN_BYTES = 16 * 1024
const UTF8_BYTES = 1024 * 1024
const NUMBER_CHARS_MAX = 1_000

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_ARRAY = 0x5b
const OPEN_OBJECT = 0x7b

export interface LargeJsonOptions {
  /** How many members an object may have; `MEMBERS_MAX` without it. */
  readonly membersMax?: number
  /**
   * Changes the text of a piece in which a number may be that JavaScript does not have. Without it such a number is
   * refused.
   */
  readonly mend?: (text: string) => string
  /** For tests: how long a piece is. */
  readonly pieceBytes?: number
}

/** A container whose end has not come yet. */
interface Open {
  isArray: boolean
  /** The offset of its bracket. */
  at: number
  /** Where the items begin that are not parsed yet. */
  runAt: number
  /** Where the current item begins. */
  itemAt: number
  count: number
  /** What its parsed items are in; undefined while it may still be parsed as a whole. */
  container: unknown[] | Record<string, unknown> | undefined
  /** Whether the current item is in the container already. Only white space may follow it. */
  isTaken: boolean
  /** Behind what was taken last. */
  takenEnd: number
}

/**
 * Parses a long JSON text in slices. A scanner goes over the bytes and cuts them where an item ends; `JSON.parse` parses the
 * pieces, so it alone decides what is JSON. A container that is longer than a piece is put together from the runs of
 * items within it, and a long string from parts of itself. The scanner also holds the limits: depth, number of values,
 * exact numbers.
 */
export async function parseLargeJson(bytes: Uint8Array, options: LargeJsonOptions = {}): Promise<unknown> {
  await checkUtf8(bytes)
  const parser = new LargeJson(bytes, options)
  try {
    while (!(await parser.goOn())) if (isSliceOver()) await nextSlice()
    return parser.result()
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw notJson()
  }
}

async function checkUtf8(bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; ) {
    if (isSliceOver()) await nextSlice()
    let end = Math.min(bytes.length, at + UTF8_BYTES)
    // Not within a character, which has up to three bytes behind its first one.
    for (let back = 0; back < 3 && end < bytes.length && (bytes[end] & 0xc0) === 0x80; back++) end--
    if (!isUtf8(bytes.subarray(at, end))) throw refused('it is not UTF-8')
    at = end
  }
}

class LargeJson {
  readonly #bytes: Buffer
  readonly #pieceBytes: number
  readonly #membersMax: number
  readonly #mend: ((text: string) => string) | undefined
  /** Whether there may be a number to mend in what is not parsed yet. */
  #isSuspect = false
  /** By depth; those behind `#depth` are kept to be used again. The first stands for the text itself. */
  readonly #frames: Open[] = [newOpen(true, -1)]
  #depth = 0
  /** The depth of the innermost container that is put together from runs; so are all around it. */
  #split = 0
  #at = 0
  /** Behind the last byte that was not white space. */
  #solidEnd = 0
  /** Where the string begins in which the scanner is; -1 outside of strings. */
  #stringAt = -1
  #values = 1
  readonly #root: unknown[] = []

  constructor(bytes: Uint8Array, options: LargeJsonOptions) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#pieceBytes = options.pieceBytes ?? PIECE_BYTES
    this.#membersMax = options.membersMax ?? MEMBERS_MAX
    this.#mend = options.mend
    this.#frames[0].container = this.#root
  }

  /** Scans a stretch of the text; true at its end. */
  async goOn(): Promise<boolean> {
    const bytes = this.#bytes
    const end = Math.min(bytes.length, this.#at + SCAN_BYTES)
    while (this.#at < end) {
      if (this.#stringAt >= 0) {
        if (!this.#scanString(end)) break
        const from = this.#stringAt
        this.#stringAt = -1
        if (this.#at - from > this.#pieceBytes) await this.#takeString(from)
        this.#solidEnd = this.#at
        this.#relieve()
      } else this.#scanToken(bytes[this.#at])
    }
    return this.#at >= bytes.length
  }

  result(): unknown {
    // Behind the end: a word or an escape sequence was cut off.
    if (this.#depth !== 0 || this.#stringAt >= 0 || this.#at > this.#bytes.length) throw notJson()
    this.#finish(this.#frames[0], this.#solidEnd)
    if (this.#root.length !== 1) throw notJson()
    return this.#root[0]
  }

  /** Goes to the end of the string; false if it is not reached. */
  #scanString(end: number): boolean {
    const bytes = this.#bytes
    let i = this.#at
    while (i < end && bytes[i] !== QUOTE) i += bytes[i] === BACKSLASH ? 2 : 1
    this.#at = i
    if (i >= end) return false
    this.#at = i + 1
    return true
  }

  #scanToken(byte: number): void {
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      this.#at++
      return
    }
    if (this.#at - this.#solidEnd > PIECE_BYTES) throw refused('more than 64 KiB of white space in a row')
    switch (byte) {
      case QUOTE:
        this.#stringAt = this.#at++
        break
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        this.#open(byte === OPEN_ARRAY)
        break
      case 0x7d:
      case 0x5d:
        this.#close(byte === 0x5d)
        break
      case 0x2c:
        this.#comma()
        break
      case 0x3a:
        this.#at++
        break
      case 0x74:
      case 0x6e:
        this.#at += 4
        break
      case 0x66:
        this.#at += 5
        break
      default:
        if (byte !== 0x2d && !(byte >= 0x30 && byte <= 0x39)) throw notJson()
        this.#number()
    }
    this.#solidEnd = this.#at
  }

  #open(isArray: boolean): void {
    if (this.#depth === CONTAINERS_MAX) throw refused(`more than ${CONTAINERS_MAX} nested containers`)
    this.#count()
    this.#relieve()
    const frame = this.#frames[++this.#depth]
    if (frame === undefined) this.#frames.push(newOpen(isArray, this.#at))
    else reset(frame, isArray, this.#at)
    this.#at++
  }

  #close(isArray: boolean): void {
    const frame = this.#frames[this.#depth]
    if (this.#depth === 0 || frame.isArray !== isArray) throw notJson()
    const isSplit = this.#depth === this.#split
    if (isSplit) {
      this.#finish(frame, this.#at)
      this.#split--
    }
    this.#depth--
    this.#at++
    if (isSplit) this.#frames[this.#depth].takenEnd = this.#at
    this.#relieve()
  }

  #comma(): void {
    const frame = this.#frames[this.#depth]
    if (this.#depth === 0) throw notJson()
    this.#count()
    if (++frame.count >= this.#membersMax && !frame.isArray) {
      throw refused(`an object with more than ${this.#membersMax} members`)
    }
    if (frame.isTaken) {
      this.#checkBlank(frame.takenEnd, this.#at)
      frame.isTaken = false
      frame.runAt = this.#at + 1
    }
    frame.itemAt = ++this.#at
    this.#relieve()
  }

  #count(): void {
    if (++this.#values > VALUES_MAX) throw refused(`more than ${VALUES_MAX} values`)
  }

  #number(): void {
    const bytes = this.#bytes
    const from = this.#at
    const most = Math.min(bytes.length, from + NUMBER_CHARS_MAX + 1)
    let i = from + 1
    let hasExponent = false
    for (; i < most && isInNumber(bytes[i]); i++) hasExponent ||= (bytes[i] | 0x20) === 0x65
    if (i - from > NUMBER_CHARS_MAX) throw refused(`a number of more than ${NUMBER_CHARS_MAX} characters`)
    if (hasExponent || i - from >= DIGITS_EXACT) {
      if (this.#mend === undefined) checkNumber(bytes.latin1Slice(from, i))
      else this.#isSuspect = true
    }
    this.#at = i
  }

  /** Parses what has come, once there is a piece of it. */
  #relieve(): void {
    for (;;) {
      const frame = this.#frames[this.#split]
      if (frame.isTaken || this.#at - frame.runAt < this.#pieceBytes) return
      this.#takeItems(frame)
      if (this.#at - frame.runAt < this.#pieceBytes) return
      if (this.#split < this.#depth) this.#splitNext(frame)
      // An item that is no container, and longer than its name and a string or number may be.
      else if (this.#at - frame.runAt > 4 * PIECE_BYTES) throw notJson()
      else return
    }
  }

  /** The container within: from now on it is put together from runs too. */
  #splitNext(frame: Open): void {
    const inner = this.#frames[++this.#split]
    inner.container = inner.isArray ? mixedArray() : {}
    this.#take(frame, inner.at, inner.container)
  }

  /** Puts a value that begins at an offset into the container as the current item. */
  #take(frame: Open, at: number, value: unknown): void {
    const before = this.#bytes.utf8Slice(frame.itemAt, at)
    if (frame.isArray) {
      if (!isBlank(before)) throw notJson()
      ;(frame.container as unknown[]).push(value)
    } else {
      const keys = Object.keys(JSON.parse(`{${before}[]}`))
      if (keys.length !== 1) throw notJson()
      put(frame.container as Record<string, unknown>, keys[0], value)
    }
    frame.isTaken = true
  }

  /** Parses the items that are complete. */
  #takeItems(frame: Open): void {
    if (frame.itemAt > frame.runAt) this.#takeRun(frame, frame.runAt, frame.itemAt - 1)
    frame.runAt = frame.itemAt
  }

  #takeRun(frame: Open, from: number, to: number): void {
    const text = this.#bytes.utf8Slice(from, to)
    const { container } = frame
    if (Array.isArray(container)) {
      const items = this.#parsed(`[${text}]`) as unknown[]
      if (items.length === 0) throw notJson()
      for (const item of items) container.push(item)
      return
    }
    const members = this.#parsed(`{${text}}`) as Record<string, unknown>
    const keys = Object.keys(members)
    if (keys.length === 0) throw notJson()
    for (const key of keys) put(container as Record<string, unknown>, key, members[key])
  }

  #parsed(text: string): unknown {
    const parsed: unknown = JSON.parse(text)
    // Only what is JSON may be mended.
    return this.#isSuspect && this.#mend !== undefined ? JSON.parse(this.#mend(text)) : parsed
  }

  /** Parses what is left of a container that ends here. */
  #finish(frame: Open, end: number): void {
    if (frame.isTaken) {
      this.#checkBlank(frame.takenEnd, end)
      return
    }
    this.#takeItems(frame)
    // Behind a comma there has to be something.
    if (frame.count > 0 || !this.#isBlank(frame.runAt, end)) this.#takeRun(frame, frame.runAt, end)
  }

  /** A string that is longer than a piece, in parts. */
  async #takeString(from: number): Promise<void> {
    const end = this.#at - 1
    const innermost = this.#frames[this.#depth]
    if (!innermost.isArray && this.#isBlank(innermost.itemAt, from)) {
      if (end - from > PIECE_BYTES) throw refused('a name of more than 64 KiB')
      return
    }
    for (;;) {
      const frame = this.#frames[this.#split]
      if (frame.isTaken) throw notJson()
      this.#takeItems(frame)
      if (this.#split === this.#depth) break
      this.#splitNext(frame)
    }
    const parts: string[] = []
    for (let at = from + 1; at < end; ) {
      if (isSliceOver()) await nextSlice()
      const next = this.#endOfPart(at, end)
      parts.push(JSON.parse(`"${this.#bytes.utf8Slice(at, next)}"`))
      at = next
    }
    this.#take(innermost, from, parts.join(''))
    innermost.takenEnd = this.#at
  }

  /** Where a part of a string can end: behind an escape sequence, and behind all bytes of a character. */
  #endOfPart(from: number, end: number): number {
    const bytes = this.#bytes
    let i = from
    while (i < end && (i - from < this.#pieceBytes || (bytes[i] & 0xc0) === 0x80)) {
      i += bytes[i] !== BACKSLASH ? 1 : bytes[i + 1] === 0x75 ? 6 : 2
    }
    return Math.min(i, end)
  }

  #isBlank(from: number, to: number): boolean {
    return isBlank(this.#bytes.latin1Slice(from, to))
  }

  #checkBlank(from: number, to: number): void {
    if (!this.#isBlank(from, to)) throw notJson()
  }
}

function newOpen(isArray: boolean, at: number): Open {
  const frame = {} as Open
  reset(frame, isArray, at)
  return frame
}

function reset(frame: Open, isArray: boolean, at: number): void {
  frame.isArray = isArray
  frame.at = at
  frame.runAt = at + 1
  frame.itemAt = at + 1
  frame.count = 0
  frame.container = undefined
  frame.isTaken = false
  frame.takenEnd = 0
}

/**
 * An empty array that may hold anything. V8 keeps an array of numbers as such until something else is put into it, and then
 * turns all of it in one go, which takes 40 ms for a million.
 */
function mixedArray(): unknown[] {
  const array: unknown[] = [undefined]
  array.pop()
  return array
}

/** By assignment `__proto__` would reach a setter. */
function put(container: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') container[key] = value
  else {
    Object.defineProperty(container, key, { value, enumerable: true, configurable: true, writable: true })
  }
}

function isInNumber(byte: number): boolean {
  return (
    (byte >= 0x30 && byte <= 0x39) ||
    byte === 0x2e ||
    byte === 0x2d ||
    byte === 0x2b ||
    (byte | 0x20) === 0x65
  )
}

function isBlank(text: string): boolean {
  return /^[ \n\r\t]*$/.test(text)
}
