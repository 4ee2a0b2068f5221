import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonPart } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { isUuidV4 } from '../core/id.ts'
import { isPlainTime, isRfc3339 } from '../core/time.ts'
import { checkAttempt, checkField, checkStep, refuse } from './fields.ts'
import { identityOf, keyOf } from './idempotency-key.ts'
import { type RunText, recordText, runText } from './record-text.ts'
import type { RunEventWrite, RunHeading } from './run-events.ts'

const PAYLOAD_BYTES_MAX = 1024 * 1024
const FIELDS: ReadonlySet<string> = new Set([
  'eventId',
  'eventType',
  'emittedAt',
  'runId',
  'tenantId',
  'projectId',
  'environmentId',
  'planId',
  'planVersion',
  'engineAttemptId',
  'logicalAttemptId',
  'idempotencyKey',
  'stepId',
  'payload',
])

/** An event that was checked. Its bytes are its own: what the caller changes afterwards changes nothing. */
export interface Envelope extends RunHeading {
  readonly eventId: string
  readonly eventType: string
  readonly emittedAt: string
  readonly stepId: string | undefined
  readonly logicalAttemptId: number
  readonly engineAttemptId: number
  /** Whether the payload has one. */
  readonly hasError: boolean
  readonly idempotencyKey: string
  /** What the key stands for, but for the run. */
  readonly identity: ByteString
  readonly typeBytes: ByteString
  /** The event in canonical JSON (RFC 8785). */
  readonly bytes: ByteString
}

/** Checks an event as LD9 asks; whatever is wrong is `INVALID_ENVELOPE` with the field in `details`. */
export function checkEnvelope(event: unknown): Envelope {
  if (typeof event !== 'object' || event === null || Array.isArray(event)) {
    return refuse('event', 'is not an object')
  }
  const {
    eventId,
    eventType,
    emittedAt,
    runId,
    tenantId,
    projectId,
    environmentId,
    planId,
    planVersion,
    engineAttemptId,
    logicalAttemptId,
    idempotencyKey,
    stepId,
    payload,
  } = event as RunEventWrite
  checkNames(event, REQUIRED_FIELDS + (stepId === undefined ? 0 : 1) + (payload === undefined ? 0 : 1))
  if (!isUuidV4(eventId)) refuse('eventId', eventId === undefined ? 'is missing' : 'is not a UUID v4')
  const type = checkField('eventType', eventType)
  const heading = checkHeading(runId, tenantId, projectId, environmentId, planId, planVersion)
  checkAttempt('engineAttemptId', engineAttemptId)
  checkAttempt('logicalAttemptId', logicalAttemptId)
  const step = checkStep(eventType, stepId)
  if (!isPlainTime(emittedAt)) {
    // Its fraction may be of any length, but not fill a disk.
    checkField('emittedAt', emittedAt)
    if (!isRfc3339(emittedAt)) refuse('emittedAt', 'is no RFC 3339 time in UTC')
  }
  const payloadBytes = payload === undefined ? undefined : encodePayload(payload)
  const identity = identityOf(step, logicalAttemptId, type, heading.plan, heading.version)
  const key = keyOf(heading.run, identity)
  if (key !== idempotencyKey) {
    checkField('idempotencyKey', idempotencyKey)
    const message = 'idempotencyKey is not what deriveIdempotencyKey makes of the event'
    throw new AnnalsError('IDEMPOTENCY_KEY_MISMATCH', message, {
      runId,
      expected: key,
      given: idempotencyKey,
    })
  }
  return {
    runId,
    eventId,
    eventType,
    emittedAt,
    stepId,
    logicalAttemptId,
    engineAttemptId,
    tenantId,
    projectId,
    environmentId,
    planId,
    planVersion,
    hasError: payload?.['error'] !== undefined,
    idempotencyKey,
    identity,
    typeBytes: type,
    bytes: recordText(
      heading.text,
      emittedAt,
      engineAttemptId,
      eventId,
      type,
      key,
      logicalAttemptId,
      payloadBytes,
      step,
    ),
  }
}

/** The texts that all events of a run have, checked, in UTF-8 where they are needed so, and as parts of the record. */
interface CheckedHeading extends RunHeading {
  readonly run: ByteString
  readonly plan: ByteString
  readonly version: ByteString
  readonly text: RunText
}

/** By run. A run's next event has nearly always the same: to compare them is less than to check them and write them down. */
const headings = new Map<string, CheckedHeading>()
const HEADINGS_MAX = 1_000
/** Longer ones are not kept: a thousand of them may take two or three megabytes, but no more. */
const HEADING_BYTES_MAX = 1_024

function checkHeading(
  runId: string,
  tenantId: string,
  projectId: string,
  environmentId: string,
  planId: string,
  planVersion: string,
): CheckedHeading {
  const known = headings.get(runId)
  if (
    known !== undefined &&
    known.tenantId === tenantId &&
    known.projectId === projectId &&
    known.environmentId === environmentId &&
    known.planId === planId &&
    known.planVersion === planVersion
  )
    return known
  const run = checkField('runId', runId)
  if (run === '_shared') refuse('runId', 'is reserved')
  const tenant = checkField('tenantId', tenantId)
  const project = checkField('projectId', projectId)
  const environment = checkField('environmentId', environmentId)
  const plan = checkField('planId', planId)
  const version = checkField('planVersion', planVersion)
  const heading = {
    runId,
    tenantId,
    projectId,
    environmentId,
    planId,
    planVersion,
    run,
    plan,
    version,
    text: runText({ run, tenant, project, environment, plan, version }),
  }
  const { beforeEventId, afterPayload, end } = heading.text
  if (beforeEventId.length + afterPayload.length + end.length <= HEADING_BYTES_MAX) {
    if (headings.size === HEADINGS_MAX) headings.clear()
    headings.set(runId, heading)
  }
  return heading
}

/** How many an event has that is about no step and has no payload. */
const REQUIRED_FIELDS = 12

/**
 * Refuses names that no event has. As each field that there is was read from the object, there is no other one if they are as
 * many as it has names; only what inherits, or has a field that is `undefined`, has to be looked at name by name.
 */
function checkNames(event: object, fields: number): void {
  const names = Object.keys(event)
  if (names.length === fields && Object.getPrototypeOf(event) === Object.prototype) return
  for (const name of names) {
    if (!FIELDS.has(name)) refuse(name, UNWELCOME[name] ?? 'is no field of an event')
  }
}

const UNWELCOME: Readonly<Record<string, string>> = {
  runSeq: 'is the ledger’s to give',
  persistedAt: 'is the ledger’s to give',
  occurredAt: 'is no field of an event: use payload.sourceOccurredAt',
}

function encodePayload(payload: unknown): ByteString {
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) {
    return refuse('payload', 'is not a JSON object')
  }
  let bytes: ByteString
  try {
    bytes = canonicalJsonPart(payload)
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    const { path, reason } = error.details
    return refuse('payload', `holds what JSON can't, at ${path}: ${reason}`, { path, reason })
  }
  if (bytes.length <= PAYLOAD_BYTES_MAX) return bytes
  return refuse('payload', `is longer than ${PAYLOAD_BYTES_MAX} bytes`, {
    bytes: bytes.length,
    bytesMax: PAYLOAD_BYTES_MAX,
  })
}
