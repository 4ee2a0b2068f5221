import { createHash, type Hash } from 'node:crypto'
import { type ByteString, fromBuffer, fromUtf8, hex, utf8 } from '../core/bytes.ts'
import { canonicalJsonBytes, DEPTH_MAX, type JsonLimits } from '../core/canonical-json.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { decodeStored, encodeGiven, encodeGivenCanonical, joinSorted } from '../core/value.ts'
import type { LogEntry } from '../engine/log.ts'
import type { RunSnapshot } from '../ledger/run-events.ts'
import { contentOf } from '../primitives/event.ts'
import { type RunRecord, recordBytes } from '../primitives/run-records.ts'

/**
 * The lines of a bundle, each one JSON object in canonical form (RFC 8785) and
 * one LF. docs/contracts/bundle.md is the contract.
 *
 *   header    the run, its tenant, and the length and last hash of its logs
 *   event     one for each event of the run's own log
 *   record    one for each record of the ledger
 *   snapshot  the run's state after all records; absent if there are none
 *   end       the number of lines before it, and their SHA-256
 *
 * A reader makes each line again from its content and compares the bytes. So there is exactly one way to write a bundle, and
 * every byte of it is checked.
 */
export const BUNDLE_VERSION = 1

/** A snapshot line nests six containers around a value: an error, its attempt, the attempts, a step, the steps, the snapshot. */
const LINE_LIMITS: JsonLimits = { depthMax: DEPTH_MAX + 6, bytesMax: Number.POSITIVE_INFINITY }

/** The length of a log, and how it ends. */
export interface LogLength {
  readonly count: number
  /** The hash of the last entry, in hex; 64 zeros for an empty log. */
  readonly head: string
}

export interface BundleHeader {
  readonly runId: string
  /** The tenant, whose name is part of every hash. */
  readonly tenant: string
  /** The app, whose name is part of every hash; absent if it is `default`. */
  readonly app?: string
  /** The agent, whose name is part of every hash; absent if it is `default`. */
  readonly agent?: string
  /** The run's record in the index of runs, with canonical metadata; null if there is none. */
  readonly run: RunRecord | null
  readonly events: LogLength
  readonly records: LogLength
}

/** The run's metadata may have megabytes, so the line is hashed in slices. */
export async function headerLine(header: BundleHeader): Promise<ByteString> {
  const { runId, tenant, app, agent, run, events, records } = header
  const fields = {
    'annals-bundle': String(BUNDLE_VERSION),
    events: lengthBytes(events),
    records: lengthBytes(records),
    run: run === null ? 'null' : runBytes(run),
    runId: canonicalJsonBytes(runId),
    tenant: canonicalJsonBytes(tenant),
    // In a member of their own, so that `annals-bundle` stays the first member of every bundle.
    ...(app === undefined && agent === undefined ? {} : { place: placeBytes({ app, agent }) }),
  }
  const hash = createHash('sha256')
  await hashInSlices(hash, joinSorted(fields, HEADER_BYTES_MAX))
  return joinSorted({ ...fields, hash: `"${hash.digest('hex')}"` }, HEADER_BYTES_MAX)
}

/** The bytes of the largest metadata take 22 MiB in base64. */
const METADATA_BYTES_MAX = 23 * 1024 * 1024
const HEADER_BYTES_MAX = 25 * 1024 * 1024

/** The bytes of a run's record in a header. */
export function runBytes(run: RunRecord): ByteString {
  return recordBytes(run, HEADER_BYTES_MAX)
}

/** Metadata as a bundle has them. */
export function canonicalMetadata(metadata: unknown): ByteString | Promise<ByteString> {
  return encodeGivenCanonical(metadata, METADATA_BYTES_MAX)
}

/** The record of a run as a bundle has it. */
export async function canonicalRecord({ head, metadata }: RunRecord): Promise<RunRecord> {
  return { head, metadata: await canonicalMetadata(await decodeStored(metadata)) }
}

/** The record of a run as a store has it. Its metadata have the order of the bundle, and bytes as they are. */
export async function storedRecord({ head, metadata }: RunRecord): Promise<RunRecord> {
  return { head, metadata: await encodeGiven(await decodeStored(metadata)) }
}

const HASHED_CHARS = 1024 * 1024

/** Adds bytes of any length to a hash, with pauses. */
export async function hashInSlices(hash: Hash, bytes: ByteString): Promise<void> {
  for (let at = 0; at < bytes.length; at += HASHED_CHARS) {
    if (isSliceOver()) await nextSlice()
    hash.update(bytes.slice(at, at + HASHED_CHARS), 'latin1')
  }
}

function placeBytes({ app, agent }: Readonly<Record<'app' | 'agent', string | undefined>>): ByteString {
  return joinSorted({
    ...(app === undefined ? {} : { app: canonicalJsonBytes(app) }),
    ...(agent === undefined ? {} : { agent: canonicalJsonBytes(agent) }),
  })
}

function lengthBytes({ count, head }: LogLength): ByteString {
  return `{"count":${count},"head":"${head}"}`
}

/** The line of an event of the run's own log. */
export function eventLine({ sequence, time, prevHash, hash, body }: LogEntry): ByteString {
  const { type, payload } = contentOf(body)
  const event = `{"payload":${payload},"type":${canonicalJsonBytes(fromUtf8(type))}}`
  return `{"event":${event},"hash":"${hex(hash)}","prevHash":"${hex(prevHash)}","sequence":${sequence},"time":${time}}`
}

/** The line of a ledger record, whose body is stored as canonical JSON. */
export function recordLine({ sequence, time, prevHash, hash, body }: LogEntry): ByteString {
  return `{"hash":"${hex(hash)}","prevHash":"${hex(prevHash)}","record":${body},"runSeq":${sequence + 1},"time":${time}}`
}

/** The line of a snapshot, in pieces of some kilobytes, because it holds every step of the run. */
export function* snapshotPieces(snapshot: RunSnapshot): Generator<ByteString, void, void> {
  const { steps, ...rest } = snapshot
  // Members are in the order of their names, so the steps stand between two parts of the rest.
  const [before, after] = canonicalJsonBytes({ ...rest, steps: [] }, LINE_LIMITS).split('"steps":[]')
  let piece = `{"snapshot":${before}"steps":[`
  for (const [i, step] of steps.entries()) {
    if (i > 0) piece += ','
    piece += canonicalJsonBytes(step, LINE_LIMITS)
    if (piece.length < PIECE_BYTES) continue
    yield piece
    piece = ''
  }
  yield `${piece}]${after}}`
}

const PIECE_BYTES = 16 * 1024

export function endLine(lines: number, sha256: string): ByteString {
  return `{"end":{"lines":${lines},"sha256":"${sha256}"}}`
}

/** The longest line that a reader accepts. Snapshots, which hold every step, stay below. */
const LINE_BYTES_MAX = 256 * 1024 * 1024

/** The lines of a stream, without their line feeds. `isWhole` is false for a last line that has none. */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<{ readonly line: ByteString; readonly isWhole: boolean }, void, void> {
  let rest = ''
  for await (const chunk of chunks) {
    for (const bytes of piecesOf(chunk)) {
      const pieces = bytes.split('\n')
      pieces[0] = rest + pieces[0]
      rest = pieces.pop() as string
      for (const line of pieces) {
        if (isSliceOver()) await nextSlice()
        yield { line, isWhole: true }
      }
    }
    // The line is refused, so the rest of the stream need not be read.
    if (rest.length > LINE_BYTES_MAX) break
  }
  if (rest !== '') yield { line: rest, isWhole: false }
}

const CHUNK_CHARS = 256 * 1024

/** Cuts a chunk into pieces, because a caller may pass the whole bundle as one chunk. */
function* piecesOf(chunk: Uint8Array | string): Generator<ByteString, void, void> {
  if (typeof chunk !== 'string') {
    const buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    for (let at = 0; at < buffer.length; at += CHUNK_CHARS)
      yield fromBuffer(buffer.subarray(at, at + CHUNK_CHARS))
    return
  }
  for (let at = 0; at < chunk.length; ) {
    // A surrogate pair must not be cut apart.
    const isPair = chunk.codePointAt(at + CHUNK_CHARS - 1) !== chunk.charCodeAt(at + CHUNK_CHARS - 1)
    const end = at + CHUNK_CHARS + (isPair ? 1 : 0)
    yield utf8(chunk.slice(at, end))
    at = end
  }
}
