import { expect, it } from 'vitest'
import type { ByteString } from '../../core/bytes.ts'
import type { ErrorCode } from '../../core/errors.ts'
import { AnnalsError } from '../../core/errors.ts'
import { TAGS } from '../../engine/keys.ts'
import type {
  Append,
  Commit,
  Committed,
  Delete,
  Drop,
  Entry,
  Operation,
  Place,
  PointRead,
  Put,
  Range,
  RangeRead,
  Reader,
  Storage,
} from '../../engine/storage.ts'
import { SimulatedClock } from '../simulated-clock.ts'

export type OpenStorage = (options?: { readonly clock?: (() => number) | undefined }) => Promise<Storage>

export interface StorageSuiteOptions {
  /** Why the engine can't be given a clock. Properties that need one don't apply then, and are not tested. */
  readonly noClock?: string | undefined
  /** Of the random programs; `ANNALS_SEED` or a new one without it. */
  readonly seed?: number | undefined
  /** How many random programs to run; 200 without it. */
  readonly programs?: number | undefined
}

/** Declares tests, each with a storage of its own that is closed in the end. */
export class Suite {
  readonly open: OpenStorage
  readonly options: StorageSuiteOptions

  constructor(open: OpenStorage, options: StorageSuiteOptions) {
    this.open = open
    this.options = options
  }

  holds(property: string, test: (storage: Storage) => Promise<void>): void {
    it(property, () => this.#run(undefined, test))
  }

  /** A property that takes a clock which the test can set. */
  holdsInTime(property: string, test: (storage: Storage, clock: SimulatedClock) => Promise<void>): void {
    if (this.options.noClock !== undefined) return
    const clock = new SimulatedClock()
    it(property, () => this.#run(clock, storage => test(storage, clock)))
  }

  async #run(clock: SimulatedClock | undefined, test: (storage: Storage) => Promise<void>): Promise<void> {
    const storage = await this.open(clock && { clock: clock.now })
    try {
      await test(storage)
    } finally {
      await storage.close()
    }
  }
}

export const SCOPE: ByteString = 'default:default:default:run'
export const KV: number = TAGS.kv
export const LOG: number = TAGS.event

export function put(key: ByteString, value: ByteString, more: Partial<Put> = {}): Put {
  return { op: 'put', scope: SCOPE, tag: KV, key, value, ...more }
}

export function del(key: ByteString, more: Partial<Delete> = {}): Delete {
  return { op: 'delete', scope: SCOPE, tag: KV, key, ...more }
}

export function append(body: ByteString, more: Partial<Append> = {}): Append {
  return { op: 'append', scope: SCOPE, tag: LOG, body, bodyHash: bodyHashOf(body), ...more }
}

export function drop(scope: ByteString = SCOPE): Drop {
  return { op: 'drop', scope }
}

/** The engine doesn't care what it stands for; it has to be 32 bytes that depend on the body. */
export function bodyHashOf(body: ByteString): ByteString {
  return body.slice(0, 32).padEnd(32, '.')
}

export function place(key: ByteString, more: Partial<Place> = {}): Place {
  return { scope: SCOPE, tag: KV, key, ...more }
}

export function range(more: Partial<Range> = {}): Range {
  return { scope: SCOPE, tag: KV, ...more }
}

export async function commit(storage: Storage, ...operations: readonly Operation[]): Promise<Committed> {
  return committed(storage, { operations })
}

/** A commit that must not conflict. */
export async function committed(storage: Storage, what: Commit): Promise<Committed> {
  const outcome = await storage.commit(what)
  if (outcome.status !== 'committed') expect.fail(`conflict on ${JSON.stringify(outcome.on)}`)
  return outcome
}

export async function valueAt(reader: Reader, key: ByteString): Promise<ByteString | undefined> {
  return (await reader.get(SCOPE, KV, key))?.value
}

export function keysOf(entries: readonly Entry[]): ByteString[] {
  return entries.map(entry => entry.key)
}

/** The key as it reads now, to be validated by a later commit. */
export async function readPoint(reader: Reader, key: ByteString): Promise<PointRead> {
  return { ...place(key), version: (await reader.get(SCOPE, KV, key))?.version ?? 0 }
}

/** The range as it reads now, to be validated by a later commit. */
export async function readRange(reader: Reader, more: Partial<Range> = {}): Promise<RangeRead> {
  const found = await reader.scan(range(more))
  return { ...range(more), found: found.map(({ key, version }) => ({ key, version })) }
}

export async function expectError(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(AnnalsError)
  expect((error as AnnalsError).code).toBe(code)
}

/** Waits for what happens soon, but not at once. */
export async function eventually(condition: () => boolean, timeoutMs = 5_000): Promise<void> {
  const end = Date.now() + timeoutMs
  while (!condition()) {
    if (Date.now() > end) expect.fail('it did not happen')
    await new Promise(resolve => setTimeout(resolve, 1))
  }
}
