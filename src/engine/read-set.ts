import type { ByteString } from '../core/bytes.ts'
import { mapInSlices } from '../core/slices.ts'
import { storageKey } from './keys.ts'
import type { Entry, Place, PointRead, Range, RangeRead } from './storage.ts'

/** A read that one of the last ranges covers needs no entry of its own; looking further back costs more than it saves. */
const RANGES_SEARCHED_MAX = 8

/**
 * What a transaction has read from its snapshot, to be validated at commit: a
 * point by its version, a range by all that it found, so that a phantom is
 * noticed as well as a change.
 */
export class ReadSet {
  readonly #points = new Map<ByteString, PointRead>()
  readonly #ranges: RangeRead[] = []

  addPoint(place: Place, entry: Entry | undefined): void {
    const id = storageKey(place.scope, place.tag, place.key)
    if (this.#points.has(id) || this.#latest(range => coversKey(range, place))) return
    const { scope, tag, key } = place
    this.#points.set(id, { scope, tag, key, version: entry?.version ?? 0 })
  }

  /** In slices: a range may have found very much. */
  async addRange(range: Range, found: readonly Entry[]): Promise<void> {
    if (this.#latest(earlier => isSameRange(earlier, range))) return
    const read = await mapInSlices(found, ({ key, version }) => ({ key, version }))
    this.#ranges.push({ ...range, found: read })
  }

  points(): readonly PointRead[] {
    return [...this.#points.values()]
  }

  ranges(): readonly RangeRead[] {
    return this.#ranges
  }

  #latest(matches: (range: RangeRead) => boolean): boolean {
    const first = Math.max(0, this.#ranges.length - RANGES_SEARCHED_MAX)
    for (let i = this.#ranges.length - 1; i >= first; i--) if (matches(this.#ranges[i])) return true
    return false
  }
}

/** A range that its limit cut off says nothing about the keys behind its last one. */
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
