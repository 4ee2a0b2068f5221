import type { ByteString } from '../core/bytes.ts'
import type { ErrorDetails } from '../core/errors.ts'
import { mapInSlices, nextSlice } from '../core/slices.ts'
import { decodeJson } from '../core/value.ts'
import { parseDedupe, parseHead } from '../engine/log.ts'
import type { Write } from '../engine/session.ts'
import type { Append, Appended, Entry, Place } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import type { Envelope } from './envelope.ts'
import { JudgedRun } from './judged-run.ts'
import {
  appendOf,
  dedupePlace,
  GUARD_KEY,
  guardedStepPlace,
  HEADING_KEY,
  headingIn,
  headPlace,
  LEASE_KEY,
  leaseIn,
  placeOf,
  putJson,
  rejectionPlace,
  runStateIn,
} from './stored.ts'

/** Where one of the events is. */
export interface Answer {
  /** Of its run. */
  readonly scope: ByteString
  /** What was there already, or which of the appends it is. */
  readonly source: Appended | number
  readonly envelope: Envelope
  readonly isDuplicate: boolean
}

export type Judgement =
  | { readonly kind: 'done'; readonly answers: readonly Answer[] }
  /** A run begins, and nobody has looked whether the index knows it. */
  | { readonly kind: 'begins' }
  /** By id, runs that live in another scope than the one that was looked at. */
  | { readonly kind: 'elsewhere'; readonly homes: ReadonlyMap<string, ByteString> }
  /** The state is older than the log: transitions were not validated before. */
  | { readonly kind: 'behind'; readonly scope: ByteString }
  | { readonly kind: 'rejected'; readonly details: ErrorDetails }

/** Several events for one commit, and what has to be read to judge them. */
export class AppendRequest {
  reads: Place[] = []
  readonly #context: LedgerContext
  readonly #envelopes: readonly Envelope[]
  readonly #epoch: number | undefined
  readonly #now: number
  /** Leases follow it. */
  readonly #clock: number
  /** By id, the scope in which each run is looked for. */
  readonly #runs = new Map<string, ByteString>()
  #appends: readonly Append[] | undefined = undefined
  #withIndex = false

  /** `begunIn`: the scope in which a run is known to have begun. If one is not, the index has to be looked at. */
  constructor(
    context: LedgerContext,
    envelopes: readonly Envelope[],
    epoch: number | undefined,
    begunIn: (runId: string) => ByteString | undefined,
  ) {
    this.#context = context
    this.#envelopes = envelopes
    this.#epoch = epoch
    this.#now = context.database.now()
    this.#clock = context.database.clock()
    for (const { runId } of envelopes) {
      if (this.#runs.has(runId)) continue
      const scope = begunIn(runId)
      if (scope === undefined) this.#withIndex = true
      this.#runs.set(runId, scope ?? context.scopes.byDefault(runId))
    }
    this.#declare()
  }

  /** Hashes the events beforehand, so that judging them takes less. */
  async prepare(): Promise<void> {
    const { shared } = this.#context
    const prepared = (envelope: Envelope): Append =>
      appendOf(this.#runs.get(envelope.runId) as ByteString, shared, envelope)
    this.#appends ??= await mapInSlices(this.#envelopes, prepared, ({ bytes }) => bytes.length)
    // The commit is one step, so it begins in a slice of its own.
    await nextSlice()
  }

  lookAtIndex(): void {
    this.#withIndex = true
    this.#declare()
  }

  lookIn(homes: ReadonlyMap<string, ByteString>): void {
    for (const [runId, scope] of homes) this.#runs.set(runId, scope)
    // They were hashed for another scope.
    this.#appends = undefined
    this.#declare()
  }

  /** In the order in which `judge` takes them. */
  #declare(): void {
    const { validateTransitions, scopes } = this.#context
    this.reads = []
    for (const [runId, scope] of this.#runs) {
      this.reads.push(placeOf(scope, HEADING_KEY), placeOf(scope, LEASE_KEY))
      if (this.#withIndex) this.reads.push(scopes.record(runId))
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
    const { validateTransitions, shared, scopes } = this.#context
    let at = 0
    const next = (): Entry | undefined => found[at++]
    const runs = new Map<string, JudgedRun>()
    const homes = new Map<string, ByteString>()
    for (const [runId, scope] of this.#runs) {
      const run = new JudgedRun(scope, headingIn(next()), leaseIn(next()), this.#epoch, this.#clock)
      if (this.#withIndex) {
        const record = next()
        const home = scopes.scopeIn(runId, record)
        if (home !== scope) homes.set(runId, home)
        run.isIndexed = record !== undefined
      } else if (run.heading === undefined) return verdict({ kind: 'begins' })
      if (validateTransitions) run.validate(runId, parseHead(next()).length, runStateIn(next()))
      runs.set(runId, run)
    }
    if (homes.size > 0) return verdict({ kind: 'elsewhere', homes })
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
      run.checkLease(envelope.runId, (known ?? first ?? rejected) !== undefined)
      if (known !== undefined || first !== undefined) {
        const source = known === undefined ? (first as number) : parseDedupe(known)
        answers.push({ scope: run.scope, source, envelope, isDuplicate: true })
        continue
      }
      if (rejected !== undefined)
        return verdict({ kind: 'rejected', details: this.#told(detailsIn(rejected), index) })
      if (run.heading === undefined) operations.push(...run.begin(envelope, shared, this.#now))
      if (validateTransitions) {
        if (run.isBehind) return verdict({ kind: 'behind', scope: run.scope })
        const details = run.reduce(envelope, step)
        if (details !== undefined) {
          const remembered = putJson(rejectionPlace(run.scope, envelope.idempotencyKey), details)
          // After others of this batch, which are not written either, it says nothing about the event alone.
          const writes = run.answers.size === 0 ? [remembered] : []
          return verdict({ kind: 'rejected', details: this.#told(details, index) }, writes)
        }
      }
      run.answers.set(envelope.idempotencyKey, appends)
      answers.push({ scope: run.scope, source: appends++, envelope, isDuplicate: false })
      operations.push(this.#appends?.[index] ?? appendOf(run.scope, shared, envelope))
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

function detailsIn({ value }: Entry): ErrorDetails {
  return decodeJson(value) as ErrorDetails
}
