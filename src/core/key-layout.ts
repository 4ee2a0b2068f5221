import { type ByteString, utf8 } from './bytes.ts'

/**
 * How the keys of an object are written: their order, and the text between them. Programs have few shapes of objects and many
 * objects of each, so layouts are cached: sorting and quoting ten keys costs more than writing ten values.
 */
export interface Layout {
  /** The keys in the order of `Object.keys`. */
  readonly keys: readonly string[]
  /** The keys in the order in which they are written. */
  readonly ordered: readonly string[]
  /**
   * For each ordered key, the UTF-8 that comes before its value. [0] is `{"a":`, `,"b":` and so on. [1] begins with the
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

/** Layouts with one order of keys. */
export class Layouts {
  readonly #order: (keys: readonly string[]) => readonly string[]
  /** Layouts by first key. Several have the same one, because many objects start with `id` or `type`. */
  readonly #byFirstKey = new Map<string, Layout[]>()
  #count = 0

  constructor(order: (keys: readonly string[]) => readonly string[]) {
    this.#order = order
  }

  /** The layout of an object with these keys. Undefined if the keys alone take more than `bytesMax`. */
  of(keys: readonly string[], bytesMax: number): Layout | undefined {
    if (keys.length <= KEYS_MAX) {
      const known = this.#byFirstKey.get(keys[0])
      if (known !== undefined) {
        for (let i = 0; i < known.length; i++) {
          if (hasKeys(known[i], keys)) return known[i]
        }
      }
    }
    if (!isWithin(keys, bytesMax)) return undefined
    const layout = makeLayout(keys, this.#order(keys))
    const isData = keys.length > KEYS_MAX || keys.some(key => key.length > KEY_CHARS_MAX)
    if (!isData) this.#remember(layout)
    return layout
  }

  #remember(layout: Layout): void {
    // Clearing the whole cache bounds its memory without bookkeeping on each use.
    if (this.#count >= LAYOUTS_MAX) {
      this.#byFirstKey.clear()
      this.#count = 0
    }
    const [first] = layout.keys
    const known = this.#byFirstKey.get(first)
    if (known === undefined) {
      this.#byFirstKey.set(first, [layout])
      this.#count++
    } else if (known.length < LAYOUTS_PER_FIRST_KEY_MAX) {
      known.push(layout)
      this.#count++
    } else {
      known.shift()
      known.push(layout)
    }
  }
}

/** Keys sorted by UTF-16 code units, as RFC 8785 demands. Without a comparator, `sort` compares these. */
export const SORTED_LAYOUTS: Layouts = new Layouts(keys => [...keys].sort())
/** Keys in the order of the object. */
export const GIVEN_LAYOUTS: Layouts = new Layouts(keys => keys)

function makeLayout(keys: readonly string[], ordered: readonly string[]): Layout {
  const prefixes = ordered.map((key, i) => `${i === 0 ? '{' : ','}${JSON.stringify(utf8(key))}:`)
  const closing = prefixes.map(prefix => `"${prefix}`)
  const opening = (prefix: ByteString): ByteString => `${prefix}"`
  return {
    keys,
    ordered,
    prefixes: [prefixes, closing],
    prefixesOfText: [prefixes.map(opening), closing.map(opening)],
    isWellFormed: keys.every(key => key.isWellFormed()),
  }
}
