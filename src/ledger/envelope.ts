import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonPart } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { isUuidV4 } from '../core/id.ts'
import { isRfc3339 } from '../core/time.ts'
import { CheckedHeadings } from './checked-headings.ts'
import { checkAttempt, checkField, checkStep, quoted, refuse } from './fields.ts'
import { identityOf, keyOf } from './idempotency-key.ts'
import type { RunEventWrite, RunHeading } from './run-events.ts'

const PAYLOAD_BYTES_MAX = 1024 * 1024

/**
 * A checked event (LD9). It is a copy, so changing the caller's object afterwards changes nothing. It is a class and not an
 * object literal: V8 would allocate literals that survive a large batch in old space from then on, and with them every text
 * of each later event.
 */
export class Envelope implements RunHeading {
  readonly runId: string
  readonly tenantId: string
  readonly projectId: string
  readonly environmentId: string
  readonly planId: string
  readonly planVersion: string
  readonly eventId: string
  readonly eventType: string
  readonly emittedAt: string
  readonly stepId: string | undefined
  readonly logicalAttemptId: number
  readonly engineAttemptId: number
  readonly idempotencyKey: string
  /** Whether the payload has a field `error`. */
  readonly hasError: boolean
  /** The preimage of the key, without the run. */
  readonly identity: ByteString
  /** The event type in UTF-8. */
  readonly typeBytes: ByteString
  /** The heading as the run's first event stores it. */
  readonly storedHeading: ByteString
  /** The event in canonical JSON (RFC 8785). */
  readonly bytes: ByteString

  /** Throws `INVALID_ENVELOPE` with the field in `details`, or `IDEMPOTENCY_KEY_MISMATCH`. */
  constructor(event: unknown, headings: CheckedHeadings = new CheckedHeadings()) {
    if (typeof event !== 'object' || event === null || Array.isArray(event)) {
      refuse('event', 'is not an object')
    }
    // Each field is read once, so a getter can't answer differently after its value was checked.
    const { eventId, eventType, emittedAt, idempotencyKey, stepId, payload } = event as RunEventWrite
    const { runId, tenantId, projectId, environmentId, planId, planVersion } = event as RunEventWrite
    const { engineAttemptId, logicalAttemptId } = event as RunEventWrite
    checkNames(event)
    if (!isUuidV4(eventId)) refuse('eventId', eventId === undefined ? 'is missing' : 'is not a UUID v4')
    const type = checkField('eventType', eventType)
    const heading = headings.check(runId, tenantId, projectId, environmentId, planId, planVersion)
    checkAttempt('engineAttemptId', engineAttemptId)
    checkAttempt('logicalAttemptId', logicalAttemptId)
    const step = checkStep(eventType, stepId)
    checkField('emittedAt', emittedAt)
    if (!isRfc3339(emittedAt)) refuse('emittedAt', 'is not an RFC 3339 time in UTC')
    const payloadJson = payload === undefined ? '' : `,"payload":${encodePayload(payload)}`
    const stepJson = stepId === undefined ? '' : `,"stepId":${quoted(stepId)}`
    this.runId = runId
    this.tenantId = tenantId
    this.projectId = projectId
    this.environmentId = environmentId
    this.planId = planId
    this.planVersion = planVersion
    this.eventId = eventId
    this.eventType = eventType
    this.emittedAt = emittedAt
    this.stepId = stepId
    this.logicalAttemptId = logicalAttemptId
    this.engineAttemptId = engineAttemptId
    this.idempotencyKey = idempotencyKey
    this.hasError = payload?.['error'] !== undefined
    this.identity = identityOf(step, logicalAttemptId, type, heading.plan, heading.version)
    this.typeBytes = type
    this.storedHeading = heading.stored
    checkKey(runId, idempotencyKey, keyOf(heading.run, this.identity))
    // The fields stand in the order of their names, as canonical JSON has them.
    this.bytes =
      `{"emittedAt":"${emittedAt}","engineAttemptId":${engineAttemptId},${heading.environmentJson}` +
      `,"eventId":"${eventId}","eventType":${quoted(eventType)},"idempotencyKey":"${idempotencyKey}"` +
      `,"logicalAttemptId":${logicalAttemptId}${payloadJson},${heading.planToRunJson}${stepJson},${heading.tenantJson}}`
  }
}

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

/** Why some names are refused that a producer might use. */
const REFUSED: Readonly<Record<string, string>> = {
  runSeq: 'is assigned by the ledger',
  persistedAt: 'is assigned by the ledger',
  occurredAt: 'is not a field of an event: use payload.sourceOccurredAt',
}

function checkNames(event: object): void {
  for (const name of Object.keys(event)) {
    if (!FIELDS.has(name)) refuse(name, REFUSED[name] ?? 'is not a field of an event')
  }
}

/** LD7: the producer's key must be the one that the event's fields give. */
function checkKey(runId: string, given: unknown, expected: string): void {
  if (given === expected) return
  checkField('idempotencyKey', given)
  const message = 'idempotencyKey does not match the event: derive it with deriveIdempotencyKey'
  throw new AnnalsError('IDEMPOTENCY_KEY_MISMATCH', message, { runId, expected, given })
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
    return refuse('payload', `is not JSON at ${path}: ${reason}`, { path, reason })
  }
  if (bytes.length <= PAYLOAD_BYTES_MAX) return bytes
  return refuse('payload', `is longer than ${PAYLOAD_BYTES_MAX} bytes`, {
    bytes: bytes.length,
    bytesMax: PAYLOAD_BYTES_MAX,
  })
}
