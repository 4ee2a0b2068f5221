import { type ByteString, utf8 } from './bytes.ts'

/**
 * How the keys of an object are written: in which order, and with what
 * between them. Objects come in few shapes and many copies, so the answer for
 * a list of keys is remembered; sorting and quoting ten keys anew costs more
 * than writing ten values.
 */
export interface Layout {
  /** As `Object.keys` gave them. */
  readonly keys: readonly string[]
  /** By UTF-16 code units. */
  readonly sorted: readonly string[]
  /**
   * For each sorted key, the UTF-8 that comes before its value: `{"a":`, then
   * `,"b":` … [0]; the same, but first the closing quote of the text before
   * it [1].
   */
  readonly prefixes: readonly [readonly ByteString[], readonly ByteString[]]
  /** The same with the opening quote of a text behind it. */
  readonly prefixesOfText: readonly [readonly ByteString[], readonly ByteString[]]
  /** If not, a key holds a lone surrogate, and nothing above is to be used. */
  readonly isWellFormed: boolean
}

/** Longer lists and keys are data rather than a shape, and seldom come again. */
const KEYS_MAX = 32
const KEY_CHARS_MAX = 64
/** Together with the limits above: a few megabytes at the very most. */
const LAYOUTS_MAX = 512
const LAYOUTS_PER_FIRST_KEY_MAX = 8

/** By first key; several, because many kinds of objects start with `id` or `type`. */
const layoutsByFirstKey = new Map<string, Layout[]>()
let layoutCount = 0

/** Undefined if the keys alone take more than so many bytes: then there is no need to sort and quote them. */
export function layoutOf(keys: readonly string[], bytesMax: number): Layout | undefined {
  if (keys.length > KEYS_MAX) return isWithin(keys, bytesMax) ? makeLayout(keys) : undefined
  const known = layoutsByFirstKey.get(keys[0])
  if (known !== undefined) {
    for (let i = 0; i < known.length; i++) {
      if (hasKeys(known[i], keys)) return known[i]
    }
  }
  return isWithin(keys, bytesMax) ? remember(keys) : undefined
}

/** Every property takes four bytes at least, besides its key. */
function isWithin(keys: readonly string[], bytesMax: number): boolean {
  let left = bytesMax - 4 * keys.length
  for (let i = 0; i < keys.length && left >= 0; i++) left -= keys[i].length
  return left >= 0
}

/** Property keys are interned, so that each comparison is one of pointers. From the end: shapes often start alike. */
function hasKeys(layout: Layout, keys: readonly string[]): boolean {
  const theirs = layout.keys
  if (theirs.length !== keys.length) return false
  for (let i = keys.length - 1; i >= 0; i--) {
    if (theirs[i] !== keys[i]) return false
  }
  return true
}

function remember(keys: readonly string[]): Layout {
  const layout = makeLayout(keys)
  if (keys.some(key => key.length > KEY_CHARS_MAX)) return layout
  // Forgetting all at once is crude, but bounds the memory without bookkeeping on each use.
  if (layoutCount >= LAYOUTS_MAX) {
    layoutsByFirstKey.clear()
    layoutCount = 0
  }
  const known = layoutsByFirstKey.get(keys[0])
  if (known === undefined) {
    layoutsByFirstKey.set(keys[0], [layout])
    layoutCount++
  } else if (known.length < LAYOUTS_PER_FIRST_KEY_MAX) {
    known.push(layout)
    layoutCount++
  } else {
    // The oldest goes.
    known.shift()
    known.push(layout)
  }
  return layout
}

function makeLayout(keys: readonly string[]): Layout {
  // Without a comparator `sort` compares UTF-16 code units: the RFC's order.
  const sorted = [...keys].sort()
  const prefixes = sorted.map((key, i) => `${i === 0 ? '{' : ','}${JSON.stringify(utf8(key))}:`)
  const closing = prefixes.map(prefix => `"${prefix}`)
  const opening = (prefix: ByteString): ByteString => `${prefix}"`
  return {
    keys,
    sorted,
    prefixes: [prefixes, closing],
    prefixesOfText: [prefixes.map(opening), closing.map(opening)],
    isWellFormed: keys.every(key => key.isWellFormed()),
  }
}
