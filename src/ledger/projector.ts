import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { pause } from '../core/pause.ts'
import { isSliceOver, nextSlice } from '../core/slices.ts'
import { Changes } from '../engine/changes.ts'
import { parseScope } from '../engine/keys.ts'
import { isOfSameLog, parseFeed } from '../engine/log.ts'
import { pages } from '../engine/pages.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Reader } from '../engine/storage.ts'
import type { LedgerContext } from './context.ts'
import { KeptRuns } from './kept-runs.ts'
import type { Offered } from './offered.ts'
import { RunProjection } from './run-projection.ts'
import {
  chunkIn,
  chunksIn,
  feedTree,
  LOG,
  PROGRESS_KEY,
  placeOf,
  projectableIn,
  putAt,
  RUN_STATE_KEY,
  runStateIn,
} from './stored.ts'
import { storeProjection } from './stored-projection.ts'

/** Records that are read at a time. */
const RECORDS_MAX = 1_000
/** As many are rather read one by one. */
const RECORDS_FEW = 32
/** What of the feed is looked at at a time; its entries are small. */
const LISTED_MAX = 4_000
/** How long a crowd of records is waited for: one commit for many is cheaper, and nobody was promised the latest. */
const PAUSE_MS = 100
/** The more there is to do, the larger the crowd: so that it takes little of the time, and lags behind by less than a second. */
const PAUSE_MAX_MS = 500
const PAUSE_FACTOR = 16
/** How long another process that follows the feed is left alone. */
const OTHER_MS = 500
/** What they have appended is theirs to project; if they died over it, this is how long it waits. */
const OTHERS_WITHIN_MS = 1_000
const RETRY_MS = 1_000
/** So that on a server their commits and reads go together. */
const RUNS_AT_ONCE = 64
/** Records that are taken in at a time, if nobody asks for them before. More would grow old for the garbage collector. */
const OFFERED_MAX = 64
/** Chunks of steps that one commit stores: what goes into one is put together in one go. */
const CHUNKS_MAX = 128
/** Alerts that one commit stores, about: a run may consist of events that may not be. */
const ALERTS_MAX = 512

/**
 * Reduces records into stored state (Layer 3). A state knows up to which record
 * it is, and is stored with what follows from it in one commit: so anybody may
 * bring it up to date, at any time, as often as they like, and each record
 * counts once.
 *
 * In the background it follows the feed: idle → there is something → bring the
 * runs that the feed names up to date and store them, page by page, remembering
 * how far it came → idle. Runs under way stay in memory, and records that this
 * process appends are handed over at once, so that they need not be read again.
 */
export class Projector {
  readonly #context: LedgerContext
  readonly #beforeAlerts: () => Promise<unknown>
  readonly #kept = new KeptRuns()
  /** Records that this process has appended since they were taken in last. Many in a row take less than each by itself. */
  #offered: Offered[] = []
  /** Those who work on a run wait for each other. */
  readonly #turns = new Map<ByteString, Promise<unknown>>()
  #following: Promise<void> | undefined
  /** How far the feed was projected at the last look, by whomever; undefined before the first. */
  #progress: { readonly key: ByteString | undefined } | undefined
  /** Whether this process has appended since it last looked: then it has the records in its hands. */
  #hasOffered = false

  /** `beforeAlerts` is awaited before alerts are stored: whoever is to hear of them may have to get ready. */
  constructor(context: LedgerContext, beforeAlerts: () => Promise<unknown> = async () => undefined) {
    this.#context = context
    this.#beforeAlerts = beforeAlerts
  }

  /** Follows the feed from now on, until the store is closed. */
  start(): void {
    this.#following ??= this.#follow()
  }

  /** A record that was appended just now. Whatever is not the next one of a run in memory is read when its turn comes. */
  offer(record: Offered): void {
    this.#hasOffered = true
    if (this.#following !== undefined) this.#context.metrics.waitingSince ??= record.time
    if (this.#offered.push(record) === OFFERED_MAX) this.#takeOffered()
  }

  #takeOffered(): void {
    const offered = this.#offered
    if (offered.length === 0) return
    this.#offered = []
    for (const record of offered) {
      // A run begins; what is kept under its id was another one.
      if (record.runSeq === 1 && this.#following !== undefined) {
        this.#kept.keep(new RunProjection(record.scope, record.envelope.runId))
      }
      this.#kept.get(record.scope)?.take(record)
    }
  }

  /** The run that lives in the scope, with all records that there are, and stored; undefined if it has none. */
  project(scope: ByteString): Promise<RunProjection | undefined> {
    return this.#project(scope, Number.POSITIVE_INFINITY)
  }

  /** With the records up to `runSeq` at least. Nothing need be read if this process has appended all of them. */
  async #project(scope: ByteString, runSeq: number): Promise<RunProjection | undefined> {
    return this.#inTurn(scope, async () => {
      this.#takeOffered()
      const kept = this.#kept.use(scope)
      // To store it compares it with the log: a run that was deleted and begun anew is noticed.
      const isNear = kept !== undefined && (await this.#readOn(kept, runSeq)) && !kept.isStored
      if (isNear && (await this.#stored(kept))) return kept
      for (;;) {
        const { projection, isWhole } = await this.#caughtUp(scope)
        if (projection.run === undefined) return undefined
        if ((await this.#stored(projection)) && isWhole) return projection
      }
    })
  }

  /** Takes in the few records that others have appended meanwhile; false if there are more, or one is not there. */
  async #readOn(kept: RunProjection, runSeq: number): Promise<boolean> {
    const { database } = this.#context
    const { scope, lastSeq } = kept
    const missing = Math.max(0, runSeq - lastSeq)
    if (missing > RECORDS_FEW) return false
    const keys = Array.from({ length: missing }, (_, i) => u64(lastSeq + i))
    // One by one, so that on a server those of all runs go in one statement.
    const entries = await Promise.all(keys.map(key => database.get(scope, LOG, key)))
    for (const entry of entries) {
      if (entry === undefined) return false
      kept.take(projectableIn(entry))
    }
    return kept.lastSeq >= runSeq
  }

  /** From memory or from storage, and then from the log, until nothing is left or enough is to be stored. */
  async #caughtUp(
    scope: ByteString,
  ): Promise<{ readonly projection: RunProjection; readonly isWhole: boolean }> {
    const { database } = this.#context
    const { run: runId } = parseScope(scope)
    let misfit: number | undefined
    for (;;) {
      const kept = this.#kept.get(scope)
      const projection = kept ?? (await this.#load(scope))
      const { lastSeq, lastVersion, firstVersion } = projection
      // With the last one that was taken in, to see that it is still there: the run may have been deleted and begun anew.
      const from = u64(Math.max(0, lastSeq - 1))
      const first = lastSeq > 0 ? await database.get(scope, LOG, u64(0)) : undefined
      const entries = await database.scan({ scope, tag: LOG, from, limit: RECORDS_MAX })
      if (lastSeq > 0 && (first?.version !== firstVersion || entries[0]?.version !== lastVersion)) {
        this.#kept.delete(scope)
        // What is stored now is of the run that is there now, which may be shorter.
        if (kept !== undefined) continue
        // Nothing is stored of a run that has no record.
        if (first === undefined) return { projection: new RunProjection(scope, runId), isWhole: true }
        // Deleted and begun anew since it was loaded, unless the same was loaded twice.
        if (misfit === projection.baseVersion) throw stateMisfit(runId)
        misfit = projection.baseVersion
        continue
      }
      // Records that others hand over while this pauses are taken in once, like all.
      for (const entry of entries) {
        if (isSliceOver()) await nextSlice()
        projection.take(projectableIn(entry))
      }
      if (entries.length > 0) this.#kept.keep(projection)
      if (entries.length < RECORDS_MAX) return { projection, isWhole: true }
      const { unstoredChunks, pendingAlerts } = projection
      const isEnough = unstoredChunks >= CHUNKS_MAX || pendingAlerts.length >= ALERTS_MAX
      if (isEnough) return { projection, isWhole: false }
    }
  }

  #load(scope: ByteString): Promise<RunProjection> {
    return this.#context.database.view(reader => loadProjection(reader, scope))
  }

  /** False if somebody else was faster, or the run is another now: then all has to be looked at again. */
  async #stored(projection: RunProjection): Promise<boolean> {
    if (projection.pendingAlerts.length > 0) await this.#beforeAlerts()
    const { database, shared, metrics } = this.#context
    const { scope, run, lastSeq, storedSeq } = projection
    if (projection.isStored || run === undefined) return true
    const unstored = projection.unstored()
    try {
      const stored = await storeProjection(database, shared, projection, run, unstored)
      if (stored === undefined) {
        this.#kept.delete(scope)
        return false
      }
      projection.baseVersion = stored.version
      projection.storedSeq = lastSeq
      metrics.projected += lastSeq - storedSeq
      metrics.alerts += stored.raised
      return true
    } catch (error) {
      unstored.undo()
      throw error
    }
  }

  #inTurn<T>(scope: ByteString, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(scope) ?? Promise.resolve()).then(work)
    // Whoever comes next waits for this one, but its failure is not theirs.
    const settled = turn.then(
      () => undefined,
      () => undefined,
    )
    this.#turns.set(scope, settled)
    void settled.then(() => {
      if (this.#turns.get(scope) === settled) this.#turns.delete(scope)
    })
    return turn
  }

  async #follow(): Promise<void> {
    const { database, metrics, shared } = this.#context
    try {
      const changes = await Changes.of(database, feedTree(shared), { othersWithinMs: OTHERS_WITHIN_MS })
      for (;;) {
        const seen = changes.count
        let since = performance.now()
        let failure: unknown
        try {
          // Who has appended what is to be done need not read it, and goes first.
          if (this.#progress !== undefined && !this.#hasOffered) await pause(OTHER_MS, { unref: true })
          since = performance.now()
          this.#hasOffered = false
          this.#kept.beginLook()
          this.#takeOffered()
          if (await this.#isLeftToOther()) {
            await pause(OTHER_MS, { unref: true })
            continue
          }
          await this.#drain()
        } catch (error) {
          failure = error
          this.#kept.forgetSome()
        }
        if (isClosed(failure)) return
        this.#report(failure)
        const tookMs = performance.now() - since
        await changes.beyond(seen, failure === undefined ? undefined : AbortSignal.timeout(RETRY_MS))
        if (failure === undefined)
          await pause(Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MS, PAUSE_FACTOR * tookMs)), { unref: true })
      }
    } catch (error) {
      if (!isClosed(error)) this.#report(error)
    } finally {
      metrics.waitingSince = undefined
      this.#following = undefined
    }
  }

  #report(failure: unknown): void {
    const { metrics } = this.#context
    const text = failure === undefined ? undefined : String(failure)
    if (text !== undefined && text !== metrics.projectorError) {
      process.emitWarning(`the projector will try again: ${text}`, { type: 'AnnalsWarning' })
    }
    metrics.projectorError = text
  }

  /**
   * Of several processes one does the work: who finds that another came farther since the last look lets it go on. If that
   * one dies, the next look finds nothing new, and whoever looks takes over.
   */
  async #isLeftToOther(): Promise<boolean> {
    const key = await this.#reached()
    const isLeft = this.#progress !== undefined && this.#progress.key !== key
    this.#progress = { key }
    if (!isLeft) return false
    this.#kept.forgetSome()
    await this.#noteWaiting()
    return true
  }

  /** Since when something waits: it is the first behind what is projected. */
  async #noteWaiting(): Promise<void> {
    const [next] = await this.#listedBehind(this.#progress?.key, 1)
    this.#context.metrics.waitingSince = next?.time
  }

  /** What the feed lists there. Nobody comes back to it: it is projected, and the projector goes on. */
  #listedBehind(key: ByteString | undefined, limit: number): Promise<readonly Entry[]> {
    const { database, shared } = this.#context
    return database.scan({ ...feedTree(shared), from: behind(key), limit, once: true })
  }

  /** How far the feed is projected. */
  async #reached(): Promise<ByteString | undefined> {
    const { database, shared } = this.#context
    const { scope, tag, key } = placeOf(shared, PROGRESS_KEY)
    return (await database.get(scope, tag, key))?.value
  }

  /** Projects whatever the feed lists behind where it came last time. */
  async #drain(): Promise<void> {
    const { metrics } = this.#context
    let before = this.#progress?.key
    for (;;) {
      const page = await this.#listedBehind(before, LISTED_MAX)
      metrics.waitingSince = page[0]?.time
      if (page.length === 0) return
      const runs = [...listedIn(page)]
      for (let i = 0; i < runs.length; i += RUNS_AT_ONCE) {
        if (isSliceOver()) await nextSlice()
        const some = runs.slice(i, i + RUNS_AT_ONCE)
        await Promise.all(some.map(([scope, runSeq]) => this.#projectInPassing(scope, runSeq)))
      }
      this.#kept.forgetSome()
      before = page[page.length - 1].key
      await this.#reach(before)
      // What came meanwhile waits for the next time, in a crowd of its own.
      if (page.length < LISTED_MAX) {
        await this.#noteWaiting()
        return
      }
    }
  }

  /** A run whose state can't be stored, because it outgrew what an entry may hold, or is damaged, must not hold up the others. */
  async #projectInPassing(scope: ByteString, runSeq: number): Promise<void> {
    try {
      await this.#project(scope, runSeq)
    } catch (error) {
      if (!(error instanceof AnnalsError && ['INVALID_ARGUMENT', 'CORRUPT'].includes(error.code))) throw error
      const { run } = parseScope(scope)
      this.#report(new Error(`run ${JSON.stringify(run)} can't be projected: ${error.message}`))
    }
  }

  /** Everything up to this key of the feed is projected. Another process may have come farther. */
  async #reach(key: ByteString): Promise<void> {
    const { database, shared } = this.#context
    const progress = placeOf(shared, PROGRESS_KEY)
    const { result } = await database.update([progress], ([entry]) => {
      const isFarther = entry === undefined || entry.value < key
      const operations: Write[] = isFarther ? [putAt(progress, key)] : []
      return { operations, result: isFarther ? key : entry.value }
    })
    this.#progress = { key: result }
  }
}

/** From where to go on in the feed; from its start without a key. */
function behind(key: ByteString | undefined): ByteString | undefined {
  return key === undefined ? undefined : `${key}\0`
}

/** The runs of a page of the feed, each with its last `runSeq`. */
function listedIn(page: readonly Entry[]): Map<ByteString, number> {
  const listed = new Map<ByteString, number>()
  for (const [i, entry] of page.entries()) {
    // Of several in a row the last one says it all.
    if (i + 1 < page.length && isOfSameLog(entry, page[i + 1])) continue
    const { scope, sequence } = parseFeed(entry)
    listed.set(scope, sequence + 1)
  }
  return listed
}

/** As it was stored; empty if it was not. */
export async function loadProjection(reader: Reader, scope: ByteString): Promise<RunProjection> {
  const { run: runId } = parseScope(scope)
  const state = await reader.get(scope, placeOf(scope, RUN_STATE_KEY).tag, RUN_STATE_KEY)
  const run = runStateIn(state)
  if (state === undefined || run === undefined) return new RunProjection(scope, runId)
  const projection = new RunProjection(scope, runId, state.version, run)
  for await (const page of pages(reader, chunksIn(scope))) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      for (const step of chunkIn(entry)) projection.restore(step)
    }
  }
  if (projection.steps.length !== run.steps) throw stateMisfit(runId)
  const versionOf = async (runSeq: number): Promise<number> =>
    (await reader.get(scope, LOG, u64(runSeq - 1)))?.version ?? 0
  projection.firstVersion = await versionOf(1)
  projection.lastVersion = await versionOf(run.lastEventSeq)
  return projection
}

/** The same with all records that there are. Nothing is written. */
export async function readProjection(reader: Reader, scope: ByteString): Promise<RunProjection> {
  const projection = await loadProjection(reader, scope)
  await takeAll(reader, projection)
  return projection
}

/** Takes in the records that it lacks. */
export async function takeAll(reader: Reader, projection: RunProjection): Promise<void> {
  const { scope, lastSeq } = projection
  for await (const page of pages(reader, { scope, tag: LOG, from: u64(lastSeq) })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      projection.take(projectableIn(entry))
    }
  }
}

function stateMisfit(runId: string): AnnalsError {
  const message = `the stored state of run ${JSON.stringify(runId)} is not of its records: replaySnapshot has it from them`
  return new AnnalsError('CORRUPT', message, { runId })
}

function isClosed(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'CLOSED'
}

/** The scopes of runs of which the feed lists something behind where the projector was. */
export async function unprojectedRuns(
  reader: Reader,
  { shared }: LedgerContext,
): Promise<readonly ByteString[]> {
  const progress = placeOf(shared, PROGRESS_KEY)
  const reached = (await reader.get(progress.scope, progress.tag, progress.key))?.value
  const scopes = new Set<ByteString>()
  for await (const page of pages(reader, { ...feedTree(shared), from: behind(reached) })) {
    for (const entry of page) scopes.add(parseFeed(entry).scope)
  }
  return [...scopes]
}
