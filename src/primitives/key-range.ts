import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkLimit } from '../core/numbers.ts'
import { checkFlag, checkOptions } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import type { Range, TreeId } from '../engine/storage.ts'

const KEY_BYTES_MAX = 1024

/** The bounds of a range of keys. All given bounds hold at once. */
export interface KeyBounds {
  /** Only keys that begin with this text; all keys by default. */
  readonly prefix?: string
  /** Only keys after this one. Excludes `gte`. */
  readonly gt?: string
  /** Only this key and keys after it. */
  readonly gte?: string
  /** Only keys before this one. Excludes `lte`. */
  readonly lt?: string
  /** Only this key and keys before it. */
  readonly lte?: string
}

/** Selects keys, in byte order of their UTF-8. */
export interface ListOptions extends KeyBounds {
  /** Starts at the last key and goes back. */
  readonly reverse?: boolean
  /** The most items to return, a positive integer; unlimited by default. */
  readonly limit?: number
  /** The last key of the page before. The result starts after it; with `reverse`, before it. */
  readonly after?: string
}

const BOUNDS: readonly string[] = ['prefix', 'gt', 'gte', 'lt', 'lte']
const OPTIONS: readonly string[] = [...BOUNDS, 'reverse', 'limit', 'after']

/** Checks a key and returns its bytes. `name` is the argument's name in the error. */
export function checkKey(key: string, name = 'key'): ByteString {
  return checkText(name, key, { bytesMax: KEY_BYTES_MAX })
}

/** Checks the options of a call and returns the range that they select. A lower bound above the upper one is an empty range. */
export function rangeOf(tree: TreeId, call: string, options: ListOptions): Range {
  checkOptions(call, options, OPTIONS)
  const { reverse, after } = options
  checkFlag('reverse', reverse)
  const limit = checkLimit(options.limit)
  const lower: ByteString[] = []
  const upper: ByteString[] = []
  const prefix = boundOf('prefix', options)
  if (prefix !== undefined && prefix !== '') {
    lower.push(prefix)
    upper.push(endOf(prefix))
  }
  refuseBoth('gt', 'gte', options)
  refuseBoth('lt', 'lte', options)
  add(lower, boundOf('gte', options), '')
  add(lower, boundOf('gt', options), '\0')
  add(upper, boundOf('lt', options), '')
  add(upper, boundOf('lte', options), '\0')
  if (after !== undefined) {
    if (reverse === true) upper.push(checkKey(after, 'after'))
    else lower.push(`${checkKey(after, 'after')}\0`)
  }
  const from = lower.length === 0 ? undefined : lower.reduce((a, b) => (a > b ? a : b))
  const to = upper.length === 0 ? undefined : upper.reduce((a, b) => (a < b ? a : b))
  return { scope: tree.scope, tag: tree.tag, from, to, reverse, limit }
}

/** A bound may be empty, unlike a key. */
function boundOf(name: keyof KeyBounds, options: KeyBounds): ByteString | undefined {
  const bound = options[name]
  return bound === undefined || bound === '' ? bound : checkKey(bound, name)
}

function refuseBoth(open: keyof KeyBounds, closed: keyof KeyBounds, options: KeyBounds): void {
  if (options[open] === undefined || options[closed] === undefined) return
  throw new AnnalsError('INVALID_ARGUMENT', `${open} and ${closed} exclude each other: give one of them`, {
    name: open,
  })
}

function add(bounds: ByteString[], bound: ByteString | undefined, end: string): void {
  if (bound !== undefined) bounds.push(bound + end)
}

/** The first key after all keys with a prefix. UTF-8 has no byte 0xff, so the last byte can be incremented. */
function endOf(prefix: ByteString): ByteString {
  const last = prefix.length - 1
  return prefix.slice(0, last) + String.fromCharCode(prefix.charCodeAt(last) + 1)
}
