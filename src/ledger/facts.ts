import { type ByteString, flat, fromU64, fromUtf8 } from '../core/bytes.ts'
import { formatRfc3339 } from '../core/time.ts'
import { parseJson } from '../core/value.ts'
import { BODY_AT, timeOf } from '../engine/log.ts'
import type { Entry } from '../engine/storage.ts'
import type { Fact } from './reduce.ts'
import type { RunEventWrite } from './run-events.ts'
import { type StepTransition, transitionOf } from './transitions.ts'

/**
 * What of a stored record a state can depend on. To reduce a long run is mostly
 * to read its records, and most of a record is its payload, on which nothing
 * depends but what it may have as its error.
 */

/** The last one, as the next is often the same: records come in crowds. */
let lastMs = -1
let lastText = ''

export function timeText(ms: number): string {
  if (ms !== lastMs) {
    lastText = formatRfc3339(ms)
    lastMs = ms
  }
  return lastText
}

export function factIn(entry: Entry): Fact {
  const runSeq = fromU64(entry.key) + 1
  const persistedAt = timeText(timeOf(entry))
  return glance(entry.value, runSeq, persistedAt) ?? look(entry.value, runSeq, persistedAt)
}

function look(value: ByteString, runSeq: number, persistedAt: string): Fact {
  const event = parseJson(value.slice(BODY_AT)) as RunEventWrite
  const { eventType, stepId, logicalAttemptId, engineAttemptId, payload } = event
  return {
    runSeq,
    persistedAt,
    eventType,
    stepId,
    logicalAttemptId,
    engineAttemptId,
    error: payload?.['error'],
  }
}

const QUOTE = 34
const BACKSLASH = 92
const DIGIT_0 = 48
const EVENT_ID_CHARS = 36
const KEY_CHARS = 64

const EMITTED_AT = BODY_AT + '{"emittedAt":"'.length
const TO_ENGINE_ATTEMPT = '","engineAttemptId":'.length
const TO_ENVIRONMENT = ',"environmentId":"'.length
const TO_TYPE = '","eventId":"'.length + EVENT_ID_CHARS + '","eventType":"'.length
const TO_ATTEMPT = '","idempotencyKey":"'.length + KEY_CHARS + '","logicalAttemptId":'.length
const STEP_ID = ',"stepId":"'
const TENANT_ID = ',"tenantId":"'
const ERROR = '"error":'

/**
 * The same without parsing. The body is canonical, so everything is in its place; and within a text a quote has a backslash
 * before it, so what looks like a key is one. Undefined where it is not that simple.
 */
function glance(value: ByteString, runSeq: number, persistedAt: string): Fact | undefined {
  const engineAt = value.indexOf('"', EMITTED_AT) + TO_ENGINE_ATTEMPT
  const engineAttemptId = wholeAt(value, engineAt)
  const environmentAt = engineAt + digits(engineAttemptId) + TO_ENVIRONMENT
  const environmentEnd = value.indexOf('"', environmentAt)
  const typeAt = environmentEnd + TO_TYPE
  const typeEnd = value.indexOf('"', typeAt)
  if (value.charCodeAt(environmentEnd - 1) === BACKSLASH || value.charCodeAt(typeAt - 1) !== QUOTE)
    return undefined
  const transition = transitionOf(value.slice(typeAt, typeEnd))
  // Any other type may have a step or none.
  if (transition === undefined) return undefined
  const logicalAttemptId = wholeAt(value, typeEnd + TO_ATTEMPT)
  if (engineAttemptId === 0 || logicalAttemptId === 0) return undefined
  const { about, eventType } = transition
  if (about === 'run') {
    return {
      runSeq,
      persistedAt,
      eventType,
      stepId: undefined,
      logicalAttemptId,
      engineAttemptId,
      error: undefined,
    }
  }
  if (transition.rule.from === 'RUNNING' && value.includes(ERROR, typeEnd)) return undefined
  const stepAt = value.lastIndexOf(STEP_ID) + STEP_ID.length
  const stepEnd = value.indexOf('"', stepAt)
  if (!value.startsWith(TENANT_ID, stepEnd + 1)) return undefined
  const stepId = value.slice(stepAt, stepEnd)
  if (stepId.includes('\\')) return undefined
  return {
    runSeq,
    persistedAt,
    eventType,
    stepId: nameOf(stepId, transition.rule),
    logicalAttemptId,
    engineAttemptId,
    error: undefined,
  }
}

/** One that a state may keep must not be a part of the record, which would be kept as a whole. */
function nameOf(stepId: ByteString, { from }: StepTransition): string {
  return fromUtf8(from === 'PENDING' ? flat(stepId) : stepId)
}

/** A whole number, written there; 0 if there is none. */
function wholeAt(value: ByteString, at: number): number {
  let whole = 0
  for (let i = at; ; i++) {
    const digit = value.charCodeAt(i) - DIGIT_0
    if (!(digit >= 0 && digit <= 9)) return whole
    whole = whole * 10 + digit
  }
}

function digits(whole: number): number {
  return whole < 10 ? 1 : String(whole).length
}
