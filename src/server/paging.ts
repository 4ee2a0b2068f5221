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

/** A page of what is all there, from behind the item that `after` names. */
export function paged<T>(
  list: string,
  items: readonly T[],
  nameOf: (item: T) => string,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  shown: (item: T) => unknown = item => item,
): Reply {
  const page = new Page(limit)
  let next = after === undefined ? 0 : items.findIndex(item => nameOf(item) === after) + 1
  if (after !== undefined && next === 0) {
    throw new AnnalsError('INVALID_ARGUMENT', 'after names nothing that is in the list', { name: 'after' })
  }
  while (next < items.length && !page.isFull) page.add(shown(items[next++]))
  return page.reply(list, next < items.length ? nameOf(items[next - 1]) : undefined)
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
  throw new AnnalsError('INVALID_ARGUMENT', 'cursor is none that was given', { name: 'cursor' })
}
