import type { Annals, Guard } from 'annals'
import { expect, it } from 'vitest'
import { AnnalsError, type ErrorCode, type Scope } from '../../index.ts'
import { SimulatedClock } from '../simulated-clock.ts'

/** A database for one test. */
export interface OpenedAnnals {
  readonly db: Annals
  /** Closes the database and opens it again, with everything verified that the engine can verify. */
  reopen?(): Promise<Annals>
  /** Closes whatever is open; whatever the test has closed before is fine. */
  close(): Promise<void>
}

export interface OpenAnnalsOptions {
  readonly guards?: Readonly<Record<string, Guard>>
  /** Milliseconds since 1970; given only if the engine takes one. */
  readonly clock?: () => number
}

/** Gives a new and empty database each time. */
export type OpenAnnals = (options: OpenAnnalsOptions) => Promise<OpenedAnnals>

export interface AnnalsSuiteOptions {
  /** Why the engine can't be opened again. Properties that need it don't apply then, and are not tested. */
  readonly noReopen?: string
  /** Why the engine can't be given a clock. Properties that need one don't apply then, and are not tested. */
  readonly noClock?: string
}

/** Declares tests, each with a database of its own that is closed in the end. */
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

  /** A property that takes a clock which the test can set. */
  holdsInTime(property: string, test: (db: Annals, clock: SimulatedClock) => Promise<void>): void {
    if (this.#options.noClock !== undefined) return
    it(property, () => {
      const clock = new SimulatedClock()
      return this.#run({ clock: clock.now }, ({ db }) => test(db, clock))
    })
  }

  /** A property of what is found when the database is opened again. */
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

/** The attempt must fail with our error and this code, and say something; the error is returned. */
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

/** What the types forbid, for a caller who has none. */
export function bad<T>(value: unknown): T {
  return value as T
}

/** Frozen all the way down; bytes can't be, they are copies. */
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

/** The next so many items; the iterator stays open. */
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

/** How many of the attempts succeeded, and the codes with which the others failed. */
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

/** Everything that a scope holds, as far as it can be listed. */
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

/** Everything about the runs themselves. */
export async function runsOf(db: Annals): Promise<unknown> {
  return {
    runs: await db.runs.query({ includeArchived: true }),
    stats: await db.runs.stats(),
    tombstones: await db.runs.tombstones(),
  }
}

/** An array in an array in an array … */
export function nested(depth: number): [] {
  let value: unknown = []
  for (let i = 1; i < depth; i++) value = [value]
  return value as []
}
