import { type ByteString, utf8 } from './bytes.ts'

/**
 * How the keys of an object are written: their order, and the text between them. Programs have few shapes of objects and many
 * objects of each, so layouts are cached: sorting and quoting ten keys costs more than writing ten values.
 */
export interface Layout {
  /** The keys in the order of `Object.keys`. */
  readonly keys: readonly string[]
  /** The keys sorted by UTF-16 code units. */
  readonly sorted: readonly string[]
  /**
   * For each sorted key, the UTF-8 that comes before its value. [0] is `{"a":`, `,"b":` and so on. [1] begins with the
   * closing quote of the string before.
   */
  readonly prefixes: readonly [readonly ByteString[], readonly ByteString[]]
  /** The prefixes followed by the opening quote of a string value. */
  readonly prefixesOfText: readonly [readonly ByteString[], readonly ByteString[]]
  /** False if a key has a lone surrogate. Then the rest must not be used. */
  readonly isWellFormed: boolean
}

/** Longer lists and keys are data rather than a shape, and are not cached. */
const KEYS_MAX = 32
const KEY_CHARS_MAX = 64
/** With the limits above, the cache takes a few megabytes at most. */
const LAYOUTS_MAX = 512
const LAYOUTS_PER_FIRST_KEY_MAX = 8

/** Layouts by first key. Several have the same one, because many objects start with `id` or `type`. */
const layoutsByFirstKey = new Map<string, Layout[]>()
let layoutCount = 0

/** The layout of an object with these keys. Undefined if the keys alone take more than `bytesMax`. */
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

/** Whether the keys fit. Besides its key, every property takes at least four bytes. */
function isWithin(keys: readonly string[], bytesMax: number): boolean {
  let left = bytesMax - 4 * keys.length
  for (let i = 0; i < keys.length && left >= 0; i++) left -= keys[i].length
  return left >= 0
}

/** Compares pointers, because V8 interns property keys. Starts at the end, because shapes often start alike. */
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
  // Clearing the whole cache bounds its memory without bookkeeping on each use.
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
    known.shift()
    known.push(layout)
  }
  return layout
}

function makeLayout(keys: readonly string[]): Layout {
  // Without a comparator `sort` compares UTF-16 code units, as the RFC demands.
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
