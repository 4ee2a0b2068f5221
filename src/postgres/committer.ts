import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import type { Commit, CommitOutcome } from '../engine/storage.ts'
import { Batch, type GivenTimes, tenantOf } from './batch.ts'
import { batchAnswer, outcomesOf } from './batch-answer.ts'
import type { Connection, ConnectionSettings } from './connection.ts'
import { failure, isHeldUp, isOutOfTurn, isRefusal } from './failure.ts'
import { Lane } from './lane.ts'
import { asLoneAppend, commitLone, type LoneAppend } from './lone-append.ts'
import { STATEMENTS } from './statements.ts'

/** Calls under way: while the server works on one, the next is made and sent. */
const CALLS_MAX = 2
/** Many are shared out among the calls: were all in one, client and server would wait for each other in turns. */
const SHARED_FROM = 16

/**
 * Duplicates come in bursts. After one, this many calls look keys up first, because undoing a failed insert costs more.
 */
const CAREFUL_CALLS = 8

/** A commit, and where its outcome goes. */
export interface Pending {
  readonly commit: Commit
  readonly resolve: (outcome: CommitOutcome) => void
  readonly reject: (error: unknown) => void
}

interface Waiting extends Pending {
  /** Counts up: answers come in this order. */
  readonly ticket: number
  /** The scopes that the commit writes. */
  readonly scopes: readonly ByteString[]
  /** Alone after a call that the server refused: the others in it must not suffer for one. */
  readonly isAlone: boolean
}

/** What goes to the server in one call. */
type Taken =
  | { readonly sent: readonly Waiting[]; readonly lone: LoneAppend; readonly batch?: undefined }
  | { readonly sent: readonly Waiting[]; readonly batch: Batch; readonly lone?: undefined }

/** The calls of a connection: the server takes them in this order, or not at all. */
interface Calls {
  readonly connection: Connection
  /** How many took effect. */
  done: number
  /** How many were sent and not answered yet. */
  underWay: number
}

/**
 * Group commit: what is waiting goes to the server in one call, over one
 * connection, so that commits take effect in the order in which they came.
 *
 * waiting → sent → answered, or
 * waiting → refused (the server can't be reached in time), or
 * sent → handed over, with all that waits of the same tenant (somebody else holds a lock of it), or
 * sent → outcome unknown (the connection was lost before the answer). Such a
 * commit is not sent again: it may be in, and others may have built on it.
 */
export class Committer {
  readonly #lane: Lane
  readonly #given: () => GivenTimes
  /** Takes commits that are held up, so that others don't wait behind them. Without it they are refused with `TIMEOUT`. */
  readonly #handOver: ((held: readonly Pending[]) => void) | undefined
  readonly #queue: Waiting[] = []
  /** Sent and not answered yet; the first ticket of each call. */
  readonly #sent: number[] = []
  /** The last commit under way that writes a scope. */
  readonly #writers = new Map<ByteString, number>()
  readonly #listeners: { readonly ticket: number; readonly resolve: () => void }[] = []
  #tickets = 0
  #calls = 0
  #callsOf: Calls | undefined
  /** While a commit is sent alone, nothing else is: whatever comes of it, all others are waiting then. */
  #isOneAlone = false
  /** How many commits were sent and not answered yet. */
  #underWay = 0
  #lastSize = 0
  /** How many more calls look keys up before they insert. */
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

  /** Resolves once everything that was to be written to these scopes so far is through. */
  async quiet(scopes: Iterable<ByteString>): Promise<void> {
    let ticket = 0
    for (const scope of scopes) ticket = Math.max(ticket, this.#writers.get(scope) ?? 0)
    if (ticket > 0) await this.#answered(ticket)
  }

  /** Whether something is under way. */
  get isBusy(): boolean {
    return this.#firstOpen() <= this.#tickets
  }

  /** Resolves once all that is under way now is through, and those who asked for it were told. */
  async idle(): Promise<void> {
    await this.#answered(this.#tickets)
  }

  /** Waits for what is under way. */
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
      // While it was waited for, a commit may have been sent alone.
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

  /** Undefined if there is none to be had: all who wait have been told. */
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
    const batch = new Batch()
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
    const [row] = await connection.run(STATEMENTS.commit, batch.parameters(this.#given(), areNew, turn))
    const answer = batchAnswer(row)
    if (answer.appended.some(({ duplicate }) => duplicate)) this.#carefulCalls = CAREFUL_CALLS
    return outcomesOf(batch, answer)
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

  /** Nothing of it is in. It goes before what came later. */
  #sendAgain(refused: readonly Waiting[]): void {
    this.#sent.splice(this.#sent.indexOf(refused[0].ticket), 1)
    this.#queue.push(...refused)
    this.#queue.sort((one, other) => one.ticket - other.ticket)
  }

  /** What waits of the same tenant would be held up as well. */
  #giveAway(held: Waiting, handOver: (held: readonly Pending[]) => void): void {
    const tenant = tenantOfCommit(held.commit)
    const more = this.#queue.filter(({ commit }) => tenantOfCommit(commit) === tenant)
    const others = this.#queue.filter(({ commit }) => tenantOfCommit(commit) !== tenant)
    this.#queue.splice(0, this.#queue.length, ...others)
    handOver([held, ...more])
    this.#forget(more)
  }
}

/** All of a commit is of one tenant, but for callers of the port itself. */
export function tenantOfCommit({ points = [], ranges = [], operations }: Commit): ByteString {
  return tenantOf((operations[0] ?? points[0] ?? ranges[0])?.scope ?? '')
}

function writtenScopes({ operations }: Commit): readonly ByteString[] {
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

function unknownOutcome(cause: unknown): AnnalsError {
  const message = 'the connection to PostgreSQL was lost before it answered: the commit may be in or not'
  return new AnnalsError('OUTCOME_UNKNOWN', message, {}, cause)
}
