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
 * Makes snapshots from states, and writes states as canonical JSON (RFC 8785).
 * The code writes the keys in their sorted order itself. The general encoder,
 * parsing and freezing would take longer than reducing the records of a run
 * with many steps.
 */

/** An error may be as deep as a payload, and is nested in an attempt and a list. Its size was checked at the append. */
const LIMITS = { depthMax: DEPTH_MAX + 2, bytesMax: Number.POSITIVE_INFINITY }

/** Makes a frozen snapshot that shares nothing with the states. `steps` must be in the order of their positions. */
export function snapshotOf(heading: RunHeading, run: RunState, steps: Iterable<StepState>): RunSnapshot {
  const making = snapshotSteps(heading, run, steps)
  for (;;) {
    const { done, value } = making.next()
    if (done === true) return value
  }
}

/** Does the same without blocking the event loop, for long runs. The states must not change meanwhile. */
export function snapshotInSlices(
  heading: RunHeading,
  run: RunState,
  steps: Iterable<StepState>,
): Promise<RunSnapshot> {
  return runInSlices(snapshotSteps(heading, run, steps))
}

/** How many steps are added between two checks of the time slice. */
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

/** Has a separate path for the most common steps (both times, no error), so that these share one hidden class. */
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

/** A frozen deep copy. It goes through canonical JSON, so its key order does not depend on the source. */
function copyOf<T>(value: T): T {
  return deepFrozen(parseJson(canonicalJsonBytes(value, LIMITS)) as T)
}

function deepFrozen<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  for (const part of Object.values(value)) deepFrozen(part)
  return Object.freeze(value)
}

/** Encodes a run state for storage. */
export function runStateJson(run: RunState): ByteString {
  const { begun, status, lastEventSeq, startedAt, completedAt, invalidEvents, steps } = run
  return (
    `{${begunJson(begun)}${completedAt === undefined ? '' : `"completedAt":${text(completedAt)},`}"invalidEvents":${invalidEvents}` +
    `,"lastEventSeq":${lastEventSeq}${startedAt === undefined ? '' : `,"startedAt":${text(startedAt)}`}` +
    `,"status":"${status}","steps":${steps}}`
  )
}

/** `begun` is written only if it is false, which is rare. */
function begunJson(begun: boolean): ByteString {
  return begun ? '' : '"begun":false,'
}

/** Encodes a step as in a snapshot. `withPosition` adds its position, for steps that are stored one by one. */
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

/** Matches ASCII strings that JSON writes without escapes. */
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
