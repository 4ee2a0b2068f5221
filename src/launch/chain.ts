import { isUtf8 } from 'node:buffer'
import { canonicalJson } from '../core/canonical-json.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { sha256Hex } from '../core/hash.ts'
import { parseRfc3339 } from '../core/time.ts'
import { contractProblems } from './contracts.ts'
import type { AnyLaunchEvent, LaunchEvent } from './events.ts'

type Hashed = Pick<AnyLaunchEvent, 'event_id' | 'ts' | 'prev_hash'> & {
  readonly type: string
  readonly payload: unknown
}

/**
 * The hash of an event: SHA-256 over its id, time, type, payload (RFC 8785) and the previous hash, as one text. The formula
 * leaves out the run, trace and span ids. The run is checked line by line; the others are sealed by the snapshot.
 */
export function eventHash({ event_id, ts, type, payload, prev_hash }: Hashed): string {
  return sha256Hex(event_id + ts + type + canonicalJson(payload) + prev_hash)
}

/** The line of an event: its canonical JSON and one LF. */
export function lineOf(event: AnyLaunchEvent): string {
  return `${canonicalJson(event)}\n`
}

/** A log whose form and chain are intact. */
export interface VerifiedLog {
  readonly events: readonly LaunchEvent[]
  /** The length of the complete lines. */
  readonly bytes: number
  /** The length of what follows: a line that a crash tore. */
  readonly tornBytes: number
}

const LF = 0x0a

/** Reads a log and checks its form, its chain and its run id. Throws `EVENT_CHAIN_BROKEN` with the line that is wrong. */
export function verifyLog(bytes: Buffer, runId: string): VerifiedLog {
  const events: LaunchEvent[] = []
  let start = 0
  for (let end = bytes.indexOf(LF); end !== -1; end = bytes.indexOf(LF, start)) {
    events.push(verifyLine(bytes.subarray(start, end), events.length + 1, events.at(-1), runId))
    start = end + 1
  }
  checkTraces(events)
  return { events, bytes: start, tornBytes: bytes.length - start }
}

function verifyLine(
  bytes: Buffer,
  line: number,
  before: LaunchEvent | undefined,
  runId: string,
): LaunchEvent {
  const event = parseLine(bytes, line)
  if (event.run_id !== runId) {
    throw broken(line, `it belongs to run ${JSON.stringify(event.run_id)}, not ${JSON.stringify(runId)}`, {
      runId,
    })
  }
  if (event.event_hash === undefined || event.prev_hash === undefined) {
    throw broken(line, 'it has no hash')
  }
  if (event.prev_hash !== (before?.event_hash ?? '')) {
    throw broken(line, 'its prev_hash is not the hash of the previous line')
  }
  if (typeof event.event_id !== 'string' || typeof event.ts !== 'string' || typeof event.type !== 'string') {
    throw broken(line, 'it is not an event')
  }
  if (event.payload === undefined || event.event_hash !== eventHash(event)) {
    throw broken(line, 'its event_hash does not match its content')
  }
  checkForm(event, line)
  checkTime(event, before, line)
  return event as LaunchEvent
}

function parseLine(bytes: Buffer, line: number): AnyLaunchEvent {
  // Decoding would replace different invalid bytes by the same character.
  if (!isUtf8(bytes)) throw broken(line, 'it is not UTF-8')
  const text = bytes.toString()
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw broken(line, 'it is not JSON', {}, error)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw broken(line, 'it is not an object')
  if (canonicalText(value, line) !== text) throw broken(line, 'it is not canonical JSON (RFC 8785)')
  return value as AnyLaunchEvent
}

function canonicalText(value: object, line: number): string {
  try {
    return canonicalJson(value)
  } catch (error) {
    throw broken(line, 'it has values that canonical JSON does not allow', {}, error)
  }
}

/** A line with a valid hash and unknown fields or types was written by a later version: `FORMAT_TOO_NEW`. */
function checkForm(event: AnyLaunchEvent, line: number): void {
  const problems = contractProblems('event', event)
  if (problems.length === 0) return
  const newer = problems.every(
    ({ path, keyword }) => keyword === 'additionalProperties' || (path === '$.type' && keyword === 'enum'),
  )
  const [{ path, message }] = problems
  if (!newer) throw broken(line, `${path} ${message}`)
  throw new AnnalsError(
    'FORMAT_TOO_NEW',
    `line ${line} of the event log: ${path} ${message}. A later version of Annals wrote it: update Annals`,
    { line, path },
  )
}

function checkTime(event: AnyLaunchEvent, before: LaunchEvent | undefined, line: number): void {
  const time = parseRfc3339(event.ts, { offset: 'any' })
  if (time === undefined) throw broken(line, `its ts, ${event.ts}, is not a valid time`)
  if (before === undefined) return
  const last = parseRfc3339(before.ts, { offset: 'any' }) as number
  if (time < last) throw broken(line, `its ts, ${event.ts}, is earlier than that of the previous line`)
}

/** All lines have one trace id. If only the first line differs from the others, the first line is the wrong one. */
function checkTraces(events: readonly LaunchEvent[]): void {
  const trace = events[0]?.trace_id
  const odd = events.findIndex(({ trace_id }) => trace_id !== trace)
  if (odd === -1) return
  const isFirst = odd === 1 && events.length > 2 && events[2].trace_id === events[1].trace_id
  throw broken(isFirst ? 1 : odd + 1, 'its trace_id is not the one of the run')
}

/** The error for a line of the log, counted from 1. */
export function broken(line: number, why: string, details: ErrorDetails = {}, cause?: unknown): AnnalsError {
  const message = `line ${line} of the event log is damaged: ${why}`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { ...details, line, reason: why }, cause)
}
