import type { ByteString } from '../core/bytes.ts'
import { isDedupeTag } from '../engine/keys.ts'
import type { Entry, Place, PointRead } from '../engine/storage.ts'

/** How many places are remembered. Their entries are small: a run's record, the writer of a run. */
const PLACES_MAX = 10_000

interface Remembered {
  readonly entry: Entry | undefined
  /** The point that a commit relying on the entry has to validate. */
  readonly point: PointRead
}

/** The entries that a step would probably read, and the points that its commit has to validate. */
export interface Recalled {
  readonly found: (Entry | undefined)[]
  readonly points: PointRead[]
}

/**
 * A cache of the entries that appending steps have read lately, for example a
 * run's record. Such a step mostly finds the same entries again, so it runs on the
 * cached ones without a read, and its commit validates them like any other read.
 * Dedupe keys are not cached: a key is taken for new, as most keys are.
 */
export class RememberedPlaces {
  /** By scope, two or three places each. A key made of all parts of a place would take longer to build than the search. */
  readonly #scopes = new Map<ByteString, Remembered[]>()
  #size = 0

  /** Undefined if a place is not in the cache. Dedupe keys are not among the points. */
  recall(places: readonly Place[]): Recalled | undefined {
    const found: (Entry | undefined)[] = []
    const points: PointRead[] = []
    for (const place of places) {
      const isKey = isDedupeTag(place.tag)
      const known = isKey ? undefined : this.#find(place)
      if (known !== undefined) points.push(known.point)
      else if (!isKey) return undefined
      found.push(known?.entry)
    }
    return { found, points }
  }

  remember(places: readonly Place[], found: readonly (Entry | undefined)[]): void {
    this.forget(places)
    if (this.#size + places.length > PLACES_MAX) {
      this.#scopes.clear()
      this.#size = 0
    }
    for (const [i, { scope, tag, key }] of places.entries()) {
      if (isDedupeTag(tag)) continue
      const entry = found[i]
      const remembered = { entry, point: { scope, tag, key, version: entry?.version ?? 0 } }
      const others = this.#scopes.get(scope)
      if (others === undefined) this.#scopes.set(scope, [remembered])
      else others.push(remembered)
      this.#size++
    }
  }

  forget(places: readonly Place[]): void {
    for (const place of places) {
      const known = this.#find(place)
      if (known === undefined) continue
      const kept = this.#scopes.get(place.scope)!.filter(other => other !== known)
      if (kept.length > 0) this.#scopes.set(place.scope, kept)
      else this.#scopes.delete(place.scope)
      this.#size--
    }
  }

  #find({ scope, tag, key }: Place): Remembered | undefined {
    return this.#scopes.get(scope)?.find(({ point }) => point.tag === tag && point.key === key)
  }
}
