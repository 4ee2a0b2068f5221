import { createHash, type Hash } from 'node:crypto'
import { type ByteString, hex, toBuffer } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { AnnalsError } from '../core/errors.ts'
import { bodyHashAfter, linkHash, ZERO_HASH } from '../core/hash.ts'
import { invariant } from '../core/invariant.ts'
import { ShardedMap } from '../core/sharded-map.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { checkText } from '../core/text.ts'
import { decodeValue, encodeValue, parseJson } from '../core/value.ts'
import { bodyPrefixOf } from '../engine/chain.ts'
import type { LogEntry } from '../engine/log.ts'
import { checkEnvelope, type Envelope } from '../ledger/envelope.ts'
import { timeText } from '../ledger/facts.ts'
import { type Fact, Reducer } from '../ledger/reduce.ts'
import type { RunEventWrite, RunHeading, RunSnapshot } from '../ledger/run-events.ts'
import { snapshotInSlices } from '../ledger/snapshot.ts'
import { eventBody } from '../primitives/event.ts'
import { headerIn, scopeOfBundle } from './header.ts'
import {
  type BundleHeader,
  endLine,
  eventLine,
  headerLine,
  LINE_LIMITS,
  linesOf,
  recordLine,
  snapshotPieces,
} from './lines.ts'

/** What a bundle holds, or what is wrong with it. */
export interface BundleReport {
  readonly isValid: boolean
  /** The first line at which something is wrong; lines count from 1. */
  readonly line?: number
  readonly error?: string
  readonly runId?: string
  readonly tenant?: string
  /** The app that the run belongs to; absent if it is `default`. */
  readonly app?: string
  /** The agent that the run belongs to; absent if it is `default`. */
  readonly agent?: string
  /** In the ledger. */
  readonly records?: number
  /** In the run's own log. */
  readonly events?: number
  /** What the records come to. */
  readonly snapshot?: RunSnapshot
  /** Of all lines but the last. */
  readonly sha256?: string
}

/**
 * Recomputes a bundle from nothing, without a database: every hash, every
 * idempotency key, the snapshot, and the SHA-256 of it all. Whatever was
 * changed is named with its line.
 */
export async function verifyBundle(bundle: AsyncIterable<Uint8Array | string>): Promise<BundleReport> {
  let header: BundleHeader | undefined
  let report: BundleReport | undefined
  try {
    for await (const item of itemsIn(bundle)) {
      if (item.kind === 'header') header = item.header
      else if (item.kind === 'end') report = item.report
    }
    invariant(report !== undefined, 'a bundle without an end is refused')
    return report
  } catch (error) {
    if (!(error instanceof AnnalsError) || error.details['line'] === undefined) throw error
    const { line, reason } = error.details as { readonly line: number; readonly reason: string }
    const of = header === undefined ? {} : namesOf(header)
    return Object.freeze({ isValid: false, line, error: reason, ...of })
  }
}

export type BundleItem =
  | { readonly kind: 'header'; readonly header: BundleHeader }
  | { readonly kind: 'event'; readonly entry: LogEntry }
  | { readonly kind: 'record'; readonly entry: LogEntry; readonly envelope: Envelope }
  | { readonly kind: 'end'; readonly report: BundleReport }

/** What is in a bundle, each part verified before it is given; `CORRUPT` with the line at the first that is wrong. */
export async function* itemsIn(
  bundle: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<BundleItem, void, void> {
  const verifier = new Verifier()
  for await (const { line, isWhole } of linesOf(bundle)) {
    const item = await verifier.take(line, isWhole)
    if (item !== undefined) yield item
  }
  verifier.checkEnded()
}

const SNAPSHOT = 'the snapshot, which is what the records come to,'
const HASHED_CHARS = 1024 * 1024

/** header → events → records → snapshot, if there are records → end. */
class Verifier {
  #line = 0
  readonly #sha256: Hash = createHash('sha256')
  #header: BundleHeader | undefined
  #prefix: ByteString = ''
  readonly #events = new Chain()
  readonly #records = new Chain()
  readonly #reducer = new Reducer()
  #heading: RunHeading | undefined
  readonly #keys = new ShardedMap<string, true>()
  #snapshot: RunSnapshot | undefined
  #isEnded = false

  async take(line: ByteString, isWhole: boolean): Promise<BundleItem | undefined> {
    this.#line++
    if (this.#isEnded) this.#refuse('there is something behind the last line')
    // It may as well be a bundle of which the rest is missing.
    if (!isWhole) this.#refuse('it is cut off: a line ends with a line feed')
    const item = this.#isSnapshotDue ? await this.#takeSnapshot(line) : this.#judge(line)
    if (!this.#isEnded) await this.#hash(line)
    return item
  }

  checkEnded(): void {
    if (this.#isEnded) return
    this.#line++
    this.#refuse(this.#line === 1 ? 'the bundle is empty' : 'the bundle ends here, without its last line')
  }

  #judge(line: ByteString): BundleItem | undefined {
    const header = this.#header
    if (header === undefined) return this.#takeHeader(line)
    if (this.#events.length < header.events.count) return this.#takeEvent(line, header)
    if (this.#records.length < header.records.count) return this.#takeRecord(line, header)
    return this.#takeEnd(line, header)
  }

  #takeHeader(line: ByteString): BundleItem {
    const header = this.#attempt(() => headerIn(this.#parse(line)))
    this.#same(line, headerLine(header), 'the header')
    this.#header = header
    this.#prefix = this.#attempt(() => bodyPrefixOf(scopeOfBundle(header)))
    return { kind: 'header', header }
  }

  #takeEvent(line: ByteString, { events }: BundleHeader): BundleItem {
    const name = `event ${this.#events.length}`
    const { event, time } = this.#parse(line) as {
      event?: { payload?: unknown; type?: unknown }
      time?: unknown
    }
    if (typeof event !== 'object' || event === null) this.#refuse(`${name} should be here`)
    const entry = this.#attempt(() => {
      const type = checkText('type', event.type, { bytesMax: 65_535 })
      const payload = canonicalJsonBytes(event.payload, LINE_LIMITS)
      // Only the one encoding of a value is stored.
      if (encodeValue(decodeValue(payload)) !== payload)
        this.#refuse(`the payload of ${name} is no stored value`)
      const body = eventBody(type, payload)
      return this.#events.link(time, body, bodyHashAfter(this.#prefix, type, payload))
    })
    this.#same(line, eventLine(entry), name)
    this.#checkHead(entry, events, name)
    return { kind: 'event', entry }
  }

  #takeRecord(line: ByteString, { runId, tenant, records }: BundleHeader): BundleItem {
    const name = `record ${this.#records.length + 1}`
    const { record, time } = this.#parse(line) as { record?: unknown; time?: unknown }
    if (typeof record !== 'object' || record === null) this.#refuse(`${name} should be here`)
    const envelope = this.#attempt(() => checkEnvelope(record))
    const body = envelope.bytes
    const entry = this.#attempt(() =>
      this.#records.link(time, body, bodyHashAfter(this.#prefix, envelope.typeBytes, body)),
    )
    this.#same(line, recordLine(entry), name)
    this.#checkHead(entry, records, name)
    if (envelope.runId !== runId) this.#refuse(`${name} is of another run`)
    if (tenant !== 'default' && envelope.tenantId !== tenant) this.#refuse(`${name} is of another tenant`)
    const first = this.#heading ?? headingOf(envelope)
    this.#heading = first
    for (const field of ['tenantId', 'projectId', 'environmentId'] as const) {
      if (envelope[field] !== first[field]) this.#refuse(`${name} has another ${field} than the first`)
    }
    if (this.#keys.has(envelope.idempotencyKey)) this.#refuse(`${name} has a key that another one has`)
    this.#keys.set(envelope.idempotencyKey, true)
    this.#reducer.add(this.#attempt(() => factOf(entry, envelope, record as RunEventWrite)))
    return { kind: 'record', entry, envelope }
  }

  /** All records were there, and there are some. */
  get #isSnapshotDue(): boolean {
    const records = this.#header?.records.count ?? 0
    const events = this.#header?.events.count ?? 0
    const isAllThere = this.#events.length === events && this.#records.length === records
    return records > 0 && isAllThere && this.#snapshot === undefined
  }

  /** It has every step of the run in it: so it is made, and compared, in slices. */
  async #takeSnapshot(line: ByteString): Promise<undefined> {
    const { run, steps } = this.#reducer
    const heading = this.#heading
    if (heading === undefined || run === undefined) this.#refuse('there is no record')
    this.#snapshot = await snapshotInSlices(heading, run, steps.all)
    let at = 0
    for (const piece of snapshotPieces(this.#snapshot)) {
      if (isSliceOver()) await nextSlice()
      this.#same(line.slice(at, at + piece.length), piece, SNAPSHOT)
      at += piece.length
    }
    this.#same(line.slice(at), '', SNAPSHOT)
    return undefined
  }

  async #hash(line: ByteString): Promise<void> {
    for (let at = 0; at < line.length; at += HASHED_CHARS) {
      if (isSliceOver()) await nextSlice()
      this.#sha256.update(toBuffer(line.slice(at, at + HASHED_CHARS)))
    }
    this.#sha256.update('\n')
  }

  #takeEnd(line: ByteString, header: BundleHeader): BundleItem {
    const sha256 = this.#sha256.digest('hex')
    this.#isEnded = true
    this.#same(line, endLine(this.#line - 1, sha256), 'the last line, with the SHA-256 of all others,')
    const report: BundleReport = Object.freeze({
      isValid: true,
      ...namesOf(header),
      records: this.#records.length,
      events: this.#events.length,
      ...(this.#snapshot === undefined ? {} : { snapshot: this.#snapshot }),
      sha256,
    })
    return { kind: 'end', report }
  }

  #checkHead({ sequence, hash }: LogEntry, { count, head }: BundleHeader['events'], name: string): void {
    if (sequence === count - 1 && hex(hash) !== head)
      this.#refuse(`${name} is not the last one that the header names`)
  }

  #parse(line: ByteString): Readonly<Record<string, unknown>> {
    const value = this.#attempt(() => parseJson(line))
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>
    return this.#refuse('it is no JSON object')
  }

  #same(line: ByteString, expected: ByteString, what: string): void {
    if (line !== expected)
      this.#refuse(`${what} is not what it should be: something in this line was changed`)
  }

  #attempt<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      if (!(error instanceof AnnalsError) || error.details['line'] !== undefined) throw error
      return this.#refuse(error.message, error)
    }
  }

  #refuse(reason: string, cause?: unknown): never {
    return refuse(this.#line, reason, cause)
  }
}

function namesOf({ runId, tenant, app, agent }: BundleHeader): Partial<BundleReport> {
  return {
    runId,
    tenant,
    ...(app === undefined ? {} : { app }),
    ...(agent === undefined ? {} : { agent }),
  }
}

function refuse(line: number, reason: string, cause?: unknown): never {
  throw new AnnalsError('CORRUPT', `line ${line} of the bundle: ${reason}`, { line, reason }, cause)
}

/** A log that is put together again. */
class Chain {
  length = 0
  #hash = ZERO_HASH
  #time = 0

  link(time: unknown, body: ByteString, bodyHash: ByteString): LogEntry {
    if (!Number.isSafeInteger(time) || (time as number) < this.#time) {
      throw new AnnalsError('CORRUPT', 'its time is none, or before that of the one before')
    }
    const entry: LogEntry = {
      sequence: this.length++,
      time: time as number,
      prevHash: this.#hash,
      hash: linkHash(this.#hash, this.length - 1, time as number, bodyHash),
      body,
    }
    this.#time = entry.time
    this.#hash = entry.hash
    return entry
  }
}

function headingOf({ runId, tenantId, projectId, environmentId, planId, planVersion }: Envelope): RunHeading {
  return { runId, tenantId, projectId, environmentId, planId, planVersion }
}

function factOf({ sequence, time }: LogEntry, envelope: Envelope, { payload }: RunEventWrite): Fact {
  const { eventType, stepId, logicalAttemptId, engineAttemptId } = envelope
  const error = payload?.['error']
  return {
    runSeq: sequence + 1,
    persistedAt: timeText(time),
    eventType,
    stepId,
    logicalAttemptId,
    engineAttemptId,
    error,
  }
}
