import type { Patience, Storage, TreeId } from './storage.ts'

/**
 * Lets one reader at a time wait for a tree to change. Changes are counted, not
 * kept: a reader who is slow finds one number, however much has happened.
 */
export class Changes {
  #count = 0
  #wake: (() => void) | undefined
  #unsubscribe: () => void = () => {}

  /** Counts from now on. */
  static async of(source: Pick<Storage, 'subscribe'>, tree: TreeId, patience?: Patience): Promise<Changes> {
    const changes = new Changes()
    const listener = (): void => {
      changes.#count++
      changes.#wake?.()
    }
    changes.#unsubscribe = await source.subscribe(tree, listener, patience)
    return changes
  }

  get count(): number {
    return this.#count
  }

  /** Resolves once the count is beyond `seen`, or the signal aborts. */
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

  end(): void {
    this.#unsubscribe()
  }
}
