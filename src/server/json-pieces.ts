import { isSliceOver, nextSlice } from '../core/slices.ts'

/** The approximate length of a piece. Most values fit into one. */
export const PIECE_CHARS: number = 64 * 1024
/** A multiple of three, so that base64 can be encoded in parts. */
const PART_BYTES = 48 * 1024
const STEPS_A_LOOK = 64

/** A container that is being written. */
interface Open {
  readonly container: Readonly<Record<string | number, unknown>>
  /** The keys of an object; undefined for an array. */
  readonly keys: readonly string[] | undefined
  readonly length: number
  next: number
  isEmpty: boolean
}

/** A string or bytes too long for one piece. */
interface LongLeaf {
  readonly leaf: string | Uint8Array
  at: number
}

/**
 * Writes JSON piece by piece, in slices, so that encoding many megabytes does not block the event loop. The kind `value` writes
 * `JSON.stringify(toJson(value))`; the kind `plain` writes `JSON.stringify(value)`.
 */
export class JsonPieces {
  readonly #isValue: boolean
  readonly #open: Open[] = []
  #long: LongLeaf | undefined
  #text = ''
  #steps = 0

  constructor(root: unknown, kind: 'value' | 'plain') {
    this.#isValue = kind === 'value'
    this.#write(root)
  }

  get isDone(): boolean {
    return this.#open.length === 0 && this.#long === undefined && this.#text === ''
  }

  /** The next piece; empty at the end. */
  async next(): Promise<string> {
    while (this.#text.length < PIECE_CHARS && (this.#open.length > 0 || this.#long !== undefined)) {
      if (this.#steps++ % STEPS_A_LOOK === 0 && isSliceOver()) await nextSlice()
      if (this.#long === undefined) this.#writeNext(this.#open[this.#open.length - 1])
      else this.#writePart(this.#long)
    }
    const piece = this.#text
    this.#text = ''
    return piece
  }

  #writeNext(top: Open): void {
    if (top.next === top.length) {
      this.#text += top.keys === undefined ? ']' : '}'
      this.#open.pop()
      return
    }
    const key = top.keys === undefined ? top.next : top.keys[top.next]
    top.next++
    const item = top.container[key]
    if (top.keys !== undefined && item === undefined) return
    if (!top.isEmpty) this.#text += ','
    top.isEmpty = false
    if (top.keys !== undefined) this.#text += `${JSON.stringify(key)}:`
    this.#write(item)
  }

  #write(item: unknown): void {
    if (typeof item === 'string') this.#writeString(item)
    else if (typeof item === 'object' && item !== null) this.#writeObject(item)
    else this.#text += this.#isValue ? valueLeaf(item) : (JSON.stringify(item) ?? 'null')
  }

  #writeString(text: string): void {
    const isMarked = this.#isValue && text.charCodeAt(0) === 0
    if (text.length > PIECE_CHARS) {
      this.#text += isMarked ? '"\\u0000s' : '"'
      this.#long = { leaf: text, at: 0 }
    } else this.#text += JSON.stringify(isMarked ? `\0s${text}` : text)
  }

  #writeObject(item: object): void {
    if (this.#isValue && item instanceof Uint8Array) {
      this.#text += '"\\u0000b'
      this.#long = { leaf: item, at: 0 }
      return
    }
    const container = item as Open['container']
    if (Array.isArray(item)) {
      this.#text += '['
      this.#open.push({ container, keys: undefined, length: item.length, next: 0, isEmpty: true })
    } else {
      const keys = Object.keys(item)
      this.#text += '{'
      this.#open.push({ container, keys, length: keys.length, next: 0, isEmpty: true })
    }
  }

  #writePart(long: LongLeaf): void {
    const { leaf, at } = long
    if (typeof leaf === 'string') {
      const end = endOfPart(leaf, at + PIECE_CHARS)
      this.#text += JSON.stringify(leaf.slice(at, end)).slice(1, -1)
      long.at = end
    } else {
      const end = Math.min(leaf.length, at + PART_BYTES)
      this.#text += Buffer.from(leaf.buffer, leaf.byteOffset, leaf.byteLength).toString('base64', at, end)
      long.at = end
    }
    if (long.at < leaf.length) return
    this.#text += '"'
    this.#long = undefined
  }
}

/** All pieces, for an answer that is inspected before it is sent. */
export async function allPieces(pieces: JsonPieces): Promise<readonly string[]> {
  const all: string[] = []
  while (!pieces.isDone) all.push(await pieces.next())
  return all
}

/** Does not split a surrogate pair. */
function endOfPart(text: string, end: number): number {
  const code = text.charCodeAt(end - 1)
  return code >= 0xd800 && code <= 0xdbff ? end - 1 : end
}

function valueLeaf(item: unknown): string {
  switch (typeof item) {
    case 'number':
      if (Number.isFinite(item)) return Object.is(item, -0) ? '"\\u0000z"' : `${item}`
      return Number.isNaN(item) ? '"\\u0000n"' : item > 0 ? '"\\u0000p"' : '"\\u0000m"'
    case 'bigint':
      return `"\\u0000i${item}"`
    default:
      return `${item as boolean | null}`
  }
}
