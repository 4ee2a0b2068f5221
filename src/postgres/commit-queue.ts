import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import type { Commit, CommitOutcome } from '../engine/storage.ts'
import { tenantOf } from './address.ts'
import { CommitBatch, type GivenTimes } from './commit-batch.ts'
import type { Connection, ConnectionSettings } from './connection.ts'
import { failure, isHeldUp, isOutOfTurn, isRefusal } from './failure.ts'
import { Lane } from './lane.ts'
import { asLoneAppend, commitLone, type LoneAppend } from './lone-append.ts'
import { STATEMENTS } from './statements.ts'
import { decoded } from './wire.ts'
import { BATCH_OUTCOME } from './wire-types.ts'

/** The most calls under way. While the server works on one, the next is built and sent. */
const CALLS_MAX = 2
/** From this many commits on, they are split between the calls. In one call, client and server would wait for each other. */
const SHARED_FROM = 16

/**
 * Duplicates come in bursts. After one, this many calls look keys up first, because undoing a failed insert costs more.
 */
const CAREFUL_CALLS = 8

/** A commit and the promise of its outcome. */
export interface Pending {
  readonly commit: Commit
  readonly resolve: (outcome: CommitOutcome) => void
  readonly reject: (error: unknown) => void
}

interface Waiting extends Pending {
  /** The number of the commit. Commits are answered in this order. */
  readonly ticket: number
  /** The scopes that the commit writes. */
  readonly scopes: readonly ByteString[]
  /** True after the server has refused a batch: each of its commits is then sent alone, so that one cannot fail the others. */
  readonly isAlone: boolean
}

/** The commits of one call. */
type Taken =
  | { readonly sent: readonly Waiting[]; readonly lone: LoneAppend; readonly batch?: undefined }
  | { readonly sent: readonly Waiting[]; readonly batch: CommitBatch; readonly lone?: undefined }

/** The calls of a connection, which the server accepts only in order. */
interface Calls {
  readonly connection: Connection
  /** The number of calls that took effect. */
  done: number
  /** The number of calls that were sent and not answered yet. */
  underWay: number
}

/**
 * Group commit: all waiting commits go to the server in one call, over one
 * connection, so that they take effect in the order in which they came.
 *
 * waiting → sent → answered
 * waiting → refused (no connection within the time-out)
 * sent → waiting again (the server refused the call, and nothing took effect)
 * sent → handed over, with all waiting commits of the tenant (another session holds its lock)
 * sent → outcome unknown (the connection was lost before the answer)
 *
 * A commit with an unknown outcome is not sent again: it may have taken effect,
 * and later commits may depend on it.
 */
export class CommitQueue {
  readonly #lane: Lane
  readonly #given: () => GivenTimes
  /** Takes over commits that wait for a held lock, so that others do not wait behind them. Without it they fail with `TIMEOUT`. */
  readonly #handOver: ((held: readonly Pending[]) => void) | undefined
  readonly #queue: Waiting[] = []
  /** The first ticket of each call under way. */
  readonly #sent: number[] = []
  /** The ticket of the last commit that writes each scope, while it is under way. */
  readonly #writers = new Map<ByteString, number>()
  readonly #listeners: { readonly ticket: number; readonly resolve: () => void }[] = []
  #tickets = 0
  #calls = 0
  #callsOf: Calls | undefined
  /** True while a commit that must be alone is under way. Nothing else is sent then, so the order is safe whatever its outcome. */
  #isOneAlone = false
  /** The number of commits that were sent and not answered yet. */
  #underWay = 0
  #lastSize = 0
  /** The number of further calls that look dedupe keys up before they insert. */
  #carefulCalls = 0
  #isScheduled = false

  constructor(
    settings: ConnectionSettings,
    given: () => GivenTimes,
    handOver?: (held: readonly Pending[]) => void,
  ) {
    this.#lane = new Lane(settings)
    this.#given = given
    this.#handOver = handOver
  }

  commit(commit: Commit): Promise<CommitOutcome> {
    const ticket = ++this.#tickets
    const scopes = writtenScopes(commit)
    for (const scope of scopes) this.#writers.set(scope, ticket)
    return new Promise<CommitOutcome>((resolve, reject) => {
      this.#queue.push({ commit, ticket, scopes, isAlone: false, resolve, reject })
      this.#schedule()
    })
  }

  /** Resolves once all commits so far that write these scopes have been answered. */
  async quiet(scopes: Iterable<ByteString>): Promise<void> {
    let ticket = 0
    for (const scope of scopes) ticket = Math.max(ticket, this.#writers.get(scope) ?? 0)
    if (ticket > 0) await this.#answered(ticket)
  }

  /** Whether a commit is waiting or under way. */
  get isBusy(): boolean {
    return this.#firstOpen() <= this.#tickets
  }

  /** Resolves once all commits so far have been answered. */
  async idle(): Promise<void> {
    await this.#answered(this.#tickets)
  }

  /** Waits for all commits so far, then closes the connection. */
  async close(): Promise<void> {
    await this.idle()
    await this.#lane.close()
  }

  #answered(ticket: number): Promise<void> | undefined {
    if (this.#firstOpen() > ticket) return undefined
    return new Promise(resolve => {
      this.#listeners.push({ ticket, resolve })
    })
  }

  /** The first ticket that has no answer yet. */
  #firstOpen(): number {
    return Math.min(...this.#sent, this.#queue[0]?.ticket ?? this.#tickets + 1)
  }

  #forget(done: readonly Waiting[]): void {
    for (const { ticket, scopes } of done) {
      for (const scope of scopes) if (this.#writers.get(scope) === ticket) this.#writers.delete(scope)
    }
    const open = this.#firstOpen()
    for (let i = this.#listeners.length - 1; i >= 0; i--) {
      if (this.#listeners[i].ticket < open) this.#listeners.splice(i, 1)[0].resolve()
    }
  }

  /**
   * Sends after all callers that were answered together have run, so that their next commits share a call. A lone caller is
   * probably alone again, so its commit is sent at once.
   */
  #schedule(): void {
    if (this.#isScheduled || !this.#canSend) return
    this.#isScheduled = true
    const send = (): void => {
      this.#isScheduled = false
      void this.#sendNext()
    }
    if (this.#calls === 0 && this.#lastSize === 1) queueMicrotask(send)
    else setImmediate(send)
  }

  get #canSend(): boolean {
    return this.#queue.length > 0 && this.#calls < CALLS_MAX && !this.#isOneAlone
  }

  async #sendNext(): Promise<void> {
    if (!this.#canSend) return
    this.#calls++
    try {
      const connection = this.#lane.ready ?? (await this.#connect())
      // A commit that must be alone may have been sent while this one waited for the connection.
      if (connection === undefined || this.#isOneAlone) return
      const taken = this.#take()
      const { sent } = taken
      this.#lastSize = sent.length
      this.#isOneAlone = sent.some(({ isAlone }) => isAlone)
      this.#schedule()
      this.#underWay += sent.length
      if (sent.length > 0)
        await this.#send(connection, taken).finally(() => {
          this.#underWay -= sent.length
          if (sent[0].isAlone) this.#isOneAlone = false
        })
    } finally {
      this.#calls--
      this.#schedule()
    }
  }

  /** Undefined if there is no connection; all waiting commits have failed then. */
  async #connect(): Promise<Connection | undefined> {
    try {
      return await this.#lane.connection()
    } catch (error) {
      const refused = this.#queue.splice(0)
      for (const { reject } of refused) reject(error)
      this.#forget(refused)
      return undefined
    }
  }

  #take(): Taken {
    const lone = this.#takeLone()
    if (lone !== undefined) return lone
    const batch = new CommitBatch()
    const sent: Waiting[] = []
    const refused: Waiting[] = []
    let taken = 0
    const share = Math.ceil((this.#queue.length + this.#underWay) / CALLS_MAX)
    for (const waiting of this.#queue) {
      if (sent.length > 0 && (waiting.isAlone || sent.length >= Math.max(share, SHARED_FROM))) break
      try {
        if (!batch.add(waiting.commit)) break
        sent.push(waiting)
      } catch (error) {
        waiting.reject(error)
        refused.push(waiting)
      }
      taken++
      if (waiting.isAlone) break
    }
    this.#queue.splice(0, taken)
    if (refused.length > 0) this.#forget(refused)
    return { batch, sent }
  }

  #takeLone(): Taken | undefined {
    if (this.#queue.length !== 1) return undefined
    const lone = asLoneAppend(this.#queue[0].commit)
    return lone && { lone, sent: this.#queue.splice(0) }
  }

  async #call(connection: Connection, taken: Taken): Promise<readonly CommitOutcome[]> {
    if (this.#callsOf?.connection !== connection) this.#callsOf = { connection, done: 0, underWay: 0 }
    const calls = this.#callsOf
    const turn = calls.done + calls.underWay++
    try {
      const outcomes = await this.#callInTurn(connection, taken, turn)
      calls.done++
      return outcomes
    } finally {
      calls.underWay--
    }
  }

  async #callInTurn(
    connection: Connection,
    { batch, lone }: Taken,
    turn: number,
  ): Promise<readonly CommitOutcome[]> {
    if (lone !== undefined) return [await commitLone(connection, lone, this.#given(), turn)]
    const areNew = this.#carefulCalls === 0
    if (!areNew) this.#carefulCalls--
    const parameters = batch.parameters(this.#given(), areNew, turn)
    const [row] = await connection.run(STATEMENTS.commitBatch, parameters)
    const outcome = decoded(BATCH_OUTCOME, row['outcome'] as ByteString)
    if (outcome.appended?.some(({ isDuplicate }) => isDuplicate)) this.#carefulCalls = CAREFUL_CALLS
    return batch.outcomes(outcome)
  }

  async #send(connection: Connection, taken: Taken): Promise<void> {
    const { sent } = taken
    this.#sent.push(sent[0].ticket)
    try {
      const outcomes = await this.#call(connection, taken)
      sent.forEach(({ resolve }, tx) => {
        resolve(outcomes[tx])
      })
    } catch (error) {
      if (!isRefusal(error)) {
        connection.destroy()
        for (const { reject } of sent) reject(unknownOutcome(error))
      } else if (isOutOfTurn(error)) return this.#sendAgain(sent)
      else if (sent.length > 1) return this.#sendAgain(sent.map(waiting => ({ ...waiting, isAlone: true })))
      else if (!isHeldUp(error) || this.#handOver === undefined) sent[0].reject(failure(error))
      else if (sent[0].isAlone) this.#giveAway(sent[0], this.#handOver)
      else return this.#sendAgain([{ ...sent[0], isAlone: true }])
    }
    this.#sent.splice(this.#sent.indexOf(sent[0].ticket), 1)
    this.#forget(sent)
  }

  /** Puts the commits of a refused call back into the queue, before later commits. */
  #sendAgain(refused: readonly Waiting[]): void {
    this.#sent.splice(this.#sent.indexOf(refused[0].ticket), 1)
    this.#queue.push(...refused)
    this.#queue.sort((one, other) => one.ticket - other.ticket)
  }

  /** Hands a commit over whose lock is held, with the waiting commits of the same tenant, which would wait as well. */
  #giveAway(held: Waiting, handOver: (held: readonly Pending[]) => void): void {
    const tenant = tenantOfCommit(held.commit)
    const more = this.#queue.filter(({ commit }) => tenantOfCommit(commit) === tenant)
    const others = this.#queue.filter(({ commit }) => tenantOfCommit(commit) !== tenant)
    this.#queue.splice(0, this.#queue.length, ...others)
    handOver([held, ...more])
    this.#forget(more)
  }
}

/** The tenant of a commit. All parts of a commit have the same tenant, except for direct callers of the port. */
export function tenantOfCommit({ points = [], ranges = [], operations }: Commit): ByteString {
  return tenantOf((operations[0] ?? points[0] ?? ranges[0])?.scope ?? '')
}

/** The scopes that a commit writes, those of feeds included. */
export function writtenScopes({ operations }: Commit): readonly ByteString[] {
  if (operations.length === 1) {
    const [operation] = operations
    const feed = operation.op === 'append' ? operation.feed : undefined
    return feed === undefined ? [operation.scope] : [operation.scope, feed]
  }
  const scopes = new Set<ByteString>()
  for (const operation of operations) {
    scopes.add(operation.scope)
    if (operation.op === 'append' && operation.feed !== undefined) scopes.add(operation.feed)
  }
  return [...scopes]
}

/** The error of a commit that may have taken effect. */
export function unknownOutcome(cause: unknown): AnnalsError {
  const message =
    'the connection to PostgreSQL was lost before the answer: the commit may have taken effect or not'
  return new AnnalsError('OUTCOME_UNKNOWN', message, {}, cause)
}
