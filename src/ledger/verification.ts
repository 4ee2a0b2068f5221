import { type ByteString, utf8 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { bodyHashAfter } from '../core/hash.ts'
import { ShardedMap } from '../core/sharded-map.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { bodyPrefixOf, type ChainReport, verifyChain } from '../engine/chain.ts'
import { dedupeTag } from '../engine/keys.ts'
import { parseDedupe, parseLogEntry } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Entry, Put, Reader, TreeId } from '../engine/storage.ts'
import { storedHeading } from './checked-headings.ts'
import { Envelope } from './envelope.ts'
import { raisedPuts } from './raised-alerts.ts'
import { RunProjection } from './run-projection.ts'
import {
  dedupePlace,
  HEADING_KEY,
  LOG,
  placeOf,
  projectedIn,
  RUN_STATE_KEY,
  recordOf,
  runStateIn,
  writtenIn,
} from './stored.ts'

/** The result of `verifyRun`. */
export interface RunVerification {
  /** Whether everything matches. */
  readonly isValid: boolean
  /** The number of records. */
  readonly events: number
  /** The `runSeq` of the first record that does not match. */
  readonly firstInvalid?: number
  /** What does not match. */
  readonly error?: string
}

/**
 * Recomputes everything from the records: the hash chain, each event's envelope
 * and key, the dedupe entries, and the projected state. A change to any of them
 * contradicts one of the others.
 */
export async function verifyRecords(
  reader: Reader,
  scope: ByteString,
  runId: string,
): Promise<RunVerification> {
  const chain = await verifyLedgerChain(reader, scope)
  const heading = await reader.get(scope, placeOf(scope, HEADING_KEY).tag, HEADING_KEY)
  if (chain.length === 0 && chain.isValid && heading === undefined) {
    throw new AnnalsError('RUN_NOT_FOUND', `the ledger has no run ${JSON.stringify(runId)}`, { runId })
  }
  const { length, firstInvalid } = chain
  if (length === 0 && chain.isValid) return invalid(0, 1, 'record 1 is missing')
  if (firstInvalid !== undefined) return invalid(length, firstInvalid + 1, chain.error ?? '')
  const state = placeOf(scope, RUN_STATE_KEY)
  const projected = await reader.get(scope, state.tag, state.key)
  const projectedSeq = projected === undefined ? 0 : seqOf(projected)
  const rebuilt = new RunProjection(scope, runId)
  for await (const page of pages(reader, { scope, tag: LOG })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const { sequence } = parseLogEntry(entry)
      const wrong = await wrongWith(reader, scope, runId, entry)
      if (wrong !== undefined) return invalid(length, sequence + 1, wrong)
      if (sequence === 0 && heading?.value !== storedHeading(recordOf(entry))) {
        return invalid(length, 1, 'the stored tenant, project or plan is not that of the first event')
      }
      if (sequence < projectedSeq) rebuilt.takeEntry(entry)
    }
  }
  if ((await count(reader, { scope, tag: dedupeTag(LOG) })) !== length) {
    return invalid(length, length, 'the duplicate check knows a key that no record has')
  }
  if (!(await sameState(reader, rebuilt))) {
    const firstWrong = Math.min(Math.max(1, projectedSeq), length)
    return invalid(length, firstWrong, `the state stored at ${projectedSeq} does not match the records`)
  }
  return Object.freeze({ isValid: true, events: length })
}

/** The last `runSeq` that a stored state includes; 0 if the state is unreadable. A valid state never has 0. */
function seqOf(projected: Entry): number {
  try {
    const seq: unknown = runStateIn(projected)?.lastEventSeq
    return Number.isSafeInteger(seq) ? (seq as number) : 0
  } catch (error) {
    if (error instanceof AnnalsError) return 0
    throw error
  }
}

async function count(reader: Reader, tree: TreeId): Promise<number> {
  let found = 0
  for await (const page of pages(reader, tree)) found += page.length
  return found
}

/** Verifies only the hash chain. */
export function verifyLedgerChain(reader: Reader, scope: ByteString): Promise<ChainReport> {
  return verifyChain(reader, { scope, tag: LOG }, recordBodyHash(scope))
}

/** Returns a function that hashes the body of a record in this scope. */
export function recordBodyHash(scope: ByteString): (body: ByteString) => ByteString {
  const prefix = bodyPrefixOf(scope)
  return body => bodyHashAfter(prefix, typeIn(body), body)
}

/** The event type in a body; empty if the body is damaged, so that the hash does not match. */
function typeIn(body: ByteString): ByteString {
  try {
    const { eventType } = writtenIn(body)
    return typeof eventType === 'string' ? utf8(eventType) : ''
  } catch (error) {
    if (error instanceof AnnalsError) return ''
    throw error
  }
}

async function wrongWith(
  reader: Reader,
  scope: ByteString,
  runId: string,
  entry: Entry,
): Promise<string | undefined> {
  const { sequence, time, hash, body } = parseLogEntry(entry)
  const runSeq = sequence + 1
  let envelope: Envelope
  try {
    envelope = new Envelope(writtenIn(body))
  } catch (error) {
    if (error instanceof AnnalsError) return `record ${runSeq} is not a valid event: ${error.message}`
    throw error
  }
  if (envelope.bytes !== body) return `record ${runSeq} is not in canonical form`
  if (envelope.runId !== runId) return `record ${runSeq} belongs to another run`
  const place = dedupePlace(scope, envelope)
  const known = await reader.get(place.scope, place.tag, place.key)
  if (known === undefined) return `the duplicate check does not know the key of record ${runSeq}`
  const first = parseDedupe(known)
  const isSame =
    first.sequence === sequence &&
    first.time === time &&
    first.hash === hash &&
    first.memo === envelope.eventId
  return isSame ? undefined : `the duplicate check has other values for record ${runSeq}`
}

/** Stands for the shared scope, whose lists are not verified here. */
const NOWHERE = ''

/** Whether the stored projection, including alerts, is exactly the one that would be stored for `rebuilt`. */
async function sameState(reader: Reader, rebuilt: RunProjection): Promise<boolean> {
  const { scope } = rebuilt
  const expected = new ShardedMap<ByteString, ByteString>()
  let missing = 0
  for (const put of putsOf(rebuilt)) {
    if (isSliceOver()) await nextSlice()
    if (put.scope !== scope) continue
    expected.set(put.key, put.value)
    missing++
  }
  for (const range of projectedIn(scope)) {
    for await (const page of pages(reader, range)) {
      for (const { key, value } of page) {
        if (expected.get(key) !== value) return false
        missing--
      }
    }
  }
  return missing === 0
}

/** Yields the writes one by one, because a long run has many and each is encoded only when needed. */
function* putsOf(rebuilt: RunProjection): Generator<Put, void, void> {
  if (rebuilt.run === undefined) return
  yield* rebuilt.unstoredPuts()
  yield* raisedPuts(rebuilt.scope, NOWHERE, rebuilt.pendingAlerts, [])
}

function invalid(events: number, firstInvalid: number, error: string): RunVerification {
  return Object.freeze({ isValid: false, events, firstInvalid, error })
}
