import { type ByteString, fromUtf8, u64 } from './core/bytes.ts'
import { AnnalsError } from './core/errors.ts'
import { ShardedMap } from './core/sharded-map.ts'
import { isSliceOver, nextSlice } from './core/slices.ts'
import type { Database } from './engine/database.ts'
import { timeOfIndexKey } from './engine/indexes.ts'
import { dedupeTag, TAGS, tenantRange } from './engine/keys.ts'
import { parseDedupe, parseFeed, parseLogEntry } from './engine/log.ts'
import { pages } from './engine/pages.ts'
import type { Append, Entry, Operation, Reader } from './engine/storage.ts'
import { importedRanges } from './ledger/imported.ts'
import { feedTree, isDerived, LOG } from './ledger/stored.ts'
import { recordBodyHash } from './ledger/verification.ts'
import { eventBodyHash } from './primitives/event.ts'
import { BY_TIME } from './primitives/run-records.ts'
import type { RunScopes } from './primitives/run-scopes.ts'
import { allScopes } from './upkeep.ts'

/** The result of a copy. */
export interface CopyReport {
  /** The number of scopes with entries. */
  readonly scopes: number
  /** The number of entries, events not included. */
  readonly entries: number
  /** The number of events, those of the ledger included. */
  readonly events: number
}

/** The most that one commit holds. A commit blocks the event loop, so it is kept short. */
const OPERATIONS_MAX = 256
const BYTES_MAX = 256 * 1024
/** The most runs whose dedupe keys are held in memory. */
const RUNS_MAX = 64
/** The tags of trees that are copied entry by entry. */
const PLAIN_TAGS: readonly number[] = Object.values(TAGS).filter(
  tag => tag !== TAGS.event && tag !== TAGS.ledger,
)

/**
 * Copies all data of a tenant into a store without data of that tenant, on any engine. Events are appended again with their own
 * times, so they get the same hashes, which is checked. Entries keep their times. Projections are not copied, because the
 * target's projector makes them again. The ledger is copied in the order of its feed, so that the target's feed has the
 * same order.
 */
export async function copyTenant(
  source: Database,
  target: Database,
  tenant: string,
  scopes: RunScopes,
): Promise<CopyReport> {
  const range = tenantRange(tenant)
  const [known] = await target.scopes({ ...range, limit: 1 })
  if (known !== undefined) {
    const message = `the target already has data of tenant ${JSON.stringify(tenant)}: copy into an empty store`
    throw new AnnalsError('INVALID_OPERATION', message, { tenant, scope: fromUtf8(known) })
  }
  return source.view(async reader => {
    const copy = new Copy(target)
    let count = 0
    for await (const scope of allScopes(source, range)) await copyEvents(reader, copy, scope)
    const imported = await importedRanges(reader, scopes)
    await copyLedger(reader, copy, scopes.index, new Set(imported.map(({ scope }) => scope)))
    // Entries come last, so that no event of the copy is older than an entry's commit.
    for await (const scope of allScopes(source, range)) if (await copyEntries(reader, copy, scope)) count++
    await copy.flush()
    return Object.freeze({ scopes: count, entries: copy.entries, events: copy.events })
  })
}

/** Collects operations and writes them in commits of limited size. */
class Copy {
  entries = 0
  events = 0
  readonly #target: Database
  #operations: Operation[] = []
  /** The hashes that the appends among them must get. */
  #hashes: ByteString[] = []
  #bytes = 0

  constructor(target: Database) {
    this.#target = target
  }

  async put(operation: Operation & { readonly op: 'put' }): Promise<void> {
    this.entries++
    await this.#add(operation, operation.value.length)
  }

  async append(operation: Append, hash: ByteString): Promise<void> {
    this.events++
    this.#hashes.push(hash)
    await this.#add(operation, operation.body.length)
  }

  async #add(operation: Operation, bytes: number): Promise<void> {
    this.#operations.push(operation)
    this.#bytes += bytes
    if (this.#operations.length === OPERATIONS_MAX || this.#bytes >= BYTES_MAX) await this.flush()
  }

  async flush(): Promise<void> {
    const operations = this.#operations
    const hashes = this.#hashes
    this.#operations = []
    this.#hashes = []
    this.#bytes = 0
    if (operations.length === 0) return
    const { appended } = await this.#target.write(operations)
    const wrong = appended.findIndex(({ hash, duplicate }, i) => duplicate || hash !== hashes[i])
    if (wrong < 0) return
    const message = 'an event got another hash in the copy, because it was changed in the source'
    throw new AnnalsError('EVENT_CHAIN_BROKEN', message, { sequence: appended[wrong].sequence })
  }
}

/** Copies the entries of a scope, and returns whether there were any. */
async function copyEntries(reader: Reader, copy: Copy, scope: ByteString): Promise<boolean> {
  const before = copy.entries
  for (const tag of PLAIN_TAGS) {
    const put = ({ key, value, expiresAt, time }: Entry): Promise<void> =>
      copy.put({ op: 'put', scope, tag, key, value, expiresAt, time })
    /** Runs that were created in the same millisecond. */
    let crowd: Entry[] = []
    for await (const page of pages(reader, { scope, tag, once: true })) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        if (tag === TAGS.projection && isDerived(entry.key)) continue
        if (tag === TAGS.run && entry.key.startsWith(BY_TIME)) {
          if (crowd.length > 0 && timeOfIndexKey(crowd[0].key) !== timeOfIndexKey(entry.key)) {
            await copyInOrder(copy, crowd, put)
            crowd = []
          }
          crowd.push(entry)
        } else await put(entry)
      }
    }
    await copyInOrder(copy, crowd, put)
  }
  return copy.entries > before
}

/** Copies entries of one millisecond commit by commit, because the order of their commits is the order of the runs. */
async function copyInOrder(
  copy: Copy,
  entries: readonly Entry[],
  put: (entry: Entry) => Promise<void>,
): Promise<void> {
  const ordered = [...entries].sort((a, b) => a.version - b.version)
  for (const [i, entry] of ordered.entries()) {
    if (i > 0 && entry.version !== ordered[i - 1].version) await copy.flush()
    await put(entry)
  }
}

async function copyEvents(reader: Reader, copy: Copy, scope: ByteString): Promise<void> {
  const bodyHash = eventBodyHash(scope)
  const dedupes = await dedupesIn(reader, scope, TAGS.event)
  for await (const page of pages(reader, { scope, tag: TAGS.event, once: true })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const { sequence, hash } = parseLogEntry(entry)
      await copy.append(appendOf(scope, TAGS.event, entry, bodyHash, dedupes.get(sequence)), hash)
    }
  }
}

async function copyLedger(
  reader: Reader,
  copy: Copy,
  shared: ByteString,
  importedRuns: ReadonlySet<ByteString>,
): Promise<void> {
  const records = new Records(reader, copy)
  /** The number of records copied so far, for runs with imported records, which the feed does not list. */
  const lengths = new Map([...importedRuns].map(scope => [scope, 0]))
  for await (const page of pages(reader, feedTree(shared))) {
    for (const listed of page) {
      if (isSliceOver()) await nextSlice()
      const { scope, sequence } = parseFeed(listed)
      const entry = await reader.get(scope, LOG, u64(sequence))
      // The run was deleted since.
      if (entry?.version !== listed.version) continue
      const length = lengths.get(scope)
      if (length !== undefined) {
        await records.copyUnlisted(scope, length, sequence)
        lengths.set(scope, sequence + 1)
      }
      await records.copy(scope, entry, { feed: shared })
    }
  }
  for (const [scope, length] of lengths) await records.copyUnlisted(scope, length, undefined)
}

/** Copies ledger records with their dedupe keys. */
class Records {
  readonly #reader: Reader
  readonly #copy: Copy
  /** The dedupe keys of the runs copied last. */
  readonly #dedupes = new Map<ByteString, Awaited<ReturnType<typeof dedupesIn>>>()

  constructor(reader: Reader, copy: Copy) {
    this.#reader = reader
    this.#copy = copy
  }

  async copy(scope: ByteString, entry: Entry, more: { readonly feed?: ByteString }): Promise<void> {
    let dedupes = this.#dedupes.get(scope)
    if (dedupes === undefined) {
      dedupes = await dedupesIn(this.#reader, scope, LOG)
      if (this.#dedupes.size === RUNS_MAX) this.#dedupes.clear()
      this.#dedupes.set(scope, dedupes)
    }
    const { sequence, hash } = parseLogEntry(entry)
    const append = appendOf(scope, LOG, entry, recordBodyHash(scope), dedupes.get(sequence))
    await this.#copy.append({ ...append, ...more }, hash)
  }

  /** Copies imported records, which stand between or after those that the feed lists. */
  async copyUnlisted(scope: ByteString, from: number, to: number | undefined): Promise<void> {
    if (from === to) return
    const range = { scope, tag: LOG, from: u64(from), to: to === undefined ? undefined : u64(to) }
    for await (const page of pages(this.#reader, range)) {
      for (const entry of page) {
        if (isSliceOver()) await nextSlice()
        await this.copy(scope, entry, {})
      }
    }
  }
}

type Dedupe = NonNullable<Append['dedupe']>

/** The dedupe keys of a log, by sequence. */
async function dedupesIn(
  reader: Reader,
  scope: ByteString,
  log: number,
): Promise<ShardedMap<number, Dedupe>> {
  const dedupes = new ShardedMap<number, Dedupe>()
  for await (const page of pages(reader, { scope, tag: dedupeTag(log), once: true })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      const { sequence, memo } = parseDedupe(entry)
      dedupes.set(sequence, { key: entry.key, memo })
    }
  }
  return dedupes
}

function appendOf(
  scope: ByteString,
  tag: number,
  entry: Entry,
  bodyHash: (body: ByteString) => ByteString,
  dedupe: Dedupe | undefined,
): Append {
  const { time, body } = parseLogEntry(entry)
  const append: Append = { op: 'append', scope, tag, body, bodyHash: bodyHash(body), time }
  return dedupe === undefined ? append : { ...append, dedupe }
}
