import type { ByteString } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { checkText } from '../core/text.ts'
import { isShared } from '../engine/keys.ts'
import { isRunEvent, isStepEvent } from './transitions.ts'

/** Run ids name a scope, event types are indexed: both are short. The other texts are bounded so that none fills a disk. */
const NAME_BYTES_MAX = 256
const TEXT_BYTES_MAX = 4_096
/** What a step id would be taken for in the key of a run event. */
export const RUN_STEP = 'RUN'

/** Fields that are put together with `|` in between. */
const KEY_FIELDS = ['runId', 'eventType', 'planId', 'planVersion', 'stepId'] as const

const PLAIN_CHARS_MAX = 128
const QUOTE = 34
const BACKSLASH = 92
const PIPE = 124

/**
 * Whether a text is short, and its characters are of those that no rule is about: printable ASCII that JSON writes as it is,
 * and no `|`. Almost every text of an envelope is, and there are a dozen of them in each event.
 */
export function isPlain(text: string): boolean {
  const { length } = text
  if (length === 0 || length > PLAIN_CHARS_MAX) return false
  for (let i = 0; i < length; i++) {
    const char = text.charCodeAt(i)
    if (char < 32 || char > 126 || char === QUOTE || char === BACKSLASH || char === PIPE) return false
  }
  return true
}

/** A text of the envelope, in UTF-8; `INVALID_ENVELOPE` otherwise. */
export function checkField(field: string, value: unknown): ByteString {
  if (typeof value === 'string' && isPlain(value)) return value
  const bytesMax = field === 'runId' || field === 'eventType' ? NAME_BYTES_MAX : TEXT_BYTES_MAX
  if (value === undefined) return refuse(field, 'is missing')
  let bytes: ByteString
  try {
    bytes = checkText(field, value, { bytesMax })
  } catch (error) {
    if (!(error instanceof AnnalsError)) throw error
    return refuse(field, String(error.details['reason']), error.details)
  }
  if (KEY_FIELDS.includes(field as (typeof KEY_FIELDS)[number]) && bytes.includes('|')) {
    return refuse(field, 'contains |, which separates the fields of the idempotency key')
  }
  return bytes
}

/** A run id that events can have; `INVALID_ARGUMENT` otherwise. */
export function checkEventRunId(runId: unknown): string {
  checkText('runId', runId, { bytesMax: NAME_BYTES_MAX })
  const id = runId as string
  if (!id.includes('|') && !isShared({ run: id })) return id
  const message = `no event can have the run id ${JSON.stringify(id)}: it must not be _shared, nor contain |`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'runId', value: id })
}

export function checkAttempt(field: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return value as number
  return refuse(field, 'is not a whole number from 1', { value })
}

/** L13, LD6: step events have a step, run events none, and others may; none is called RUN. */
export function checkStep(eventType: string, stepId: unknown): ByteString | undefined {
  if (stepId === undefined) {
    return isStepEvent(eventType) ? refuse('stepId', `is missing: ${eventType} is about a step`) : undefined
  }
  if (isRunEvent(eventType)) return refuse('stepId', `is not for ${eventType}, which is about the run`)
  const bytes = checkField('stepId', stepId)
  if (bytes !== RUN_STEP) return bytes
  return refuse('stepId', `is ${RUN_STEP}, which stands for the run itself in the idempotency key`)
}

export function refuse(field: string, why: string, details: ErrorDetails = {}): never {
  throw new AnnalsError('INVALID_ENVELOPE', `${field} ${why}`, { ...details, field })
}
