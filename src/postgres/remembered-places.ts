import type { ByteString } from '../core/bytes.ts'
import { isDedupeTag, storageKey } from '../engine/keys.ts'
import type { Entry, Place } from '../engine/storage.ts'

/** Of what is remembered; small entries, as it is what appends look at. */
const PLACES_MAX = 10_000

/**
 * What steps that only append have read lately. Such a step mostly finds the
 * same again (whose run it is, who may write), so it is tried on what is
 * remembered, without asking; the commit validates it as it does any read.
 * A key that nobody remembers is taken for a new one: most are.
 */
export class RememberedPlaces {
  readonly #entries = new Map<ByteString, Entry | undefined>()

  /** Undefined if one of them is not remembered. */
  recall(places: readonly Place[]): (Entry | undefined)[] | undefined {
    const found: (Entry | undefined)[] = []
    for (const place of places) {
      const name = nameOf(place)
      if (!this.#entries.has(name) && !isDedupeTag(place.tag)) return undefined
      found.push(this.#entries.get(name))
    }
    return found
  }

  remember(places: readonly Place[], found: readonly (Entry | undefined)[]): void {
    if (this.#entries.size + places.length > PLACES_MAX) this.#entries.clear()
    for (const [i, place] of places.entries()) {
      if (!isDedupeTag(place.tag)) this.#entries.set(nameOf(place), found[i])
    }
  }

  forget(places: readonly Place[]): void {
    for (const place of places) this.#entries.delete(nameOf(place))
  }
}

function nameOf({ scope, tag, key }: Place): ByteString {
  return storageKey(scope, tag, key)
}
