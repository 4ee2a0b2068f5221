import { createHash, type Hash } from 'node:crypto'
import { type ByteString, hex } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { bodyHashAfter, linkHash, ZERO_HASH } from '../core/hash.ts'
import { invariant } from '../core/invariant.ts'
import { ShardedMap } from '../core/sharded-map.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { checkText } from '../core/text.ts'
import { formatRfc3339 } from '../core/time.ts'
import { decodeStored, encodeGivenCanonical, parseJson } from '../core/value.ts'
import { bodyPrefixOf } from '../engine/chain.ts'
import type { LogEntry } from '../engine/log.ts'
import { CheckedHeadings } from '../ledger/checked-headings.ts'
import { Envelope } from '../ledger/envelope.ts'
import { type Fact, Reducer } from '../ledger/reduce.ts'
import type { RunEventWrite, RunHeading, RunSnapshot } from '../ledger/run-events.ts'
import { snapshotInSlices } from '../ledger/snapshot.ts'
import { eventBody } from '../primitives/event.ts'
import { headerIn, scopeOfBundle } from './header.ts'
import {
  type BundleHeader,
  endLine,
  eventLine,
  hashInSlices,
  headerLine,
  linesOf,
  recordLine,
  snapshotPieces,
} from './lines.ts'

/** The result of verifying a bundle. */
export interface BundleReport {
  /** Whether every line of the bundle is right. */
  readonly isValid: boolean
  /** The number of the first wrong line, counted from 1; absent if the bundle is valid. */
  readonly line?: number
  /** What is wrong with that line; absent if the bundle is valid. */
  readonly error?: string
  /** The id of the run; absent if the header can't be read. */
  readonly runId?: string
  /** The tenant that the run belongs to; absent if the header can't be read. */
  readonly tenant?: string
  /** The app that the run belongs to; absent if it is `default`. */
  readonly app?: string
  /** The agent that the run belongs to; absent if it is `default`. */
  readonly agent?: string
  /** The number of ledger records; absent unless the bundle is valid. */
  readonly records?: number
  /** The number of events in the run's own log; absent unless the bundle is valid. */
  readonly events?: number
  /** The run's state after all its records; absent if there are none. */
  readonly snapshot?: RunSnapshot
  /** The SHA-256 of all lines but the last, in hex; absent unless the bundle is valid. */
  readonly sha256?: string
}

/**
 * Verifies a bundle without a database. Recomputes every hash, every idempotency key, the snapshot and the SHA-256 of the
 * whole. The report names the first line that was changed.
 */
export async function verifyBundle(bundle: AsyncIterable<Uint8Array | string>): Promise<BundleReport> {
  // The characters of a path can be iterated too, and would give a report about the path.
  if (typeof bundle === 'string') {
    throw invalidArgument('bundle', 'must be a stream, such as createReadStream(path), and not a string')
  }
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

/** The items of a bundle, each verified before it is yielded. Throws `CORRUPT`, with the line, at the first wrong one. */
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

/**
 * Verifies the lines of a bundle one by one: header → events → records → snapshot (if there are records) → end. Each line is
 * made again from its content and compared, so no byte of it goes unchecked.
 */
class Verifier {
  #line = 0
  readonly #sha256: Hash = createHash('sha256')
  #header: BundleHeader | undefined
  #prefix: ByteString = ''
  readonly #events = new Chain()
  readonly #records = new Chain()
  readonly #reducer = new Reducer()
  readonly #headings = new CheckedHeadings()
  #heading: RunHeading | undefined
  readonly #keys = new ShardedMap<string, true>()
  #snapshot: RunSnapshot | undefined
  #isEnded = false

  async take(line: ByteString, isWhole: boolean): Promise<BundleItem | undefined> {
    this.#line++
    if (this.#isEnded) this.#refuse('nothing may follow the last line')
    if (!isWhole)
      this.#refuse('the line feed at the end of the line is missing, so the bundle may be cut off')
    const item = await this.#verified(line)
    if (!this.#isEnded) {
      await hashInSlices(this.#sha256, line)
      this.#sha256.update('\n')
    }
    return item
  }

  checkEnded(): void {
    if (this.#isEnded) return
    this.#line++
    this.#refuse(this.#line === 1 ? 'the bundle is empty' : 'the bundle ends here, without its last line')
  }

  /** Errors of the checks name this line. */
  async #verified(line: ByteString): Promise<BundleItem | undefined> {
    try {
      return await this.#judge(line)
    } catch (error) {
      const isAboutLine = error instanceof AnnalsError && error.code !== 'ILLEGAL_STATE'
      if (!isAboutLine || error.details['line'] !== undefined) throw error
      return this.#refuse(error.message, error)
    }
  }

  #judge(line: ByteString): BundleItem | undefined | Promise<BundleItem | undefined> {
    const header = this.#header
    if (header === undefined) return this.#takeHeader(line)
    if (this.#events.length < header.events.count) return this.#takeEvent(line, header)
    if (this.#records.length < header.records.count) return this.#takeRecord(line, header)
    if (header.records.count > 0 && this.#snapshot === undefined) return this.#takeSnapshot(line)
    return this.#takeEnd(line, header)
  }

  async #takeHeader(line: ByteString): Promise<BundleItem> {
    const header = await headerIn(this.#object(await decodeStored(line)))
    this.#same(line, await headerLine(header), 'the header')
    this.#header = header
    this.#prefix = bodyPrefixOf(scopeOfBundle(header))
    return { kind: 'header', header }
  }

  async #takeEvent(line: ByteString, { events }: BundleHeader): Promise<BundleItem> {
    const name = `event ${this.#events.length}`
    const { event, time } = this.#object(await decodeStored(line)) as {
      event?: { payload?: unknown; type?: unknown }
      time?: unknown
    }
    if (typeof event !== 'object' || event === null) this.#refuse(`${name} should be here`)
    const type = checkText('type', event.type, { bytesMax: 65_535 })
    const payload = await encodeGivenCanonical(event.payload)
    const body = eventBody(type, payload)
    const entry = this.#events.link(time, body, bodyHashAfter(this.#prefix, type, payload))
    this.#same(line, eventLine(entry), name)
    this.#checkHead(entry, events, name)
    return { kind: 'event', entry }
  }

  #takeRecord(line: ByteString, { runId, tenant, records }: BundleHeader): BundleItem {
    const name = `record ${this.#records.length + 1}`
    const { record, time } = this.#object(parseJson(line)) as { record?: unknown; time?: unknown }
    if (typeof record !== 'object' || record === null) this.#refuse(`${name} should be here`)
    const envelope = new Envelope(record, this.#headings)
    const body = envelope.bytes
    const entry = this.#records.link(time, body, bodyHashAfter(this.#prefix, envelope.typeBytes, body))
    this.#same(line, recordLine(entry), name)
    this.#checkHead(entry, records, name)
    if (envelope.runId !== runId) this.#refuse(`${name} belongs to another run`)
    if (tenant !== 'default' && envelope.tenantId !== tenant)
      this.#refuse(`${name} belongs to another tenant`)
    const first = this.#heading ?? headingOf(envelope)
    this.#heading = first
    for (const field of ['tenantId', 'projectId', 'environmentId'] as const) {
      if (envelope[field] !== first[field]) this.#refuse(`${name} has another ${field} than the first record`)
    }
    if (this.#keys.has(envelope.idempotencyKey))
      this.#refuse(`${name} has the idempotency key of an earlier record`)
    this.#keys.set(envelope.idempotencyKey, true)
    this.#reducer.add(factOf(entry, envelope, record as RunEventWrite))
    return { kind: 'record', entry, envelope }
  }

  /** The snapshot holds every step of the run, so it is made and compared in slices. */
  async #takeSnapshot(line: ByteString): Promise<undefined> {
    const { run, steps } = this.#reducer
    const heading = this.#heading
    if (heading === undefined || run === undefined) this.#refuse('there is no record')
    this.#snapshot = await snapshotInSlices(heading, run, steps.all)
    let at = 0
    for (const piece of snapshotPieces(this.#snapshot)) {
      if (isSliceOver()) await nextSlice()
      this.#same(line.slice(at, at + piece.length), piece, 'the snapshot of the records')
      at += piece.length
    }
    this.#same(line.slice(at), '', 'the snapshot of the records')
    return undefined
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
      this.#refuse(`the hash of ${name} is not the last hash that the header names`)
  }

  #object(value: unknown): Readonly<Record<string, unknown>> {
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>
    return this.#refuse('the line is not a JSON object')
  }

  #same(line: ByteString, expected: ByteString, what: string): void {
    if (line !== expected)
      this.#refuse(`${what} is not what it should be: something in this line was changed`)
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

/** A log whose hashes are computed again, entry by entry. */
class Chain {
  length = 0
  #hash = ZERO_HASH
  #time = 0

  link(time: unknown, body: ByteString, bodyHash: ByteString): LogEntry {
    if (!Number.isSafeInteger(time) || (time as number) < this.#time) {
      throw new AnnalsError('CORRUPT', 'its time is invalid, or before the time of the entry before')
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
    persistedAt: formatRfc3339(time),
    eventType,
    stepId,
    logicalAttemptId,
    engineAttemptId,
    error,
  }
}
