import { type ByteString, flat, fromU64, fromUtf8 } from '../core/bytes.ts'
import { TimeFormatter } from '../core/time.ts'
import { parseJson } from '../core/value.ts'
import { BODY_AT, timeOf } from '../engine/log.ts'
import type { Entry } from '../engine/storage.ts'
import type { Fact } from './reduce.ts'
import type { RunEventWrite } from './run-events.ts'
import { transitionOf } from './transitions.ts'

/**
 * Reads the few fields of stored records that a state depends on. Replaying a long run is mostly reading its records, and most
 * of a record is its payload. So the fields are found by their places, which is more than twice as fast as parsing the record.
 * A record whose fields are not found this way is parsed.
 */
export class FactReader {
  readonly #times = new TimeFormatter()
  readonly #fields = new FieldReader()

  read(entry: Entry): Fact {
    const runSeq = fromU64(entry.key) + 1
    const persistedAt = this.#times.format(timeOf(entry))
    return this.#found(entry.value, runSeq, persistedAt) ?? parsed(entry.value, runSeq, persistedAt)
  }

  #found(value: ByteString, runSeq: number, persistedAt: string): Fact | undefined {
    const fields = this.#fields
    fields.start(value, BODY_AT)
    fields.text('{"emittedAt":"')
    const engineAttemptId = fields.number(',"engineAttemptId":')
    fields.text(',"environmentId":"')
    fields.text(',"eventId":"')
    const typeAt = fields.text(',"eventType":"')
    const typeEnd = fields.at - 1
    fields.text(',"idempotencyKey":"')
    const logicalAttemptId = fields.number(',"logicalAttemptId":')
    if (fields.isLost) return undefined
    const transition = transitionOf(value.slice(typeAt, typeEnd))
    // An event of an unknown type may or may not have a step.
    if (transition === undefined) return undefined
    const { about, eventType } = transition
    let stepId: string | undefined
    if (about === 'step') {
      if (transition.rule.from === 'RUNNING' && value.includes('"error":', fields.at)) return undefined
      // The step is the last field but one. If the text after it is not the tenant, this is some text of the payload.
      fields.start(value, value.lastIndexOf(STEP_ID))
      const stepAt = fields.text(STEP_ID)
      const stepEnd = fields.at - 1
      fields.text(TENANT_ID)
      if (fields.isLost) return undefined
      // A state may keep the id, and a slice would keep the whole record in memory.
      stepId = fromUtf8(flat(value.slice(stepAt, stepEnd)))
    }
    return { runSeq, persistedAt, eventType, stepId, logicalAttemptId, engineAttemptId, error: undefined }
  }
}

const STEP_ID = ',"stepId":"'
const TENANT_ID = ',"tenantId":"'

function parsed(value: ByteString, runSeq: number, persistedAt: string): Fact {
  const event = parseJson(value.slice(BODY_AT)) as RunEventWrite
  const { eventType, stepId, logicalAttemptId, engineAttemptId, payload } = event
  const error = payload?.['error']
  return { runSeq, persistedAt, eventType, stepId, logicalAttemptId, engineAttemptId, error }
}

const QUOTE = '"'
const BACKSLASH = '\\'
const DIGIT_0 = 48

/**
 * Steps through the fields of canonical JSON, whose order and spelling are fixed. Each call names the text that must come next.
 * If another text comes, or a value with a backslash, which could hide a quote, the reader is lost and stays so.
 */
class FieldReader {
  /** Behind the last field that was read. */
  at = 0
  isLost = false
  #json: ByteString = ''
  /** The place of the first backslash. */
  #escapeAt = 0

  start(json: ByteString, at: number): void {
    this.#json = json
    this.at = at
    this.isLost = false
    const escapeAt = json.indexOf(BACKSLASH, at)
    this.#escapeAt = escapeAt < 0 ? json.length : escapeAt
  }

  /** Reads a text behind `name`, which ends in its opening quote. Returns where the text begins. */
  text(name: string): number {
    const begin = this.#skip(name)
    const end = this.#json.indexOf(QUOTE, begin)
    if (end < 0 || this.#escapeAt < end) this.isLost = true
    this.at = end + 1
    return begin
  }

  /** Reads a whole number behind `name`. */
  number(name: string): number {
    const begin = this.#skip(name)
    let number = 0
    this.at = begin
    for (;;) {
      const digit = this.#json.charCodeAt(this.at) - DIGIT_0
      if (!(digit >= 0 && digit <= 9)) break
      number = number * 10 + digit
      this.at++
    }
    if (this.at === begin) this.isLost = true
    return number
  }

  #skip(name: string): number {
    if (!this.#json.startsWith(name, this.at)) this.isLost = true
    return this.at + name.length
  }
}
