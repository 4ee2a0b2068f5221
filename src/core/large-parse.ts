/** A kind of JSON: how its pieces are parsed, and what is refused with which error. */
export interface JsonDialect {
  readonly limits: JsonScanLimits
  /**
   * The value of a piece, which is JSON. `depth` says how many containers there are around it; -1 for a list that stands for the
   * text itself. `isSuspect`: there may be a number in it that JavaScript does not have.
   */
  parse(json: string, depth: number, isSuspect: boolean): unknown
  /** The bytes as text for `parse`. */
  textOf(bytes: Buffer, from: number, to: number): string
  /** Parses a string that is longer than a piece. The range is between its quotes. */
  longString(bytes: Buffer, from: number, to: number, pieceBytes: number): Generator<void, unknown, void>
  /** Parses a member's name that is longer than a piece. */
  longName(bytes: Buffer, from: number, to: number, pieceBytes: number): Generator<void, string, void>
  /** Refuses a number that JavaScript may not represent exactly. */
  checkNumber?(number: string): void
  /** Called with each container that was put together from pieces, when it is complete. */
  close?(container: object): void
  /** Throws. Without a reason, the text is not JSON. */
  refuse(reason?: string): never
}

interface JsonScanLimits {
  /** The deepest nesting of containers. */
  readonly depthMax: number
  /** The most values, counted as commas and opening brackets. */
  readonly valuesMax: number
  /** The most members of one object. */
  readonly membersMax: number
  /** The longest name of a member, and the longest run of white space. */
  readonly nameBytesMax: number
  readonly numberCharsMax: number
}

/** The bytes that are scanned between two pauses. */
const SCAN_BYTES = 16 * 1024
/** Numbers with this many digits may not be exact in JavaScript. */
export const DIGITS_EXACT = 16

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_ARRAY = 0x5b
const OPEN_OBJECT = 0x7b

/** A container whose end was not scanned yet. */
interface Open {
  isArray: boolean
  /** The offset of the opening bracket. */
  at: number
  /** The offset of the first item that is not parsed yet. */
  runAt: number
  /** The offset of the current item, or of its value if its name was parsed separately. */
  itemAt: number
  /** The name of the current item, if it was too long to be parsed with the item. */
  name: string | undefined
  count: number
  /** The container with the items parsed so far; undefined while it may still be parsed as a whole. */
  container: unknown[] | Record<string, unknown> | undefined
  /** Whether the current item was added already. Only white space may follow it. */
  isTaken: boolean
  /** The offset after the last parsed item. */
  takenEnd: number
}

/**
 * Parses a long JSON text with pauses. A scanner cuts the bytes where an item ends, and the dialect parses the pieces with
 * `JSON.parse`, which alone decides whether they are JSON. A container that is longer than a piece is put together from
 * runs of its items, and a long string from its parts. The scanner also enforces the limits.
 */
export function* parseLarge(
  bytes: Buffer,
  dialect: JsonDialect,
  pieceBytes: number,
): Generator<void, unknown, void> {
  const parser = new LargeJson(bytes, dialect, pieceBytes)
  while (!(yield* parser.goOn())) yield
  return parser.result()
}

/** Parses a long string in parts. No part ends within an escape sequence or a character. */
export function* stringParts(
  bytes: Buffer,
  from: number,
  to: number,
  pieceBytes: number,
  parse: (from: number, to: number) => string,
): Generator<void, string, void> {
  const parts: string[] = []
  for (let at = from; at < to; ) {
    let end = at
    while (end < to && (end - at < pieceBytes || (bytes[end] & 0xc0) === 0x80)) {
      end += bytes[end] !== BACKSLASH ? 1 : bytes[end + 1] === 0x75 ? 6 : 2
    }
    end = Math.min(end, to)
    parts.push(parse(at, end))
    at = end
    yield
  }
  return parts.join('')
}

class LargeJson {
  readonly #bytes: Buffer
  readonly #pieceBytes: number
  readonly #dialect: JsonDialect
  readonly #limits: JsonScanLimits
  /** Whether the unparsed text may have a number that JavaScript can't represent. */
  #isSuspect = false
  /** The open containers by depth. The first stands for the whole text; those beyond `#depth` are reused. */
  readonly #frames: Open[] = [newOpen(true, -1)]
  #depth = 0
  /** The depth of the innermost container that is put together from runs, as are all around it. */
  #split = 0
  #at = 0
  /** The offset after the last byte that is not white space. */
  #solidEnd = 0
  /** The start of the string that is being scanned; -1 outside of strings. */
  #stringAt = -1
  #values = 1
  readonly #root: unknown[] = []

  constructor(bytes: Buffer, dialect: JsonDialect, pieceBytes: number) {
    this.#bytes = bytes
    this.#dialect = dialect
    this.#limits = dialect.limits
    this.#pieceBytes = pieceBytes
    this.#frames[0].container = this.#root
  }

  /** Scans a stretch of the text. Returns true at the end of the text. */
  *goOn(): Generator<void, boolean, void> {
    const bytes = this.#bytes
    const end = Math.min(bytes.length, this.#at + SCAN_BYTES)
    while (this.#at < end) {
      if (this.#stringAt >= 0) {
        if (!this.#scanString(end)) break
        const from = this.#stringAt
        this.#stringAt = -1
        if (this.#at - from > this.#pieceBytes) yield* this.#takeString(from)
        this.#solidEnd = this.#at
        this.#relieve()
      } else this.#scanToken(bytes[this.#at])
    }
    return this.#at >= bytes.length
  }

  result(): unknown {
    // The text ends within a word or an escape sequence.
    if (this.#depth !== 0 || this.#stringAt >= 0 || this.#at > this.#bytes.length) this.#dialect.refuse()
    this.#finish(this.#frames[0], this.#solidEnd)
    if (this.#root.length !== 1) this.#dialect.refuse()
    return this.#root[0]
  }

  /** Scans to the end of the string. Returns false if the stretch ends first. */
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
    if (this.#at - this.#solidEnd > this.#limits.nameBytesMax) {
      this.#dialect.refuse(`more than ${this.#limits.nameBytesMax / 1024} KiB of white space in a row`)
    }
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
        if (byte !== 0x2d && !(byte >= 0x30 && byte <= 0x39)) this.#dialect.refuse()
        this.#number()
    }
    this.#solidEnd = this.#at
  }

  #open(isArray: boolean): void {
    const { depthMax } = this.#limits
    if (this.#depth === depthMax) this.#dialect.refuse(`more than ${depthMax} nested containers`)
    this.#count()
    this.#relieve()
    const frame = this.#frames[++this.#depth]
    if (frame === undefined) this.#frames.push(newOpen(isArray, this.#at))
    else reset(frame, isArray, this.#at)
    this.#at++
  }

  #close(isArray: boolean): void {
    const frame = this.#frames[this.#depth]
    if (this.#depth === 0 || frame.isArray !== isArray) this.#dialect.refuse()
    const isSplit = this.#depth === this.#split
    if (isSplit) {
      this.#finish(frame, this.#at)
      this.#dialect.close?.(frame.container as object)
      this.#split--
    }
    this.#depth--
    this.#at++
    if (isSplit) this.#frames[this.#depth].takenEnd = this.#at
    this.#relieve()
  }

  #comma(): void {
    const frame = this.#frames[this.#depth]
    if (this.#depth === 0) this.#dialect.refuse()
    this.#count()
    const { membersMax } = this.#limits
    if (++frame.count >= membersMax && !frame.isArray) {
      this.#dialect.refuse(`an object with more than ${membersMax} members`)
    }
    if (frame.isTaken) {
      this.#checkBlank(frame.takenEnd, this.#at)
      frame.isTaken = false
      frame.runAt = this.#at + 1
    } else if (frame.name !== undefined) {
      this.#takeRun(frame, frame.itemAt, this.#at)
      frame.runAt = this.#at + 1
    }
    frame.itemAt = ++this.#at
    this.#relieve()
  }

  #count(): void {
    const { valuesMax } = this.#limits
    if (++this.#values > valuesMax) this.#dialect.refuse(`more than ${valuesMax} values`)
  }

  #number(): void {
    const bytes = this.#bytes
    const from = this.#at
    const { numberCharsMax } = this.#limits
    const most = Math.min(bytes.length, from + numberCharsMax + 1)
    let i = from + 1
    let hasExponent = false
    for (; i < most && isInNumber(bytes[i]); i++) hasExponent ||= (bytes[i] | 0x20) === 0x65
    if (i - from > numberCharsMax) this.#dialect.refuse(`a number of more than ${numberCharsMax} characters`)
    if (hasExponent || i - from >= DIGITS_EXACT) {
      this.#isSuspect = true
      this.#dialect.checkNumber?.(bytes.latin1Slice(from, i))
    }
    this.#at = i
  }

  /** Parses the complete items once there is a piece of them. */
  #relieve(): void {
    for (;;) {
      const frame = this.#frames[this.#split]
      if (frame.isTaken || this.#at - frame.runAt < this.#pieceBytes) return
      this.#takeItems(frame)
      if (this.#at - frame.runAt < this.#pieceBytes) return
      if (this.#split < this.#depth) this.#splitNext(frame)
      // The item is not a container, and longer than a name with a string or number may be.
      else if (this.#at - frame.runAt > 4 * this.#limits.nameBytesMax) this.#dialect.refuse()
      else return
    }
  }

  /** Starts to put the inner container together from runs too. */
  #splitNext(frame: Open): void {
    const inner = this.#frames[++this.#split]
    inner.container = inner.isArray ? mixedArray() : {}
    this.#take(frame, inner.at, inner.container, this.#split - 1)
  }

  /** Adds a value, which begins at an offset, to the container as its current item. */
  #take(frame: Open, at: number, value: unknown, depth: number): void {
    const before = this.#dialect.textOf(this.#bytes, frame.itemAt, at)
    if (frame.isArray) {
      if (!isBlank(before)) this.#dialect.refuse()
      ;(frame.container as unknown[]).push(value)
    } else {
      const keys = Object.keys(
        this.#dialect.parse(`{${nameIn(frame)}${before}""}`, depth - 1, false) as object,
      )
      if (keys.length !== 1) this.#dialect.refuse()
      put(frame.container as Record<string, unknown>, frame.name ?? keys[0], value)
      frame.name = undefined
    }
    frame.isTaken = true
  }

  /** Parses the complete items. */
  #takeItems(frame: Open): void {
    if (frame.itemAt > frame.runAt) this.#takeRun(frame, frame.runAt, frame.itemAt - 1)
    frame.runAt = frame.itemAt
  }

  #takeRun(frame: Open, from: number, to: number): void {
    const text = this.#dialect.textOf(this.#bytes, from, to)
    const depth = this.#split - 1
    const { container } = frame
    if (Array.isArray(container)) {
      const items = this.#dialect.parse(`[${text}]`, depth, this.#isSuspect) as unknown[]
      if (items.length === 0) this.#dialect.refuse()
      for (const item of items) container.push(item)
      return
    }
    const json = `{${nameIn(frame)}${text}}`
    const members = this.#dialect.parse(json, depth, this.#isSuspect) as Record<string, unknown>
    const keys = Object.keys(members)
    if (keys.length === 0) this.#dialect.refuse()
    // An item with a long name is parsed alone.
    for (const key of keys) put(container as Record<string, unknown>, frame.name ?? key, members[key])
    frame.name = undefined
  }

  /** Parses the rest of a container that ends here. */
  #finish(frame: Open, end: number): void {
    if (frame.isTaken) {
      this.#checkBlank(frame.takenEnd, end)
      return
    }
    this.#takeItems(frame)
    // A comma or a name must be followed by a value.
    if (frame.count > 0 || frame.name !== undefined || !this.#isBlank(frame.runAt, end))
      this.#takeRun(frame, frame.runAt, end)
  }

  /** Parses a string that is longer than a piece. */
  *#takeString(from: number): Generator<void, void, void> {
    const end = this.#at - 1
    const innermost = this.#frames[this.#depth]
    const isName = !innermost.isArray && this.#isBlank(innermost.itemAt, from)
    if (isName) {
      const { nameBytesMax } = this.#limits
      if (innermost.name !== undefined) this.#dialect.refuse()
      if (end - from > nameBytesMax) this.#dialect.refuse(`a name of more than ${nameBytesMax / 1024} KiB`)
    }
    this.#splitAll()
    if (isName) {
      innermost.name = yield* this.#dialect.longName(this.#bytes, from + 1, end, this.#pieceBytes)
      innermost.runAt = this.#at
      innermost.itemAt = this.#at
      return
    }
    const value = yield* this.#dialect.longString(this.#bytes, from + 1, end, this.#pieceBytes)
    this.#take(innermost, from, value, this.#depth)
    innermost.takenEnd = this.#at
  }

  /** Starts to put every open container together from runs. */
  #splitAll(): void {
    for (;;) {
      const frame = this.#frames[this.#split]
      if (frame.isTaken) this.#dialect.refuse()
      this.#takeItems(frame)
      if (this.#split === this.#depth) return
      this.#splitNext(frame)
    }
  }

  #isBlank(from: number, to: number): boolean {
    return isBlank(this.#bytes.latin1Slice(from, to))
  }

  #checkBlank(from: number, to: number): void {
    if (!this.#isBlank(from, to)) this.#dialect.refuse()
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
  frame.name = undefined
  frame.count = 0
  frame.container = undefined
  frame.isTaken = false
  frame.takenEnd = 0
}

/** The placeholder of a name that was parsed separately. */
function nameIn({ name }: Open): string {
  return name === undefined ? '' : '""'
}

/**
 * An empty array for elements of any type. V8 converts an array of numbers as a whole when an element of another type is added,
 * which takes 40 ms for a million.
 */
function mixedArray(): unknown[] {
  const array: unknown[] = [undefined]
  array.pop()
  return array
}

/** Defines a property. Assigning `__proto__` would call a setter. */
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
