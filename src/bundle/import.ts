import { type ByteString, hex, u64 } from '../core/bytes.ts'
import { AnnalsError, invalidArgument } from '../core/errors.ts'
import { ZERO_HASH } from '../core/hash.ts'
import { isReservedTenant } from '../core/tenant.ts'
import { encodeValue } from '../core/value.ts'
import { headOf } from '../engine/chain.ts'
import type { Database } from '../engine/database.ts'
import { HEAD_KEY, headTag, TAGS } from '../engine/keys.ts'
import { type LogEntry, type LogHead, parseHead, parseLogEntry } from '../engine/log.ts'
import type { Write, WriteStep } from '../engine/session.ts'
import type { Append, Entry, Place, Put } from '../engine/storage.ts'
import type { Envelope } from '../ledger/envelope.ts'
import { type ImportedRange, importedPut, importedRanges } from '../ledger/imported.ts'
import { checkFence } from '../ledger/lease.ts'
import { dedupeOf, HEADING_KEY, LEASE_KEY, LOG, leaseIn, placeOf, putJson } from '../ledger/stored.ts'
import { recordBodyHash } from '../ledger/verification.ts'
import { eventBodyHash } from '../primitives/event.ts'
import { notesMoved } from '../primitives/run-creation.ts'
import { type RunRecord, recordIn, runOperations } from '../primitives/run-records.ts'
import type { RunScopes } from '../primitives/run-scopes.ts'
import { type BundleItem, itemsIn } from './bundle-verification.ts'
import { scopeOfBundle } from './header.ts'
import { type BundleHeader, canonicalRecord, type LogLength, runBytes, storedRecord } from './lines.ts'

/** What an import added to the store. */
export interface ImportReport {
  /** The id of the imported run. */
  readonly runId: string
  /** The number of ledger records that were added. */
  readonly records: number
  /** The number of events that were added to the run's own log. */
  readonly events: number
}

/** Opens a bundle. It is called twice: an import reads the bundle once to verify it, and once to store it. */
export type Bundle = () => AsyncIterable<Uint8Array | string>

export interface ImportTarget {
  readonly database: Database
  readonly tenant: string
  readonly scopes: RunScopes
}

/** The most that one commit holds. A commit blocks the event loop, so it is kept short. */
const OPERATIONS_MAX = 256
const BYTES_MAX = 256 * 1024
/** How far apart the clocks of two machines may be. */
const AHEAD_MAX_MS = 60_000
/** The latest time that a `Date` can hold. */
const TIME_MAX_MS = 8.64e15

/**
 * Imports a run with all its records, hashes and times. Nothing is written before the whole bundle was verified. A long run is
 * written in several commits. Each of them leaves a beginning of the run, and importing the bundle again continues from
 * there. The store's own entries are compared by the hash of the last common one, which covers all before it. Another run
 * with this id is `RUN_EXISTS`.
 */
export async function importRun(target: ImportTarget, bundle: Bundle): Promise<ImportReport> {
  const plan = await planned(target, bundle)
  const { header, events, records } = plan
  const missing = (log: LogHead, { count }: LogLength): number => Math.max(0, count - log.length)
  const report = {
    runId: header.runId,
    records: missing(records, header.records),
    events: missing(events, header.events),
  }
  const isNews = report.records > 0 || report.events > 0 || (plan.isNew && header.run !== null)
  if (isNews) await new Import(target, plan).run(bundle)
  return Object.freeze(report)
}

/** The bundle's header, and what the store has of the run already. */
interface Plan {
  readonly header: BundleHeader
  /** The record of the header, as the store has it. */
  readonly run: RunRecord | null
  readonly scope: ByteString
  readonly isNew: boolean
  readonly events: LogHead
  readonly records: LogHead
  /** The imported range that ends where the bundle's new records begin, if there is one. */
  readonly range: ImportedRange | undefined
}

async function planned(target: ImportTarget, bundle: Bundle): Promise<Plan> {
  let plan: Plan | undefined
  const hashes = { event: new HashAt(), record: new HashAt() }
  const now = target.database.now()
  for await (const item of itemsIn(bundle())) {
    if (item.kind === 'header') {
      plan = await standing(target, item.header)
      hashes.event.expect(plan.events.length, item.header.events.count)
      hashes.record.expect(plan.records.length, item.header.records.count)
    } else if (item.kind !== 'end') {
      checkTime(now, item.entry)
      hashes[item.kind].look(item.entry)
    }
  }
  if (plan === undefined) throw new AnnalsError('CORRUPT', 'the bundle is empty', { line: 1 })
  const { scope, header } = plan
  const { database } = target
  await checkSame(database, scope, TAGS.event, plan.events, hashes.event, header)
  await checkSame(database, scope, LOG, plan.records, hashes.record, header)
  return plan
}

/**
 * Refuses records from the future. A store's time never goes back, so every later commit would be dated as far ahead, and
 * leases and entries with an expiry would end early.
 */
function checkTime(now: number, { time }: LogEntry): void {
  if (time <= now + AHEAD_MAX_MS) return
  const when = time <= TIME_MAX_MS ? new Date(time).toISOString() : `${time} ms after 1970`
  const message = `the bundle has a record of ${when}, ahead of this machine's clock: correct the clock, or import it later`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'bundle', time, now })
}

async function standing(target: ImportTarget, header: BundleHeader): Promise<Plan> {
  const { database, tenant, scopes } = target
  const { runId } = header
  // Anybody may have made the bundle, so it must not write a server's tokens or its stored answers.
  if (isReservedTenant(tenant)) {
    const message = `nothing can be imported into the reserved tenant ${JSON.stringify(tenant)}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'tenant' })
  }
  if (header.tenant !== tenant) {
    const message = `the bundle belongs to tenant ${JSON.stringify(header.tenant)}, but this handle is for ${JSON.stringify(tenant)}`
    throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'bundle', tenant: header.tenant })
  }
  const scope = scopeOfBundle(header)
  return database.view(async reader => {
    const events = await headOf(reader, { scope, tag: TAGS.event })
    const records = await headOf(reader, { scope, tag: LOG })
    const place = scopes.record(runId)
    const indexed = recordHere(scopes, scope, header, await reader.get(place.scope, place.tag, place.key))
    const isNew = indexed === undefined && events.length === 0 && records.length === 0
    if (indexed !== undefined && events.length === 0 && records.length === 0)
      await checkEntry(recordIn(indexed), header)
    const ranges = await importedRanges(reader, scopes)
    const range = ranges.find(({ runId: of, last }) => of === runId && last === records.length)
    const run = header.run === null ? null : await storedRecord(header.run)
    return { header, run, scope, isNew, events, records, range }
  })
}

/** The run's record, if the run lives in the scope. A run that lives elsewhere is another run, unless the bundle has no run. */
function recordHere(
  scopes: RunScopes,
  scope: ByteString,
  { runId, run, records }: BundleHeader,
  record: Entry | undefined,
): Entry | undefined {
  if (record === undefined || scopes.scopeIn(runId, record) === scope) return record
  if (run !== null || records.count > 0) throw another(runId)
  return undefined
}

/** Compares the records in the index. For a run without logs nothing else tells whether it is the same run. */
async function checkEntry(known: RunRecord, { runId, run }: BundleHeader): Promise<void> {
  if (run === null || runBytes(await canonicalRecord(known)) !== runBytes(run)) throw another(runId)
}

/** The hash of the last entry that bundle and store have in common. */
class HashAt {
  hash: ByteString = ZERO_HASH
  /** The number of common entries. */
  common = 0

  expect(inStore: number, inBundle: number): void {
    this.common = Math.min(inStore, inBundle)
  }

  look({ sequence, hash }: LogEntry): void {
    if (sequence === this.common - 1) this.hash = hash
  }
}

async function checkSame(
  database: Database,
  scope: ByteString,
  tag: number,
  head: LogHead,
  { common, hash }: HashAt,
  { runId }: BundleHeader,
): Promise<void> {
  if (common === 0) return
  const known =
    common === head.length ? head.hash : parseLogEntry(await existing(database, scope, tag, common - 1)).hash
  if (known !== hash) throw another(runId)
}

async function existing(
  database: Database,
  scope: ByteString,
  tag: number,
  sequence: number,
): Promise<Entry> {
  const entry = await database.get(scope, tag, u64(sequence))
  if (entry !== undefined) return entry
  const message = `entry ${sequence} of the run in this store is missing: the run was changed or deleted meanwhile`
  throw new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence })
}

function another(runId: string): AnnalsError {
  const message = `this store has another run ${JSON.stringify(runId)}: delete that run first, or import into another store`
  return new AnnalsError('RUN_EXISTS', message, { runId })
}

/** The second reading of a bundle, which writes the missing entries in several commits. */
class Import {
  readonly #target: ImportTarget
  readonly #plan: Plan
  /** The heads of the logs after the commits so far. */
  #events: LogHead
  #records: LogHead
  #range: ImportedRange | undefined
  #appends: Append[] = []
  #hashes: ByteString[] = []
  #bytes = 0
  #heading: Envelope | undefined
  #isBegun = false

  constructor(target: ImportTarget, plan: Plan) {
    this.#target = target
    this.#plan = plan
    this.#events = plan.events
    this.#records = plan.records
    this.#range = plan.range
  }

  async run(bundle: Bundle): Promise<void> {
    for await (const item of itemsIn(bundle())) {
      if (item.kind === 'header') this.#checkStill(item.header)
      else if (item.kind !== 'end') this.#take(item)
      const isFull = this.#appends.length === OPERATIONS_MAX || this.#bytes >= BYTES_MAX
      if (isFull || item.kind === 'end') await this.#flush()
    }
  }

  #checkStill(header: BundleHeader): void {
    const { header: before } = this.#plan
    if (header.records.head === before.records.head && header.events.head === before.events.head) return
    throw invalidArgument('bundle', 'was changed while it was imported')
  }

  #take(item: BundleItem & { readonly kind: 'event' | 'record' }): void {
    const { scope } = this.#plan
    const { entry } = item
    if (item.kind === 'record') {
      this.#heading ??= item.envelope
      if (entry.sequence < this.#plan.records.length) return
      const dedupe = dedupeOf(item.envelope)
      this.#add({ ...appendOf(scope, LOG, entry, recordBodyHash(scope)), dedupe }, entry)
    } else if (entry.sequence >= this.#plan.events.length) {
      this.#add(appendOf(scope, TAGS.event, entry, eventBodyHash(scope)), entry)
    }
  }

  #add(append: Append, { hash, body }: LogEntry): void {
    this.#appends.push(append)
    this.#hashes.push(hash)
    this.#bytes += body.length
  }

  async #flush(): Promise<void> {
    const appends = this.#appends
    const hashes = this.#hashes
    if (appends.length === 0 && this.#isBegun) return
    const { database, scopes } = this.#target
    const { scope, header } = this.#plan
    const headPlace = (tag: number): Place => ({ scope, tag: headTag(tag), key: HEAD_KEY })
    const range = this.#rangeWith(appends, hashes)
    const clock = database.clock()
    const reads = [
      headPlace(TAGS.event),
      headPlace(LOG),
      placeOf(scope, HEADING_KEY),
      placeOf(scope, LEASE_KEY),
      placeOf(scopes.byDefault(header.runId), LEASE_KEY),
      scopes.record(header.runId),
    ]
    const writesRecords = header.records.count > this.#plan.records.length
    const step =
      (moved: readonly Write[]): WriteStep<undefined> =>
      ([events, records, heading, lease, early, record]) => {
        const indexed = recordHere(scopes, scope, header, record)
        checkStands(header.runId, parseHead(events), this.#events)
        checkStands(header.runId, parseHead(records), this.#records)
        if (writesRecords) checkFence(header.runId, leaseIn(lease), undefined, clock)
        // A lease taken before the run existed is stored in the scope in which the run would begin.
        if (writesRecords && indexed === undefined) checkFence(header.runId, leaseIn(early), undefined, clock)
        const operations: Write[] = [...appends]
        if (heading === undefined && range !== undefined) operations.push(headingPut(scope, this.#heading))
        const entry = indexed === undefined ? this.#indexed(appends) : []
        // This commit creates the run, so it also moves the notes made before.
        if (entry.length > 0) operations.push(...entry, ...moved)
        if (range !== undefined) operations.push(importedPut(scopes.index, range))
        return { operations, result: undefined }
      }
    const { appended } =
      scope === scopes.byDefault(header.runId)
        ? await database.update(reads, step([]))
        : await database.transaction(async tx =>
            tx.update(reads, step(await notesMoved(tx, scopes, header.runId, scope))),
          )
    const wrong = appended.findIndex(({ hash, duplicate }, i) => duplicate || hash !== hashes[i])
    if (wrong >= 0) {
      const message = 'an entry got another hash in this store, because its run was written to meanwhile'
      throw new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence: appended[wrong].sequence })
    }
    this.#advance(appends, hashes)
    this.#range = range ?? this.#range
    this.#isBegun = true
    this.#appends = []
    this.#hashes = []
    this.#bytes = 0
  }

  #rangeWith(appends: readonly Append[], hashes: readonly ByteString[]): ImportedRange | undefined {
    const imported = appends.flatMap(({ tag, time }, i) =>
      tag === LOG ? [{ time: time as number, hash: hashes[i] }] : [],
    )
    if (imported.length === 0) return undefined
    const before = this.#range
    const last = imported[imported.length - 1]
    return {
      runId: this.#plan.header.runId,
      first: before?.first ?? this.#records.length + 1,
      last: this.#records.length + imported.length,
      hash: hex(last.hash),
      fromMs: before?.fromMs ?? imported[0].time,
      toMs: last.time,
    }
  }

  #advance(appends: readonly Append[], hashes: readonly ByteString[]): void {
    for (const [i, { tag }] of appends.entries()) {
      if (tag === LOG) this.#records = { length: this.#records.length + 1, hash: hashes[i] }
      else this.#events = { length: this.#events.length + 1, hash: hashes[i] }
    }
  }

  /** The writes of the run's index record: the bundle's, or the one that its first ledger record creates (LD15). */
  #indexed(appends: readonly Append[]): readonly Write[] {
    const { run, header } = this.#plan
    const { runId, app, agent } = header
    const time = appends.find(({ tag }) => tag === LOG)?.time
    if (run === null && time === undefined) return []
    const made: RunRecord = run ?? {
      head: {
        runId,
        ...(app === undefined ? {} : { app }),
        ...(agent === undefined ? {} : { agent }),
        status: 'Active',
        createdAt: time as number,
        updatedAt: time as number,
        tags: [],
      },
      metadata: encodeValue({}),
    }
    return runOperations(this.#target.scopes.index, undefined, made)
  }
}

function appendOf(
  scope: ByteString,
  tag: number,
  { time, body }: LogEntry,
  bodyHashOf: (body: ByteString) => ByteString,
): Append {
  return { op: 'append', scope, tag, body, bodyHash: bodyHashOf(body), time }
}

function headingPut(scope: ByteString, first: Envelope | undefined): Put {
  const { tenantId, projectId, environmentId, planId, planVersion } = first as Envelope
  return putJson(placeOf(scope, HEADING_KEY), { tenantId, projectId, environmentId, planId, planVersion })
}

function checkStands(runId: string, found: LogHead, expected: LogHead): void {
  if (found.length === expected.length && found.hash === expected.hash) return
  const message = `run ${JSON.stringify(runId)} was written to while it was imported: import it again`
  throw new AnnalsError('CONFLICT', message, { runId })
}
