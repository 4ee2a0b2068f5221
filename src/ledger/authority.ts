import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { isLong, mapInSlices } from '../core/slices.ts'
import { parseDedupe } from '../engine/log.ts'
import type { Write } from '../engine/session.ts'
import type { Appended, Entry, Place, Updated } from '../engine/storage.ts'
import { type Answer, AppendRequest } from './append-request.ts'
import type { LedgerContext } from './context.ts'
import type { Envelope } from './envelope.ts'
import { timeText } from './facts.ts'
import { catchUpGuard } from './guard.ts'
import { checkHeading } from './judged-run.ts'
import { checkFence } from './lease.ts'
import { offered } from './offered.ts'
import type { Projector } from './projector.ts'
import { type Repeat, Repeats } from './repeats.ts'
import type { AppendResult } from './run-events.ts'
import {
  appendOf,
  dedupePlace,
  HEADING_KEY,
  headingIn,
  LEASE_KEY,
  LOG,
  leaseIn,
  placeOf,
  saysOther,
} from './stored.ts'

type LongWay = 'the long way'
/** What became of one event: it was appended in this scope, or known there. */
type One = { readonly scope: ByteString; readonly known?: Entry } | LongWay
const GO_THE_LONG_WAY = { operations: [], result: 'the long way' } as const
const NO_WRITES: readonly Write[] = []

/** Where what every append of a run looks at is. */
interface RunPlaces {
  readonly scope: ByteString
  readonly heading: Place
  readonly lease: Place
}

const BEGUN_MAX = 10_000

/**
 * The Append Authority. An append is one step over what it has to look at: the
 * run's heading and lease, and whether the key is known. So it never conflicts,
 * and what it answers is what the log says. Where transitions are validated
 * (Layer 2), it also looks at the run's state, and brings that along.
 */
export class Authority {
  readonly repeats: Repeats = new Repeats()
  readonly #context: LedgerContext
  readonly #projector: Projector
  /**
   * Runs that are known to have begun: to put their places together takes longer than to look there. A run has a heading
   * only in the scope where it lives, so an append that finds the heading there need not ask the index of runs.
   */
  readonly #begun = new Map<string, RunPlaces>()

  constructor(context: LedgerContext, projector: Projector) {
    this.#context = context
    this.#projector = projector
  }

  /** One event of a run that is known to have begun: as nearly all are. Others have to go the long way. */
  appendOne(envelope: Envelope, epoch: number | undefined): Promise<Updated<One>> | undefined {
    const { database, shared, validateTransitions } = this.#context
    const { runId } = envelope
    const places = this.#begun.get(runId)
    if (places === undefined || validateTransitions) return undefined
    const { scope } = places
    const clock = database.clock()
    const reads = [places.heading, places.lease, dedupePlace(scope, envelope)]
    return database.update<One>(reads, ([first, lease, known]) => {
      const heading = headingIn(first)
      if (heading === undefined) return GO_THE_LONG_WAY
      checkHeading(heading, envelope)
      checkFence(runId, leaseIn(lease), epoch, clock, known !== undefined)
      if (known !== undefined) return { operations: NO_WRITES, result: { scope, known } }
      return { operations: [appendOf(scope, shared, envelope)], result: places }
    })
  }

  /** At once for what was appended, as nearly all is. */
  answerOne(
    { result, appended, version }: Updated<One>,
    envelope: Envelope,
    epoch: number | undefined,
  ): AppendResult | Promise<AppendResult> {
    if (result !== 'the long way') {
      const { scope, known } = result
      if (known === undefined) return this.#answer(scope, appended[0], envelope, false, version)
      return this.#answerKnown(scope, known, envelope)
    }
    // The run was deleted since it was known to have begun.
    this.#begun.delete(envelope.runId)
    return this.append([envelope], epoch).then(([answer]) => answer)
  }

  /** What the log knows now of an event that was answered before. */
  askAgain({ scope, tag, key }: Repeat): Promise<Entry | undefined> {
    return this.#context.database.get(scope, tag, key)
  }

  /** The same answer, if the log knows the event still: nothing else has to be looked at. */
  answerAgain(repeat: Repeat, entry: Entry | undefined): AppendResult | undefined {
    if (entry?.version === repeat.version) {
      this.#count(repeat.isDivergent)
      return repeat.answer
    }
    this.repeats.forget(repeat)
    return undefined
  }

  async #answerKnown(scope: ByteString, entry: Entry, envelope: Envelope): Promise<AppendResult> {
    const known = parseDedupe(entry)
    const isDivergent = await this.#isDivergent(scope, known, envelope)
    const answer = this.#answer(scope, known, envelope, true, 0)
    this.repeats.note(scope, envelope, entry, answer, isDivergent)
    this.#count(isDivergent)
    return answer
  }

  /** LD11: the same key, but another payload or event id. */
  async #isDivergent(
    scope: ByteString,
    { sequence, memo, hash }: Appended,
    envelope: Envelope,
  ): Promise<boolean> {
    if (memo !== envelope.eventId) return true
    // It is only counted: a record that can't be read, because the store was closed or is damaged, keeps nobody waiting.
    const record = await this.#context.database.get(scope, LOG, u64(sequence)).catch(() => undefined)
    return record !== undefined && saysOther(record, hash, envelope)
  }

  #count(isDivergent: boolean): void {
    const { metrics } = this.#context
    metrics.duplicates++
    if (isDivergent) metrics.divergentDuplicates++
  }

  #hasBegun(runId: string, scope: ByteString): void {
    if (this.#begun.get(runId)?.scope === scope) return
    if (this.#begun.size === BEGUN_MAX) this.#begun.clear()
    this.#begun.set(runId, {
      scope,
      heading: placeOf(scope, HEADING_KEY),
      lease: placeOf(scope, LEASE_KEY),
    })
  }

  /** All or none. */
  async append(envelopes: readonly Envelope[], epoch: number | undefined): Promise<readonly AppendResult[]> {
    const { database, metrics } = this.#context
    const request = new AppendRequest(this.#context, envelopes, epoch, runId => this.#begun.get(runId)?.scope)
    for (;;) {
      if (isLong(envelopes, ({ bytes }) => bytes.length)) await request.prepare()
      const { result, appended, version } = await database.update(
        request.reads,
        found => request.judge(found),
        { appends: true },
      )
      // It was deleted since it was known to have begun.
      if (result.kind === 'begins') request.lookAtIndex()
      else if (result.kind === 'elsewhere') request.lookIn(result.homes)
      else if (result.kind === 'behind') await catchUpGuard(this.#context, result.scope)
      else if (result.kind === 'rejected') {
        metrics.rejected++
        throw rejection(result.details)
      } else {
        const foundOf = ({ source }: Answer): Appended =>
          typeof source === 'number' ? appended[source] : source
        const answerOf = (answer: Answer): AppendResult =>
          this.#answer(answer.scope, foundOf(answer), answer.envelope, answer.isDuplicate, version)
        const answers = await mapInSlices(result.answers, answerOf)
        const known = result.answers.filter(({ isDuplicate }) => isDuplicate)
        // In a list each, so that all are asked for before the first is awaited.
        const isDivergent = (answer: Answer): readonly [Promise<boolean>] => [
          this.#isDivergent(answer.scope, foundOf(answer), answer.envelope),
        ]
        const asked = await mapInSlices(known, isDivergent)
        for (const each of await Promise.all(asked.flat())) this.#count(each)
        return answers
      }
    }
  }

  #answer(
    scope: ByteString,
    { sequence, time, memo }: Appended,
    envelope: Envelope,
    isDuplicate: boolean,
    version: number,
  ): AppendResult {
    const { metrics } = this.#context
    this.#hasBegun(envelope.runId, scope)
    const runSeq = sequence + 1
    const persistedAt = timeText(time)
    if (!isDuplicate) {
      metrics.appended++
      this.#projector.offer(offered(scope, envelope, runSeq, time, version))
    }
    return Object.freeze({
      eventId: memo,
      runSeq,
      persistedAt,
      idempotent: isDuplicate,
      persisted: !isDuplicate,
    })
  }
}

function rejection(details: ErrorDetails): AnnalsError {
  const { eventType, attemptedState, reason } = details
  const message = `${eventType} can't lead to ${attemptedState}: ${reason}`
  return new AnnalsError('INVALID_TRANSITION', message, details)
}
