import { AnnalsError } from '../core/errors.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { callerIsGone } from './fair-share.ts'
import { allPieces, JsonPieces } from './json-pieces.ts'
import { jsonPieces, type Reply } from './reply.ts'

/** The largest page, whatever its limit. The rest follows with `next`. */
const PAGE_BYTES_MAX = 8 * 1024 * 1024

/** A page of a list, as pieces of JSON text. */
export class Page {
  readonly #limit: number
  readonly #pieces: string[] = []
  #count = 0
  #chars = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  get isFull(): boolean {
    return this.#count >= this.#limit || this.#chars >= PAGE_BYTES_MAX
  }

  add(item: unknown): void {
    this.#addPieces([JSON.stringify(item)])
  }

  /** Adds a record with values, each of which may be large. */
  async addValues(item: unknown): Promise<void> {
    this.#addPieces(await allPieces(new JsonPieces(item, 'value')))
  }

  #addPieces(pieces: readonly string[]): void {
    if (this.#count++ > 0) this.#pieces.push(',')
    for (const piece of pieces) {
      this.#pieces.push(piece)
      this.#chars += piece.length
    }
  }

  /** `{"<list>":[…],"next":…}` */
  reply(list: string, next: string | number | undefined): Reply {
    const behind = next === undefined ? '' : `,"next":${JSON.stringify(next)}`
    return jsonPieces([`{"${list}":[`, ...this.#pieces, `]${behind}}`])
  }
}

/** How positions in a list are named. */
export interface Places<T> {
  nameOf(item: T): string
  /** The index of the first item after a position. */
  behind(items: readonly T[], after: string): number
}

/** Positions in a list of names in byte order. */
export const BY_NAME: Places<string> = {
  nameOf: name => name,
  behind: (items, after) => {
    const place = Buffer.from(after)
    return firstOf(items, name => Buffer.compare(Buffer.from(name), place) > 0)
  },
}

/** Binary search for the first item after the position. */
function firstOf<T>(items: readonly T[], isBehind: (item: T) => boolean): number {
  let low = 0
  let high = items.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (isBehind(items[middle])) high = middle
    else low = middle + 1
  }
  return low
}

/** A page of a complete list, after the position `after`. The list is ordered, so `after` may name an item that was deleted. */
export function paged<T>(
  list: string,
  items: readonly T[],
  places: Places<T>,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
): Reply {
  const page = new Page(limit)
  let next = after === undefined ? 0 : places.behind(items, after)
  while (next < items.length && !page.isFull) page.add(items[next++])
  return page.reply(list, next < items.length ? places.nameOf(items[next - 1]) : undefined)
}

/**
 * A page of items that are read on demand; only one more than the page is read. `shown` converts an item; `values` encodes an
 * item that has values. Stops reading when the caller has gone.
 */
export async function pageOfEach<T>(
  list: string,
  items: AsyncIterable<T>,
  { limit, signal }: { readonly limit: number; readonly signal: AbortSignal },
  nameOf: (item: T) => string | number,
  shown: ((item: T) => unknown) | 'values' = item => item,
): Promise<Reply> {
  const page = new Page(limit)
  let last: T | undefined
  for await (const item of items) {
    if (page.isFull && last !== undefined) return page.reply(list, nameOf(last))
    if (isSliceOver()) await nextSlice()
    if (signal.aborted) throw callerIsGone()
    if (shown === 'values') await page.addValues(item)
    else page.add(shown(item))
    last = item
  }
  return page.reply(list, undefined)
}

/** Reads items in small chunks, because each may be large, and yields them one by one. */
export async function* inChunks<T, P>(
  start: P,
  size: number,
  read: (after: P, limit: number) => Promise<readonly T[]>,
  placeOf: (item: T) => P,
): AsyncGenerator<T, void, void> {
  for (let after = start; ; ) {
    const items = await read(after, size)
    yield* items
    if (items.length < size) return
    after = placeOf(items[items.length - 1])
  }
}

/** The items after the named one. Throws if there is no such item. */
export async function* behindNamed<T>(
  items: AsyncIterable<T>,
  nameOf: (item: T) => string,
  after: string | undefined,
): AsyncGenerator<T, void, void> {
  let isBehind = after === undefined
  for await (const item of items) {
    if (isBehind) yield item
    else isBehind = nameOf(item) === after
  }
  if (!isBehind) throw notGiven()
}

/** An opaque cursor for a position in a list. */
export function cursorOf(...parts: readonly (string | number)[]): string {
  return Buffer.from(JSON.stringify(parts), 'utf8').toString('base64url')
}

interface PartTypes {
  readonly string: string
  readonly number: number
}

/** The parts of a cursor. Throws if the cursor is not valid. */
export function partsOf<const T extends readonly (keyof PartTypes)[]>(
  cursor: string,
  types: T,
): { readonly [I in keyof T]: PartTypes[T[I]] } {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    const isOne =
      Array.isArray(parts) &&
      parts.length === types.length &&
      parts.every((part, i) => typeof part === types[i])
    if (isOne) return parts as unknown as { readonly [I in keyof T]: PartTypes[T[I]] }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw notGiven()
}

function notGiven(): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', 'the cursor is not valid', { name: 'cursor' })
}
