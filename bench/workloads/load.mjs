import { ownValue } from '../data.mjs'

const BATCH = 1000

/** Fills a store with entries 0 to count - 1, in this order or in the given one. */
export async function load(store, count, placeOf, order) {
  for (let from = 0; from < count; from += BATCH) {
    const pairs = []
    for (let i = from; i < Math.min(count, from + BATCH); i++) {
      const entry = order === undefined ? i : order[i]
      pairs.push([store.at(...placeOf(entry)), ownValue(entry)])
    }
    await store.putMany(pairs)
  }
}
