import type { ByteString } from '../core/bytes.ts'
import type { ErrorDetails } from '../core/errors.ts'
import { mapInSlices, nextSlice } from '../core/slices.ts'
import { decodeJson } from '../core/value.ts'
import { parseDedupe } from '../engine/log.ts'
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
  headPlace,
  LEASE_KEY,
  placeOf,
  putJson,
  rejectionPlace,
} from './stored.ts'

/** Where the record of one event of the request is. */
export interface Answer {
  /** The scope of its run. */
  readonly scope: ByteString
  /** What the log already knew of the event, or the index of the append that brings it. */
  readonly source: Appended | number
  readonly envelope: Envelope
  readonly isDuplicate: boolean
}

export type Judgement =
  | { readonly kind: 'done'; readonly answers: readonly Answer[] }
  /** A run has no heading, and the request did not read the index of runs: the run may live in another scope. */
  | { readonly kind: 'unlocated' }
  /** Some runs live in another scope than the one that was read; by run id. */
  | { readonly kind: 'elsewhere'; readonly homes: ReadonlyMap<string, ByteString> }
  /** The state that validates transitions is older than the run's log. */
  | { readonly kind: 'behind'; readonly scope: ByteString }
  | { readonly kind: 'rejected'; readonly details: ErrorDetails }

type Judged = { readonly operations: Write[]; readonly result: Judgement }

/**
 * The events of one call. `reads` are the entries that decide about them: each run's heading and lease, and each event's
 * dedupe key. `judge` is the step over these entries: it either names the appends to commit or says what else has to be
 * read or done first.
 */
export class AppendRequest {
  reads: readonly Place[]
  readonly #context: LedgerContext
  readonly #envelopes: readonly Envelope[]
  readonly #epoch: number | undefined
  readonly #now: number
  /** Leases expire by the clock, which may go back; `#now` never does. */
  readonly #clock: number
  /** By run id, the scope in which each run of the request is looked up. */
  readonly #scopes = new Map<string, ByteString>()
  /** The appends, if they were made before the step. */
  #prepared: readonly Append[] | undefined = undefined
  #readsIndex = false

  /** `begunIn` gives the scope of a run that is known to have begun. The index of runs is read for all others. */
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
      if (this.#scopes.has(runId)) continue
      const scope = begunIn(runId)
      if (scope === undefined) this.#readsIndex = true
      this.#scopes.set(runId, scope ?? context.scopes.byDefault(runId))
    }
    this.reads = this.#declared()
  }

  /** Hashes the events in slices, because a step must be short and long requests would block the event loop. */
  async prepare(): Promise<void> {
    const { shared } = this.#context
    const prepared = (envelope: Envelope): Append => appendOf(this.#scopeOf(envelope), shared, envelope)
    this.#prepared ??= await mapInSlices(this.#envelopes, prepared, ({ bytes }) => bytes.length)
    await nextSlice()
  }

  /** Reads the index of runs as well, from now on. */
  readIndex(): void {
    this.#readsIndex = true
    this.reads = this.#declared()
  }

  /** Looks these runs up in other scopes from now on. */
  moveTo(homes: ReadonlyMap<string, ByteString>): void {
    for (const [runId, scope] of homes) this.#scopes.set(runId, scope)
    // The hash of an event covers its scope.
    this.#prepared = undefined
    this.reads = this.#declared()
  }

  #scopeOf({ runId }: Envelope): ByteString {
    return this.#scopes.get(runId) as ByteString
  }

  /** In the order in which `judge` takes the entries. */
  #declared(): Place[] {
    const { validateTransitions, scopes } = this.#context
    const reads: Place[] = []
    for (const [runId, scope] of this.#scopes) {
      reads.push(placeOf(scope, HEADING_KEY), placeOf(scope, LEASE_KEY))
      if (this.#readsIndex) reads.push(scopes.record(runId))
      if (validateTransitions) reads.push(headPlace(scope), placeOf(scope, GUARD_KEY))
    }
    for (const envelope of this.#envelopes) {
      const scope = this.#scopeOf(envelope)
      reads.push(dedupePlace(scope, envelope))
      if (!validateTransitions) continue
      reads.push(rejectionPlace(scope, envelope.idempotencyKey))
      if (envelope.stepId !== undefined) reads.push(guardedStepPlace(scope, envelope.stepId))
    }
    return reads
  }

  /** Pure: the outcome depends on the entries alone, so the engine may run it more than once. */
  judge(found: readonly (Entry | undefined)[]): Judged {
    const { validateTransitions, shared } = this.#context
    let at = 0
    const next = (): Entry | undefined => found[at++]
    const runs = new Map<string, JudgedRun>()
    const misplaced = this.#judgeRuns(runs, next)
    if (misplaced !== undefined) return verdict(misplaced)
    const operations: Write[] = []
    const answers: Answer[] = []
    /** By idempotency key, the appends of this request. */
    const appends = new Map<string, number>()
    for (let index = 0; index < this.#envelopes.length; index++) {
      const envelope = this.#envelopes[index]
      const run = runs.get(envelope.runId) as JudgedRun
      const known = next()
      const rejected = validateTransitions ? next() : undefined
      const step = validateTransitions && envelope.stepId !== undefined ? next() : undefined
      const first = appends.get(envelope.idempotencyKey)
      run.check(envelope, this.#epoch, this.#clock, (known ?? first ?? rejected) !== undefined)
      const source = known === undefined ? first : parseDedupe(known)
      if (source !== undefined) {
        answers.push({ scope: run.scope, source, envelope, isDuplicate: true })
        continue
      }
      if (rejected !== undefined) return this.#rejected(index, decodeJson(rejected.value) as ErrorDetails)
      if (run.heading === undefined) operations.push(...run.begin(envelope, shared, this.#now))
      if (run.guard?.isBehind === true) return verdict({ kind: 'behind', scope: run.scope })
      const details = run.guard?.reduce(envelope, step)
      if (details !== undefined) {
        const stored = putJson(rejectionPlace(run.scope, envelope.idempotencyKey), details)
        // After other new events of this request, which are not written either, the rejection is not about this event alone.
        return this.#rejected(index, details, run.guard?.isAlone === true ? [stored] : [])
      }
      answers.push({ scope: run.scope, source: appends.size, envelope, isDuplicate: false })
      appends.set(envelope.idempotencyKey, appends.size)
      operations.push(this.#prepared?.[index] ?? appendOf(run.scope, shared, envelope))
    }
    for (const { guard } of runs.values()) if (guard !== undefined) operations.push(...guard.writes())
    return verdict({ kind: 'done', answers }, operations)
  }

  /** Reads the entries of each run. Returns a judgement if a run is not in the scope that the request has read. */
  #judgeRuns(runs: Map<string, JudgedRun>, next: () => Entry | undefined): Judgement | undefined {
    const { validateTransitions, scopes } = this.#context
    let homes: Map<string, ByteString> | undefined
    for (const [runId, scope] of this.#scopes) {
      const run = new JudgedRun(scope, next(), next())
      if (this.#readsIndex) {
        const record = next()
        run.isIndexed = record !== undefined
        const home = scopes.scopeIn(runId, record)
        if (home !== scope) homes = (homes ?? new Map<string, ByteString>()).set(runId, home)
      } else if (run.heading === undefined) return { kind: 'unlocated' }
      if (validateTransitions) run.validate(runId, next(), next())
      runs.set(runId, run)
    }
    return homes === undefined ? undefined : { kind: 'elsewhere', homes }
  }

  /** `details` are about the key. The event id and the index are those of the caller's event. */
  #rejected(index: number, details: ErrorDetails, writes: Write[] = []): Judged {
    const { eventId } = this.#envelopes[index]
    const place = this.#envelopes.length === 1 ? {} : { index }
    return verdict({ kind: 'rejected', details: { ...details, eventId, ...place } }, writes)
  }
}

function verdict(result: Judgement, operations: Write[] = []): Judged {
  return { operations, result }
}
