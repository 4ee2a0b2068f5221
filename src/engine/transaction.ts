import type { ByteString } from '../core/bytes.ts'
import { fromU64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { checkPlace, checkRange } from './operations.ts'
import { ReadSet } from './read-set.ts'
import type {
  Append,
  Appended,
  CommitOutcome,
  Committed,
  Conflict,
  Entry,
  Range,
  Reader,
  Snapshot,
  Storage,
} from './storage.ts'
import { type Write, WriteSet } from './write-set.ts'

/**
 * Reads see one snapshot and, on top of it, the transaction's own puts and
 * deletes. Writes are blind until commit: they throw at once if malformed and
 * never conflict. An own write reads back with version 0: it has none yet.
 */
export interface Transaction extends Reader {
  put(scope: ByteString, tag: number, key: ByteString, value: ByteString, expiresAt?: number): void
  delete(scope: ByteString, tag: number, key: ByteString): void
  /** Takes effect at commit, and doesn't conflict with other appends; own appends are not in `get` and `scan`. */
  append(append: Omit<Append, 'op'>): AppendTicket
  /** The sequence that an append will get. Asking reads the log's end: now other appends do conflict. */
  sequenceOf(ticket: AppendTicket): Promise<number>
  /** How many entries a log has, own appends included. Reads the log's end, like `sequenceOf`. */
  length(scope: ByteString, tag: number): Promise<number>
}

/** A transaction that its caller ends. */
export interface ManualTransaction extends Transaction {
  /** `CONFLICT` if what was read has changed. */
  commit(): Promise<Committed>
  rollback(): Promise<void>
}

/** What became of an append; known once its transaction has committed. */
export interface AppendTicket {
  /** `INVALID_OPERATION` before the commit. */
  readonly appended: Appended
}

class Ticket implements AppendTicket {
  readonly append: Append
  #appended: Appended | undefined

  constructor(append: Append) {
    this.append = append
  }

  get appended(): Appended {
    if (this.#appended !== undefined) return this.#appended
    throw new AnnalsError('INVALID_OPERATION', 'what became of an append is known after its commit')
  }

  settle(appended: Appended): void {
    this.#appended = appended
  }
}

/**
 * open → ended (commit or rollback, whatever the outcome), or
 * open → timed out | aborted (from outside, see `abandon`).
 * Once a commit has been handed to the storage it can't be called back: such
 * a transaction has ended, and its outcome is the storage's.
 *
 * The snapshot is asked for at once, so that the transaction sees what was
 * there when it began, and released when it is over and its last read is back.
 */
export class OptimisticTransaction implements ManualTransaction {
  readonly #storage: Storage
  readonly #snapshot: Promise<Snapshot>
  readonly #onEnd: (() => void) | undefined
  readonly #isOverdue: () => boolean
  /** Undefined if the transaction is read-only. A snapshot is consistent: such reads need no validation. */
  readonly #reads: ReadSet | undefined
  readonly #writes = new WriteSet()
  readonly #tickets: Ticket[] = []
  #state: 'open' | 'ended' | 'timed out' | 'aborted' = 'open'
  #readsInFlight = 0

  constructor(
    storage: Storage,
    options: {
      readonly readOnly: boolean
      /** Asked at each use, beside the timer that abandons the transaction. */
      readonly isOverdue: () => boolean
      readonly onEnd?: () => void
    },
  ) {
    this.#storage = storage
    this.#reads = options.readOnly ? undefined : new ReadSet()
    this.#onEnd = options.onEnd
    this.#isOverdue = options.isOverdue
    this.#snapshot = storage.snapshot()
    // A transaction that never reads must not crash the process because of its snapshot.
    this.#snapshot.catch(() => {})
  }

  async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    this.#checkOpen()
    const place = { scope, tag, key }
    checkPlace(place)
    const own = this.#writes.find(place)
    return this.#read(async snapshot => {
      if (own !== undefined) return visible(own, snapshot.time)
      const entry = await snapshot.get(scope, tag, key)
      this.#reads?.addPoint(place, entry)
      return entry
    })
  }

  async scan(range: Range): Promise<readonly Entry[]> {
    this.#checkOpen()
    checkRange(range)
    const own = this.#writes.inRange(range)
    return this.#read(snapshot =>
      own.length === 0 ? this.#scanSnapshot(snapshot, range) : this.#scanMerged(snapshot, range, own),
    )
  }

  put(scope: ByteString, tag: number, key: ByteString, value: ByteString, expiresAt = 0): void {
    this.#checkWritable()
    this.#writes.add({ op: 'put', scope, tag, key, value, expiresAt })
  }

  delete(scope: ByteString, tag: number, key: ByteString): void {
    this.#checkWritable()
    this.#writes.add({ op: 'delete', scope, tag, key })
  }

  append(append: Omit<Append, 'op'>): AppendTicket {
    this.#checkWritable()
    const operation: Append = { ...append, op: 'append' }
    this.#writes.add(operation)
    const ticket = new Ticket(operation)
    this.#tickets.push(ticket)
    return ticket
  }

  async sequenceOf(ticket: AppendTicket): Promise<number> {
    this.#checkOpen()
    const index = this.#tickets.indexOf(ticket as Ticket)
    if (index < 0) throw new AnnalsError('INVALID_OPERATION', 'the append is not of this transaction')
    const { scope, tag } = this.#tickets[index].append
    return this.#sequenceAfter(this.#tickets.slice(0, index + 1), scope, tag).then(next => next - 1)
  }

  async length(scope: ByteString, tag: number): Promise<number> {
    this.#checkOpen()
    return this.#sequenceAfter([...this.#tickets], scope, tag)
  }

  async commit(): Promise<Committed> {
    const outcome = await this.tryCommit()
    if (outcome.status === 'conflict') throw conflictError(1, outcome)
    return outcome
  }

  /** `commit`, with a conflict as an expected outcome. */
  async tryCommit(): Promise<CommitOutcome> {
    this.#checkOpen()
    const operations = this.#writes.operations()
    if (operations.length === 0) {
      const answer = this.#read(async ({ version, time }) => ({ version, time }))
      this.#end('ended')
      return { status: 'committed', ...(await answer), appended: [] }
    }
    this.#end('ended')
    const outcome = await this.#storage.commit({
      points: this.#reads?.points() ?? [],
      ranges: this.#reads?.ranges() ?? [],
      operations,
    })
    if (outcome.status === 'committed') {
      invariant(outcome.appended.length === this.#tickets.length, 'an answer for each append')
      this.#tickets.forEach((ticket, i) => {
        ticket.settle(outcome.appended[i])
      })
    }
    return outcome
  }

  async rollback(): Promise<void> {
    this.#checkOpen()
    this.#end('ended')
  }

  /** Rolls back from outside. Does nothing to a transaction that has ended. */
  abandon(why: 'timed out' | 'aborted'): void {
    if (this.#state === 'open') this.#end(why)
  }

  #end(state: 'ended' | 'timed out' | 'aborted'): void {
    this.#state = state
    this.#onEnd?.()
    this.#releaseIfIdle()
  }

  #checkOpen(): void {
    if (this.#state === 'open' && this.#isOverdue()) this.abandon('timed out')
    if (this.#state === 'open') return
    if (this.#state === 'timed out') throw timeoutError()
    throw new AnnalsError(
      'INVALID_OPERATION',
      `the transaction has ${this.#state === 'ended' ? 'ended' : 'been aborted'}`,
    )
  }

  #checkWritable(): void {
    this.#checkOpen()
    if (this.#reads === undefined) {
      throw new AnnalsError('INVALID_OPERATION', 'a read-only transaction writes nothing')
    }
  }

  /** Keeps the snapshot for as long as `read` runs, even if the transaction ends before. */
  async #read<T>(read: (snapshot: Snapshot) => Promise<T> | T): Promise<T> {
    this.#readsInFlight++
    try {
      return await read(await this.#snapshot)
    } finally {
      this.#readsInFlight--
      if (this.#state !== 'open') this.#releaseIfIdle()
    }
  }

  #releaseIfIdle(): void {
    if (this.#readsInFlight > 0) return
    this.#snapshot.then(
      snapshot => snapshot.release(),
      () => {},
    )
  }

  async #scanSnapshot(snapshot: Snapshot, range: Range): Promise<readonly Entry[]> {
    const found = await snapshot.scan(range)
    this.#reads?.addRange(range, found)
    return found
  }

  /** Own deletes make room under the limit, so the snapshot is read on, in growing pages, until it is met. */
  async #scanMerged(snapshot: Snapshot, range: Range, own: readonly Write[]): Promise<readonly Entry[]> {
    const { limit, reverse = false } = range
    const merged: Entry[] = []
    let next = 0
    const pushOwn = (): void => {
      const entry = visible(own[next++], snapshot.time)
      if (entry !== undefined) merged.push(entry)
    }
    for (let page = range; ; ) {
      const found = await this.#scanSnapshot(snapshot, page)
      for (const entry of found) {
        while (next < own.length && comesBefore(own[next].key, entry.key, reverse)) pushOwn()
        if (next < own.length && own[next].key === entry.key) pushOwn()
        else merged.push(entry)
      }
      const isLast = page.limit === undefined || found.length < page.limit
      while (isLast && next < own.length) pushOwn()
      if (limit === undefined) return merged
      if (isLast || merged.length >= limit) return merged.slice(0, limit)
      page = { ...pageAfter(page, found[found.length - 1].key), limit: page.limit! * 2 }
    }
  }

  /** The sequence that follows the log's end and these tickets. */
  async #sequenceAfter(tickets: readonly Ticket[], scope: ByteString, tag: number): Promise<number> {
    const own = tickets.filter(({ append }) => append.scope === scope && append.tag === tag)
    if (own.some(({ append }) => append.dedupe !== undefined)) {
      // Whether it will append at all is the engine's to say, at commit.
      throw new AnnalsError(
        'INVALID_OPERATION',
        'an append with a dedupe key has no sequence before its commit',
      )
    }
    const [head] = await this.scan({ scope, tag, reverse: true, limit: 1 })
    return (head === undefined ? 0 : fromU64(head.key) + 1) + own.length
  }
}

/** An own write as a read would find it. */
function visible(write: Write, now: number): Entry | undefined {
  if (write.op === 'delete') return undefined
  const { key, value, expiresAt = 0 } = write
  if (expiresAt !== 0 && expiresAt <= now) return undefined
  return { key, value, version: 0, time: now, expiresAt }
}

function comesBefore(a: ByteString, b: ByteString, reverse: boolean): boolean {
  return reverse ? a > b : a < b
}

/** What of the range lies behind `key`. */
function pageAfter(range: Range, key: ByteString): Range {
  return range.reverse === true ? { ...range, to: key } : { ...range, from: `${key}\0` }
}

export function conflictError(attempts: number, { on }: Conflict): AnnalsError {
  const times = attempts === 1 ? 'once' : `${attempts} times`
  return new AnnalsError('CONFLICT', `what the transaction had read was changed by others, ${times}`, {
    attempts,
    on,
  })
}

export function timeoutError(timeoutMs?: number): AnnalsError {
  return new AnnalsError('TIMEOUT', 'the transaction took too long and was rolled back', { timeoutMs })
}
