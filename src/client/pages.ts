import type { Ask, Transport } from './transport.ts'

interface PageOptions<T> {
  /** All without it. */
  readonly limit: number | undefined
  /** The parameter that says from where on. */
  readonly place: string
  readonly start?: string | number | undefined
  readonly query?: Ask['query']
  /**
   * For places that are numbers. Each page but the first is asked for with the last item again, and this checks that it is
   * still the same one.
   */
  readonly checkSame?: (last: T, again: T | undefined) => void
}

/** A list page by page, as it is asked for. */
export async function* pagesOf<T>(
  transport: Transport,
  path: string,
  list: string,
  { limit, place, start, query = {}, checkSame }: PageOptions<T>,
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
    // Undefined if one large item filled the page: the next page is asked for without it.
    last = items[items.length - 1]
    if (next === undefined || left === 0) return
  }
}

export async function all<T>(pages: AsyncIterable<readonly T[]>): Promise<readonly T[]> {
  const items: T[] = []
  // Not push(...page): a page may have more items than a call may have arguments.
  for await (const page of pages) for (const item of page) items.push(item)
  return Object.freeze(items)
}
