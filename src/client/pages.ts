import type { Ask, Transport } from './transport.ts'

interface PageOptions<T> {
  /** The most items; default: all. */
  readonly limit?: number | undefined
  /** The parameter for the position; default `after`. */
  readonly place?: string
  readonly start?: string | number | undefined
  readonly query?: Ask['query']
  /**
   * For positions that are numbers. Each further page is requested with the last item of the page before; this checks that it is
   * still the same.
   */
  readonly checkSame?: (last: T, again: T | undefined) => void
}

/** The pages of a list, requested on demand. */
export async function* pagesOf<T>(
  transport: Transport,
  path: string,
  list: string,
  { limit, place = 'after', start, query = {}, checkSame }: PageOptions<T> = {},
): AsyncGenerator<readonly T[], void, void> {
  let left = limit
  let next = start
  let last: T | undefined
  for (;;) {
    const again = last === undefined || checkSame === undefined ? 0 : 1
    const most = left === undefined ? undefined : left + again
    const asked: Ask = { query: { ...query, limit: most, [place]: again === 1 ? Number(next) - 1 : next } }
    const page = await transport.json<Readonly<Record<string, unknown>> | null>(path, asked)
    let items = page?.[list] as readonly T[]
    if (!Array.isArray(items)) throw transport.foreign(200)
    if (again === 1) {
      checkSame?.(last as T, items[0])
      items = items.slice(1)
    }
    yield items
    next = page?.['next'] as string | number | undefined
    if (left !== undefined) left -= items.length
    // Undefined if one large item filled the page; then the next page is not compared.
    last = items[items.length - 1]
    if (next === undefined || left === 0) return
  }
}

export async function all<T>(pages: AsyncIterable<readonly T[]>): Promise<readonly T[]> {
  const items: T[] = []
  // Not `push(...page)`: a page may have more items than a call can have arguments.
  for await (const page of pages) for (const item of page) items.push(item)
  return Object.freeze(items)
}
