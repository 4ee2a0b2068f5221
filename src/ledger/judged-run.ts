import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { encodeValue } from '../core/value.ts'
import type { Write } from '../engine/session.ts'
import type { Entry } from '../engine/storage.ts'
import type { RunHead } from '../primitives/run.ts'
import { runOperations } from '../primitives/run-records.ts'
import type { Envelope } from './envelope.ts'
import { checkFence } from './lease.ts'
import { Reducer, type RunState } from './reduce.ts'
import type { StepState } from './steps.ts'
import {
  GUARD_KEY,
  guardedStepIn,
  HEADING_KEY,
  type leaseIn,
  placeOf,
  putGuardedStep,
  putJson,
  putNoLease,
  putRunState,
  type StoredHeading,
} from './stored.ts'

/** A run, as the events of one request find it and leave it to the next. */
export class JudgedRun {
  readonly scope: ByteString
  heading: StoredHeading | undefined
  isIndexed = false
  isBehind = false
  /** By key, which of the appends it is. */
  readonly answers: Map<string, number> = new Map()
  readonly #lease: ReturnType<typeof leaseIn>
  readonly #epoch: number | undefined
  readonly #clock: number
  #length = 0
  readonly #reducer = new Reducer()
  readonly #changed = new Set<StepState>()

  constructor(
    scope: ByteString,
    heading: StoredHeading | undefined,
    lease: ReturnType<typeof leaseIn>,
    epoch: number | undefined,
    clock: number,
  ) {
    this.scope = scope
    this.heading = heading
    this.#lease = lease
    this.#epoch = epoch
    this.#clock = clock
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

  /** `isKnown`: the event was stored or rejected before. */
  checkLease(runId: string, isKnown: boolean): void {
    checkFence(runId, this.#lease, this.#epoch, this.#clock, isKnown)
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
    const head: RunHead = { runId, status: 'Active', createdAt: now, updatedAt: now, tags: [] }
    return [...writes, ...runOperations(index, undefined, { head, metadata: encodeValue({}) })]
  }

  /** Layer 2: takes the event into the state, or says why it can't be: of the event, what its key stands for. */
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

  stateWrites(): Write[] {
    const { run } = this.#reducer
    if (this.answers.size === 0 || run === undefined) return []
    const steps = [...this.#changed].map(step => putGuardedStep(this.scope, step))
    return [putRunState(placeOf(this.scope, GUARD_KEY), run), ...steps]
  }
}

/** LD8. What the run's own are is nobody's business who has others. */
export function checkHeading(heading: StoredHeading, envelope: Envelope): void {
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
