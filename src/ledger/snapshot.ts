import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonBytes, DEPTH_MAX } from '../core/canonical-json.ts'
import { Sha256 } from '../core/hash.ts'
import { invariant } from '../core/invariant.ts'
import { runInSlices } from '../core/slices.ts'
import { parseRfc3339 } from '../core/time.ts'
import { parseJson } from '../core/value.ts'
import type { RunState } from './reduce.ts'
import type { RunHeading, RunSnapshot, StepAttempt, StepSnapshot } from './run-events.ts'
import type { StepState } from './steps.ts'

/**
 * A snapshot out of a run's states, and the canonical JSON of states (RFC 8785).
 * Both are written by hand, in the order of their keys: a run may have very many
 * steps, and to write them by the general way, read them back and freeze them
 * takes longer than to reduce its records.
 */

/** Around an error, which may be as deep as a payload: its attempt, and the list of these. Each has its own limit already. */
const LIMITS = { depthMax: DEPTH_MAX + 2, bytesMax: Number.POSITIVE_INFINITY }

/** The parts together; frozen, and a copy of whatever it is made of. Steps come in the order of their positions. */
export function snapshotOf(heading: RunHeading, run: RunState, steps: Iterable<StepState>): RunSnapshot {
  const making = snapshotSteps(heading, run, steps)
  for (;;) {
    const { done, value } = making.next()
    if (done === true) return value
  }
}

/** The same for a run of any length, in slices. Nobody may change the states meanwhile. */
export function snapshotInSlices(
  heading: RunHeading,
  run: RunState,
  steps: Iterable<StepState>,
): Promise<RunSnapshot> {
  return runInSlices(snapshotSteps(heading, run, steps))
}

const STEPS_A_LOOK = 16

function* snapshotSteps(
  heading: RunHeading,
  run: RunState,
  steps: Iterable<StepState>,
): Generator<void, RunSnapshot, void> {
  const { runId, tenantId, projectId, environmentId, planId, planVersion } = heading
  const { begun, status, lastEventSeq, startedAt, completedAt, invalidEvents } = run
  const consistency = invalidEvents === 0 ? 'CONSISTENT' : 'INCONSISTENT'
  const totalDurationMs =
    startedAt === undefined || completedAt === undefined
      ? undefined
      : millisecondsOf(completedAt) - millisecondsOf(startedAt)
  const digest = new Sha256()
  digest.add(
    `{${begunJson(begun)}${completedAt === undefined ? '' : `"completedAt":${text(completedAt)},`}"consistency":"${consistency}"` +
      `,"environmentId":${text(environmentId)},"invalidEvents":${number(invalidEvents)}` +
      `,"lastEventSeq":${number(lastEventSeq)},"planId":${text(planId)},"planVersion":${text(planVersion)}` +
      `,"projectId":${text(projectId)},"runId":${text(runId)}` +
      `${startedAt === undefined ? '' : `,"startedAt":${text(startedAt)}`},"status":${text(status)},"steps":[`,
  )
  const shown: StepSnapshot[] = []
  for (const step of steps) {
    invariant(step.position === shown.length, 'steps come in order')
    if (shown.length > 0) digest.add(',')
    digest.add(stepJson(step))
    if (shown.push(stepSnapshot(step)) % STEPS_A_LOOK === 0) yield
  }
  digest.add(`],"tenantId":${text(tenantId)}`)
  digest.add(totalDurationMs === undefined ? '}' : `,"totalDurationMs":${number(totalDurationMs)}}`)
  return Object.freeze({
    ...(begun ? {} : { begun }),
    ...(completedAt === undefined ? {} : { completedAt }),
    consistency,
    environmentId,
    invalidEvents,
    lastEventSeq,
    planId,
    planVersion,
    projectId,
    runId,
    ...(startedAt === undefined ? {} : { startedAt }),
    status,
    steps: Object.freeze(shown),
    tenantId,
    ...(totalDurationMs === undefined ? {} : { totalDurationMs }),
    hash: digest.hex(),
  })
}

const NO_ATTEMPTS: readonly StepAttempt[] = Object.freeze([])

/** Most steps have both times and no error: of these, all have the same layout in memory. */
function stepSnapshot(step: StepState): StepSnapshot {
  const { stepId, status, logicalAttemptId, engineAttemptId, startedAt, completedAt, error } = step
  const attempts =
    step.attempts.length === 0 ? NO_ATTEMPTS : Object.freeze(step.attempts.map(attempt => copyOf(attempt)))
  if (completedAt !== undefined && startedAt !== undefined && error === undefined) {
    return Object.freeze({
      attempts,
      completedAt,
      engineAttemptId,
      logicalAttemptId,
      startedAt,
      status,
      stepId,
    })
  }
  return Object.freeze({
    attempts,
    ...(completedAt === undefined ? {} : { completedAt }),
    engineAttemptId,
    ...(error === undefined ? {} : { error: copyOf(error) }),
    logicalAttemptId,
    ...(startedAt === undefined ? {} : { startedAt }),
    status,
    stepId,
  })
}

/** Of its bytes: so it is the same wherever it came from, and nobody else's. */
function copyOf<T>(value: T): T {
  return deepFrozen(parseJson(canonicalJsonBytes(value, LIMITS)) as T)
}

function deepFrozen<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const part of Object.values(value)) deepFrozen(part)
  return Object.freeze(value)
}

export function runStateJson(run: RunState): ByteString {
  const { begun, status, lastEventSeq, startedAt, completedAt, invalidEvents, steps } = run
  return (
    `{${begunJson(begun)}${completedAt === undefined ? '' : `"completedAt":${text(completedAt)},`}"invalidEvents":${invalidEvents}` +
    `,"lastEventSeq":${lastEventSeq}${startedAt === undefined ? '' : `,"startedAt":${text(startedAt)}`}` +
    `,"status":"${status}","steps":${steps}}`
  )
}

/** Absent in the state of nearly every run: it is said of those alone that have not begun. */
function begunJson(begun: boolean): ByteString {
  return begun ? '' : '"begun":false,'
}

/** Of a step as a snapshot shows it; with its position if it is to be stored alone. */
export function stepJson(step: StepState, withPosition = false): ByteString {
  const { stepId, position, status, logicalAttemptId, engineAttemptId, startedAt, completedAt } = step
  const { error, attempts } = step
  return (
    `{"attempts":${attempts.length === 0 ? '[]' : canonicalJsonBytes(attempts, LIMITS)}` +
    `${completedAt === undefined ? '' : `,"completedAt":${text(completedAt)}`}` +
    `,"engineAttemptId":${number(engineAttemptId)}` +
    `${error === undefined ? '' : `,"error":${canonicalJsonBytes(error, LIMITS)}`}` +
    `,"logicalAttemptId":${number(logicalAttemptId)}${withPosition ? `,"position":${position}` : ''}` +
    `${startedAt === undefined ? '' : `,"startedAt":${text(startedAt)}`}` +
    `,"status":${text(status)},"stepId":${text(stepId)}}`
  )
}

const PLAIN = /^[ !#-[\]-\x7e]*$/

function text(value: string): ByteString {
  return typeof value === 'string' && PLAIN.test(value) ? `"${value}"` : canonicalJsonBytes(value)
}

function number(value: number): ByteString {
  return Number.isSafeInteger(value) ? `${value}` : canonicalJsonBytes(value)
}

function millisecondsOf(persistedAt: string): number {
  const ms = parseRfc3339(persistedAt)
  invariant(ms !== undefined, 'the ledger writes times that it can read')
  return ms
}
