import { canonicalJson, DEPTH_MAX } from '../core/canonical-json.ts'
import { sha256Hex } from '../core/hash.ts'
import { invariant } from '../core/invariant.ts'
import { parseRfc3339 } from '../core/time.ts'
import type {
  LedgerAlert,
  RunEventRecord,
  RunHeading,
  RunSnapshot,
  RunStateStatus,
  StepAttempt,
  StepSnapshot,
  StepStatus,
} from './run-events.ts'
import { ENDED, isRunEvent, isStepEvent, RUN_TRANSITIONS, STEP_TRANSITIONS } from './transitions.ts'

/**
 * From records to state: pure, without a clock and without I/O. A run's state
 * is one small thing for the run and one for each step, so that a long run can
 * be projected bit by bit; a snapshot is all of them together.
 */

/** What of a record a state can depend on. */
export interface Fact {
  readonly runSeq: number
  readonly persistedAt: string
  readonly eventType: string
  readonly stepId?: string | undefined
  readonly logicalAttemptId: number
  readonly engineAttemptId: number
  /** The payload's, or what stands for it. */
  readonly error?: unknown
}

export interface RunState {
  readonly status: RunStateStatus
  readonly lastEventSeq: number
  readonly startedAt?: string
  readonly completedAt?: string
  readonly invalidEvents: number
  /** How many steps there are. */
  readonly steps: number
}

export interface StepState extends StepSnapshot {
  /** Which one it was to appear. */
  readonly position: number
}

/** Why an event is ignored for state. */
export interface Refusal {
  readonly priorState: string
  readonly attemptedState: string
  readonly reason: string
}

interface Reduced {
  readonly run: RunState
  /** As it is now, if the event changed it. */
  readonly step?: StepState
  readonly refusal?: Refusal
}

const UNBEGUN: RunState = { status: 'PENDING', lastEventSeq: 0, invalidEvents: 0, steps: 0 }

/** What the event makes of the run, and of the step that it is about. One that was seen already changes nothing. */
export function reduceFact(run: RunState | undefined, step: StepState | undefined, fact: Fact): Reduced {
  const before = run ?? UNBEGUN
  if (fact.runSeq <= before.lastEventSeq) return { run: before }
  const { eventType } = fact
  if (isRunEvent(eventType)) return reduceRun(run, eventType, fact)
  if (isStepEvent(eventType)) return reduceStep(before, step, eventType, fact)
  return { run: { ...before, lastEventSeq: fact.runSeq } }
}

function reduceRun(run: RunState | undefined, eventType: keyof typeof RUN_TRANSITIONS, fact: Fact): Reduced {
  const { to, from, opens } = RUN_TRANSITIONS[eventType]
  const before = run ?? UNBEGUN
  const isAllowed = run === undefined ? opens : from.includes(run.status)
  if (!isAllowed) {
    const reason = run === undefined ? 'the run has not begun' : `the run is ${before.status}`
    return refused(before, fact, { priorState: before.status, attemptedState: to, reason })
  }
  const { persistedAt, runSeq } = fact
  return {
    run: {
      ...before,
      status: to,
      lastEventSeq: runSeq,
      ...(eventType === 'RunStarted' ? { startedAt: persistedAt } : {}),
      ...(ENDED.includes(to) ? { completedAt: persistedAt } : {}),
    },
  }
}

function reduceStep(
  run: RunState,
  step: StepState | undefined,
  eventType: keyof typeof STEP_TRANSITIONS,
  fact: Fact,
): Reduced {
  const { from, to, whileRun } = STEP_TRANSITIONS[eventType]
  const { logicalAttemptId, persistedAt, runSeq } = fact
  const current = attemptOf(step, logicalAttemptId)
  const refuse = (priorState: StepStatus, reason: string): Reduced =>
    refused(run, fact, { priorState, attemptedState: to, reason })
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
    if (!isNext) return refuse('PENDING', `attempt ${logicalAttemptId - 1} has not failed`)
    const { stepId, engineAttemptId } = fact
    invariant(stepId !== undefined, 'a step event has a step')
    const time = to === 'RUNNING' ? { startedAt: persistedAt } : { completedAt: persistedAt }
    return {
      run: { ...run, lastEventSeq: runSeq, steps: run.steps + (step === undefined ? 1 : 0) },
      step: {
        stepId,
        position: step?.position ?? run.steps,
        status: to,
        logicalAttemptId,
        engineAttemptId,
        ...time,
        attempts: step === undefined ? [] : [...step.attempts, attemptIn(step)],
      },
    }
  }
  if (step === undefined || current !== step || step.status !== from) {
    return refuse(
      current?.status ?? 'PENDING',
      `attempt ${logicalAttemptId} is ${current?.status ?? 'PENDING'}`,
    )
  }
  const { engineAttemptId, error } = fact
  return {
    run: { ...run, lastEventSeq: runSeq },
    step: {
      ...step,
      status: to,
      engineAttemptId,
      completedAt: persistedAt,
      ...(error === undefined ? {} : { error }),
    },
  }
}

function refused(run: RunState, { runSeq }: Fact, refusal: Refusal): Reduced {
  return { run: { ...run, lastEventSeq: runSeq, invalidEvents: run.invalidEvents + 1 }, refusal }
}

function attemptOf(step: StepState | undefined, logicalAttemptId: number): StepAttempt | undefined {
  if (step?.logicalAttemptId === logicalAttemptId) return step
  return step?.attempts.find(attempt => attempt.logicalAttemptId === logicalAttemptId)
}

function attemptIn({ stepId: _, position: __, attempts: ___, ...attempt }: StepState): StepAttempt {
  return attempt
}

/** The parts together; frozen. */
export function snapshotOf(heading: RunHeading, run: RunState, steps: readonly StepState[]): RunSnapshot {
  const { runId, tenantId, projectId, environmentId, planId, planVersion } = heading
  const { status, lastEventSeq, startedAt, completedAt, invalidEvents } = run
  const content: Omit<RunSnapshot, 'hash'> = {
    runId,
    tenantId,
    projectId,
    environmentId,
    planId,
    planVersion,
    status,
    lastEventSeq,
    steps: [...steps].sort((a, b) => a.position - b.position).map(({ position: _, ...step }) => step),
    ...(startedAt === undefined ? {} : { startedAt }),
    ...(completedAt === undefined ? {} : { completedAt }),
    ...(startedAt === undefined || completedAt === undefined
      ? {}
      : { totalDurationMs: millisecondsOf(completedAt) - millisecondsOf(startedAt) }),
    consistency: invalidEvents === 0 ? 'CONSISTENT' : 'INCONSISTENT',
    invalidEvents,
  }
  const text = canonicalJson(content, SNAPSHOT_LIMITS)
  // From the text: so it is a copy, and of the same bytes wherever its parts came from.
  const copy = JSON.parse(text) as typeof content
  return deepFrozen({ ...copy, hash: sha256Hex(text) })
}

/** Around an error, which may be as deep as a payload: its attempt, the list of these, step, steps, snapshot. */
const SNAPSHOT_LIMITS = { depthMax: DEPTH_MAX + 5, bytesMax: Number.POSITIVE_INFINITY }

function millisecondsOf(persistedAt: string): number {
  const ms = parseRfc3339(persistedAt)
  invariant(ms !== undefined, 'the ledger writes times that it can read')
  return ms
}

function deepFrozen<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) deepFrozen(part)
  return Object.freeze(value)
}

/** Reduces record after record in place: for a whole run at once. */
export class Reducer {
  run: RunState | undefined
  readonly steps: Map<string, StepState> = new Map()

  /** Answers why the event was ignored, if it was. */
  add(fact: Fact): Refusal | undefined {
    const step = fact.stepId === undefined ? undefined : this.steps.get(fact.stepId)
    const reduced = reduceFact(this.run, step, fact)
    this.run = reduced.run
    if (reduced.step !== undefined) this.steps.set(reduced.step.stepId, reduced.step)
    return reduced.refusal
  }
}

export function factOf(record: RunEventRecord): Fact {
  return { ...record, error: record.payload?.['error'] }
}

/**
 * The snapshot after one record more; without one, after the first. Pure: the same records always give the same. A record
 * that the snapshot has seen already changes nothing.
 */
export function reduce(snapshot: RunSnapshot | null | undefined, record: RunEventRecord): RunSnapshot {
  const reducer = new Reducer()
  if (snapshot !== null && snapshot !== undefined) {
    const { steps, status, lastEventSeq, invalidEvents, startedAt, completedAt } = snapshot
    reducer.run = {
      status,
      lastEventSeq,
      invalidEvents,
      steps: steps.length,
      ...(startedAt === undefined ? {} : { startedAt }),
      ...(completedAt === undefined ? {} : { completedAt }),
    }
    for (const [position, step] of steps.entries()) reducer.steps.set(step.stepId, { ...step, position })
  }
  reducer.add(factOf(record))
  invariant(reducer.run !== undefined, 'a record makes a state')
  return snapshotOf(snapshot ?? record, reducer.run, [...reducer.steps.values()])
}

/** What an alert tells of the event. */
type AlertSource = Omit<LedgerAlert, 'code' | 'stepId' | keyof Refusal> & {
  readonly stepId?: string | undefined
}

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
