import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { onAbort } from '../core/on-abort.ts'
import { pause, TIMER_MAX_MS } from '../core/pause.ts'
import { backoffMs } from '../core/retry.ts'
import { Gate } from './gate.ts'
import type { Session } from './session.ts'
import type {
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

/** The options of a transaction that the caller ends. */
export interface BeginOptions {
  /** Refuses writes with `INVALID_OPERATION`. Such a transaction never conflicts. */
  readonly readOnly?: boolean | undefined
  /** How long the transaction may take before it is rolled back with `TIMEOUT`; 30,000 by default. */
  readonly timeoutMs?: number | undefined
}

/** The options of a transaction that Annals commits and retries. */
export interface TransactionOptions extends BeginOptions {
  /** How often the transaction is retried after conflicts before it rejects with `CONFLICT`; 16 by default. */
  readonly maxRetries?: number | undefined
  /** Aborting rolls the transaction back and rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

/** The sources of randomness and time, which tests replace. */
export interface Timing {
  /** A random number from 0 up to, but not including, 1. */
  random(): number
  /** Resolves after `ms`. */
  sleep(ms: number): Promise<void>
  /** Calls `fire` after `ms`. Returns the function that cancels the timer, which keeps the process alive only if `awaited`. */
  timer(ms: number, fire: () => void, awaited: boolean): () => void
  /** A monotonic clock in milliseconds. */
  now(): number
}

const TIMEOUT_MS = 30_000
const RETRIES_MAX = 16
/** Fully random, so that transactions that collided do not collide again. */
const BACKOFF = { firstMs: 2, maxMs: 100, jitter: 1 }
/** After this many conflicts a transaction runs alone. */
const CONFLICTS_MAX = 4
/** How long other writes wait for a transaction that runs alone. */
const ALONE_MS = 100

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
 * Serializable transactions on any storage. They are optimistic: a transaction
 * runs on a snapshot without locks, the storage validates its reads at commit,
 * and the first to commit wins. Single-step operations need no transaction and
 * go directly to the storage.
 */
export class Database implements Session {
  readonly #storage: Storage
  readonly #timing: Timing
  readonly #gate: Gate
  #closed = false
  /** True while a step runs. Writes are refused then, because the step would overwrite them with values computed before. */
  #inStep = false

  constructor(storage: Storage, timing: Timing = REAL_TIMING) {
    this.#storage = storage
    this.#timing = timing
    this.#gate = new Gate((ms, fire) => timing.timer(ms, fire, false))
  }

  // The storage checks the arguments. Its promises are returned unchanged, which saves a turn of the microtask queue.

  get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    return this.#storage.get(scope, tag, key)
  }

  scan(range: Range): Promise<readonly Entry[]> {
    return this.#storage.scan(range)
  }

  /** Runs `step` on the declared places and ranges and commits its operations. Never conflicts. `step` must be pure. */
  update<T>(reads: readonly Place[], step: Step<T>, options?: UpdateOptions): Promise<Updated<T>> {
    if (this.#inStep) return Promise.reject(writesInStep())
    const { closed } = this.#gate
    if (closed !== undefined) return closed.then(() => this.update(reads, step, options))
    const guarded: Step<T> = (found, ranges) => {
      this.#inStep = true
      try {
        return step(found, ranges)
      } finally {
        this.#inStep = false
      }
    }
    return this.#storage.update(reads, guarded, options)
  }

  /** Commits the operations, all or none, without reading anything. */
  write(operations: readonly Operation[]): Promise<Committed> {
    if (this.#inStep) return Promise.reject(writesInStep())
    const { closed } = this.#gate
    if (closed !== undefined) return closed.then(() => this.write(operations))
    return this.#storage.commit({ operations }).then(committed)
  }

  /** Commits the operations if no place has changed since it was read. Returns undefined otherwise. */
  async writeIf(
    points: readonly PointRead[],
    operations: readonly Operation[],
  ): Promise<Committed | undefined> {
    if (this.#inStep) throw writesInStep()
    while (this.#gate.closed !== undefined) await this.#gate.closed
    const outcome = await this.#storage.commit({ points, operations })
    return outcome.status === 'committed' ? outcome : undefined
  }

  /** Deletes an entry and returns whether it existed. */
  async remove(place: Place): Promise<boolean> {
    const { result } = await this.update([place], ([entry]) => ({
      operations: entry === undefined ? [] : [{ op: 'delete', ...place }],
      result: entry !== undefined,
    }))
    return result
  }

  /** Calls `read` with a snapshot, so that its reads all see the same state. */
  async view<T>(read: (reader: Reader) => Promise<T>): Promise<T> {
    const snapshot = await this.#storage.snapshot()
    try {
      return await read(snapshot)
    } finally {
      snapshot.release()
    }
  }

  /** Lists the scopes that hold entries, in byte order. */
  scopes(range: ScopeRange): Promise<readonly ByteString[]> {
    return this.#storage.scopes(range)
  }

  /** The time of a commit made now, in milliseconds since 1970. */
  now(): number {
    return this.#storage.now()
  }

  /** The engine's clock, which decides whether an entry has expired. */
  clock(): number {
    return this.#storage.clock()
  }

  /** Calls `listener` after commits that changed the tree, and at closing. */
  subscribe(tree: TreeId, listener: () => void, patience?: Patience): Promise<() => void> {
    return this.#storage.subscribe(tree, listener, patience)
  }

  /** Closes the storage. Pending calls end first; later calls are refused with `CLOSED`. */
  close(): Promise<void> {
    this.#closed = true
    return this.#storage.close()
  }

  /** Begins a transaction that the caller commits or rolls back. It is not retried. */
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
    // A transaction that the caller forgets to end must not keep the process alive.
    cancelTimer = this.#timing.timer(timeoutMs, () => transaction.abandon('timed out'), false)
    return transaction
  }

  /**
   * Holds back all other writes and waits for the pending ones. Otherwise a busy writer could conflict with every attempt of a
   * transaction that reads first.
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

  /**
   * Returns a function that tells whether the time limit has passed. A timer is not enough: a transaction whose reads are all
   * answered from memory never yields to it.
   */
  #deadline(timeoutMs: number): () => boolean {
    const end = this.#timing.now() + timeoutMs
    return () => this.#timing.now() > end
  }

  /**
   * Runs `work` and commits. If another commit changed what it read, `work` runs
   * again from the start, so it must have no effects outside the transaction. An
   * error that it throws rolls back and rejects the promise unchanged. The
   * time-out covers all attempts, but a commit that was sent is always awaited.
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
    // During a commit nothing awaits this promise, so its rejection would be unhandled.
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
      // Does nothing after a commit.
      current?.abandon('aborted')
      cancelTimer()
      unlisten?.()
    }
  }
}

function writesInStep(): AnnalsError {
  const message =
    'a function that computes the next value must not write to the store: use a transaction, or write after it returns'
  return new AnnalsError('INVALID_OPERATION', message)
}

function committed(outcome: CommitOutcome): Committed {
  invariant(outcome.status === 'committed', 'a commit without reads never conflicts')
  return outcome
}

/** Calls `work`. An error that it throws synchronously becomes a rejection. */
async function runWork<T>(
  work: (transaction: Transaction) => Promise<T> | T,
  transaction: Transaction,
): Promise<T> {
  return work(transaction)
}

function checkTimeout(timeoutMs: number = TIMEOUT_MS): number {
  if (Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= TIMER_MAX_MS) return timeoutMs
  throw new AnnalsError('INVALID_ARGUMENT', `timeoutMs must be an integer from 1 to ${TIMER_MAX_MS}`, {
    name: 'timeoutMs',
    value: timeoutMs,
  })
}

function checkRetries(maxRetries: number = RETRIES_MAX): number {
  if (Number.isSafeInteger(maxRetries) && maxRetries >= 0) return maxRetries
  throw new AnnalsError('INVALID_ARGUMENT', 'maxRetries must be a whole number, 0 or more', {
    name: 'maxRetries',
    value: maxRetries,
  })
}
