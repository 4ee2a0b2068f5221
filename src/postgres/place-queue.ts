import type { ByteString } from '../core/bytes.ts'
import { storageKey } from '../engine/keys.ts'
import type { Place } from '../engine/storage.ts'

/**
 * Runs the steps of one process over the same places one after the other.
 * Otherwise each would find its reads changed by the one before and start again.
 */
export class PlaceQueue {
  readonly #tails = new Map<ByteString, Promise<void>>()

  /** Resolves at the caller's turn, with the function that ends it. A caller queues for all its places at once, so there is no deadlock. */
  async turn(places: readonly Place[]): Promise<() => void> {
    let end = (): void => {}
    const own = new Promise<void>(resolve => {
      end = resolve
    })
    const ids = new Set(places.map(({ scope, tag, key }) => storageKey(scope, tag, key)))
    const before: Promise<void>[] = []
    for (const id of ids) {
      const tail = this.#tails.get(id)
      if (tail !== undefined) before.push(tail)
      this.#tails.set(id, own)
    }
    await Promise.all(before)
    return () => {
      for (const id of ids) if (this.#tails.get(id) === own) this.#tails.delete(id)
      end()
    }
  }
}
