import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { sha256HexOf } from '../core/hash.ts'
import { checkAttempt, checkField, checkStep, RUN_STEP } from './fields.ts'

/** The six fields that make up an event's idempotency key. Two events with the same six are the same event. */
export interface IdempotencyFields {
  /** The run that the event belongs to. */
  readonly runId: string
  /** The step of a step event. Absent for run events. */
  readonly stepId?: string
  /** The attempt of the step, or the pause cycle of `RunPaused` and `RunResumed`. Counts from 1. */
  readonly logicalAttemptId: number
  /** What happened. */
  readonly eventType: string
  /** The plan that the run executes. */
  readonly planId: string
  /** The version of that plan. */
  readonly planVersion: string
}

/**
 * The text that the idempotency key is the hash of: the six fields in a fixed order, verbatim, separated by `|`. Throws
 * `INVALID_ENVELOPE` if a field is invalid.
 * @example
 * const fields = { runId: 'run-1', eventType: 'RunStarted', logicalAttemptId: 1, planId: 'plan', planVersion: '2' }
 * idempotencyPreimage(fields) // → 'run-1|RUN|1|RunStarted|plan|2'
 */
export function idempotencyPreimage(fields: IdempotencyFields): string {
  return fromUtf8(preimageOf(fields))
}

/**
 * The idempotency key of an event: the SHA-256 of `idempotencyPreimage` in lowercase hex. However often an event is sent,
 * the ledger stores it once under this key. Tenant, project, environment and engine attempt never change it.
 * @example
 * const key = deriveIdempotencyKey({
 *   runId: '0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a', eventType: 'StepStarted', stepId: 'model.orders',
 *   logicalAttemptId: 1, planId: 'plan_abc', planVersion: '2',
 * })
 * key // → '7f4b974658a54fb2aee9ecb9cefebd2eec27f3fd01f0f8c0d031dfc4a5b96e3c'
 */
export function deriveIdempotencyKey(fields: IdempotencyFields): string {
  return sha256HexOf(preimageOf(fields))
}

function preimageOf(fields: IdempotencyFields): ByteString {
  const { runId, stepId, logicalAttemptId, eventType, planId, planVersion } = fields
  const type = checkField('eventType', eventType)
  const identity = identityOf(
    checkStep(eventType, stepId),
    checkAttempt('logicalAttemptId', logicalAttemptId),
    type,
    checkField('planId', planId),
    checkField('planVersion', planVersion),
  )
  return `${checkField('runId', runId)}|${identity}`
}

/** The key of checked fields in UTF-8. */
export function keyOf(runId: ByteString, identity: ByteString): string {
  return sha256HexOf(`${runId}|${identity}`)
}

/** The preimage without the run: it tells an event apart from the other events of its run. */
export function identityOf(
  stepId: ByteString | undefined,
  logicalAttemptId: number,
  eventType: ByteString,
  planId: ByteString,
  planVersion: ByteString,
): ByteString {
  return `${stepId ?? RUN_STEP}|${logicalAttemptId}|${eventType}|${planId}|${planVersion}`
}
