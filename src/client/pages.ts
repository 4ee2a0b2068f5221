import type { Ask, Transport } from './transport.ts'

interface PageOptions {
  /** All without it. */
  readonly limit: number | undefined
  /** The parameter that says from where on. */
  readonly place: string
  readonly start?: string | number | undefined
  readonly query?: Ask['query']
}

/** A list page by page, as it is asked for. */
export async function* pagesOf<T>(
  transport: Transport,
  path: string,
  list: string,
  { limit, place, start, query = {} }: PageOptions,
): AsyncGenerator<readonly T[], void, void> {
  let left = limit
  let next = start
  for (;;) {
    const asked: Ask = { query: { ...query, limit: left, [place]: next } }
    const page = await transport.json<Readonly<Record<string, unknown>> | null>(path, asked)
    const items = page?.[list] as readonly T[]
    if (!Array.isArray(items)) throw transport.foreign(200)
    yield items
    next = page?.['next'] as string | number | undefined
    if (left !== undefined) left -= items.length
    if (next === undefined || left === 0) return
  }
}

export async function all<T>(pages: AsyncIterable<readonly T[]>): Promise<readonly T[]> {
  const items: T[] = []
  // Not push(...page): a page may have more items than a call may have arguments.
  for await (const page of pages) for (const item of page) items.push(item)
  return Object.freeze(items)
}
