import { onAbort } from '../core/on-abort.ts'

/** Takes the caller's signal, which also ends the follower. Returns the signal that the generator must observe. */
type EndWith = (signal: AbortSignal | undefined) => AbortSignal
type Follow<T> = (endWith: EndWith) => AsyncGenerator<T, void, void>

/**
 * An endless generator that `return` ends at once, even while it waits for the next item. On a plain async generator `return`
 * is queued behind the pending `next`, which may never settle. A follower first aborts that wait.
 */
export class Follower<T> implements AsyncGenerator<T, void, void> {
  readonly #items: AsyncGenerator<T, void, void>
  readonly #end = new AbortController()

  constructor(follow: Follow<T>) {
    this.#items = this.#follow(follow)
  }

  next(): Promise<IteratorResult<T, void>> {
    return this.#items.next()
  }

  return(): Promise<IteratorResult<T, void>> {
    this.#end.abort()
    return this.#items.return()
  }

  throw(error: unknown): Promise<IteratorResult<T, void>> {
    this.#end.abort()
    return this.#items.throw(error)
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return()
  }

  async *#follow(follow: Follow<T>): AsyncGenerator<T, void, void> {
    const end = this.#end
    let unlink = (): void => {}
    try {
      yield* follow(signal => {
        if (signal !== undefined) unlink = onAbort(signal, () => end.abort())
        return end.signal
      })
    } finally {
      unlink()
    }
  }
}
