import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Entry, Place, Reader } from './storage.ts'

/** One look at the clock serves several gets. */
const GETS_A_LOOK = 16

/**
 * Many entries by their places. They are asked for together, so that on a server they go in few statements; where a get does
 * its work at once, the event loop turns in between.
 */
export async function getMany(
  reader: Reader,
  places: readonly (Place | undefined)[],
): Promise<readonly (Entry | undefined)[]> {
  const gets: Promise<Entry | undefined>[] = []
  let heard = 0
  for (const place of places) {
    if (gets.length % GETS_A_LOOK === 0 && isSliceOver()) {
      // Those under way may fail while this waits; they are heard at the end, and are not unhandled before.
      void Promise.allSettled(gets.slice(heard))
      heard = gets.length
      await nextSlice()
    }
    gets.push(place === undefined ? NOTHING : reader.get(place.scope, place.tag, place.key))
  }
  return Promise.all(gets)
}

const NOTHING = Promise.resolve(undefined)
