import { type ByteString, flat, fromU64, fromUtf8 } from '../core/bytes.ts'
import { formatRfc3339 } from '../core/time.ts'
import { parseJson } from '../core/value.ts'
import { BODY_AT, timeOf } from '../engine/log.ts'
import type { Entry } from '../engine/storage.ts'
import type { Fact } from './reduce.ts'
import type { RunEventWrite } from './run-events.ts'
import { transitionOf } from './transitions.ts'

/**
 * Reads the few fields of a stored record that a state depends on. Replaying a long run is mostly reading its records, and
 * most of a record is its payload. So the fields are found by a pattern, which is more than twice as fast as parsing the
 * record; a record that does not fit the pattern is parsed.
 */
export function factIn(entry: Entry): Fact {
  const runSeq = fromU64(entry.key) + 1
  const persistedAt = formatRfc3339(timeOf(entry))
  return matched(entry.value, runSeq, persistedAt) ?? parsed(entry.value, runSeq, persistedAt)
}

function parsed(value: ByteString, runSeq: number, persistedAt: string): Fact {
  const event = parseJson(value.slice(BODY_AT)) as RunEventWrite
  const { eventType, stepId, logicalAttemptId, engineAttemptId, payload } = event
  const error = payload?.['error']
  return { runSeq, persistedAt, eventType, stepId, logicalAttemptId, engineAttemptId, error }
}

/**
 * The start of a record up to its payload. Records are canonical JSON, so these fields always stand in this order. Texts with
 * a backslash don't match: an escaped quote could end them early.
 */
const START =
  /\{"emittedAt":"[^"]*","engineAttemptId":(\d+),"environmentId":"[^"\\]*","eventId":"[^"]*","eventType":"(\w+)","idempotencyKey":"[^"]*","logicalAttemptId":(\d+)/y
const STEP_ID = ',"stepId":"'
const TENANT_ID = ',"tenantId":"'

function matched(value: ByteString, runSeq: number, persistedAt: string): Fact | undefined {
  START.lastIndex = BODY_AT
  const match = START.exec(value)
  // An event of an unknown type may or may not have a step.
  const transition = match === null ? undefined : transitionOf(match[2])
  if (match === null || transition === undefined) return undefined
  const { about, eventType } = transition
  let stepId: string | undefined
  if (about === 'step') {
    if (transition.rule.from === 'RUNNING' && value.includes('"error":', START.lastIndex)) return undefined
    // The step is the last field but one. If the text after it is not the tenant, this is some text of the payload.
    const stepAt = value.lastIndexOf(STEP_ID) + STEP_ID.length
    const stepEnd = value.indexOf('"', stepAt)
    const bytes = value.slice(stepAt, stepEnd)
    if (!value.startsWith(TENANT_ID, stepEnd + 1) || bytes.includes('\\')) return undefined
    // A state may keep the id, and a slice would keep the whole record in memory.
    stepId = fromUtf8(flat(bytes))
  }
  return {
    runSeq,
    persistedAt,
    eventType,
    stepId,
    logicalAttemptId: Number(match[3]),
    engineAttemptId: Number(match[1]),
    error: undefined,
  }
}
