import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { checkOptions, checkSignal } from '../core/options.ts'
import { pause } from '../core/pause.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { decodeStored } from '../core/value.ts'
import { Changes } from '../engine/changes.ts'
import type { Database } from '../engine/database.ts'
import { Follower } from '../engine/follower.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, TreeId } from '../engine/storage.ts'
import { rangeOf } from './key-range.ts'

/** Options of `watch`. */
export interface WatchOptions {
  /** Only keys that begin with this text; all keys by default. */
  readonly prefix?: string
  /** Ends the iteration without an error when it aborts. */
  readonly signal?: AbortSignal
}

/** A key with its newest value. */
export interface KeyChange<T> {
  /** The key. */
  readonly key: string
  /** The newest value; absent if the key was deleted or has expired. */
  readonly value?: T
  /** The version of the value. For a key without one, the version of the last value that was delivered. */
  readonly version: number
}

/**
 * Delivers the entries of a tree, and then their changes. The storage only notifies that the tree has changed, so each round
 * reads all entries and compares their versions with those that were delivered.
 */
export function watchKeys<T>(
  database: Database,
  treeOf: () => TreeId,
  options: WatchOptions,
): AsyncGenerator<KeyChange<T>, void, void> {
  return new Follower(async function* (endWith) {
    checkOptions('watch', options, ['prefix', 'signal'])
    checkSignal(options.signal)
    const { prefix } = options
    const range = rangeOf(treeOf(), 'watch', prefix === undefined ? {} : { prefix })
    const signal = endWith(options.signal)
    const changes = await Changes.of(database, range)
    try {
      const delivered = new Map<ByteString, number>()
      while (!signal.aborted) {
        const seen = changes.count
        const round = new Round(delivered, database.clock())
        for await (const page of pages(database, range)) {
          for (const entry of page) {
            if (isSliceOver()) await nextSlice()
            if (round.isNew(entry)) yield await changeOf<T>(entry)
            if (signal.aborted) return
          }
        }
        for (const [key, version] of round.missing()) {
          yield Object.freeze({ key: fromUtf8(key), version })
          if (signal.aborted) return
        }
        await waitFor(changes, seen, round.expiresInMs(), signal)
      }
    } finally {
      changes.end()
    }
  })
}

/** One pass over all entries. */
class Round {
  readonly #delivered: Map<ByteString, number>
  readonly #clock: number
  readonly #present = new Set<ByteString>()
  #expiresAt = Number.POSITIVE_INFINITY

  constructor(delivered: Map<ByteString, number>, clock: number) {
    this.#delivered = delivered
    this.#clock = clock
  }

  /** Notes the entry, and returns whether its version was not delivered yet. */
  isNew({ key, version, expiresAt }: Entry): boolean {
    this.#present.add(key)
    if (expiresAt !== 0) this.#expiresAt = Math.min(this.#expiresAt, expiresAt)
    if (this.#delivered.get(key) === version) return false
    this.#delivered.set(key, version)
    return true
  }

  /** Forgets and returns the keys that were delivered earlier and are absent now. */
  missing(): readonly (readonly [key: ByteString, version: number])[] {
    const missing = [...this.#delivered].filter(([key]) => !this.#present.has(key))
    for (const [key] of missing) this.#delivered.delete(key)
    return missing
  }

  /** The time until the next entry expires, of which no commit tells; undefined if none will. */
  expiresInMs(): number | undefined {
    return this.#expiresAt === Number.POSITIVE_INFINITY
      ? undefined
      : Math.max(1, this.#expiresAt - this.#clock)
  }
}

async function changeOf<T>({ key, value, version }: Entry): Promise<KeyChange<T>> {
  return Object.freeze({ key: fromUtf8(key), value: (await decodeStored(value)) as T, version })
}

/** Resolves after a change, once an entry has expired, or when the signal aborts. */
async function waitFor(
  changes: Changes,
  seen: number,
  ms: number | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (ms === undefined) return changes.beyond(seen, signal)
  const either = new AbortController()
  const all = AbortSignal.any([signal, either.signal])
  const expired = pause(ms, { signal: all })
  const changed = changes.beyond(seen, all)
  await Promise.race([expired, changed])
  either.abort()
  await Promise.all([expired, changed])
}
