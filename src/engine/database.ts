import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { onAbort } from '../core/on-abort.ts'
import { pause } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { Gate } from './gate.ts'
import type { Session } from './session.ts'
import type {
  Appended,
  CommitOutcome,
  Committed,
  Entry,
  Operation,
  Patience,
  Place,
  PointRead,
  Range,
  Reader,
  ScopeRange,
  Step,
  Storage,
  TreeId,
  Updated,
  UpdateOptions,
} from './storage.ts'
import {
  closedError,
  conflictError,
  type ManualTransaction,
  OptimisticTransaction,
  type Transaction,
  timeoutError,
} from './transaction.ts'

export interface BeginOptions {
  readonly readOnly?: boolean | undefined
  /** After it the transaction is rolled back with `TIMEOUT`; 30 s without it. */
  readonly timeoutMs?: number | undefined
}

export interface TransactionOptions extends BeginOptions {
  /** How often a transaction in conflict is tried again before `CONFLICT`; 16 without it. */
  readonly maxRetries?: number | undefined
  /** Aborting rolls back and rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

/** Chance and time, as parameters: the tests decide both. */
export interface Timing {
  /** From 0 up to, not including, 1. */
  random(): number
  sleep(ms: number): Promise<void>
  /** Calls `fire` after a while; returns what cancels it. Keeps the process alive only if somebody is waiting. */
  timer(ms: number, fire: () => void, awaited: boolean): () => void
  /** Milliseconds from some start; never goes back. */
  now(): number
}

const TIMEOUT_MS = 30_000
const RETRIES_MAX = 16
/** Wholly random, so that transactions that collided do not collide again. */
const BACKOFF = { firstMs: 2, maxMs: 100, jitter: 1 }
/** Conflicts after which a transaction is let through alone, and how long the others wait for it at most. */
const CONFLICTS_MAX = 4
const ALONE_MS = 100
/** Beyond it `setTimeout` fires at once. */
const TIMER_MAX_MS = 2_147_483_647

const REAL_TIMING: Timing = {
  random: Math.random,
  sleep: pause,
  timer(ms, fire, awaited) {
    const timeout = setTimeout(fire, ms)
    if (!awaited) timeout.unref()
    return () => clearTimeout(timeout)
  },
  now: () => performance.now(),
}

/**
 * Serializable transactions over any storage. They are optimistic: they run on
 * a snapshot and take no locks; the storage validates at commit what they have
 * read, and the first committer wins. The single-step operations need none of
 * that and go straight through.
 */
export class Database implements Session {
  readonly #storage: Storage
  readonly #timing: Timing
  readonly #gate: Gate
  #closed = false
  /** A step is running: what it would write now, the step itself knows nothing of and would overwrite. */
  #inStep = false

  constructor(storage: Storage, timing: Timing = REAL_TIMING) {
    this.#storage = storage
    this.#timing = timing
    this.#gate = new Gate((ms, fire) => timing.timer(ms, fire, false))
  }

  // What is malformed the storage refuses; to hand on its promise as it is costs no turn of the microtask queue.

  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return this.#storage.get(scope, tag, key)
  }

  scan(range: Range): Promise<readonly Entry[]> {
    return this.#storage.scan(range)
  }

  /** One step over declared reads; never conflicts. `step` must be pure. */
  update<T>(reads: readonly Place[], step: Step<T>, options?: UpdateOptions): Promise<Updated<T>> {
    if (this.#inStep) return Promise.reject(writesInStep())
    const { closed } = this.#gate
    if (closed !== undefined) return closed.then(() => this.update(reads, step, options))
    const guarded: Step<T> = found => {
      this.#inStep = true
      try {
        return step(found)
      } finally {
        this.#inStep = false
      }
    }
    return this.#storage.update(reads, guarded, options)
  }

  /** Blind operations, all or none. */
  write(operations: readonly Operation[]): Promise<readonly Appended[]> {
    if (this.#inStep) return Promise.reject(writesInStep())
    const { closed } = this.#gate
    if (closed !== undefined) return closed.then(() => this.write(operations))
    return this.#storage.commit({ operations }).then(appendedOf)
  }

  /** Blind operations, all or none, if each place is still as it was read; undefined if one is not. */
  async writeIf(
    points: readonly PointRead[],
    operations: readonly Operation[],
  ): Promise<Committed | undefined> {
    if (this.#inStep) throw writesInStep()
    while (this.#gate.closed !== undefined) await this.#gate.closed
    const outcome = await this.#storage.commit({ points, operations })
    return outcome.status === 'committed' ? outcome : undefined
  }

  async remove(place: Place): Promise<boolean> {
    const { result } = await this.update([place], ([entry]) => ({
      operations: entry === undefined ? [] : [{ op: 'delete', ...place }],
      result: entry !== undefined,
    }))
    return result
  }

  /** Several reads as of one moment. */
  async view<T>(read: (reader: Reader) => Promise<T>): Promise<T> {
    const snapshot = await this.#storage.snapshot()
    try {
      return await read(snapshot)
    } finally {
      snapshot.release()
    }
  }

  scopes(range: ScopeRange): Promise<readonly ByteString[]> {
    return this.#storage.scopes(range)
  }

  now(): number {
    return this.#storage.now()
  }

  clock(): number {
    return this.#storage.clock()
  }

  subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void> {
    return this.#storage.subscribe(tree, listener, patience)
  }

  close(): Promise<void> {
    this.#closed = true
    return this.#storage.close()
  }

  /** A transaction that the caller ends, and that isn't retried. */
  begin(options: BeginOptions = {}): ManualTransaction {
    const timeoutMs = checkTimeout(options.timeoutMs)
    if (this.#closed) throw closedError()
    let cancelTimer = (): void => {}
    const transaction = new OptimisticTransaction(this.#storage, {
      readOnly: options.readOnly ?? false,
      isOverdue: this.#deadline(timeoutMs),
      gate: this.#gate,
      isClosed: () => this.#closed,
      onEnd: () => cancelTimer(),
    })
    // Who forgets to end it shall not keep the process from ending.
    cancelTimer = this.#timing.timer(timeoutMs, () => transaction.abandon('timed out'), false)
    return transaction
  }

  /**
   * Others wait, and what they had under way is through: a busy writer is always faster than somebody who reads first, and
   * would get ahead of every attempt.
   */
  async #alone(): Promise<() => void> {
    const open = await this.#gate.close(ALONE_MS)
    try {
      await this.#storage.update([], () => ({ operations: [], result: undefined }))
      return open
    } catch (error) {
      open()
      throw error
    }
  }

  /** For those who never let a timer fire: reads that hit memory end within one turn of the event loop. */
  #deadline(timeoutMs: number): () => boolean {
    const end = this.#timing.now() + timeoutMs
    return () => this.#timing.now() > end
  }

  /**
   * Runs `work` and commits, again from the start if what it read was changed
   * meanwhile: it may run several times and must have no other effects. What
   * it throws comes out as it is, after the rollback. The time-out is for all
   * attempts together; a commit under way is always waited for.
   */
  async transaction<T>(
    work: (transaction: Transaction) => Promise<T> | T,
    options: TransactionOptions = {},
  ): Promise<T> {
    const { readOnly = false, signal } = options
    const timeoutMs = checkTimeout(options.timeoutMs)
    const maxRetries = checkRetries(options.maxRetries)
    const isOverdue = this.#deadline(timeoutMs)
    const isClosed = (): boolean => this.#closed
    if (isClosed()) throw closedError()
    signal?.throwIfAborted()

    let current: OptimisticTransaction | undefined
    let interrupt = (_reason: unknown): void => {}
    const interrupted = new Promise<never>((_, reject) => {
      interrupt = reject
    })
    // It may be rejected while nobody is listening: during a commit.
    interrupted.catch(() => {})
    const timedOut = (): void => {
      current?.abandon('timed out')
      interrupt(timeoutError(timeoutMs))
    }
    const cancelTimer = this.#timing.timer(timeoutMs, timedOut, true)
    const abort = (): void => {
      current?.abandon('aborted')
      interrupt(signal?.reason)
    }
    const unlisten = signal === undefined ? undefined : onAbort(signal, abort)

    try {
      for (let attempt = 1; ; attempt++) {
        const open = attempt > CONFLICTS_MAX ? await this.#alone() : undefined
        const gate = open === undefined ? this.#gate : undefined
        current = new OptimisticTransaction(this.#storage, { readOnly, isOverdue, isClosed, gate })
        let result: T
        let outcome: CommitOutcome
        try {
          result = await Promise.race([interrupted, runWork(work, current)])
          outcome = await current.tryCommit()
        } finally {
          open?.()
        }
        if (outcome.status === 'committed') return result
        if (attempt > maxRetries) throw conflictError(attempt, outcome)
        const waitMs = backoffMs(attempt - 1, { ...BACKOFF, random: () => this.#timing.random() })
        await Promise.race([interrupted, this.#timing.sleep(waitMs)])
      }
    } finally {
      // After a commit it has ended and this does nothing.
      current?.abandon('aborted')
      cancelTimer()
      unlisten?.()
    }
  }
}

function writesInStep(): AnnalsError {
  const message =
    'a function that computes the next value must not write to the store: return the value, and write what else there is afterwards or in a transaction'
  return new AnnalsError('INVALID_OPERATION', message)
}

function appendedOf(outcome: CommitOutcome): readonly Appended[] {
  invariant(outcome.status === 'committed', 'what has read nothing never conflicts')
  return outcome.appended
}

/** A function that throws before its first `await` is a rejection like any other. */
async function runWork<T>(
  work: (transaction: Transaction) => Promise<T> | T,
  transaction: Transaction,
): Promise<T> {
  return work(transaction)
}

function checkTimeout(timeoutMs: number = TIMEOUT_MS): number {
  if (Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= TIMER_MAX_MS) return timeoutMs
  throw new AnnalsError('INVALID_ARGUMENT', `timeoutMs is not an integer from 1 to ${TIMER_MAX_MS}`, {
    name: 'timeoutMs',
    value: timeoutMs,
  })
}

function checkRetries(maxRetries: number = RETRIES_MAX): number {
  if (Number.isSafeInteger(maxRetries) && maxRetries >= 0) return maxRetries
  throw new AnnalsError('INVALID_ARGUMENT', 'maxRetries is not a whole number', {
    name: 'maxRetries',
    value: maxRetries,
  })
}
