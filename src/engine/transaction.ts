import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import type { Gate } from './gate.ts'
import {
  dedupeTag,
  HEAD_KEY,
  headTag,
  isDedupeTag,
  isEngineTag,
  isLogTag,
  logOfDedupeTag,
  logOfHeadTag,
  storageKey,
} from './keys.ts'
import { checkBoundedRanges, checkPlace, checkRange } from './operations.ts'
import { OwnLog, type Ticket } from './own-log.ts'
import { behind } from './pages.ts'
import { ReadSet } from './read-set.ts'
import type { Session, StepOutcome, Write, WriteStep, Written } from './session.ts'
import type {
  Append,
  Appended,
  CommitOutcome,
  Committed,
  Conflict,
  Entry,
  Place,
  Range,
  Reader,
  Snapshot,
  Storage,
  TreeId,
  UpdateOptions,
} from './storage.ts'
import { type KeyWrite, WriteSet } from './write-set.ts'

/**
 * A serializable transaction. Reads see one snapshot plus the transaction's own
 * writes. A malformed write throws at once. Writes take effect at commit and
 * never conflict by themselves. An own write reads back with version 0, because
 * it gets its version at commit.
 */
export interface Transaction extends Session {
  /** Writes an entry. */
  put(scope: ByteString, tag: number, key: ByteString, value: ByteString, expiresAt?: number): void
  /** Deletes an entry. */
  delete(scope: ByteString, tag: number, key: ByteString): void
  /**
   * Appends to a log at commit, without conflicts with other appends. Using the result before the commit, or reading own
   * appends, counts as reading the log's end. Then appends of other transactions do conflict.
   */
  append(append: Omit<Append, 'op'>): Promise<Appended>
}

/** A transaction that the caller commits or rolls back. */
export interface ManualTransaction extends Transaction {
  /** Commits. Rejects with `CONFLICT`, and writes nothing, if another commit changed what the transaction read. */
  commit(): Promise<Committed>
  /** Ends the transaction without writing anything. */
  rollback(): Promise<void>
}

/**
 * A transaction that runs on a snapshot without locks.
 *
 * open → ended (commit or rollback, whatever the outcome)
 * open → timed out | aborted (by the database, see `abandon`)
 *
 * A commit that was handed to the storage cannot be cancelled, so the
 * transaction counts as ended and the storage decides its outcome.
 *
 * The constructor takes the snapshot, so that the transaction sees the state of
 * its beginning. It is released once the transaction is over and no read is
 * pending.
 */
export class OptimisticTransaction implements ManualTransaction {
  readonly #storage: Storage
  readonly #snapshot: Promise<Snapshot>
  readonly #onEnd: (() => void) | undefined
  readonly #isOverdue: () => boolean
  readonly #gate: Gate | undefined
  readonly #isClosed: () => boolean
  /** Undefined in a read-only transaction, whose reads need no validation because a snapshot is consistent. */
  readonly #reads: ReadSet | undefined
  readonly #writes = new WriteSet()
  readonly #logs = new Map<ByteString, OwnLog>()
  /** The appends to all logs, in their order. */
  readonly #tickets: Ticket[] = []
  #state: 'open' | 'ended' | 'timed out' | 'aborted' = 'open'
  #readsInFlight = 0
  /** The number of calls that have added writes. */
  #additions = 0

  constructor(
    storage: Storage,
    options: {
      readonly readOnly: boolean
      /** Checked at each use, in addition to the timer that abandons the transaction. */
      readonly isOverdue: () => boolean
      /** Absent if the transaction runs alone and has closed the gate itself. */
      readonly gate?: Gate | undefined
      /** Whether the storage is closed. Otherwise a transaction that only writes would notice it at commit. */
      readonly isClosed: () => boolean
      readonly onEnd?: () => void
    },
  ) {
    this.#storage = storage
    this.#reads = options.readOnly ? undefined : new ReadSet()
    this.#onEnd = options.onEnd
    this.#isOverdue = options.isOverdue
    this.#gate = options.gate
    this.#isClosed = options.isClosed
    this.#snapshot = storage.snapshot()
    // If the transaction never reads, nothing else handles a rejection of its snapshot.
    this.#snapshot.catch(() => {})
  }

  now(): number {
    return this.#storage.now()
  }

  clock(): number {
    return this.#storage.clock()
  }

  async get(scope: ByteString, tag: number, key: ByteString): Promise<Entry | undefined> {
    this.#checkOpen()
    const place = { scope, tag, key }
    checkPlace(place)
    const log = this.#ownLog(place)
    if (log !== undefined) await log.ready
    const own = log === undefined ? this.#writes.find(place) : findIn(log, place)
    return this.#read(async snapshot => {
      if (own !== undefined) return visible(own, snapshot)
      const entry = await snapshot.get(scope, tag, key)
      this.#reads?.addPoint(place, entry)
      return entry
    })
  }

  async scan(range: Range): Promise<readonly Entry[]> {
    this.#checkOpen()
    checkRange(range)
    const log = isDedupeTag(range.tag) ? undefined : this.#ownLog(range)
    if (log !== undefined) await log.ready
    const own = log === undefined ? this.#writes.inRange(range) : inRange(log, range)
    return this.#read(snapshot =>
      own.length === 0 ? this.#scanSnapshot(snapshot, range) : this.#scanMerged(snapshot, range, own),
    )
  }

  /** Calls `read` with the transaction itself, whose reads all see one state anyway. */
  async view<T>(read: (reader: Reader) => Promise<T>): Promise<T> {
    this.#checkOpen()
    return read(this)
  }

  put(scope: ByteString, tag: number, key: ByteString, value: ByteString, expiresAt = 0): void {
    this.#add([{ op: 'put', scope, tag, key, value, expiresAt }])
  }

  delete(scope: ByteString, tag: number, key: ByteString): void {
    this.#add([{ op: 'delete', scope, tag, key }])
  }

  async append(append: Omit<Append, 'op'>): Promise<Appended> {
    const { appended } = await this.write([{ ...append, op: 'append' }])
    return appended[0]
  }

  async write(operations: readonly Write[]): Promise<Written> {
    const tickets = this.#add(operations)
    // Yields to the event loop, because a caller may write very much without waiting for anything else.
    if (isSliceOver()) await nextSlice()
    return { version: 0, appended: await this.#headsKnown(tickets) }
  }

  async update<T>(
    reads: readonly Place[],
    step: WriteStep<T>,
    { ranges = [] }: UpdateOptions = {},
  ): Promise<StepOutcome<T>> {
    this.#checkWritable()
    checkBoundedRanges(ranges)
    // The step must judge expiry by the snapshot's clock, as reads do.
    const moment = await this.#snapshot
    this.#checkWritable()
    // A concurrent step of the same transaction may write during the awaits. Own deletes make a scan read further, and own
    // appends move the end of a log, so both are read again then. After the last await everything is synchronous.
    const isMoving = ranges.length > 0 || reads.some(({ tag }) => isEngineTag(tag))
    let found: readonly (Entry | undefined)[] = []
    let scanned: readonly (readonly Entry[])[] = []
    let seen: number
    do {
      seen = this.#additions
      found = await Promise.all(reads.map(({ scope, tag, key }) => this.get(scope, tag, key)))
      scanned = await Promise.all(ranges.map(range => this.scan(range)))
      this.#checkWritable()
    } while (isMoving && seen !== this.#additions)
    const time = this.now()
    const current = reads.map((place, i) => {
      const own = this.#writes.find(place)
      return own === undefined ? found[i] : visible(own, moment)
    })
    const { operations, result } = step(current, scanned)
    const appended = await this.#headsKnown(this.#add(operations))
    return { version: 0, result, time, appended }
  }

  /** Deletes an entry and returns whether it existed. P12: the lookup is not recorded as a read, so it never conflicts. */
  async remove(place: Place): Promise<boolean> {
    this.#checkWritable()
    checkPlace(place)
    const { scope, tag, key } = place
    const entry = await this.#read(snapshot => snapshot.get(scope, tag, key))
    const moment = await this.#snapshot
    this.#checkWritable()
    const own = this.#writes.find(place)
    this.#add([{ op: 'delete', ...place }])
    return (own === undefined ? entry : visible(own, moment)) !== undefined
  }

  async commit(): Promise<Committed> {
    const outcome = await this.tryCommit()
    if (outcome.status === 'conflict') throw conflictError(1, outcome)
    return outcome
  }

  /** Like `commit`, but returns a conflict instead of throwing it. */
  async tryCommit(): Promise<CommitOutcome> {
    this.#checkOpen()
    const operations = [...this.#writes.operations(), ...this.#tickets.map(ticket => ticket.operation())]
    if (operations.length === 0) {
      const answer = this.#read(async ({ version, time }) => ({ version, time }))
      this.#end('ended')
      return { status: 'committed', ...(await answer), appended: [] }
    }
    this.#end('ended')
    while (this.#gate?.closed !== undefined) await this.#gate.closed
    const outcome = await this.#storage.commit({
      points: this.#reads?.points() ?? [],
      ranges: this.#reads?.ranges() ?? [],
      operations,
    })
    if (outcome.status === 'committed') {
      invariant(
        outcome.appended.length === this.#tickets.length,
        'the storage returns one result for each append',
      )
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

  /** Rolls the transaction back on behalf of the database. Does nothing if it has ended. */
  abandon(why: 'timed out' | 'aborted'): void {
    if (this.#state === 'open') this.#end(why)
  }

  #end(state: 'ended' | 'timed out' | 'aborted'): void {
    this.#state = state
    this.#onEnd?.()
    this.#releaseIfIdle()
  }

  #checkOpen(): void {
    if (this.#isClosed()) {
      this.abandon('aborted')
      throw closedError()
    }
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
      throw new AnnalsError('INVALID_OPERATION', 'a read-only transaction cannot write')
    }
  }

  /** Holds the snapshot while `read` runs, even if the transaction ends meanwhile. */
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
    await this.#reads?.addRange(range, found)
    return found
  }

  /**
   * Scans the snapshot and merges own writes into the result. Own deletes hide entries, so it scans on in growing pages until
   * the limit is reached.
   */
  async #scanMerged(snapshot: Snapshot, range: Range, own: readonly KeyWrite[]): Promise<readonly Entry[]> {
    const { limit, reverse = false } = range
    const merged: Entry[] = []
    let next = 0
    const pushOwn = (): void => {
      const entry = visible(own[next++], snapshot)
      if (entry !== undefined) merged.push(entry)
    }
    for (let page = range; ; ) {
      const found = await this.#scanSnapshot(snapshot, page)
      for (const entry of found) {
        if (isSliceOver()) await nextSlice()
        while (next < own.length && comesBefore(own[next].key, entry.key, reverse)) pushOwn()
        if (next < own.length && own[next].key === entry.key) pushOwn()
        else merged.push(entry)
      }
      const isLast = page.limit === undefined || found.length < page.limit
      while (isLast && next < own.length) pushOwn()
      if (limit === undefined) return merged
      if (isLast || merged.length >= limit) return merged.slice(0, limit)
      page = { ...behind(page, found[found.length - 1].key), limit: page.limit! * 2 }
    }
  }

  #add(operations: readonly Write[]): readonly Ticket[] {
    this.#checkWritable()
    this.#writes.add(operations)
    this.#additions++
    const tickets: Ticket[] = []
    for (const operation of operations) {
      if (operation.op === 'append') tickets.push(this.#logFor(operation).add(operation, this.now()))
    }
    for (const ticket of tickets) this.#tickets.push(ticket)
    return tickets
  }

  /** Waits until the heads of the logs are known, so that the sequences and hashes of the appends can be computed. */
  async #headsKnown(tickets: readonly Ticket[]): Promise<readonly Ticket[]> {
    for (const { append } of tickets) await this.#logFor(append).ready
    return tickets
  }

  #logFor({ scope, tag }: TreeId): OwnLog {
    const id = storageKey(scope, tag, '')
    let log = this.#logs.get(id)
    if (log === undefined) {
      const place = { scope, tag: headTag(tag), key: HEAD_KEY }
      const head = this.#read(snapshot => snapshot.get(scope, place.tag, place.key))
      log = new OwnLog(
        { scope, tag },
        head,
        entry => {
          this.#checkOpen()
          this.#reads?.addPoint(place, entry)
        },
        key => this.#reads?.hasPoint({ scope, tag: dedupeTag(tag), key }) === true,
      )
      this.#logs.set(id, log)
    }
    return log
  }

  /** This transaction's appends to the log whose entries, head or dedupe keys the tree holds; undefined if there are none. */
  #ownLog({ scope, tag }: TreeId): OwnLog | undefined {
    const log = isLogTag(tag) ? tag : (logOfHeadTag(tag) ?? logOfDedupeTag(tag))
    return log === undefined ? undefined : this.#logs.get(storageKey(scope, log, ''))
  }
}

function findIn(log: OwnLog, { tag, key }: Place): KeyWrite | undefined {
  if (isLogTag(tag)) return log.entry(key)
  if (isDedupeTag(tag)) return log.dedupeEntry(key)
  return key === HEAD_KEY ? log.headEntry() : undefined
}

function inRange(log: OwnLog, { tag, from = '', to, reverse }: Range): readonly KeyWrite[] {
  const entries = isLogTag(tag) ? log.entries() : [log.headEntry()]
  const inside = entries.filter(({ key }) => key >= from && (to === undefined || key < to))
  return reverse === true ? inside.reverse() : inside
}

/** An own write as a read returns it; undefined if it is a delete or has expired. */
function visible(write: KeyWrite, { time, clock }: Pick<Snapshot, 'time' | 'clock'>): Entry | undefined {
  if (write.op === 'delete') return undefined
  const { key, value, expiresAt = 0 } = write
  if (expiresAt !== 0 && expiresAt <= clock) return undefined
  return { key, value, version: 0, time, expiresAt }
}

function comesBefore(a: ByteString, b: ByteString, reverse: boolean): boolean {
  return reverse ? a > b : a < b
}

/** The error of a transaction that gave up after conflicts. */
export function conflictError(attempts: number, { on }: Conflict): AnnalsError {
  const times = attempts === 1 ? 'once' : `${attempts} times`
  return new AnnalsError('CONFLICT', `other commits changed what the transaction had read, ${times}`, {
    attempts,
    on,
  })
}

/** The error of a call on a closed store. */
export function closedError(): AnnalsError {
  return new AnnalsError('CLOSED', 'the store is closed: open it again')
}

/** The error of a transaction that exceeded its time-out. */
export function timeoutError(timeoutMs?: number): AnnalsError {
  return new AnnalsError('TIMEOUT', 'the transaction took too long and was rolled back', { timeoutMs })
}
