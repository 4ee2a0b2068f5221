import type { ByteString } from '../core/bytes.ts'
import { storageKey } from '../engine/keys.ts'
import type { Place } from '../engine/storage.ts'

/**
 * Steps of one process over the same places go one after the other: each would
 * find what it has read changed by the one before and had to start again.
 */
export class PlaceQueue {
  readonly #tails = new Map<ByteString, Promise<void>>()

  /** Resolves when it is the caller's turn, with what ends it. All places are queued for at once, so none waits in a circle. */
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
