import type { PaginatedResponse, PaginationOptions } from 'openworkflow/internal'
import { AnnalsError } from '../../index.ts'

const PAGE_SIZE = 100

/** A page that somebody asked for. */
export interface PageRequest {
  readonly limit: number
  /** The id before or after which the page lies. */
  readonly cursor: string | undefined
  readonly isAfter: boolean
  readonly isBefore: boolean
}

interface Item {
  readonly id: string
  readonly createdAt: Date
}

export function pageRequest({ limit = PAGE_SIZE, after, before }: PaginationOptions): PageRequest {
  if (after && before) throw new Error("Cannot specify both 'after' and 'before' cursors")
  const text = after || before || undefined
  return {
    limit,
    cursor: text === undefined ? undefined : idOf(text),
    isAfter: Boolean(after),
    isBefore: Boolean(before),
  }
}

/** Makes the page of items that were read in its direction. There is one more than the page has room for, if there are so many. */
export function pageOf<T extends Item>(items: readonly T[], request: PageRequest): PaginatedResponse<T> {
  const isMore = items.length > request.limit
  const data = items.slice(0, request.limit)
  if (request.isBefore) data.reverse()
  const [first] = data
  const last = data.at(-1)
  const hasNext = request.isBefore || isMore
  const hasPrevious = request.isBefore ? isMore : request.isAfter
  return {
    data,
    pagination: {
      next: hasNext && last !== undefined ? cursorOf(last) : null,
      prev: hasPrevious && first !== undefined ? cursorOf(first) : null,
    },
  }
}

/** A cursor has the same form as those of OpenWorkflow's own backends. */
function cursorOf({ createdAt, id }: Item): string {
  return Buffer.from(JSON.stringify({ createdAt, id })).toString('base64')
}

function idOf(cursor: string): string {
  const text = Buffer.from(cursor, 'base64').toString()
  const id = /"id":"([0-9a-f-]{36})"/.exec(text)?.[1]
  if (id === undefined) throw new AnnalsError('INVALID_ARGUMENT', 'the cursor is invalid', { name: 'cursor' })
  return id
}
