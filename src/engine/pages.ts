import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Entry, Range, Reader } from './storage.ts'

const LIMIT_FIRST = 16
const LIMIT_MAX = 1_024
/** A page grows until it is about this large, so that neither many small entries nor few large ones cost much. */
const PAGE_BYTES = 512 * 1024

/**
 * A range bit by bit, as it is asked for: memory holds one page, however long the range is. The event loop turns between
 * pages; a caller that does more than a little with each entry has to let it turn within a page, too.
 */
export async function* pages(
  reader: Pick<Reader, 'scan'>,
  range: Range,
): AsyncGenerator<readonly Entry[], void, void> {
  let limit = LIMIT_FIRST
  let rest = range
  let left = range.limit ?? Number.POSITIVE_INFINITY
  while (left > 0) {
    if (isSliceOver()) await nextSlice()
    const count = Math.min(limit, left)
    const page = await reader.scan({ ...rest, limit: count })
    if (page.length > 0) yield page
    if (page.length < count) return
    left -= page.length
    rest = behind(rest, page[page.length - 1].key)
    const bytes = page.reduce((sum, { key, value }) => sum + key.length + value.length, 0)
    const fitting = Math.floor((PAGE_BYTES * page.length) / Math.max(1, bytes))
    limit = Math.max(1, Math.min(LIMIT_MAX, limit * 2, fitting))
  }
}

/** What of the range comes after `key`. */
export function behind(range: Range, key: string): Range {
  return range.reverse === true ? { ...range, to: key } : { ...range, from: `${key}\0` }
}
