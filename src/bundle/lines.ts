import { type ByteString, fromBuffer, fromUtf8, hex, utf8 } from '../core/bytes.ts'
import { canonicalJsonBytes, DEPTH_MAX, type JsonLimits } from '../core/canonical-json.ts'
import { sha256HexOf } from '../core/hash.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { encodeRecord, joinFields } from '../core/value.ts'
import type { LogEntry } from '../engine/log.ts'
import type { RunSnapshot } from '../ledger/run-events.ts'
import { contentOf } from '../primitives/event.ts'
import type { Run } from '../primitives/run.ts'

/**
 * The lines of a bundle, each one JSON object in canonical form (RFC 8785) and
 * one LF. docs/contracts/bundle.md is the contract.
 *
 *   header    whose run it is, how long its logs are, and how they end
 *   event     one for each event of the run's own log
 *   record    one for each record of the ledger
 *   snapshot  what the records come to; only where there are some
 *   end       the number of lines before it, and their SHA-256
 *
 * Whoever reads a line makes it again from what it says and compares the bytes:
 * so there is one way to write a bundle, and no byte in it that nobody looks at.
 */
export const BUNDLE_VERSION = 1

/** Around a value, which may be as deep as values may be: an error, its attempt, the list of these, step, steps, snapshot, line. */
export const LINE_LIMITS: JsonLimits = { depthMax: DEPTH_MAX + 6, bytesMax: Number.POSITIVE_INFINITY }

export interface LogLength {
  readonly count: number
  /** The hash of the last one; 64 zeros without any. */
  readonly head: string
}

export interface BundleHeader {
  readonly runId: string
  /** Whose handle has the run: its name is in every hash. */
  readonly tenant: string
  /** Absent if it is `default`; its name is in every hash too. */
  readonly app?: string
  /** Absent if it is `default`; its name is in every hash too. */
  readonly agent?: string
  /** Its entry in the index of runs; null if there is none. */
  readonly run: Run | null
  readonly events: LogLength
  readonly records: LogLength
}

export function headerLine({ runId, tenant, app, agent, run, events, records }: BundleHeader): ByteString {
  const fields = {
    'annals-bundle': String(BUNDLE_VERSION),
    events: lengthBytes(events),
    records: lengthBytes(records),
    run: run === null ? 'null' : encodeRecord({ ...run }),
    runId: canonicalJsonBytes(runId),
    tenant: canonicalJsonBytes(tenant),
    // In a member of their own: every bundle begins with `annals-bundle`, the first in the order of names.
    ...(app === undefined && agent === undefined ? {} : { place: placeBytes({ app, agent }) }),
  }
  const hash = sha256HexOf(joinFields(fields))
  return joinFields({ ...fields, hash: `"${hash}"` })
}

function placeBytes({ app, agent }: Readonly<Record<'app' | 'agent', string | undefined>>): ByteString {
  return joinFields({
    ...(app === undefined ? {} : { app: canonicalJsonBytes(app) }),
    ...(agent === undefined ? {} : { agent: canonicalJsonBytes(agent) }),
  })
}

function lengthBytes({ count, head }: LogLength): ByteString {
  return `{"count":${count},"head":"${head}"}`
}

/** An entry of the run's own log. */
export function eventLine({ sequence, time, prevHash, hash, body }: LogEntry): ByteString {
  const { type, payload } = contentOf(body)
  const event = `{"payload":${payload},"type":${canonicalJsonBytes(fromUtf8(type))}}`
  return `{"event":${event},"hash":"${hex(hash)}","prevHash":"${hex(prevHash)}","sequence":${sequence},"time":${time}}`
}

/** A record of the ledger: its body is canonical JSON already. */
export function recordLine({ sequence, time, prevHash, hash, body }: LogEntry): ByteString {
  return `{"hash":"${hex(hash)}","prevHash":"${hex(prevHash)}","record":${body},"runSeq":${sequence + 1},"time":${time}}`
}

/** The line of a snapshot, which has every step of the run in it, in pieces of some kilobytes. */
export function* snapshotPieces(snapshot: RunSnapshot): Generator<ByteString, void, void> {
  const { steps, ...rest } = snapshot
  // Where the steps go into the canonical form of all else: in the order of the keys.
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

/** A snapshot has every step in it: longer lines than this nobody writes, and no reader has to hold them. */
const LINE_BYTES_MAX = 256 * 1024 * 1024

/** The lines of a stream without their LF; the last one says whether it had one. */
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
    // Nobody needs what comes behind it.
    if (rest.length > LINE_BYTES_MAX) break
  }
  if (rest !== '') yield { line: rest, isWhole: false }
}

const CHUNK_CHARS = 256 * 1024

/** A chunk may be the whole bundle: what is cut into lines at a time is not. */
function* piecesOf(chunk: Uint8Array | string): Generator<ByteString, void, void> {
  if (typeof chunk !== 'string') {
    const buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    for (let at = 0; at < buffer.length; at += CHUNK_CHARS)
      yield fromBuffer(buffer.subarray(at, at + CHUNK_CHARS))
    return
  }
  for (let at = 0; at < chunk.length; ) {
    // A char of two units stays whole.
    const isPair = chunk.codePointAt(at + CHUNK_CHARS - 1) !== chunk.charCodeAt(at + CHUNK_CHARS - 1)
    const end = at + CHUNK_CHARS + (isPair ? 1 : 0)
    yield utf8(chunk.slice(at, end))
    at = end
  }
}
