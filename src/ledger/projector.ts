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
  putAt,
  RUN_STATE_KEY,
  runStateIn,
} from './stored.ts'
import { storeProjection } from './stored-projection.ts'

/** How many records are read at a time. */
const RECORDS_MAX = 1_000
/** Up to this many missing records are read one by one. */
const RECORDS_FEW = 32
/** How many feed entries are read at a time; they are small. */
const LISTED_MAX = 4_000
/** The pause between two rounds. One commit for many records is cheaper, and projections may lag. */
const PAUSE_MS = 100
/** The pause grows with the length of a round, so that projecting takes little CPU time, but stays below a second. */
const PAUSE_MAX_MS = 500
const PAUSE_FACTOR = 16
/** How long the projector waits for another process that is projecting. */
const OTHER_MS = 500
/** Other processes project their own records. If one dies, its records wait at most this long. */
const OTHERS_WITHIN_MS = 1_000
const RETRY_MS = 1_000
/** Runs that are projected at once, so that a server engine can combine their reads and commits. */
const RUNS_AT_ONCE = 64
/** Offered records are reduced in groups of this size. Larger groups would survive into the old generation of the heap. */
const OFFERED_MAX = 64
/** The largest number of step chunks in one commit, because a commit is encoded in one go. */
const CHUNKS_MAX = 128
/** The approximate number of alerts in one commit. A run may consist of invalid events only. */
const ALERTS_MAX = 512

/**
 * Reduces records into stored state (Layer 3). A state contains the number of its
 * last record and is stored in one commit with everything that follows from it.
 * So any process may project a run at any time, and each record counts once.
 *
 * In the background it follows the feed: idle → new entries → project the runs
 * that they name, page by page, and store the position → idle. Recent runs stay
 * in memory, and records that this process appends are offered to the projector
 * directly, so that they need not be read again.
 */
export class Projector {
  readonly #context: LedgerContext
  readonly #beforeAlerts: () => Promise<unknown>
  readonly #kept = new KeptRuns()
  /** Records that this process has appended and that are not reduced yet. Reducing them in groups is cheaper. */
  #offered: Offered[] = []
  /** By scope, the work in progress on a run. Work on one run is serialized. */
  readonly #turns = new Map<ByteString, Promise<unknown>>()
  #following: Promise<void> | undefined
  /** The position in the feed at the last round, whichever process has stored it; undefined before the first round. */
  #progress: { readonly key: ByteString | undefined } | undefined
  /** Whether this process has appended since the last round, and so has the records in memory. */
  #hasOffered = false

  /** `beforeAlerts` is awaited before alerts are stored, so that listeners can note which alerts are older. */
  constructor(context: LedgerContext, beforeAlerts: () => Promise<unknown> = async () => undefined) {
    this.#context = context
    this.#beforeAlerts = beforeAlerts
  }

  /** Starts following the feed, until the store is closed. */
  start(): void {
    this.#following ??= this.#follow()
  }

  /** Hands over a record that was just appended. If it is not the next record of a run in memory, it is read later. */
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
      // A run begins. A projection that is kept under its scope belongs to a deleted run.
      if (record.runSeq === 1 && this.#following !== undefined) {
        this.#kept.keep(new RunProjection(record.scope, record.envelope.runId))
      }
      this.#kept.get(record.scope)?.take(record)
    }
  }

  /** Projects all records of the run in this scope and stores the state; undefined if there are none. */
  project(scope: ByteString): Promise<RunProjection | undefined> {
    return this.#project(scope, Number.POSITIVE_INFINITY)
  }

  /** Projects the records up to `runSeq` at least. Reads nothing if this process has appended all of them. */
  async #project(scope: ByteString, runSeq: number): Promise<RunProjection | undefined> {
    return this.#inTurn(scope, async () => {
      this.#takeOffered()
      const kept = this.#kept.use(scope)
      // Storing compares the projection with the log, so a run that was deleted and begun anew is noticed.
      const isNear = kept !== undefined && (await this.#readOn(kept, runSeq)) && !kept.isStored
      if (isNear && (await this.#stored(kept))) return kept
      for (;;) {
        const { projection, isWhole } = await this.#caughtUp(scope)
        if (projection.run === undefined) return undefined
        if ((await this.#stored(projection)) && isWhole) return projection
      }
    })
  }

  /** Reduces the few records that other processes have appended; false if there are more, or one is missing. */
  async #readOn(kept: RunProjection, runSeq: number): Promise<boolean> {
    const { database } = this.#context
    const { scope, lastSeq } = kept
    const missing = Math.max(0, runSeq - lastSeq)
    if (missing > RECORDS_FEW) return false
    const keys = Array.from({ length: missing }, (_, i) => u64(lastSeq + i))
    // Single gets, so that a server engine can combine those of all runs in one statement.
    const entries = await Promise.all(keys.map(key => database.get(scope, LOG, key)))
    for (const entry of entries) {
      if (entry === undefined) return false
      kept.takeEntry(entry)
    }
    return kept.lastSeq >= runSeq
  }

  /** Takes the projection from memory or storage, then reads the log until its end or until enough has to be stored. */
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
      // The scan includes the last reduced record, to see that it is still there: the run may have been deleted and begun anew.
      const from = u64(Math.max(0, lastSeq - 1))
      const first = lastSeq > 0 ? await database.get(scope, LOG, u64(0)) : undefined
      const entries = await database.scan({ scope, tag: LOG, from, limit: RECORDS_MAX })
      if (lastSeq > 0 && (first?.version !== firstVersion || entries[0]?.version !== lastVersion)) {
        this.#kept.delete(scope)
        // The stored state belongs to the present run, which may be shorter.
        if (kept !== undefined) continue
        // A run without records has no stored state.
        if (first === undefined) return { projection: new RunProjection(scope, runId), isWhole: true }
        // The run was deleted and begun anew since the state was loaded, unless the same state was loaded twice.
        if (misfit === projection.baseVersion) throw stateMisfit(runId)
        misfit = projection.baseVersion
        continue
      }
      // Records that are offered while this pauses are ignored here: `take` accepts only the next record.
      for (const entry of entries) {
        if (isSliceOver()) await nextSlice()
        projection.takeEntry(entry)
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

  /** Stores the projection. False if another process was faster, or the run was replaced: then it must be loaded again. */
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
    // The next work waits for this one, but does not fail with it.
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
          // The process that has appended the records goes first, because it need not read them.
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
   * Lets one of several processes do the work: if another one has advanced the position since the last round, this one pauses. If
   * that process dies, the position stands still, and this one takes over.
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

  /** Notes the time of the first feed entry that is not projected. */
  async #noteWaiting(): Promise<void> {
    const [next] = await this.#listedBehind(this.#progress?.key, 1)
    this.#context.metrics.waitingSince = next?.time
  }

  /** Reads feed entries after a key. They are read once, so they bypass the cache. */
  #listedBehind(key: ByteString | undefined, limit: number): Promise<readonly Entry[]> {
    const { database, shared } = this.#context
    return database.scan({ ...feedTree(shared), from: behind(key), limit, once: true })
  }

  /** The stored position in the feed. */
  async #reached(): Promise<ByteString | undefined> {
    const { database, shared } = this.#context
    const { scope, tag, key } = placeOf(shared, PROGRESS_KEY)
    return (await database.get(scope, tag, key))?.value
  }

  /** Projects all runs that the feed lists after the last position. */
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
      // Entries that came meanwhile wait for the next round.
      if (page.length < LISTED_MAX) {
        await this.#noteWaiting()
        return
      }
    }
  }

  /** Projects a run. If its state can't be stored, because it is too large or damaged, the others go on. */
  async #projectInPassing(scope: ByteString, runSeq: number): Promise<void> {
    try {
      await this.#project(scope, runSeq)
    } catch (error) {
      if (!(error instanceof AnnalsError && ['INVALID_ARGUMENT', 'CORRUPT'].includes(error.code))) throw error
      const { run } = parseScope(scope)
      this.#report(new Error(`run ${JSON.stringify(run)} can't be projected: ${error.message}`))
    }
  }

  /** Stores the position, unless another process has come further. */
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

/** The start of a range after a key; the start of the feed without one. */
function behind(key: ByteString | undefined): ByteString | undefined {
  return key === undefined ? undefined : `${key}\0`
}

/** The runs of a page of the feed, each with its last `runSeq`. */
function listedIn(page: readonly Entry[]): Map<ByteString, number> {
  const listed = new Map<ByteString, number>()
  for (const [i, entry] of page.entries()) {
    // Of consecutive entries of one log only the last one matters.
    if (i + 1 < page.length && isOfSameLog(entry, page[i + 1])) continue
    const { scope, sequence } = parseFeed(entry)
    listed.set(scope, sequence + 1)
  }
  return listed
}

/** Loads the stored projection; empty if there is none. */
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

/** Loads the projection and reduces all further records. Writes nothing. */
export async function readProjection(reader: Reader, scope: ByteString): Promise<RunProjection> {
  const projection = await loadProjection(reader, scope)
  await takeAll(reader, projection)
  return projection
}

/** Reduces the records that the projection lacks. */
export async function takeAll(reader: Reader, projection: RunProjection): Promise<void> {
  const { scope, lastSeq } = projection
  for await (const page of pages(reader, { scope, tag: LOG, from: u64(lastSeq) })) {
    for (const entry of page) {
      if (isSliceOver()) await nextSlice()
      projection.takeEntry(entry)
    }
  }
}

function stateMisfit(runId: string): AnnalsError {
  const message = `the stored state of run ${JSON.stringify(runId)} does not match its records; replaySnapshot computes it from them`
  return new AnnalsError('CORRUPT', message, { runId })
}

function isClosed(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'CLOSED'
}

/** The scopes of the runs that the feed lists after the projector's position. */
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
