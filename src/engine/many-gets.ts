import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Entry, Place, Reader } from './storage.ts'

/** How many gets start between two checks of the clock. */
const GETS_A_LOOK = 16

/**
 * Gets many entries concurrently, so that the PostgreSQL engine reads them in few statements. On an engine whose gets are
 * synchronous, it yields to the event loop in between.
 */
export async function getMany(
  reader: Reader,
  places: readonly (Place | undefined)[],
): Promise<readonly (Entry | undefined)[]> {
  const gets: Promise<Entry | undefined>[] = []
  let heard = 0
  for (const place of places) {
    if (gets.length % GETS_A_LOOK === 0 && isSliceOver()) {
      // A pending get may reject during the pause. Promise.all below reports it; this prevents an unhandled rejection.
      void Promise.allSettled(gets.slice(heard))
      heard = gets.length
      await nextSlice()
    }
    gets.push(place === undefined ? NOTHING : reader.get(place.scope, place.tag, place.key))
  }
  return Promise.all(gets)
}

const NOTHING = Promise.resolve(undefined)
