import { type ByteString, flat } from '../core/bytes.ts'
import { isPlain } from './fields.ts'

/**
 * A record as canonical JSON (RFC 8785), written by hand in the order of its keys: its payload's text is there already, and most of
 * the rest is the same for all records of a run. The fewer pieces, the less to join.
 */

/** What all records of a run have in common, between what they have not. */
export interface RunText {
  /** From behind the engine's attempt; and from behind the time, where that is the first one. */
  readonly beforeEventId: ByteString
  readonly firstBeforeEventId: ByteString
  /** Up to where a step would be. */
  readonly afterPayload: ByteString
  readonly end: ByteString
  /** The same around a step. */
  readonly beforeStep: ByteString
  readonly afterStep: ByteString
}

/** All in UTF-8. */
export function runText(heading: {
  readonly run: ByteString
  readonly tenant: ByteString
  readonly project: ByteString
  readonly environment: ByteString
  readonly plan: ByteString
  readonly version: ByteString
}): RunText {
  const { run, tenant, project, environment, plan, version } = heading
  const beforeEventId = `,"environmentId":${quoted(environment)},"eventId":"`
  const afterPayload = `,"planId":${quoted(plan)},"planVersion":${quoted(version)},"projectId":${quoted(project)},"runId":${quoted(run)}`
  const end = `,"tenantId":${quoted(tenant)}}`
  return {
    beforeEventId: flat(beforeEventId),
    firstBeforeEventId: flat(`","engineAttemptId":1${beforeEventId}`),
    afterPayload: flat(afterPayload),
    end: flat(end),
    beforeStep: flat(`${afterPayload},"stepId":"`),
    afterStep: flat(`"${end}`),
  }
}

export function recordText(
  run: RunText,
  emittedAt: string,
  engineAttemptId: number,
  eventId: string,
  type: ByteString,
  idempotencyKey: string,
  logicalAttemptId: number,
  payload: ByteString | undefined,
  step: ByteString | undefined,
): ByteString {
  const attempt =
    engineAttemptId === 1
      ? run.firstBeforeEventId
      : `","engineAttemptId":${engineAttemptId}${run.beforeEventId}`
  return `{"emittedAt":"${emittedAt}${attempt}${eventId}${aroundType(type)}${idempotencyKey}${afterKey(logicalAttemptId, payload)}${stepText(run, step)}`
}

function afterKey(logicalAttemptId: number, payload: ByteString | undefined): ByteString {
  if (payload === undefined) return `","logicalAttemptId":${logicalAttemptId}`
  return logicalAttemptId === 1
    ? `","logicalAttemptId":1,"payload":${payload}`
    : `","logicalAttemptId":${logicalAttemptId},"payload":${payload}`
}

function stepText(run: RunText, step: ByteString | undefined): ByteString {
  if (step === undefined) return run.afterPayload + run.end
  return isPlain(step)
    ? run.beforeStep + step + run.afterStep
    : `${run.afterPayload},"stepId":${quoted(step)}${run.end}`
}

/** There are few types, and they come again and again. */
const aroundTypes = new Map<ByteString, ByteString>()
const TYPES_MAX = 100

function aroundType(type: ByteString): ByteString {
  const known = aroundTypes.get(type)
  if (known !== undefined) return known
  const text = flat(`","eventType":${quoted(type)},"idempotencyKey":"`)
  if (aroundTypes.size === TYPES_MAX) aroundTypes.clear()
  aroundTypes.set(flat(type), text)
  return text
}

/** Of UTF-8, JSON touches the ASCII bytes alone. */
function quoted(bytes: ByteString): ByteString {
  return isPlain(bytes) ? `"${bytes}"` : JSON.stringify(bytes)
}
