import { type ByteString, fromU64, fromUtf8, u64 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFunction } from '../core/options.ts'
import type { Given } from '../core/storable.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeAtOnce, encodeGiven, isLarge, type Value } from '../core/value.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { pages } from '../engine/pages.ts'
import type { Session, StepOutcome } from '../engine/session.ts'
import type { Entry, Place } from '../engine/storage.ts'
import { boundForm } from './bound.ts'

const TAG = TAGS.state
const NAME_BYTES_MAX = 1024

/** A cell as it was read. */
export interface Cell<T = Value> {
  /** The stored value. */
  readonly value: T
  /** 1 after `init`, and one more with each change. It never goes back, not even across `delete` and `init`. */
  readonly version: number
  /** When the cell last changed, in milliseconds since 1970. */
  readonly updatedAt: number
}

/** The state that a transition gets: a cell, or for a missing one the initial value with version 0 and no time. */
export type CellState<V = Value> = Omit<Cell<V>, 'updatedAt'> & Partial<Pick<Cell, 'updatedAt'>>

/**
 * Computes a cell's next value from its state of type `V`, and a result of type `T` for the caller. It must be pure: it depends
 * on the state alone, does no I/O and changes nothing outside, because it may run several times for one change.
 */
export type Transition<T, V = Value, N = V> = (state: CellState<V>) => {
  readonly value: N
  readonly result: T
}

/** The outcome of a transition. */
export interface Transitioned<T, V = Value> {
  /** The result that the transition returned. */
  readonly result: T
  /** The cell's new value. */
  readonly value: V
  /** The cell's new version. */
  readonly version: number
}

/**
 * Named cells that change by compare-and-swap, for state that several workers must agree on. If several callers `init` a cell
 * or `cas` the same version at once, exactly one succeeds. `S` holds the parameters that come before the others: a scope, or
 * nothing if the scope is bound. `V` is the type of the values.
 */
export interface CellsCalls<S extends readonly unknown[], V = Value> {
  /**
   * Returns the cell, or undefined if there is none.
   * @example
   * await db.cells.init(run, 'status', 'pending')
   * const { value, version } = await db.cells.read(run, 'status')
   * value // → 'pending'
   * version // → 1
   */
  read<T = V>(...args: [...S, name: string]): Promise<Cell<T> | undefined>

  /**
   * Creates a cell and returns its version. Throws `CELL_EXISTS` if there is one already.
   * @example
   * await db.cells.init(run, 'leader', 'worker-1') // → 1
   */
  init<T>(...args: [...S, name: string, value: Given<V, T>]): Promise<number>

  /**
   * Changes the cell if it has the expected version, and returns its new version. Throws `VERSION_MISMATCH` otherwise, with
   * the actual version in `details`, and `CELL_NOT_FOUND` if there is no cell.
   * @example
   * const version = await db.cells.init(run, 'status', 'pending')
   * await db.cells.cas(run, 'status', version, 'running') // → 2
   */
  cas<T>(...args: [...S, name: string, expectedVersion: number, value: Given<V, T>]): Promise<number>

  /**
   * Writes the cell whatever its version, creates it if it is missing, and returns its new version.
   * @example
   * await db.cells.set(run, 'progress', 0.5) // → 1
   */
  set<T>(...args: [...S, name: string, value: Given<V, T>]): Promise<number>

  /**
   * Deletes the cell, and returns whether it existed. A new cell of the same name continues its version.
   * @example
   * await db.cells.init(run, 'lock', true)
   * await db.cells.delete(run, 'lock') // → true
   * await db.cells.init(run, 'lock', true) // → 2
   */
  delete(...args: [...S, name: string]): Promise<boolean>

  /**
   * Returns whether the cell exists.
   * @example
   * await db.cells.exists(run, 'lock') // → false
   */
  exists(...args: [...S, name: string]): Promise<boolean>

  /**
   * Returns the names of all cells, in byte order.
   * @example
   * await db.cells.init(run, 'b', 1)
   * await db.cells.init(run, 'a', 1)
   * await db.cells.list(run) // → ['a', 'b']
   */
  list(...args: S): Promise<readonly string[]>

  /**
   * Changes the cell by a pure function of its state. Concurrent transitions are applied one after the other, so none is
   * lost; the function may run several times for that. See {@link Transition}.
   * @example
   * await db.cells.init(run, 'counter', 41)
   * const next = await db.cells.transition(run, 'counter', ({ value }) => ({ value: value + 1, result: 'done' }))
   * next // → { result: 'done', value: 42, version: 2 }
   */
  transition<R, T = V>(
    ...args: [...S, name: string, step: Transition<R, V, Given<V, T>>]
  ): Promise<Transitioned<R, V>>

  /**
   * Does the same as `transition`. For a missing cell, the function gets `{ value: initial, version: 0 }`.
   * @example
   * const count = ({ value }) => ({ value: value + 1, result: undefined })
   * await db.cells.transitionOrInit(run, 'counter', 0, count)
   * const { value, version } = await db.cells.transitionOrInit(run, 'counter', 0, count)
   * value // → 2
   * version // → 2
   */
  transitionOrInit<R, I = V, T = V>(
    ...args: [...S, name: string, initial: Given<V, I>, step: Transition<R, V, Given<V, T>>]
  ): Promise<Transitioned<R, V>>

  /**
   * Returns the same calls, with values of type `T`.
   * @example
   * // In TypeScript: const balances = db.cells.of<{ amount: number }>()
   * const balances = db.cells.of()
   * await balances.init(run, 'ada', { amount: 5 })
   * const { value } = await balances.read(run, 'ada')
   * value.amount // → 5
   */
  of<T>(): CellsCalls<S, T>
}

/** The cells of all scopes. Each call is its own transaction. */
export type Cells<V = Value> = CellsCalls<[scope: Scope], V>
/** The cells of one scope. In a transaction, reads see the transaction's own writes. */
export type ScopedCells<V = Value> = CellsCalls<[], V>

/** What a transition makes of a cell. */
interface NextCell<T> {
  readonly result: T
  readonly bytes: ByteString
}

/** One try of a transition. Without `next` nothing was written, because a value is too large for the commit. */
interface Tried<T> {
  readonly found: Entry | undefined
  readonly next: NextCell<T> | undefined
  readonly version: number
}

/** Implements `CellsCalls`. `S` is a scope, or undefined if `scopeOf` knows it. */
export class CellStore<S> implements CellsCalls<[scope: S]> {
  readonly #session: Session
  readonly #scopeOf: (scope: S) => ByteString

  constructor(session: Session, scopeOf: (scope: S) => ByteString) {
    this.#session = session
    this.#scopeOf = scopeOf
  }

  async read<T = Value>(scope: S, name: string): Promise<Cell<T> | undefined> {
    const place = this.#place(scope, name)
    return readCell<T>(await this.#session.get(place.scope, place.tag, place.key))
  }

  async init(scope: S, name: string, value: unknown): Promise<number> {
    const place = this.#place(scope, name)
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    const { result } = await change(this.#session, place, found => {
      if (isThere(found)) throw new AnnalsError('CELL_EXISTS', `cell ${quote(name)} already exists`, { name })
      return bytes
    })
    return result
  }

  async cas(scope: S, name: string, expectedVersion: number, value: unknown): Promise<number> {
    return (await swap(this.#session, this.#scopeOf(scope), name, expectedVersion, value)).result
  }

  async set(scope: S, name: string, value: unknown): Promise<number> {
    const place = this.#place(scope, name)
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return (await change(this.#session, place, () => bytes)).result
  }

  async delete(scope: S, name: string): Promise<boolean> {
    const place = this.#place(scope, name)
    const { result } = await this.#session.update([place], ([found]) => {
      if (!isThere(found)) return { operations: [], result: false }
      // The version stays, so that a new cell of this name continues from it.
      return { operations: [{ op: 'put', ...place, value: u64(versionOf(found)) }], result: true }
    })
    return result
  }

  async exists(scope: S, name: string): Promise<boolean> {
    const place = this.#place(scope, name)
    return isThere(await this.#session.get(place.scope, place.tag, place.key))
  }

  async list(scope: S): Promise<readonly string[]> {
    const tree = { scope: this.#scopeOf(scope), tag: TAG }
    return this.#session.view(async reader => {
      const names: string[] = []
      for await (const page of pages(reader, tree)) {
        for (const entry of page) if (isThere(entry)) names.push(fromUtf8(entry.key))
      }
      return Object.freeze(names)
    })
  }

  async transition<R>(scope: S, name: string, step: Transition<R, Value, unknown>): Promise<Transitioned<R>> {
    return this.#transition(this.#scopeOf(scope), name, step, undefined)
  }

  async transitionOrInit<R>(
    scope: S,
    name: string,
    initial: unknown,
    step: Transition<R, Value, unknown>,
  ): Promise<Transitioned<R>> {
    const bytes = this.#scopeOf(scope)
    const encoded = encodeGiven(initial)
    const value = await decodeStored(typeof encoded === 'string' ? encoded : await encoded)
    return this.#transition(bytes, name, step, Object.freeze({ value, version: 0 }))
  }

  of<T>(): CellsCalls<[scope: S], T> {
    return this as CellsCalls<[scope: S], unknown> as CellsCalls<[scope: S], T>
  }

  /**
   * Tries the transition within the commit, which blocks the event loop. If a value turns out to be large, the transition runs
   * before the commit instead, in slices, and again if the cell changes meanwhile.
   */
  async #transition<T>(
    scope: ByteString,
    name: string,
    step: Transition<T, Value, unknown>,
    missing: CellState | undefined,
  ): Promise<Transitioned<T>> {
    checkFunction('the transition', step)
    const place = placeOf(scope, name)
    const entryIn = (found: Entry | undefined): Entry | undefined =>
      missing === undefined ? existing(name, found) : found
    const attempt = (found: Entry | undefined): NextCell<T> | undefined => {
      const entry = entryIn(found)
      if (entry !== undefined && isLarge(entry.value)) return undefined
      const { value, result } = checkOutcome(step(cellOf(entry) ?? (missing as CellState)))
      const bytes = encodeAtOnce(value)
      return bytes === undefined ? undefined : { result, bytes }
    }
    for (let prepared: (NextCell<T> & { readonly before: Entry | undefined }) | undefined; ; ) {
      const { result: done } = await this.#session.update<Tried<T>>([place], ([found]) => {
        const isPrepared = prepared !== undefined && prepared.before?.value === found?.value
        const next = isPrepared ? prepared : attempt(found)
        const version = versionOf(found) + 1
        if (next === undefined) return { operations: [], result: { found, next, version } }
        const operations = [{ op: 'put', ...place, value: u64(version) + next.bytes } as const]
        return { operations, result: { found, next, version } }
      })
      if (done.next !== undefined) {
        const { result, bytes } = done.next
        return Object.freeze({ result, value: await decodeStored(bytes), version: done.version })
      }
      const before = done.found
      const { value, result } = checkOutcome(
        step((await readCell(entryIn(before))) ?? (missing as CellState)),
      )
      prepared = { result, bytes: await encodeGiven(value), before }
    }
  }

  #place(scope: S, name: string): Place {
    return placeOf(this.#scopeOf(scope), name)
  }
}

const scoped = boundForm<ScopedCells>(CellStore)

/** The cells of one scope. */
export function scopedCells(session: Session, scope: ByteString): ScopedCells {
  return scoped(new CellStore(session, () => scope))
}

// The next two are not `async`, so that a caller's await resolves without further promises in between.

function swap(
  session: Session,
  scope: ByteString,
  name: string,
  expectedVersion: number,
  value: unknown,
): Promise<StepOutcome<number>> {
  const expected = checkWhole('expectedVersion', expectedVersion)
  const place = placeOf(scope, name)
  const swapFor = (bytes: ByteString): Promise<StepOutcome<number>> =>
    change(session, place, found => {
      const version = versionOf(existing(name, found))
      if (version === expected) return bytes
      const message = `the cell ${quote(name)} has version ${version}, not ${expected}`
      throw new AnnalsError('VERSION_MISMATCH', message, { name, expected, actual: version })
    })
  const encoded = encodeGiven(value)
  return typeof encoded === 'string' ? swapFor(encoded) : encoded.then(swapFor)
}

/** Writes the value that `next` returns, with the next version. */
function change(
  session: Session,
  place: Place,
  next: (found: Entry | undefined) => ByteString,
): Promise<StepOutcome<number>> {
  return session.update([place], ([found]) => {
    const version = versionOf(found) + 1
    const value = u64(version) + next(found)
    return { operations: [{ op: 'put', ...place, value }], result: version }
  })
}

function placeOf(scope: ByteString, name: string): Place {
  return { scope, tag: TAG, key: checkText('name', name, { bytesMax: NAME_BYTES_MAX }) }
}

// A stored cell is its version (8 bytes) and its value. A deleted cell has only a version.

const VERSION_BYTES = 8

function isThere(entry: Entry | undefined): entry is Entry {
  return entry !== undefined && entry.value.length > VERSION_BYTES
}

function versionOf(entry: Entry | undefined): number {
  return entry === undefined ? 0 : fromU64(entry.value)
}

/** The cell; a large value is decoded in slices. */
async function readCell<T = Value>(entry: Entry | undefined): Promise<Cell<T> | undefined> {
  if (!isThere(entry)) return undefined
  const value = await decodeStored<T>(entry.value.slice(VERSION_BYTES))
  return Object.freeze({ value, version: versionOf(entry), updatedAt: entry.time })
}

function cellOf(entry: Entry | undefined): Cell | undefined {
  if (!isThere(entry)) return undefined
  const value = decodeValue(entry.value.slice(VERSION_BYTES))
  return Object.freeze({ value, version: versionOf(entry), updatedAt: entry.time })
}

function existing(name: string, entry: Entry | undefined): Entry {
  if (isThere(entry)) return entry
  throw new AnnalsError('CELL_NOT_FOUND', `there is no cell ${quote(name)}: create it with init`, { name })
}

function checkOutcome<O>(outcome: O): O {
  if (typeof outcome === 'object' && outcome !== null && 'value' in outcome) return outcome
  throw invalidArgument('the transition', 'must return { value, result }, and must not be async')
}

function quote(name: string): string {
  return JSON.stringify(name)
}
