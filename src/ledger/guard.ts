import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Place } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import type { Envelope } from './envelope.ts'
import { FactReader } from './facts.ts'
import { Reducer, type RunState } from './reduce.ts'
import type { StepState } from './steps.ts'
import {
  GUARD_KEY,
  guardedStepIn,
  guardedStepPlace,
  LOG,
  placeOf,
  putGuardedStep,
  putRunState,
  runStateIn,
} from './stored.ts'

/** How many records one commit of `catchUpGuard` covers. */
const RECORDS_MAX = 1_000

/**
 * Validates the transitions of one run's new events (Layer 2). Its state is stored apart from the projected one, because an
 * append is validated before it has a time and reads only the step that it is about.
 */
export class Guard {
  /** The stored state does not cover the whole log: some events were appended without validation. */
  readonly isBehind: boolean
  readonly #scope: ByteString
  readonly #reducer = new Reducer()
  readonly #changed = new Set<StepState>()
  readonly #stored: number
  #length: number

  constructor(scope: ByteString, runId: string, length: number, state: RunState | undefined) {
    const stored = state?.lastEventSeq ?? 0
    if (stored > length) {
      const message = `the state that validates run ${JSON.stringify(runId)} covers ${stored} records, but the run has ${length}`
      throw new AnnalsError('CORRUPT', message, { runId })
    }
    this.isBehind = stored < length
    this.#scope = scope
    this.#stored = length
    this.#length = length
    this.#reducer.run = state
  }

  /** Whether the request has no valid event before the one that was reduced last. */
  get isAlone(): boolean {
    return this.#length === this.#stored + 1
  }

  /** Applies the event to the state, or returns the details of its rejection: those that its key stands for. */
  reduce(envelope: Envelope, step: Entry | undefined): ErrorDetails | undefined {
    const { runId, eventType, stepId, logicalAttemptId, engineAttemptId } = envelope
    const reducer = this.#reducer
    const stored = guardedStepIn(step)
    if (stored !== undefined && reducer.steps.get(stored.stepId) === undefined) reducer.steps.add(stored)
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

  /** Stores the state after the request's events; nothing if all of them were duplicates. */
  writes(): Write[] {
    const { run } = this.#reducer
    if (this.#length === this.#stored || run === undefined) return []
    const steps = [...this.#changed].map(step => putGuardedStep(this.#scope, step))
    return [putRunState(placeOf(this.#scope, GUARD_KEY), run), ...steps]
  }
}

/** Brings the stored state of a run's guard up to date, for records that were appended without validation. */
export async function catchUpGuard({ database }: LedgerContext, scope: ByteString): Promise<void> {
  const place = placeOf(scope, GUARD_KEY)
  const reader = new FactReader()
  for (;;) {
    const from = runStateIn(await database.get(place.scope, place.tag, place.key))?.lastEventSeq ?? 0
    const entries = await database.scan({ scope, tag: LOG, from: u64(from), limit: RECORDS_MAX })
    const last = entries.at(-1)
    if (last === undefined) return
    const facts = entries.map(entry => reader.read(entry))
    const stepIds = [...new Set(facts.flatMap(({ stepId }) => (stepId === undefined ? [] : [stepId])))]
    const reads: Place[] = [
      place,
      { scope, tag: LOG, key: last.key },
      ...stepIds.map(stepId => guardedStepPlace(scope, stepId)),
    ]
    await database.update(reads, ([state, end, ...steps]) => {
      const reducer = new Reducer()
      reducer.run = runStateIn(state)
      // If the run was deleted and begun anew meanwhile, these records are not its own, or not its first ones.
      const isSameRun = end?.version === last.version && (reducer.run?.lastEventSeq ?? 0) >= from
      if (!isSameRun) return { operations: [], result: undefined }
      for (const entry of steps) {
        const step = guardedStepIn(entry)
        if (step !== undefined) reducer.steps.add(step)
      }
      for (const fact of facts) reducer.add(fact)
      invariant(reducer.run !== undefined, 'records make a state')
      const operations = reducer.steps.all.map(step => putGuardedStep(scope, step))
      return { operations: [putRunState(place, reducer.run), ...operations], result: undefined }
    })
  }
}
