import type { Patience, Storage, TreeId } from './storage.ts'

/**
 * Lets one reader at a time wait until one of the watched trees changes. Changes are counted and
 * not queued, so a slow reader costs no memory.
 */
export class Changes {
  #count = 0
  #wake: (() => void) | undefined
  readonly #watched = new Set<() => void>()

  /** Counts the changes of one tree from now on. */
  static async of(source: Pick<Storage, 'subscribe'>, tree: TreeId, patience?: Patience): Promise<Changes> {
    const changes = new Changes()
    await changes.watch(source, tree, patience)
    return changes
  }

  /** Also counts the changes of another tree from now on. Returns the function that stops it. */
  async watch(source: Pick<Storage, 'subscribe'>, tree: TreeId, patience?: Patience): Promise<() => void> {
    const listener = (): void => {
      this.#count++
      this.#wake?.()
    }
    const unsubscribe = await source.subscribe(tree, listener, patience)
    const unwatch = (): void => {
      if (this.#watched.delete(unwatch)) unsubscribe()
    }
    this.#watched.add(unwatch)
    return unwatch
  }

  /** How many changes were notified so far. */
  get count(): number {
    return this.#count
  }

  /** Resolves once the count exceeds `seen`, or the signal aborts. */
  async beyond(seen: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#count > seen || signal?.aborted === true) return
    let wake = (): void => {}
    const woken = new Promise<void>(resolve => {
      wake = resolve
    })
    this.#wake = wake
    signal?.addEventListener('abort', wake)
    await woken
    signal?.removeEventListener('abort', wake)
    this.#wake = undefined
  }

  /** Stops watching all trees. */
  end(): void {
    for (const unwatch of [...this.#watched]) unwatch()
  }
}
