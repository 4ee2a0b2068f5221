import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { AnnalsError, type ErrorDetails, invalidArgument } from '../core/errors.ts'
import { checkText } from '../core/text.ts'
import { isShared } from '../engine/keys.ts'
import { isRunEvent, isStepEvent } from './transitions.ts'

/** Run ids become part of a scope and event types are indexed, so both must be short. */
const NAME_BYTES_MAX = 256
/** Bounds the other texts, so that no single field can fill a disk. */
const TEXT_BYTES_MAX = 4_096
/** Stands for the step in the idempotency key of a run event, so no step may have this id. */
export const RUN_STEP = 'RUN'

/** The fields of the idempotency key. It joins them with `|`, so none of them may contain one. */
const KEY_FIELDS: readonly string[] = ['runId', 'eventType', 'planId', 'planVersion', 'stepId']

/** Short printable ASCII that needs no JSON escape and has no `|`: nearly every text of an envelope. */
const PLAIN = /^[ !#-[\]-{}~]{1,128}$/

/** The JSON text of a string, in UTF-8. */
export function quoted(text: string): ByteString {
  return PLAIN.test(text) ? `"${text}"` : canonicalJsonBytes(text)
}

/** Returns the UTF-8 bytes of an envelope's text field, or throws `INVALID_ENVELOPE`. */
export function checkField(field: string, value: unknown): ByteString {
  if (typeof value === 'string' && PLAIN.test(value)) return value
  if (value === undefined) return refuse(field, 'is missing')
  const bytesMax = field === 'runId' || field === 'eventType' ? NAME_BYTES_MAX : TEXT_BYTES_MAX
  let bytes: ByteString
  try {
    bytes = checkText(field, value, { bytesMax })
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    return refuse(field, String(error.details['reason']), error.details)
  }
  if (!KEY_FIELDS.includes(field) || !bytes.includes('|')) return bytes
  return refuse(field, 'contains |, which separates the fields of the idempotency key')
}

/** Returns a run id that an event may have, or throws `INVALID_ARGUMENT`. */
export function checkEventRunId(runId: unknown): string {
  checkText('runId', runId, { bytesMax: NAME_BYTES_MAX })
  const id = runId as string
  if (!id.includes('|') && !isShared({ run: id })) return id
  throw invalidArgument('runId', 'must not be _shared and must not contain |', id)
}

/** Returns an attempt number, or throws `INVALID_ENVELOPE`. */
export function checkAttempt(field: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return value as number
  return refuse(field, 'is not a whole number from 1', { value })
}

/**
 * Checks the step of an event (L13, LD6) and returns its UTF-8 bytes. A step event must have a step, a run event must not,
 * and an event of an unknown type may.
 */
export function checkStep(eventType: string, stepId: unknown): ByteString | undefined {
  if (stepId === undefined) {
    return isStepEvent(eventType) ? refuse('stepId', `is missing: ${eventType} is a step event`) : undefined
  }
  if (isRunEvent(eventType)) return refuse('stepId', `is not allowed: ${eventType} is a run event`)
  const bytes = checkField('stepId', stepId)
  if (bytes !== RUN_STEP) return bytes
  return refuse('stepId', `is ${RUN_STEP}, which stands for the run itself in the idempotency key`)
}

/** Throws `INVALID_ENVELOPE`; `why` completes a sentence that starts with the field's name. */
export function refuse(field: string, why: string, details: ErrorDetails = {}): never {
  throw new AnnalsError('INVALID_ENVELOPE', `${field} ${why}`, { ...details, field })
}
