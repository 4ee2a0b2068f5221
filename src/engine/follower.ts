import { onAbort } from '../core/on-abort.ts'

/** Is told with which signal of the caller's it ends, too, and gives back the one to look at. */
type EndWith = (signal: AbortSignal | undefined) => AbortSignal
type Follow<T> = (endWith: EndWith) => AsyncGenerator<T, void, void>

/**
 * What follows something that has no end of its own. A generator can't be ended while it waits: `return` waits for its
 * turn behind the `next` that waits for something to happen. So here it ends the waiting first.
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
