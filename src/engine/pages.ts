import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Entry, Range, Reader } from './storage.ts'

const LIMIT_FIRST = 16
const LIMIT_MAX = 1_024
/** The target size of a page, which suits many small entries as well as few large ones. */
const PAGE_BYTES = 512 * 1024

/**
 * Reads a range page by page, so that memory holds one page at a time. It yields to the event loop between pages. A caller
 * that does much work for each entry must also yield within a page.
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

/** The part of the range after `key`, in the range's direction. */
export function behind(range: Range, key: string): Range {
  return range.reverse === true ? { ...range, to: key } : { ...range, from: `${key}\0` }
}
