import type { ByteString } from '../core/bytes.ts'
import { isDedupeTag } from '../engine/keys.ts'
import type { Entry, Place, PointRead } from '../engine/storage.ts'

/** Of what is remembered; small entries, as it is what appends look at. */
const PLACES_MAX = 10_000

interface Remembered {
  readonly entry: Entry | undefined
  /** What a commit that relies on it has to say. */
  readonly point: PointRead
}

/** What a step would find, and what its commit has to validate for that. */
export interface Recalled {
  readonly found: (Entry | undefined)[]
  readonly points: PointRead[]
}

/**
 * What steps that only append have read lately. Such a step mostly finds the
 * same again (whose run it is, who may write), so it is tried on what is
 * remembered, without asking; the commit validates it as it does any read.
 * A key that nobody remembers is taken for a new one: most are.
 */
export class RememberedPlaces {
  /** By scope: two or three each. To put the parts of a name together would take longer than to look at all. */
  readonly #scopes = new Map<ByteString, Remembered[]>()
  #size = 0

  /** Undefined if one of them is not remembered. Dedupe keys are not among the points. */
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
