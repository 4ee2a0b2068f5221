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

/** Opens a new, empty storage for each call. The storage uses `clock` if it is given. */
export type OpenStorage = (options?: { readonly clock?: (() => number) | undefined }) => Promise<Storage>

/** The settings of the storage suite. */
export interface StorageSuiteOptions {
  /** The reason why the engine can't be given a clock. If set, the tests that move the clock are left out. */
  readonly noClock?: string | undefined
  /** The seed of the random programs. The default is `ANNALS_SEED`, or else a random seed. */
  readonly seed?: number | undefined
  /** The number of random programs. The default is 200. */
  readonly programs?: number | undefined
}

/** Declares tests. Each test gets its own storage, which is closed at the end. */
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

  /** Declares a test that moves the clock. */
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

/** A stand-in for a hash: 32 bytes that depend on the body. The engine does not interpret them. */
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

/** Commits, and fails the test if there is a conflict. */
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

/** A read of the key as it is now, for a later commit to validate. */
export async function readPoint(reader: Reader, key: ByteString): Promise<PointRead> {
  return { ...place(key), version: (await reader.get(SCOPE, KV, key))?.version ?? 0 }
}

/** A read of the range as it is now, for a later commit to validate. */
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

/** Waits until the condition holds, and fails the test after `timeoutMs`. */
export async function eventually(condition: () => boolean, timeoutMs = 5_000): Promise<void> {
  const end = Date.now() + timeoutMs
  while (!condition()) {
    if (Date.now() > end) expect.fail('it did not happen')
    await new Promise(resolve => setTimeout(resolve, 1))
  }
}
