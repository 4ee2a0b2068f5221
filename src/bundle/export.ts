import { createHash } from 'node:crypto'
import { type ByteString, hex, toBuffer, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { linkHash, ZERO_HASH } from '../core/hash.ts'
import { isSliceOver, mapInSlices, nextSlice } from '../core/slices.ts'
import { isLarge } from '../core/value.ts'
import { headOf } from '../engine/chain.ts'
import type { Database } from '../engine/database.ts'
import { parseScope, TAGS } from '../engine/keys.ts'
import { type LogEntry, type LogHead, parseLogEntry } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Reader } from '../engine/storage.ts'
import { FactReader } from '../ledger/facts.ts'
import { indexedRun } from '../ledger/indexed-run.ts'
import { readProjection, takeAll } from '../ledger/projector.ts'
import { Reducer } from '../ledger/reduce.ts'
import type { RunHeading } from '../ledger/run-events.ts'
import { RunProjection } from '../ledger/run-projection.ts'
import { snapshotInSlices } from '../ledger/snapshot.ts'
import { LOG, recordOf } from '../ledger/stored.ts'
import { recordBodyHash } from '../ledger/verification.ts'
import { eventBodyHash } from '../primitives/event.ts'
import { placeIn } from '../primitives/run.ts'
import { notFound, type RunRecord, recordIn } from '../primitives/run-records.ts'
import type { RunName, RunScopes } from '../primitives/run-scopes.ts'
import {
  type BundleHeader,
  canonicalRecord,
  endLine,
  eventLine,
  hashInSlices,
  headerLine,
  recordLine,
  snapshotPieces,
} from './lines.ts'

/** A run, and where to find it. */
export interface RunLocation {
  readonly database: Database
  readonly tenant: string
  readonly scopes: RunScopes
  readonly name: RunName
}

/**
 * A run as a bundle, made as it is read, so that memory holds a page of it. Logs only grow: the export covers the length that
 * they have when it begins, and appends go on meanwhile. Hashes are recomputed on the way, so the export of a run that
 * was tampered with fails before its last line.
 */
export async function* exportRun(location: RunLocation): AsyncGenerator<Uint8Array, void, void> {
  const { header, scope, events, records } = await lookAt(location)
  const sha256 = createHash('sha256')
  let lines = 0
  const hashed = (piece: ByteString): Uint8Array => {
    const bytes = toBuffer(piece)
    sha256.update(bytes)
    return bytes
  }
  const bytesOf = (line: ByteString): Uint8Array | Promise<Uint8Array> => {
    lines++
    const text = `${line}\n`
    return isLarge(text) ? hashInSlices(sha256, text).then(() => toBuffer(text)) : hashed(text)
  }
  yield await bytesOf(await headerLine(header))
  const { database } = location
  for await (const page of entriesOf(database, scope, TAGS.event, events, eventBodyHash(scope))) {
    yield joined(await mapInSlices(page, ({ parsed }) => bytesOf(eventLine(parsed)), readBytes))
  }
  const reducer = new Reducer()
  const facts = new FactReader()
  let heading: RunHeading | undefined
  for await (const page of entriesOf(database, scope, LOG, records, recordBodyHash(scope))) {
    yield joined(await mapInSlices(page, ({ parsed }) => bytesOf(recordLine(parsed)), readBytes))
    for (const { entry } of page) {
      if (isSliceOver()) await nextSlice()
      heading ??= recordOf(entry)
      reducer.add(facts.read(entry))
    }
  }
  if (heading !== undefined && reducer.run !== undefined) {
    const snapshot = await snapshotInSlices(heading, reducer.run, reducer.steps.all)
    for (const piece of snapshotPieces(snapshot)) {
      if (isSliceOver()) await nextSlice()
      yield hashed(piece)
    }
    yield await bytesOf('')
  }
  yield toBuffer(`${endLine(lines, sha256.digest('hex'))}\n`)
}

/** The header of the run, and its logs' lengths, as of one moment. Throws `RUN_NOT_FOUND` if the run has no data. */
async function lookAt({ database, tenant, scopes, name }: RunLocation): Promise<{
  readonly header: BundleHeader
  readonly scope: ByteString
  readonly events: LogHead
  readonly records: LogHead
}> {
  return database.view(async reader => {
    const { runId } = name
    const place = scopes.record(runId)
    const entry = scopes.ifNamed(name, await reader.get(place.scope, place.tag, place.key))
    const scope = name.scope ?? scopes.scopeIn(runId, entry)
    const events = await headOf(reader, { scope, tag: TAGS.event })
    const records = await headOf(reader, { scope, tag: LOG })
    const run =
      entry === undefined ? null : await upToDate(reader, scope, await canonicalRecord(recordIn(entry)))
    if (run === null && events.length === 0 && records.length === 0) throw notFound(runId)
    const lengthOf = ({ length, hash }: LogHead): BundleHeader['events'] => ({
      count: length,
      head: hex(hash),
    })
    const header = {
      runId,
      tenant,
      ...placeIn(parseScope(scope)),
      run,
      events: lengthOf(events),
      records: lengthOf(records),
    }
    return { header, scope, events, records }
  })
}

/** The run's index record as of its last ledger record. The stored one may lag behind. */
async function upToDate(reader: Reader, scope: ByteString, record: RunRecord): Promise<RunRecord> {
  const { head, metadata } = record
  let projection: RunProjection
  try {
    projection = await readProjection(reader, scope)
  } catch (error) {
    if (!(error instanceof AnnalsError && error.code === 'CORRUPT')) throw error
    // The stored projection is damaged. It can be computed again from the records.
    projection = new RunProjection(scope, head.runId)
    await takeAll(reader, projection)
  }
  const { run: state, movedAt, firstTime } = projection
  if (state === undefined) return record
  return { head: indexedRun(head, { ...state, movedAt, firstTime }), metadata }
}

interface Read {
  readonly entry: Parameters<typeof parseLogEntry>[0]
  readonly parsed: LogEntry
}

function readBytes({ entry }: Read): number {
  return entry.value.length
}

async function* entriesOf(
  database: Database,
  scope: ByteString,
  tag: number,
  head: LogHead,
  bodyHashOf: (body: ByteString) => ByteString,
): AsyncGenerator<readonly Read[], void, void> {
  let before = ZERO_HASH
  let next = 0
  if (head.length === 0) return
  for await (const page of pages(database, { scope, tag, to: u64(head.length), once: true })) {
    const read: Read[] = []
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const parsed = parseLogEntry(entry)
      read.push({ entry, parsed })
      const { sequence, time, prevHash, hash, body } = parsed
      const isNext = sequence === next && prevHash === before && Number.isSafeInteger(time)
      if (!isNext || hash !== linkHash(before, sequence, time, bodyHashOf(body))) throw changed(sequence)
      before = hash
      next++
    }
    yield read
  }
  if (next !== head.length || before !== head.hash) throw changed(next)
}

function changed(sequence: number): AnnalsError {
  const message = `entry ${sequence} does not match its hash: the run was changed, or deleted while it was read`
  return new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence })
}

/** One chunk for a page of lines, because yielding each line takes longer than reading it. */
function joined(lines: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(lines)
}
