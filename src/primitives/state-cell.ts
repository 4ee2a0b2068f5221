import { type ByteString, fromU64, fromUtf8, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { checkWhole } from '../core/numbers.ts'
import { checkFunction } from '../core/options.ts'
import { checkText } from '../core/text.ts'
import { decodeStored, decodeValue, encodeGiven, encodeValue, type Value } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { type Scope, TAGS } from '../engine/keys.ts'
import { pages } from '../engine/pages.ts'
import type { Session, StepOutcome } from '../engine/session.ts'
import type { Entry, Place } from '../engine/storage.ts'

const TAG = TAGS.state
const NAME_BYTES_MAX = 1024

export interface Cell {
  readonly value: Value
  /** 1 after `init`, and one more with each change. It never goes back, not even across `delete` and `init`. */
  readonly version: number
  readonly updatedAt: number
}

/** What a transition is shown: a cell, or with `transitionOrInit` what takes the place of one that is missing. */
export type CellState = Omit<Cell, 'updatedAt'> & Partial<Pick<Cell, 'updatedAt'>>

/**
 * What the cell becomes, and what to tell the caller. It must be pure: it depends on the state alone, does no I/O and
 * changes nothing outside, because it may run several times before it counts.
 */
export type Transition<T> = (state: CellState) => { readonly value: Value; readonly result: T }

export interface Transitioned<T> {
  readonly result: T
  readonly value: Value
  readonly version: number
}

/**
 * Named cells that change by compare-and-swap: for what several workers must agree on. Of several that try at once to
 * `init` or to `cas` the same version, exactly one wins.
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
   * The cell, or undefined.
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
   * Makes a cell and returns its version; `CELL_EXISTS` if there is one.
   * @example
   * await db.cells.init(run, 'leader', 'worker-1') // → 1
   */
  async init(scope: Scope, name: string, value: Value): Promise<number> {
    return this.#at(scope).init(name, value)
  }

  /**
   * Changes the cell if it has the expected version, and returns the new one; else `VERSION_MISMATCH`, with the actual
   * version in `details`. `CELL_NOT_FOUND` if there is none.
   * @example
   * const version = await db.cells.init(run, 'status', 'pending')
   * await db.cells.cas(run, 'status', version, 'running') // → 2
   */
  async cas(scope: Scope, name: string, expectedVersion: number, value: Value): Promise<number> {
    return (await swap(this.#database, this.#scopeOf(scope), name, expectedVersion, value)).result
  }

  /**
   * Writes the cell, whatever its version, or makes it; returns the new version.
   * @example
   * await db.cells.set(run, 'progress', 0.5) // → 1
   */
  async set(scope: Scope, name: string, value: Value): Promise<number> {
    return this.#at(scope).set(name, value)
  }

  /**
   * Whether there was one.
   * @example
   * await db.cells.init(run, 'lock', true)
   * await db.cells.delete(run, 'lock') // → true
   * await db.cells.init(run, 'lock', true) // → 2
   */
  async delete(scope: Scope, name: string): Promise<boolean> {
    return this.#at(scope).delete(name)
  }

  /**
   * Whether there is one.
   * @example
   * await db.cells.exists(run, 'lock') // → false
   */
  async exists(scope: Scope, name: string): Promise<boolean> {
    return this.#at(scope).exists(name)
  }

  /**
   * The names of all cells, in byte order.
   * @example
   * await db.cells.init(run, 'b', 1)
   * await db.cells.init(run, 'a', 1)
   * await db.cells.list(run) // → ['a', 'b']
   */
  async list(scope: Scope): Promise<readonly string[]> {
    return this.#at(scope).list()
  }

  /**
   * Changes the cell by a pure function of its state, which may run several times: see {@link Transition}. Transitions
   * that run at once follow each other; none is lost.
   * @example
   * await db.cells.init(run, 'counter', 41)
   * const next = await db.cells.transition(run, 'counter', ({ value }) => ({ value: value + 1, result: 'done' }))
   * next // → { result: 'done', value: 42, version: 2 }
   */
  async transition<T>(scope: Scope, name: string, step: Transition<T>): Promise<Transitioned<T>> {
    return this.#at(scope).transition(name, step)
  }

  /**
   * The same; a missing cell is shown as `{ value: initial, version: 0 }`.
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

/** The same with the scope bound: in a transaction, where reads see what it has written, or of a run. */
export class ScopedCells {
  readonly #session: Session
  readonly #scope: ByteString

  /** @internal Use `transaction` or `run`. */
  constructor(session: Session, scope: ByteString) {
    this.#session = session
    this.#scope = scope
  }

  async read(name: string): Promise<Cell | undefined> {
    const { scope, tag, key } = this.#place(name)
    return readCell(await this.#session.get(scope, tag, key))
  }

  async init(name: string, value: Value): Promise<number> {
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return this.#change(name, found => {
      if (isThere(found))
        throw new AnnalsError('CELL_EXISTS', `there is a cell ${quote(name)} already`, { name })
      return bytes
    })
  }

  async cas(name: string, expectedVersion: number, value: Value): Promise<number> {
    return (await swap(this.#session, this.#scope, name, expectedVersion, value)).result
  }

  async set(name: string, value: Value): Promise<number> {
    const encoded = encodeGiven(value)
    const bytes = typeof encoded === 'string' ? encoded : await encoded
    return this.#change(name, () => bytes)
  }

  async delete(name: string): Promise<boolean> {
    const place = this.#place(name)
    const { result } = await this.#session.update([place], ([found]) => {
      if (!isThere(found)) return { operations: [], result: false }
      // The version stays, so that a cell of the same name goes on from it.
      return { operations: [{ op: 'put', ...place, value: u64(versionOf(found)) }], result: true }
    })
    return result
  }

  async exists(name: string): Promise<boolean> {
    const { scope, tag, key } = this.#place(name)
    return isThere(await this.#session.get(scope, tag, key))
  }

  async list(): Promise<readonly string[]> {
    return this.#session.view(async reader => {
      const names: string[] = []
      for await (const page of pages(reader, { scope: this.#scope, tag: TAG })) {
        for (const entry of page) if (isThere(entry)) names.push(fromUtf8(entry.key))
      }
      return Object.freeze(names)
    })
  }

  async transition<T>(name: string, step: Transition<T>): Promise<Transitioned<T>> {
    return this.#transition(name, step, found => cellOf(existing(name, found)) as Cell)
  }

  async transitionOrInit<T>(name: string, initial: Value, step: Transition<T>): Promise<Transitioned<T>> {
    const missing = Object.freeze({ value: decodeValue(encodeValue(initial)), version: 0 })
    return this.#transition(name, step, found => cellOf(found) ?? missing)
  }

  async #transition<T>(
    name: string,
    step: Transition<T>,
    stateOf: (found: Entry | undefined) => CellState,
  ): Promise<Transitioned<T>> {
    checkFunction('the transition', step)
    let answer: T
    let bytes: ByteString = ''
    const version = await this.#change(name, found => {
      const outcome = checkOutcome(step(stateOf(found)))
      answer = outcome.result
      bytes = encodeValue(outcome.value)
      return bytes
    })
    return Object.freeze({ result: answer!, value: decodeValue(bytes), version })
  }

  /** Writes what `next` makes of the entry, as the version after it. */
  async #change(name: string, next: (found: Entry | undefined) => ByteString): Promise<number> {
    return (await change(this.#session, this.#place(name), next)).result
  }

  #place(name: string): Place {
    return placeOf(this.#scope, name)
  }
}

// Not `async`: who awaits them does so once, instead of in each layer.

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
    const version = (found === undefined ? 0 : versionOf(found)) + 1
    const value = u64(version) + next(found)
    return { operations: [{ op: 'put', ...place, value }], result: version }
  })
}

function placeOf(scope: ByteString, name: string): Place {
  return { scope, tag: TAG, key: checkText('name', name, { bytesMax: NAME_BYTES_MAX }) }
}

// A stored cell: its version (8 bytes), then the value; without one the cell was deleted.

const VERSION_BYTES = 8

function isThere(entry: Entry | undefined): entry is Entry {
  return entry !== undefined && entry.value.length > VERSION_BYTES
}

function versionOf(entry: Entry): number {
  return fromU64(entry.value)
}

/** The same for who has time: a large value is decoded in slices. */
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
  throw new AnnalsError('CELL_NOT_FOUND', `there is no cell ${quote(name)}: make it with init`, { name })
}

function checkOutcome<T>(outcome: ReturnType<Transition<T>>): ReturnType<Transition<T>> {
  if (typeof outcome === 'object' && outcome !== null && 'value' in outcome) return outcome
  const message = 'a transition must return { value, result }, and at once: it may not be async'
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'the transition' })
}

function quote(name: string): string {
  return JSON.stringify(name)
}
