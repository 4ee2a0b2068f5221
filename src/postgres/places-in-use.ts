import type { ByteString } from '../core/bytes.ts'
import { storageKey } from '../engine/keys.ts'
import type { Place } from '../engine/storage.ts'

/** The updates of this process over one place. */
interface Use {
  updates: number
  /** Resolves when the update ends that runs without a lock. */
  readonly first: Promise<void>
}

/** An update under way. */
export interface PlaceUse {
  /** The first updates over the same places, if there were any. This update must wait for them to keep the order of calls. */
  readonly before: readonly Promise<void>[]
  end(): void
}

/** Tracks the updates under way over each place, to find out which of them compete. */
export class PlacesInUse {
  readonly #uses = new Map<ByteString, Use>()

  begin(places: readonly Place[]): PlaceUse {
    let end = (): void => {}
    const first = new Promise<void>(resolve => {
      end = resolve
    })
    const ids = new Set(places.map(({ scope, tag, key }) => storageKey(scope, tag, key)))
    const before: Promise<void>[] = []
    for (const id of ids) {
      const use = this.#uses.get(id)
      if (use === undefined) this.#uses.set(id, { updates: 1, first })
      else {
        use.updates++
        before.push(use.first)
      }
    }
    return {
      before,
      end: () => {
        for (const id of ids) {
          const use = this.#uses.get(id)!
          use.updates--
          if (use.updates === 0) this.#uses.delete(id)
        }
        end()
      },
    }
  }
}
