import { AnnalsError } from '../core/errors.ts'
import { jsonText, type Reply } from './reply.ts'

/** Answers end here, whatever the limit is: the rest is behind `next`. */
const PAGE_BYTES_MAX = 8 * 1024 * 1024

/** A list in JSON, in pieces of JSON, that grows until the page is full. */
export class Page {
  readonly #limit: number
  readonly #parts: string[] = []
  #bytes = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  get isFull(): boolean {
    return this.#parts.length >= this.#limit || this.#bytes >= PAGE_BYTES_MAX
  }

  get left(): number {
    return this.#limit - this.#parts.length
  }

  add(item: unknown): void {
    const part = JSON.stringify(item)
    this.#parts.push(part)
    this.#bytes += part.length
  }

  /** `{"<list>":[…],"next":…}` */
  reply(list: string, next: string | number | undefined): Reply {
    const behind = next === undefined ? '' : `,"next":${JSON.stringify(next)}`
    return jsonText(`{"${list}":[${this.#parts.join(',')}]${behind}}`)
  }
}

/** How the items of a list name their places in it. */
export interface Places<T> {
  nameOf(item: T): string
  /** Where the list goes on behind the place that was named. */
  behind(items: readonly T[], after: string): number
}

/** Names in byte order. */
export const BY_NAME: Places<string> = {
  nameOf: name => name,
  behind: (items, after) => {
    const place = Buffer.from(after)
    return firstOf(items, name => Buffer.compare(Buffer.from(name), place) > 0)
  },
}

/** Items in the order of a number, then of a text. */
export function byNumber<T>(partsIn: (item: T) => readonly [number, string]): Places<T> {
  return {
    nameOf: item => cursorOf(...partsIn(item)),
    behind(items, after) {
      const [number, text] = partsOf(after, 2)
      if (typeof number !== 'number' || typeof text !== 'string') throw notGiven()
      return firstOf(items, item => {
        const [own, name] = partsIn(item)
        return own === number ? name > text : own > number
      })
    },
  }
}

/** Items that stay where they are for good. */
export function bySelf<T>(nameOf: (item: T) => string): Places<T> {
  return {
    nameOf,
    behind(items, after) {
      const place = items.findIndex(item => nameOf(item) === after)
      if (place < 0) throw notGiven()
      return place + 1
    },
  }
}

function firstOf<T>(items: readonly T[], isBehind: (item: T) => boolean): number {
  const first = items.findIndex(isBehind)
  return first < 0 ? items.length : first
}

/**
 * A page of what is all there, from behind the place that `after` names. The list is in the order of its places, so that a
 * place is one also when what was there is gone.
 */
export function paged<T>(
  list: string,
  items: readonly T[],
  places: Places<T>,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  shown: (item: T) => unknown = item => item,
): Reply {
  const page = new Page(limit)
  let next = after === undefined ? 0 : places.behind(items, after)
  while (next < items.length && !page.isFull) page.add(shown(items[next++]))
  return page.reply(list, next < items.length ? places.nameOf(items[next - 1]) : undefined)
}

/** A place in a list as one word, that nobody need understand. */
export function cursorOf(...parts: readonly (string | number)[]): string {
  return Buffer.from(JSON.stringify(parts), 'utf8').toString('base64url')
}

export function partsOf(cursor: string, count: number): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    if (Array.isArray(parts) && parts.length === count) return parts
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw notGiven()
}

function notGiven(): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', 'the cursor is none that was given', { name: 'cursor' })
}
