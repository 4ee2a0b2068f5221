import { type ByteString, toBuffer } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import type { CommitOutcome, Committed, Entry, Operation } from '../engine/storage.ts'
import { CommitBatch, type GivenTimes } from './commit-batch.ts'
import { unknownOutcome, writtenScopes } from './commit-queue.ts'
import type { Connection } from './connection.ts'
import { failure, isHeldUp, isIdleTooLong, isRefusal } from './failure.ts'
import { type DeclaredReads, type HeldReads, RoundReads } from './held-reads.ts'
import { STATEMENTS } from './statements.ts'
import { decoded } from './wire.ts'
import { BATCH_OUTCOME } from './wire-types.ts'

/** The most updates of a round. Other processes wait while their steps run. */
const UPDATES_MAX = 256
/** The steps of a round run no longer than this, except the first. The others wait for the next round. */
const STEPS_MS = 50
/** The server ends the session of a round that does not go on, because its process is stopped or busy. */
const IDLE_MS = 5_000
/** How often an update is sent if the connection is lost each time before anything was written. */
const ATTEMPTS_MAX = 3

/** An update that waits for a round, or is in one. */
export interface WaitingUpdate extends DeclaredReads {
  /** The scopes to lock. They grow if the step writes to others. */
  readonly scopes: Set<ByteString>
  /** An update that waits for a lock is sent again until this time. */
  readonly endAt: number
  attempts: number
  /** Whether the update must have a round of its own. */
  isAlone: boolean
  /** Runs the step, and returns its operations. */
  run(found: readonly (Entry | undefined)[], ranges: readonly (readonly Entry[])[]): readonly Operation[]
  /** Answers with the result of the last run. */
  resolve(committed: Committed): void
  reject(error: unknown): void
}

/** What the rounds need from the store. */
export interface RoundContext {
  readonly given: () => GivenTimes
  /** Resolves once the commits of this process to these scopes have been answered. */
  readonly quiet: (scopes: readonly ByteString[]) => Promise<void>
  readonly noteEntry: (entry: Entry | undefined) => void
  readonly noteCommit: (operations: readonly Operation[], committed: Committed) => void
  /** The outcome of a step that writes nothing. */
  readonly unchanged: () => Committed
}

/** A step that has run. */
interface Ran {
  readonly update: WaitingUpdate
  readonly operations: readonly Operation[]
  readonly thrown?: { readonly error: unknown }
}

/**
 * A transaction for several updates. Its first call locks the scopes and reads.
 * Then the steps run one after the other, each on the writes of those before it,
 * and the second call writes.
 *
 * A step that appends, drops a scope or writes to a scope that is not locked ends the
 * round before it, and gets a round of its own. There `commit_batch` writes, which
 * takes a version of its own: no later step of the round has seen another.
 */
export class UpdateRound {
  readonly #context: RoundContext
  readonly #updates: readonly WaitingUpdate[]
  readonly #reads: RoundReads
  readonly #batch = new CommitBatch()
  readonly #ran: Ran[] = []
  #isGeneral = false
  /** How many entries the ranges of the next round should return at most. */
  entriesMaxNext: number

  /** Takes the first updates of the queue, whose ranges return `entriesMax` entries together, but at least one update. */
  constructor(queue: WaitingUpdate[], entriesMax: number, context: RoundContext) {
    this.#context = context
    this.#reads = new RoundReads(entriesMax)
    this.entriesMaxNext = entriesMax
    let taken = 0
    for (const update of queue) {
      if (taken > 0 && (update.isAlone || taken === UPDATES_MAX)) break
      if (!this.#reads.add(update)) break
      taken++
      if (update.isAlone) break
    }
    this.#updates = queue.splice(0, taken)
  }

  /** Rejects all updates of the round. */
  fail(error: unknown): void {
    for (const { reject } of this.#updates) reject(error)
  }

  /** Answers the updates. Returns those that have to wait for another round, in their order. */
  async run(connection: Connection): Promise<readonly WaitingUpdate[]> {
    await this.#context.quiet([...this.#reads.scopes])
    const [begun, read] = await connection.together(() =>
      Promise.allSettled([
        connection.execute('BEGIN'),
        this.#reads.holdAndRead(connection, this.#context.given(), IDLE_MS),
      ]),
    )
    if (begun.status === 'rejected') return this.#lost(connection, this.#updates, begun.reason)
    if (read.status === 'rejected') {
      if (!isRefusal(read.reason)) return this.#lost(connection, this.#updates, read.reason)
      await release(connection)
      return this.#refused(this.#updates, read.reason)
    }
    this.entriesMaxNext = read.value.entriesMaxNext
    const rest = this.#updates.slice(this.#runSteps(read.value))
    if (this.#batch.size === 0) {
      await release(connection)
      this.#answer()
      return rest
    }
    return [...(await this.#commit(connection, read.value)), ...rest]
  }

  /** Runs the steps. Returns how many updates the round can answer. */
  #runSteps(held: HeldReads): number {
    const end = performance.now() + STEPS_MS
    for (const [i, update] of this.#updates.entries()) {
      if (this.#isGeneral || (i > 0 && performance.now() > end)) return i
      const scanned = held.scannedAll(update.ranges)
      if (scanned === undefined) return i
      const found = update.places.map(place => held.found(place))
      for (const entry of found) this.#context.noteEntry(entry)
      for (const entries of scanned) for (const entry of entries) this.#context.noteEntry(entry)
      try {
        const operations = update.run(found, scanned)
        if (!this.#add(update, operations)) return i
        if (!this.#isGeneral && operations.length > 0) held.write(operations, this.#batch.size - 1)
        this.#ran.push({ update, operations })
      } catch (error) {
        this.#ran.push({ update, operations: [], thrown: { error } })
      }
    }
    return this.#updates.length
  }

  /** Adds the operations of a step to the commit. Returns false if the step has to wait for another round. */
  #add(update: WaitingUpdate, operations: readonly Operation[]): boolean {
    if (operations.length === 0) return true
    const scopes = writtenScopes({ operations })
    const isLocked = scopes.every(scope => this.#reads.scopes.has(scope))
    const isPlain = isLocked && operations.every(({ op }) => op === 'put' || op === 'delete')
    if (isPlain) return this.#batch.add({ operations })
    update.isAlone = true
    for (const scope of scopes) update.scopes.add(scope)
    if (!isLocked || this.#ran.length > 0) return false
    this.#isGeneral = true
    return this.#batch.add({ operations })
  }

  async #commit(connection: Connection, held: HeldReads): Promise<readonly WaitingUpdate[]> {
    const updates = this.#ran.map(({ update }) => update)
    // Nothing has been written yet.
    if (!connection.isOpen) return this.#lost(connection, updates, new Error('the connection was lost'))
    const { token, version, time } = held.times
    const [statement, parameters] = this.#isGeneral
      ? [STATEMENTS.commitBatch, this.#batch.parameters(this.#context.given(), true)]
      : [STATEMENTS.commitHeld, [toBuffer(token), version, time, ...this.#batch.heldParameters()]]
    const [written, ended] = await connection.together(() =>
      Promise.allSettled([connection.run(statement, parameters), connection.execute('COMMIT')]),
    )
    if (written.status === 'fulfilled' && ended.status === 'fulfilled') {
      const outcome = this.#isGeneral
        ? decoded(BATCH_OUTCOME, written.value[0]['outcome'] as ByteString)
        : { version, committedAt: time, conflicts: undefined, appended: undefined }
      this.#answer(this.#batch.outcomes(outcome).map(committedOf))
      return []
    }
    const error = written.status === 'rejected' ? written.reason : (ended as PromiseRejectedResult).reason
    if (isRefusal(error)) return this.#refused(updates, error)
    if (isIdleTooLong(error)) return this.#lost(connection, updates, error)
    connection.destroy()
    for (const { update, operations } of this.#ran) {
      if (operations.length > 0) update.reject(unknownOutcome(error))
    }
    // The others have written nothing, but they may have seen the writes.
    return this.#ran.filter(({ operations }) => operations.length === 0).map(({ update }) => update)
  }

  /** Answers the steps that have run. `outcomes` are those of the steps that write. */
  #answer(outcomes: readonly Committed[] = []): void {
    let next = 0
    for (const { update, operations, thrown } of this.#ran) {
      if (thrown !== undefined) update.reject(thrown.error)
      else if (operations.length === 0) update.resolve(this.#context.unchanged())
      else {
        this.#context.noteCommit(operations, outcomes[next])
        update.resolve(outcomes[next++])
      }
    }
  }

  /** The connection was lost, and nothing was written. Returns the updates to send again. */
  #lost(connection: Connection, updates: readonly WaitingUpdate[], error: unknown): readonly WaitingUpdate[] {
    connection.destroy()
    return updates.filter(update => {
      const isAgain = ++update.attempts < ATTEMPTS_MAX
      if (!isAgain) update.reject(failure(error))
      return isAgain
    })
  }

  /** The server has refused the round. Its updates are sent again one by one, so that one cannot fail the others. */
  #refused(updates: readonly WaitingUpdate[], error: unknown): readonly WaitingUpdate[] {
    const mayWait = isHeldUp(error)
    return updates.filter(update => {
      const isAgain = mayWait ? performance.now() < update.endAt : updates.length > 1
      if (!isAgain) update.reject(failure(error))
      if (!mayWait) update.isAlone = true
      return isAgain
    })
  }
}

function committedOf(outcome: CommitOutcome): Committed {
  invariant(outcome.status === 'committed', 'a commit without reads never conflicts')
  return outcome
}

/** Ends a transaction that has written nothing, which releases its locks. */
async function release(connection: Connection): Promise<void> {
  await connection.execute('ROLLBACK').catch(() => connection.destroy())
}
