import type { Annals, Guard } from 'annals'
import { expect, it } from 'vitest'
import { AnnalsError, type ErrorCode, type Scope } from '../../index.ts'
import { SimulatedClock } from '../simulated-clock.ts'

/** A database for one test, with the functions that close and reopen it. */
export interface OpenedAnnals {
  /** The open, empty database. */
  readonly db: Annals
  /** Closes the database and opens it again with all verification that the engine offers. */
  reopen?(): Promise<Annals>
  /** Closes the database. The test may have closed it already. */
  close(): Promise<void>
}

/** The options that a test needs for its database. */
export interface OpenAnnalsOptions {
  /** The guards that the machines of the test refer to by name. */
  readonly guards?: Readonly<Record<string, Guard>>
  /** The clock to use, in milliseconds since 1970. Absent if the suite has `noClock`. */
  readonly clock?: () => number
}

/** Opens a new, empty database for each call. */
export type OpenAnnals = (options: OpenAnnalsOptions) => Promise<OpenedAnnals>

/** The reasons why some tests of the suite do not apply to a database. */
export interface AnnalsSuiteOptions {
  /** The reason why the database can't be reopened. If set, the tests that reopen it are left out. */
  readonly noReopen?: string
  /** The reason why the database can't be given a clock. If set, the tests that move the clock are left out. */
  readonly noClock?: string
}

/** Declares tests. Each test gets its own database, which is closed at the end. */
export class Suite {
  readonly #open: OpenAnnals
  readonly #options: AnnalsSuiteOptions

  constructor(open: OpenAnnals, options: AnnalsSuiteOptions) {
    this.#open = open
    this.#options = options
  }

  holds(property: string, test: (db: Annals) => Promise<void>): void {
    it(property, () => this.#run({}, ({ db }) => test(db)))
  }

  holdsWithGuards(
    property: string,
    guards: Readonly<Record<string, Guard>>,
    test: (db: Annals) => Promise<void>,
  ): void {
    it(property, () => this.#run({ guards }, ({ db }) => test(db)))
  }

  /** Declares a test that moves the clock. */
  holdsInTime(property: string, test: (db: Annals, clock: SimulatedClock) => Promise<void>): void {
    if (this.#options.noClock !== undefined) return
    it(property, () => {
      const clock = new SimulatedClock()
      return this.#run({ clock: clock.now }, ({ db }) => test(db, clock))
    })
  }

  /** Declares a test that reopens the database. */
  holdsAfterReopen(
    property: string,
    test: (db: Annals, reopen: () => Promise<Annals>, clock: SimulatedClock | undefined) => Promise<void>,
  ): void {
    const { noReopen, noClock } = this.#options
    if (noReopen !== undefined) return
    it(property, () => {
      const clock = noClock === undefined ? new SimulatedClock() : undefined
      return this.#run(clock === undefined ? {} : { clock: clock.now }, opened => {
        const reopen = (): Promise<Annals> => {
          if (opened.reopen === undefined) throw new Error('the engine gives neither reopen nor noReopen')
          return opened.reopen()
        }
        return test(opened.db, reopen, clock)
      })
    })
  }

  async #run(options: OpenAnnalsOptions, test: (opened: OpenedAnnals) => Promise<void>): Promise<void> {
    const opened = await this.#open(options)
    try {
      await test(opened)
    } finally {
      await opened.close()
    }
  }
}

/** The run that most tests write to. */
export const RUN = 'run-1'
export const ZERO_HASH: string = '0'.repeat(64)

/** Expects a rejection with an `AnnalsError` of this code and with a message, and returns the error. */
export async function refused(attempt: Promise<unknown>, code: ErrorCode, what = ''): Promise<AnnalsError> {
  const error: unknown = await attempt.then(
    () => 'no error at all',
    (reason: unknown) => reason,
  )
  if (!(error instanceof AnnalsError)) {
    throw new Error(`${what}: expected an AnnalsError ${code}, got ${String(error)}`, { cause: error })
  }
  expect(error.code, `${what}: ${error.message}`).toBe(code)
  expect(error.message.length, what).toBeGreaterThan(10)
  return error
}

/** Passes a value that the types forbid, as a JavaScript program could. */
export function bad<T>(value: unknown): T {
  return value as T
}

/** Expects a deeply frozen value. Byte arrays can't be frozen, so every reader gets a copy of them instead. */
export function expectFrozen(value: unknown): void {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return
  expect(Object.isFrozen(value), `frozen: ${JSON.stringify(Object.keys(value))}`).toBe(true)
  for (const part of Object.values(value)) expectFrozen(part)
}

export async function gather<T>(items: AsyncIterable<T>): Promise<T[]> {
  const gathered: T[] = []
  for await (const item of items) gathered.push(item)
  return gathered
}

/** Reads the next `count` items and leaves the iterator open. */
export async function take<T>(items: AsyncIterator<T>, count: number): Promise<T[]> {
  const taken: T[] = []
  while (taken.length < count) {
    const { done, value } = await items.next()
    if (done === true) throw new Error(`it ended after ${taken.length} of ${count}`)
    taken.push(value)
  }
  return taken
}

export function times<T>(count: number, make: (i: number) => T): T[] {
  return Array.from({ length: count }, (_, i) => make(i))
}

/** Waits for all attempts, and returns the results of the successful ones and the error codes of the others. */
export async function outcomes<T>(
  attempts: readonly Promise<T>[],
): Promise<{ readonly won: readonly T[]; readonly codes: readonly ErrorCode[] }> {
  const won: T[] = []
  const codes: ErrorCode[] = []
  for (const settled of await Promise.allSettled(attempts)) {
    if (settled.status === 'fulfilled') won.push(settled.value)
    else if (settled.reason instanceof AnnalsError) codes.push(settled.reason.code)
    else throw settled.reason
  }
  return { won, codes }
}

/** Returns all data of a scope that can be listed. */
export async function contentsOf(db: Annals, scope: Scope): Promise<unknown> {
  const { kv, events, cells, traces } = db.run(scope)
  const [names, ids] = await Promise.all([cells.list(), traces.list()])
  return {
    kv: await kv.entries(),
    events: await gather(events.iterate()),
    length: await events.length(),
    cells: await Promise.all(names.map(async name => [name, await cells.read(name)])),
    traces: await Promise.all(ids.map(id => traces.get(id))),
  }
}

/** Returns all runs, their statistics and the tombstones. */
export async function runsOf(db: Annals): Promise<unknown> {
  return {
    runs: await db.runs.query({ includeArchived: true }),
    stats: await db.runs.stats(),
    tombstones: await db.runs.tombstones(),
  }
}

/** Returns arrays that are nested `depth` levels deep. */
export function nested(depth: number): [] {
  let value: unknown = []
  for (let i = 1; i < depth; i++) value = [value]
  return value as []
}
