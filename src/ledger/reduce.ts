import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type {
  LedgerAlert,
  RunEventRecord,
  RunSnapshot,
  RunStateStatus,
  StepAttempt,
  StepStatus,
} from './run-events.ts'
import { snapshotOf } from './snapshot.ts'
import { type StepState, Steps } from './steps.ts'
import { ENDED, type RunTransition, type StepTransition, transitionOf } from './transitions.ts'

/**
 * Reduces records to state, without a clock and without I/O. The state is one
 * object for the run and one for each step, so that a long run can be stored in
 * parts; a snapshot combines them. States are changed in place, because copying
 * them for each record would cost more than reducing it.
 */

/** The fields of a record that the state depends on. */
export interface Fact {
  readonly runSeq: number
  readonly persistedAt: string
  readonly eventType: string
  readonly stepId?: string | undefined
  readonly logicalAttemptId: number
  readonly engineAttemptId: number
  /** `payload.error`, or the projector's placeholder for it. */
  readonly error?: unknown
}

/** The state of a run without its steps. */
export interface RunState {
  /** False until the first event of a known type. Unknown events must not affect which events are valid (LD4). */
  begun: boolean
  status: RunStateStatus
  lastEventSeq: number
  startedAt: string | undefined
  completedAt: string | undefined
  invalidEvents: number
  /** The number of steps. */
  steps: number
}

/** Why an event is an invalid transition. */
export interface Refusal {
  readonly priorState: string
  readonly attemptedState: string
  readonly reason: string
}

const NO_ATTEMPTS: readonly StepAttempt[] = Object.freeze([])

/** Reduces the records of one run, in order. */
export class Reducer {
  run: RunState | undefined = undefined
  readonly steps: Steps = new Steps()
  /** The step that the last record changed, if any. */
  changed: StepState | undefined = undefined
  /** A cache of the step that changed most recently: the next event is usually about the same step. */
  #last: StepState | undefined = undefined

  /** Reduces a record; one that was reduced before changes nothing. Returns the reason if the transition is invalid. */
  add(fact: Fact): Refusal | undefined {
    this.changed = undefined
    const { runSeq, eventType, stepId } = fact
    const run = this.run ?? unbegun()
    this.run = run
    if (runSeq <= run.lastEventSeq) return undefined
    run.lastEventSeq = runSeq
    const transition = transitionOf(eventType)
    if (transition === undefined) return undefined
    let refusal: Refusal | undefined
    if (transition.about === 'run') {
      refusal = runRefusal(run, transition.rule)
      if (refusal === undefined) changeRun(run, eventType, transition.rule, fact)
    } else {
      const step = this.#stepOf(stepId)
      refusal = stepRefusal(run, step, transition.rule, fact.logicalAttemptId)
      if (refusal === undefined) this.#changeStep(run, step, transition.rule, fact)
    }
    run.begun = true
    if (refusal !== undefined) run.invalidEvents++
    return refusal
  }

  /** Returns why the event would be an invalid transition, if it would. Changes nothing. */
  refusalOf(eventType: string, stepId: string | undefined, logicalAttemptId: number): Refusal | undefined {
    const transition = transitionOf(eventType)
    if (transition === undefined) return undefined
    const run = this.run ?? unbegun()
    if (transition.about === 'run') return runRefusal(run, transition.rule)
    return stepRefusal(run, this.#stepOf(stepId), transition.rule, logicalAttemptId)
  }

  #stepOf(stepId: string | undefined): StepState | undefined {
    if (stepId === undefined) return undefined
    return this.#last?.stepId === stepId ? this.#last : this.steps.get(stepId)
  }

  #changeStep(
    run: RunState,
    step: StepState | undefined,
    { from, to }: StepTransition,
    { stepId, logicalAttemptId, engineAttemptId, persistedAt, error }: Fact,
  ): void {
    const isStart = to === 'RUNNING'
    if (step === undefined) {
      invariant(stepId !== undefined, 'a step event has a step')
      const first: StepState = {
        stepId,
        position: run.steps++,
        status: to,
        logicalAttemptId,
        engineAttemptId,
        startedAt: isStart ? persistedAt : undefined,
        completedAt: isStart ? undefined : persistedAt,
        error: undefined,
        attempts: NO_ATTEMPTS,
      }
      this.steps.add(first)
      this.changed = first
      this.#last = first
      return
    }
    this.changed = step
    this.#last = step
    if (from === 'PENDING') {
      step.attempts = [...step.attempts, attemptIn(step)]
      step.logicalAttemptId = logicalAttemptId
      step.startedAt = isStart ? persistedAt : undefined
      step.completedAt = isStart ? undefined : persistedAt
      step.error = undefined
    } else {
      step.completedAt = persistedAt
      if (error !== undefined) step.error = error
    }
    step.status = to
    step.engineAttemptId = engineAttemptId
  }
}

function unbegun(): RunState {
  return {
    begun: false,
    status: 'PENDING',
    lastEventSeq: 0,
    startedAt: undefined,
    completedAt: undefined,
    invalidEvents: 0,
    steps: 0,
  }
}

function runRefusal({ begun, status }: RunState, { to, from, opens }: RunTransition): Refusal | undefined {
  if (begun ? from.includes(status) : opens) return undefined
  const reason = begun ? `the run is ${status}` : 'the run has not begun'
  return { priorState: status, attemptedState: to, reason }
}

function changeRun(run: RunState, eventType: string, { to }: RunTransition, { persistedAt }: Fact): void {
  run.status = to
  if (eventType === 'RunStarted') run.startedAt = persistedAt
  if (ENDED.includes(to)) run.completedAt = persistedAt
}

function stepRefusal(
  run: RunState,
  step: StepState | undefined,
  { from, to, whileRun }: StepTransition,
  logicalAttemptId: number,
): Refusal | undefined {
  const current = attemptOf(step, logicalAttemptId)
  const refuse = (priorState: StepStatus, reason: string): Refusal => ({
    priorState,
    attemptedState: to,
    reason,
  })
  if (whileRun !== undefined && !whileRun.includes(run.status)) {
    return refuse(current?.status ?? 'PENDING', `the run is ${run.status}`)
  }
  if (from === 'PENDING') {
    if (current !== undefined)
      return refuse(current.status, `attempt ${logicalAttemptId} is ${current.status}`)
    const isNext =
      step === undefined
        ? logicalAttemptId === 1
        : step.status === 'FAILED' && logicalAttemptId === step.logicalAttemptId + 1
    return isNext ? undefined : refuse('PENDING', `attempt ${logicalAttemptId - 1} has not failed`)
  }
  if (step !== undefined && current === step && step.status === from) return undefined
  const status = current?.status ?? 'PENDING'
  return refuse(status, `attempt ${logicalAttemptId} is ${status}`)
}

function attemptOf(
  step: StepState | undefined,
  logicalAttemptId: number,
): StepState | StepAttempt | undefined {
  if (step?.logicalAttemptId === logicalAttemptId) return step
  return step?.attempts.find(attempt => attempt.logicalAttemptId === logicalAttemptId)
}

function attemptIn(step: StepState): StepAttempt {
  const { status, logicalAttemptId, engineAttemptId, startedAt, completedAt, error } = step
  return {
    status,
    logicalAttemptId,
    engineAttemptId,
    ...(startedAt === undefined ? {} : { startedAt }),
    ...(completedAt === undefined ? {} : { completedAt }),
    ...(error === undefined ? {} : { error }),
  }
}

/** Makes a mutable run state from a stored state or a snapshot. */
export function runStateOf(
  state: Pick<
    RunSnapshot,
    'begun' | 'status' | 'lastEventSeq' | 'invalidEvents' | 'startedAt' | 'completedAt'
  >,
  steps: number,
): RunState {
  const { begun = true, status, lastEventSeq, invalidEvents, startedAt, completedAt } = state
  return { begun, status, lastEventSeq, startedAt, completedAt, invalidEvents, steps }
}

/** Makes a mutable step state from a stored step or a snapshot's. */
export function stepStateOf(step: RunSnapshot['steps'][number], position: number): StepState {
  const { stepId, status, logicalAttemptId, engineAttemptId, startedAt, completedAt, error, attempts } = step
  return {
    stepId,
    position,
    status,
    logicalAttemptId,
    engineAttemptId,
    startedAt,
    completedAt,
    error,
    attempts,
  }
}

/** The fields of a record that the state depends on. */
export function factOf(record: RunEventRecord): Fact {
  return { ...record, error: record.payload?.['error'] }
}

/**
 * Returns the snapshot after one more record. Without a snapshot, the record is the run's first. This is a pure function: the
 * same records always give the same snapshot. A record that the snapshot already includes changes nothing.
 */
export function reduce(snapshot: RunSnapshot | null | undefined, record: RunEventRecord): RunSnapshot {
  const reducer = new Reducer()
  if (snapshot !== null && snapshot !== undefined) {
    reducer.run = runStateOf(snapshot, snapshot.steps.length)
    for (const [position, step] of snapshot.steps.entries()) {
      if (reducer.steps.get(step.stepId) !== undefined) throw listedTwice(step.stepId)
      reducer.steps.add(stepStateOf(step, position))
    }
  }
  reducer.add(factOf(record))
  invariant(reducer.run !== undefined, 'a record makes a state')
  return snapshotOf(snapshot ?? record, reducer.run, reducer.steps.all)
}

function listedTwice(stepId: string): AnnalsError {
  const message = `snapshot lists step ${JSON.stringify(stepId)} twice, so the ledger did not make it`
  return new AnnalsError('INVALID_ARGUMENT', message, { name: 'snapshot', stepId })
}

/** The fields that an alert copies from the record. */
type AlertSource = Omit<LedgerAlert, 'code' | 'stepId' | keyof Refusal> & {
  readonly stepId?: string | undefined
}

/** Makes the alert for a record that is an invalid transition (L30). */
export function alertOf(record: AlertSource, refusal: Refusal): LedgerAlert {
  const { runId, tenantId, projectId, environmentId, eventId, eventType, runSeq, persistedAt, stepId } =
    record
  return Object.freeze({
    code: 'INVALID_TRANSITION',
    runId,
    tenantId,
    projectId,
    environmentId,
    eventId,
    eventType,
    runSeq,
    persistedAt,
    ...(stepId === undefined ? {} : { stepId }),
    ...refusal,
  })
}
