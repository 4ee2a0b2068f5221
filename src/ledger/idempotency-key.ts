import { type ByteString, fromUtf8 } from '../core/bytes.ts'
import { sha256HexOf } from '../core/hash.ts'
import { checkAttempt, checkField, checkStep, RUN_STEP } from './fields.ts'

/** What makes an event the same event: nothing else of it matters. */
export interface IdempotencyFields {
  readonly runId: string
  readonly stepId?: string
  readonly logicalAttemptId: number
  readonly eventType: string
  readonly planId: string
  readonly planVersion: string
}

/**
 * What is hashed: the six fields in their order, verbatim, with `|` in between. A field that may not be so is
 * `INVALID_ENVELOPE`.
 * @example
 * const fields = { runId: 'run-1', eventType: 'RunStarted', logicalAttemptId: 1, planId: 'plan', planVersion: '2' }
 * idempotencyPreimage(fields) // → 'run-1|RUN|1|RunStarted|plan|2'
 */
export function idempotencyPreimage(fields: IdempotencyFields): string {
  return fromUtf8(checkedPreimage(fields))
}

function checkedPreimage(fields: IdempotencyFields): ByteString {
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

/**
 * The key under which an event is stored once, however often it is sent: the SHA-256 of `idempotencyPreimage`, in lowercase
 * hex. Tenant, project, environment and engine attempt never change it.
 * @example
 * const key = deriveIdempotencyKey({
 *   runId: '0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a', eventType: 'StepStarted', stepId: 'model.orders',
 *   logicalAttemptId: 1, planId: 'plan_abc', planVersion: '2',
 * })
 * key // → '7f4b974658a54fb2aee9ecb9cefebd2eec27f3fd01f0f8c0d031dfc4a5b96e3c'
 */
export function deriveIdempotencyKey(fields: IdempotencyFields): string {
  const preimage = checkedPreimage(fields)
  const key = sha256HexOf(preimage)
  remember(preimage, key)
  return key
}

/** Of fields that were checked, in UTF-8. */
export function keyOf(runId: ByteString, identity: ByteString): string {
  const preimage = `${runId}|${identity}`
  return recall(preimage) ?? sha256HexOf(preimage)
}

/** What of the preimage is not the run: it tells an event from the others of its run. */
export function identityOf(
  stepId: ByteString | undefined,
  logicalAttemptId: number,
  eventType: ByteString,
  planId: ByteString,
  planVersion: ByteString,
): ByteString {
  return `${stepId ?? RUN_STEP}|${logicalAttemptId}|${eventType}|${planId}|${planVersion}`
}

/**
 * The newest keys that were asked for, in a ring. Who makes events sends them soon, and in the order in which they were made:
 * so one look at the next and one at the newest find nearly all, where a map would cost as much as the hash.
 */
const MADE_MAX = 1_024
const preimages: ByteString[] = new Array(MADE_MAX).fill('')
const keys: string[] = new Array(MADE_MAX).fill('')
let newest = 0
/** Where the one is that was made after the last that was sent. */
let next = 0

function remember(preimage: ByteString, key: string): void {
  newest = (newest + 1) % MADE_MAX
  preimages[newest] = preimage
  keys[newest] = key
}

function recall(preimage: ByteString): string | undefined {
  const at = preimages[next] === preimage ? next : newest
  if (preimages[at] !== preimage) return undefined
  next = (at + 1) % MADE_MAX
  const key = keys[at]
  // It was sent, and is not kept for longer: what dies young costs nothing.
  preimages[at] = ''
  keys[at] = ''
  return key
}
