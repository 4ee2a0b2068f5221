import { type ByteString, fromU64, fromUtf8, u64 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFunction } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeAtOnce, encodeGiven, isLarge, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { pages } from '../engine/pages.ts'
import type { Session, StepOutcome } from '../engine/session.ts'
import type { Entry, Place } from '../engine/storage.ts'

const TAG = TAGS.state
const NAME_BYTES_MAX = 1024

/** A cell as it was read. */
export interface Cell {
  /** The stored value. */
  readonly value: Value
  /** 1 after `init`, and one more with each change. It never goes back, not even across `delete` and `init`. */
  readonly version: number
  /** When the cell last changed, in milliseconds since 1970. */
  readonly updatedAt: number
}

/** The state that a transition gets: a cell, or for a missing one the initial value with version 0 and no time. */
export type CellState = Omit<Cell, 'updatedAt'> & Partial<Pick<Cell, 'updatedAt'>>

/**
 * Computes a cell's next value, and a result for the caller. It must be pure: it depends on the state alone, does no I/O and
 * changes nothing outside, because it may run several times for one change.
 */
export type Transition<T> = (state: CellState) => { readonly value: Value; readonly result: T }

/** The outcome of a transition. */
export interface Transitioned<T> {
  /** The result that the transition returned. */
  readonly result: T
  /** The cell's new value. */
  readonly value: Value
  /** The cell's new version. */
  readonly version: number
}

/**
 * Named cells that change by compare-and-swap, for state that several workers must agree on. If several callers `init` a cell
 * or `cas` the same version at once, exactly one succeeds.
 */
export class Cells {
  readonly #database: Database
  readonly #scopeOf: (scope: Scope) => ByteString

  /** @internal Use `open`. */
  constructor(database: Database, scopeOf: (scope: Scope) => ByteString) {
    this.#database = database
    this.#scopeOf = scopeOf
  }

  /**
   * Returns the cell, or undefined if there is none.
   * @example
   * await db.cells.init(run, 'status', 'pending')
   * const { value, version } = await db.cells.read(run, 'status')
   * value // → 'pending'
   * version // → 1
   */
  async read(scope: Scope, name: string): Promise<Cell | undefined> {
    return this.#at(scope).read(name)
  }

  /**
   * Creates a cell and returns its version. Throws `CELL_EXISTS` if there is one already.
   * @example
   * await db.cells.init(run, 'leader', 'worker-1') // → 1
   */
  async init(scope: Scope, name: string, value: Value): Promise<number> {
    return this.#at(scope).init(name, value)
  }

  /**
   * Changes the cell if it has the expected version, and returns its new version. Throws `VERSION_MISMATCH` otherwise, with
   * the actual version in `details`, and `CELL_NOT_FOUND` if there is no cell.
   * @example
   * const version = await db.cells.init(run, 'status', 'pending')
   * await db.cells.cas(run, 'status', version, 'running') // → 2
   */
  async cas(scope: Scope, name: string, expectedVersion: number, value: Value): Promise<number> {
    return (await swap(this.#database, this.#scopeOf(scope), name, expectedVersion, value)).result
  }

  /**
   * Writes the cell whatever its version, creates it if it is missing, and returns its new version.
   * @example
   * await db.cells.set(run, 'progress', 0.5) // → 1
   */
  async set(scope: Scope, name: string, value: Value): Promise<number> {
    return this.#at(scope).set(name, value)
  }

  /**
   * Deletes the cell, and returns whether it existed.
   * @example
   * await db.cells.init(run, 'lock', true)
   * await db.cells.delete(run, 'lock') // → true
   * await db.cells.init(run, 'lock', true) // → 2
   */
  async delete(scope: Scope, name: string): Promise<boolean> {
    return this.#at(scope).delete(name)
  }

  /**
   * Returns whether the cell exists.
   * @example
   * await db.cells.exists(run, 'lock') // → false
   */
  async exists(scope: Scope, name: string): Promise<boolean> {
    return this.#at(scope).exists(name)
  }

  /**
   * Returns the names of all cells, in byte order.
   * @example
   * await db.cells.init(run, 'b', 1)
   * await db.cells.init(run, 'a', 1)
   * await db.cells.list(run) // → ['a', 'b']
   */
  async list(scope: Scope): Promise<readonly string[]> {
    return this.#at(scope).list()
  }

  /**
   * Changes the cell by a pure function of its state. Concurrent transitions are applied one after the other, so none is
   * lost; the function may run several times for that. See {@link Transition}.
   * @example
   * await db.cells.init(run, 'counter', 41)
   * const next = await db.cells.transition(run, 'counter', ({ value }) => ({ value: value + 1, result: 'done' }))
   * next // → { result: 'done', value: 42, version: 2 }
   */
  async transition<T>(scope: Scope, name: string, step: Transition<T>): Promise<Transitioned<T>> {
    return this.#at(scope).transition(name, step)
  }

  /**
   * Does the same as `transition`. For a missing cell, the function gets `{ value: initial, version: 0 }`.
   * @example
   * const count = ({ value }) => ({ value: value + 1, result: undefined })
   * await db.cells.transitionOrInit(run, 'counter', 0, count)
   * const { value, version } = await db.cells.transitionOrInit(run, 'counter', 0, count)
   * value // → 2
   * version // → 2
   */
  async transitionOrInit<T>(
    scope: Scope,
    name: string,
    initial: Value,
    step: Transition<T>,
  ): Promise<Transitioned<T>> {
    return this.#at(scope).transitionOrInit(name, initial, step)
  }

  #at(scope: Scope): ScopedCells {
    return new ScopedCells(this.#database, this.#scopeOf(scope))
  }
}

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

/** The cells of one scope. In a transaction, reads see the transaction's own writes. */
export class ScopedCells {
  readonly #session: Session
  readonly #scope: ByteString

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString) {
    this.#session = session
    this.#scope = scope
  }

  /** Returns the cell, or undefined if there is none. */
  async read(name: string): Promise<Cell | undefined> {
    const { scope, tag, key } = this.#place(name)
    return readCell(await this.#session.get(scope, tag, key))
  }

  /** Creates a cell and returns its version. Throws `CELL_EXISTS` if there is one already. */
  async init(name: string, value: Value): Promise<number> {
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return this.#change(name, found => {
      if (isThere(found)) throw new AnnalsError('CELL_EXISTS', `cell ${quote(name)} already exists`, { name })
      return bytes
    })
  }

  /** Changes the cell if it has the expected version, and returns its new version. Throws `VERSION_MISMATCH` otherwise. */
  async cas(name: string, expectedVersion: number, value: Value): Promise<number> {
    return (await swap(this.#session, this.#scope, name, expectedVersion, value)).result
  }

  /** Writes the cell whatever its version, creates it if it is missing, and returns its new version. */
  async set(name: string, value: Value): Promise<number> {
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return this.#change(name, () => bytes)
  }

  /** Deletes the cell, and returns whether it existed. A new cell of the same name continues its version. */
  async delete(name: string): Promise<boolean> {
    const place = this.#place(name)
    const { result } = await this.#session.update([place], ([found]) => {
      if (!isThere(found)) return { operations: [], result: false }
      // The version stays, so that a new cell of this name continues from it.
      return { operations: [{ op: 'put', ...place, value: u64(versionOf(found)) }], result: true }
    })
    return result
  }

  /** Returns whether the cell exists. */
  async exists(name: string): Promise<boolean> {
    const { scope, tag, key } = this.#place(name)
    return isThere(await this.#session.get(scope, tag, key))
  }

  /** Returns the names of all cells, in byte order. */
  async list(): Promise<readonly string[]> {
    return this.#session.view(async reader => {
      const names: string[] = []
      for await (const page of pages(reader, { scope: this.#scope, tag: TAG })) {
        for (const entry of page) if (isThere(entry)) names.push(fromUtf8(entry.key))
      }
      return Object.freeze(names)
    })
  }

  /** Changes the cell by a pure function of its state. See {@link Cells.transition}. */
  async transition<T>(name: string, step: Transition<T>): Promise<Transitioned<T>> {
    return this.#transition(name, step, undefined)
  }

  /** The same, for a cell that may be missing. See {@link Cells.transitionOrInit}. */
  async transitionOrInit<T>(name: string, initial: Value, step: Transition<T>): Promise<Transitioned<T>> {
    const encoded = encodeGiven(initial)
    const value = await decodeStored(typeof encoded === 'string' ? encoded : await encoded)
    return this.#transition(name, step, Object.freeze({ value, version: 0 }))
  }

  /**
   * Tries the transition within the commit, which blocks the event loop. If a value turns out to be large, the transition runs
   * before the commit instead, in slices, and again if the cell changes meanwhile.
   */
  async #transition<T>(
    name: string,
    step: Transition<T>,
    missing: CellState | undefined,
  ): Promise<Transitioned<T>> {
    checkFunction('the transition', step)
    const place = this.#place(name)
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

  /** Writes the value that `next` returns, with the next version. */
  async #change(name: string, next: (found: Entry | undefined) => ByteString): Promise<number> {
    return (await change(this.#session, this.#place(name), next)).result
  }

  #place(name: string): Place {
    return placeOf(this.#scope, name)
  }
}

// The next two are not `async`, so that a caller's await resolves without further promises in between.

function swap(
  session: Session,
  scope: ByteString,
  name: string,
  expectedVersion: number,
  value: Value,
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
async function readCell(entry: Entry | undefined): Promise<Cell | undefined> {
  if (!isThere(entry)) return undefined
  const value = await decodeStored(entry.value.slice(VERSION_BYTES))
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

function checkOutcome<T>(outcome: ReturnType<Transition<T>>): ReturnType<Transition<T>> {
  if (typeof outcome === 'object' && outcome !== null && 'value' in outcome) return outcome
  throw invalidArgument('the transition', 'must return { value, result }, and must not be async')
}

function quote(name: string): string {
  return JSON.stringify(name)
}
