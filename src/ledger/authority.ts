import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { decodeJson } from '../core/value.ts'
import type { Database } from '../engine/database.ts'
import { parseDedupe, parseHead } from '../engine/log.ts'
import type { Write } from '../engine/session.ts'
import type { Appended, Entry, Place, Updated } from '../engine/storage.ts'
import type { Run } from '../primitives/run.ts'
import { runOperations, runPlace } from '../primitives/run-records.ts'
import type { Envelope } from './envelope.ts'
import { timeText } from './facts.ts'
import { catchUpGuard } from './guard.ts'
import { checkFence } from './lease.ts'
import type { LedgerMetrics } from './metrics.ts'
import { offered } from './offered.ts'
import type { Projector } from './projector.ts'
import { Reducer, type RunState, type StepState } from './reduce.ts'
import { type Repeat, Repeats } from './repeats.ts'
import type { AppendResult } from './run-events.ts'
import {
  appendOf,
  dedupePlace,
  GUARD_KEY,
  guardedStepIn,
  guardedStepPlace,
  HEADING_KEY,
  headingIn,
  headPlace,
  LEASE_KEY,
  LOG,
  leaseIn,
  placeOf,
  putGuardedStep,
  putJson,
  putNoLease,
  putRunState,
  rejectionPlace,
  runStateIn,
  type StoredHeading,
  saysOther,
} from './stored.ts'

/** What the parts of a ledger share. */
export interface LedgerContext {
  readonly database: Database
  readonly tenant: string
  /** What the tenant's runs share: the index of runs, and the feed. */
  readonly shared: ByteString
  scopeOf(runId: string): ByteString
  readonly metrics: LedgerMetrics
  readonly validateTransitions: boolean
}

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
  /** Runs that are known to have begun: to put their places together takes longer than to look there. */
  readonly #begun = new Map<string, RunPlaces>()

  constructor(context: LedgerContext, projector: Projector) {
    this.#context = context
    this.#projector = projector
  }

  /** One event of a run that is known to have begun: as nearly all are. Others have to go the long way. */
  appendOne(
    envelope: Envelope,
    epoch: number | undefined,
  ): Promise<Updated<Entry | undefined | LongWay>> | undefined {
    const { database, shared, validateTransitions } = this.#context
    const { runId } = envelope
    const places = this.#begun.get(runId)
    if (places === undefined || validateTransitions) return undefined
    const { scope } = places
    const now = database.now()
    const reads = [places.heading, places.lease, dedupePlace(scope, envelope)]
    return database.update<Entry | undefined | LongWay>(reads, ([first, lease, known]) => {
      const heading = headingIn(first)
      if (heading === undefined) return GO_THE_LONG_WAY
      checkHeading(heading, envelope)
      if (known !== undefined) return { operations: NO_WRITES, result: known }
      checkFence(runId, leaseIn(lease), epoch, now)
      return { operations: [appendOf(scope, shared, envelope)], result: undefined }
    })
  }

  /** At once for what was appended, as nearly all is. */
  answerOne(
    { result, appended, version }: Updated<Entry | undefined | LongWay>,
    envelope: Envelope,
    epoch: number | undefined,
  ): AppendResult | Promise<AppendResult> {
    if (result === undefined) return this.#answer(appended[0], envelope, false, version)
    if (result !== 'the long way') return this.#answerKnown(result, envelope)
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

  async #answerKnown(entry: Entry, envelope: Envelope): Promise<AppendResult> {
    const known = parseDedupe(entry)
    const isDivergent = await this.#isDivergent(known, envelope)
    const answer = this.#answer(known, envelope, true, 0)
    this.repeats.note(this.#hasBegun(envelope.runId).scope, envelope, entry, answer, isDivergent)
    this.#count(isDivergent)
    return answer
  }

  /** LD11: the same key, but another payload or event id. */
  async #isDivergent({ sequence, memo, hash }: Appended, envelope: Envelope): Promise<boolean> {
    if (memo !== envelope.eventId) return true
    const { scope } = this.#hasBegun(envelope.runId)
    // It is only counted: a record that can't be read, because the store was closed or is damaged, keeps nobody waiting.
    const record = await this.#context.database.get(scope, LOG, u64(sequence)).catch(() => undefined)
    return record !== undefined && saysOther(record, hash, envelope)
  }

  #count(isDivergent: boolean): void {
    const { metrics } = this.#context
    metrics.duplicates++
    if (isDivergent) metrics.divergentDuplicates++
  }

  #hasBegun(runId: string): RunPlaces {
    const known = this.#begun.get(runId)
    if (known !== undefined) return known
    const scope = this.#context.scopeOf(runId)
    const places = { scope, heading: placeOf(scope, HEADING_KEY), lease: placeOf(scope, LEASE_KEY) }
    if (this.#begun.size === BEGUN_MAX) this.#begun.clear()
    this.#begun.set(runId, places)
    return places
  }

  /** All or none. */
  async append(envelopes: readonly Envelope[], epoch: number | undefined): Promise<readonly AppendResult[]> {
    const { database, metrics } = this.#context
    const mayBegin = envelopes.some(({ runId }) => !this.#begun.has(runId))
    const request = new Request(this.#context, envelopes, epoch, mayBegin)
    for (;;) {
      const { result, appended, version } = await database.update(request.reads, found =>
        request.judge(found),
      )
      // It was deleted since it was known to have begun.
      if (result.kind === 'begins') request.lookAtIndex()
      else if (result.kind === 'behind') await catchUpGuard(this.#context, result.runId)
      else if (result.kind === 'rejected') {
        metrics.rejected++
        throw rejection(result.details)
      } else {
        const foundOf = ({ source }: Answer): Appended =>
          typeof source === 'number' ? appended[source] : source
        const answers = result.answers.map(answer =>
          this.#answer(foundOf(answer), answer.envelope, answer.isDuplicate, version),
        )
        const known = result.answers.filter(({ isDuplicate }) => isDuplicate)
        for (const isDivergent of await Promise.all(
          known.map(answer => this.#isDivergent(foundOf(answer), answer.envelope)),
        ))
          this.#count(isDivergent)
        return answers
      }
    }
  }

  #answer(
    { sequence, time, memo }: Appended,
    envelope: Envelope,
    isDuplicate: boolean,
    version: number,
  ): AppendResult {
    const { metrics } = this.#context
    const { scope } = this.#hasBegun(envelope.runId)
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

type LongWay = 'the long way'
const GO_THE_LONG_WAY = { operations: [], result: 'the long way' } as const
const NO_WRITES: readonly Write[] = []

/** Where what every append of a run looks at is. */
interface RunPlaces {
  readonly scope: ByteString
  readonly heading: Place
  readonly lease: Place
}

const BEGUN_MAX = 10_000

interface Answer {
  /** What was there already, or which of the appends it is. */
  readonly source: Appended | number
  readonly envelope: Envelope
  readonly isDuplicate: boolean
}

type Judgement =
  | { readonly kind: 'done'; readonly answers: readonly Answer[] }
  /** A run begins, and nobody has looked whether the index knows it. */
  | { readonly kind: 'begins' }
  /** The state is older than the log: transitions were not validated before. */
  | { readonly kind: 'behind'; readonly runId: string }
  | { readonly kind: 'rejected'; readonly details: ErrorDetails }

/** Several events for one commit, and what has to be read to judge them. */
class Request {
  reads: Place[] = []
  readonly #context: LedgerContext
  readonly #envelopes: readonly Envelope[]
  readonly #epoch: number | undefined
  readonly #now: number
  readonly #runs = new Map<string, ByteString>()
  #withIndex: boolean

  /** `mayBegin`: one of the runs may be new, so that the index has to be looked at. */
  constructor(
    context: LedgerContext,
    envelopes: readonly Envelope[],
    epoch: number | undefined,
    mayBegin: boolean,
  ) {
    this.#withIndex = mayBegin
    this.#context = context
    this.#envelopes = envelopes
    this.#epoch = epoch
    this.#now = context.database.now()
    for (const { runId } of envelopes) {
      if (!this.#runs.has(runId)) this.#runs.set(runId, context.scopeOf(runId))
    }
    this.#declare()
  }

  lookAtIndex(): void {
    this.#withIndex = true
    this.#declare()
  }

  /** In the order in which `judge` takes them. */
  #declare(): void {
    const { validateTransitions, shared } = this.#context
    this.reads = []
    for (const [runId, scope] of this.#runs) {
      this.reads.push(placeOf(scope, HEADING_KEY), placeOf(scope, LEASE_KEY))
      if (this.#withIndex) this.reads.push(runPlace(shared, runId))
      if (validateTransitions) this.reads.push(headPlace(scope), placeOf(scope, GUARD_KEY))
    }
    for (const envelope of this.#envelopes) {
      const { runId, idempotencyKey, stepId } = envelope
      const scope = this.#runs.get(runId) as ByteString
      this.reads.push(dedupePlace(scope, envelope))
      if (!validateTransitions) continue
      this.reads.push(rejectionPlace(scope, idempotencyKey))
      if (stepId !== undefined) this.reads.push(guardedStepPlace(scope, stepId))
    }
  }

  /** Pure: what it answers follows from what was found. */
  judge(found: readonly (Entry | undefined)[]): { operations: Write[]; result: Judgement } {
    const { validateTransitions, shared } = this.#context
    let at = 0
    const next = (): Entry | undefined => found[at++]
    const runs = new Map<string, JudgedRun>()
    for (const [runId, scope] of this.#runs) {
      const run = new JudgedRun(scope, headingIn(next()), leaseIn(next()), this.#epoch, this.#now)
      if (this.#withIndex) run.isIndexed = next() !== undefined
      if (validateTransitions) run.validate(runId, parseHead(next()).length, runStateIn(next()))
      runs.set(runId, run)
    }
    const operations: Write[] = []
    const answers: Answer[] = []
    let appends = 0
    for (const [index, envelope] of this.#envelopes.entries()) {
      const run = runs.get(envelope.runId) as JudgedRun
      const known = next()
      const rejected = validateTransitions ? next() : undefined
      const step = validateTransitions && envelope.stepId !== undefined ? next() : undefined
      run.checkHeading(envelope)
      const first = run.answers.get(envelope.idempotencyKey)
      if (known !== undefined || first !== undefined) {
        const source = known === undefined ? (first as number) : parseDedupe(known)
        answers.push({ source, envelope, isDuplicate: true })
        continue
      }
      if (rejected !== undefined)
        return verdict({ kind: 'rejected', details: this.#told(detailsIn(rejected), index) })
      run.checkLease(envelope.runId)
      if (run.heading === undefined) {
        if (!this.#withIndex) return verdict({ kind: 'begins' })
        operations.push(...run.begin(envelope, shared, this.#now))
      }
      if (validateTransitions) {
        if (run.isBehind) return verdict({ kind: 'behind', runId: envelope.runId })
        const details = run.reduce(envelope, step)
        if (details !== undefined) {
          const remembered = putJson(rejectionPlace(run.scope, envelope.idempotencyKey), details)
          // After others of this batch, which are not written either, it says nothing about the event alone.
          const writes = run.answers.size === 0 ? [remembered] : []
          return verdict({ kind: 'rejected', details: this.#told(details, index) }, writes)
        }
      }
      run.answers.set(envelope.idempotencyKey, appends)
      answers.push({ source: appends++, envelope, isDuplicate: false })
      operations.push(appendOf(run.scope, shared, envelope))
    }
    if (validateTransitions) for (const run of runs.values()) operations.push(...run.stateWrites())
    return verdict({ kind: 'done', answers }, operations)
  }

  /** What is remembered is about the key; which event it was, and where, is of whoever asks. */
  #told(details: ErrorDetails, index: number): ErrorDetails {
    const { eventId } = this.#envelopes[index]
    return { ...details, eventId, ...(this.#envelopes.length === 1 ? {} : { index }) }
  }
}

function verdict(result: Judgement, operations: Write[] = []): { operations: Write[]; result: Judgement } {
  return { operations, result }
}

/** A run, as the events of one request find it and leave it to the next. */
class JudgedRun {
  readonly scope: ByteString
  heading: StoredHeading | undefined
  isIndexed = false
  isBehind = false
  /** By key, which of the appends it is. */
  readonly answers = new Map<string, number>()
  readonly #lease: ReturnType<typeof leaseIn>
  readonly #epoch: number | undefined
  readonly #now: number
  #length = 0
  readonly #reducer = new Reducer()
  readonly #changed = new Set<StepState>()

  constructor(
    scope: ByteString,
    heading: StoredHeading | undefined,
    lease: ReturnType<typeof leaseIn>,
    epoch: number | undefined,
    now: number,
  ) {
    this.scope = scope
    this.heading = heading
    this.#lease = lease
    this.#epoch = epoch
    this.#now = now
  }

  validate(runId: string, length: number, state: RunState | undefined): void {
    const stateOf = state?.lastEventSeq ?? 0
    if (stateOf > length) {
      const message = `the state that validates run ${JSON.stringify(runId)} is of ${stateOf} records, and it has ${length}`
      throw new AnnalsError('CORRUPT', message, { runId })
    }
    this.#length = length
    this.#reducer.run = state
    this.isBehind = stateOf < length
  }

  checkHeading(envelope: Envelope): void {
    if (this.heading !== undefined) checkHeading(this.heading, envelope)
  }

  checkLease(runId: string): void {
    checkFence(runId, this.#lease, this.#epoch, this.#now)
  }

  /** LD15: its first event makes a run, unless the index knows it already. */
  begin(
    { runId, tenantId, projectId, environmentId, planId, planVersion }: Envelope,
    index: ByteString,
    now: number,
  ): Write[] {
    this.heading = { tenantId, projectId, environmentId, planId, planVersion }
    const writes: Write[] = [putJson(placeOf(this.scope, HEADING_KEY), this.heading)]
    if (this.#lease === undefined) writes.push(putNoLease(this.scope))
    if (this.isIndexed) return writes
    const run: Run = { runId, status: 'Active', createdAt: now, updatedAt: now, tags: [], metadata: {} }
    return [...writes, ...runOperations(index, undefined, run)]
  }

  /** Layer 2: takes the event into the state, or says why it can't be: of the event, what its key stands for. */
  reduce(envelope: Envelope, step: Entry | undefined): ErrorDetails | undefined {
    const { runId, eventType, stepId, logicalAttemptId, engineAttemptId } = envelope
    const reducer = this.#reducer
    const stored = guardedStepIn(step)
    if (stored !== undefined && !reducer.steps.has(stored.stepId)) reducer.steps.set(stored.stepId, stored)
    const runSeq = ++this.#length
    const fact = { runSeq, persistedAt: '', eventType, stepId, logicalAttemptId, engineAttemptId }
    const refusal = reducer.add(fact)
    if (refusal !== undefined) {
      const where = stepId === undefined ? {} : { stepId, logicalAttemptId }
      return { runId, eventType, ...where, ...refusal }
    }
    if (reducer.changed !== undefined) this.#changed.add(reducer.changed)
    return undefined
  }

  stateWrites(): Write[] {
    const { run } = this.#reducer
    if (this.answers.size === 0 || run === undefined) return []
    const steps = [...this.#changed].map(step => putGuardedStep(this.scope, step))
    return [putRunState(placeOf(this.scope, GUARD_KEY), run), ...steps]
  }
}

/** LD8. What the run's own are is nobody's business who has others. */
function checkHeading(heading: StoredHeading, envelope: Envelope): void {
  if (
    heading.tenantId === envelope.tenantId &&
    heading.projectId === envelope.projectId &&
    heading.environmentId === envelope.environmentId
  )
    return
  const { runId } = envelope
  const fields = ['tenantId', 'projectId', 'environmentId'] as const
  const field = fields.find(name => heading[name] !== envelope[name])
  const message = `run ${JSON.stringify(runId)} has another ${field}: its first event has settled it`
  throw new AnnalsError('RUN_SCOPE_MISMATCH', message, { runId, field })
}

function rejection(details: ErrorDetails): AnnalsError {
  const { eventType, attemptedState, reason } = details
  const message = `${eventType} can't lead to ${attemptedState}: ${reason}`
  return new AnnalsError('INVALID_TRANSITION', message, details)
}

function detailsIn({ value }: Entry): ErrorDetails {
  return decodeJson(value) as ErrorDetails
}
