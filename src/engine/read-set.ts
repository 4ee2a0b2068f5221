import type { ByteString } from '../core/bytes.ts'
import { mapInSlices } from '../core/slices.ts'
import { storageKey } from './keys.ts'
import type { Entry, Place, PointRead, Range, RangeRead } from './storage.ts'

/** How many of the last ranges are searched for one that covers a read. Searching further back costs more than it saves. */
const RANGES_SEARCHED_MAX = 8

/**
 * The reads of a transaction, which the storage validates at commit. A point is
 * recorded with its version, a range with all entries that it found, so that
 * validation detects phantoms as well as changes.
 */
export class ReadSet {
  readonly #points = new Map<ByteString, PointRead>()
  readonly #ranges: RangeRead[] = []

  /** Records the read of one key, unless a recorded read covers it. */
  addPoint(place: Place, entry: Entry | undefined): void {
    const id = storageKey(place.scope, place.tag, place.key)
    if (this.#points.has(id) || this.#latest(range => coversKey(range, place))) return
    const { scope, tag, key } = place
    this.#points.set(id, { scope, tag, key, version: entry?.version ?? 0 })
  }

  /** Whether the read of this key was recorded as a point. */
  hasPoint({ scope, tag, key }: Place): boolean {
    return this.#points.has(storageKey(scope, tag, key))
  }

  /** Records a range read. Works in slices, because the range may hold many entries. */
  async addRange(range: Range, found: readonly Entry[]): Promise<void> {
    if (this.#latest(earlier => isSameRange(earlier, range))) return
    const read = await mapInSlices(found, ({ key, version }) => ({ key, version }))
    this.#ranges.push({ ...range, found: read })
  }

  /** The recorded reads of single keys. */
  points(): readonly PointRead[] {
    return [...this.#points.values()]
  }

  /** The recorded range reads. */
  ranges(): readonly RangeRead[] {
    return this.#ranges
  }

  #latest(matches: (range: RangeRead) => boolean): boolean {
    const first = Math.max(0, this.#ranges.length - RANGES_SEARCHED_MAX)
    for (let i = this.#ranges.length - 1; i >= first; i--) if (matches(this.#ranges[i])) return true
    return false
  }
}

/** Whether the range read the key. A range that its limit cut off does not cover the keys after its last one. */
function coversKey(range: RangeRead, { scope, tag, key }: Place): boolean {
  if (range.scope !== scope || range.tag !== tag) return false
  if (range.from !== undefined && key < range.from) return false
  if (range.to !== undefined && key >= range.to) return false
  if (range.limit === undefined || range.found.length < range.limit) return true
  const last = range.found[range.found.length - 1].key
  return range.reverse === true ? key >= last : key <= last
}

function isSameRange(a: Range, b: Range): boolean {
  return (
    a.scope === b.scope &&
    a.tag === b.tag &&
    a.from === b.from &&
    a.to === b.to &&
    (a.reverse ?? false) === (b.reverse ?? false) &&
    a.limit === b.limit
  )
}
