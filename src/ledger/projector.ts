import type { ByteString } from '../core/bytes.ts'
import { u64 } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { parseRfc3339 } from '../core/time.ts'
import { Changes } from '../engine/changes.ts'
import { parseScope } from '../engine/keys.ts'
import { parseFeed, parseLogEntry } from '../engine/log.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Place } from '../engine/storage.ts'
import type { Run, RunStatus } from '../primitives/run.ts'
import { runOf, runOperations, runPlace } from '../primitives/run-records.ts'
import type { LedgerContext } from './authority.ts'
import { alertOf, type Fact, Reducer, type Refusal, type RunState } from './reduce.ts'
import type { RunStateStatus } from './run-events.ts'
import {
  alertPuts,
  factIn,
  feedTree,
  LOG,
  PROGRESS_KEY,
  PROJECTED,
  placeOf,
  putJson,
  recordOf,
  runStateIn,
  type StateKeys,
  stepPlace,
  stepStateIn,
} from './stored.ts'

/** Records that one commit takes in. */
const RECORDS_MAX = 1_000
/** What of the feed is looked at at a time; its entries are small. */
const LISTED_MAX = 4_000
/** How long a crowd of records is waited for: one commit for many is cheaper, and nobody was promised the latest. */
const PAUSE_MS = 20
const RETRY_MS = 1_000

/** LD15: what a run's status is in the index of runs. */
const INDEXED: Readonly<Record<RunStateStatus, RunStatus>> = {
  PENDING: 'Active',
  RUNNING: 'Active',
  PAUSED: 'Paused',
  COMPLETED: 'Completed',
  FAILED: 'Failed',
  CANCELLED: 'Cancelled',
}

/**
 * Reduces records into stored state (Layer 3). A run's state knows up to which
 * record it is, and changes in the same commit: so it may be brought up to date
 * by anybody, at any time, as often as they like, and each record counts once.
 *
 * In the background it follows the feed: idle → there is something → reduce the
 * runs that the feed names, page by page, remembering how far it came → idle.
 */
export class Projector {
  readonly #context: LedgerContext
  #following: Promise<void> | undefined

  constructor(context: LedgerContext) {
    this.#context = context
  }

  /** Follows the feed from now on, until the store is closed. */
  start(): void {
    this.#following ??= this.#follow()
  }

  /** Takes in all records that there are. */
  async advance(runId: string, keys: StateKeys = PROJECTED): Promise<void> {
    const scope = this.#context.scopeOf(runId)
    while (!(await this.#advancePage(runId, scope, keys))) {
      // A page at a time.
    }
  }

  /** Answers whether nothing is left. */
  async #advancePage(runId: string, scope: ByteString, keys: StateKeys): Promise<boolean> {
    const { database, shared, metrics } = this.#context
    const place = placeOf(scope, keys.run)
    const from = runStateIn(await database.get(place.scope, place.tag, place.key))?.lastEventSeq ?? 0
    const entries = await database.scan({ scope, tag: LOG, from: u64(from), limit: RECORDS_MAX })
    const last = entries.at(-1)
    if (last === undefined) return true
    const facts = entries.map(factIn)
    const stepIds = [...new Set(facts.flatMap(({ stepId }) => (stepId === undefined ? [] : [stepId])))]
    const reads: Place[] = [
      place,
      runPlace(shared, runId),
      { scope, tag: LOG, key: last.key },
      ...stepIds.map(stepId => stepPlace(scope, keys, stepId)),
    ]
    const { result } = await database.update(reads, ([state, run, end, ...steps]) => {
      const reducer = new Reducer()
      reducer.run = runStateIn(state)
      // The run may have been deleted and begun anew since: then these records are not its own, or not its first ones.
      const isSameRun = end?.version === last.version && (reducer.run?.lastEventSeq ?? 0) >= from
      if (!isSameRun) return { operations: [], result: undefined }
      for (const entry of steps) {
        const step = stepStateIn(entry)
        if (step !== undefined) reducer.steps.set(step.stepId, step)
      }
      const { refusals, changed } = addAll(reducer, facts)
      const operations: Write[] = [putJson(place, reducer.run)]
      for (const stepId of changed) {
        operations.push(putJson(stepPlace(scope, keys, stepId), reducer.steps.get(stepId)))
      }
      if (keys === PROJECTED) {
        for (const [index, refusal] of refusals) {
          const { time } = parseLogEntry(entries[index])
          operations.push(...alertPuts(scope, shared, alertOf(recordOf(entries[index]), refusal), time))
        }
        operations.push(...indexWrites(shared, run, reducer.run, parseLogEntry(last).time))
      }
      return { operations, result: { records: facts.length, alerts: refusals.length } }
    })
    if (result === undefined) return false
    if (keys === PROJECTED) {
      metrics.projected += result.records
      metrics.alerts += result.alerts
    }
    return entries.length < RECORDS_MAX
  }

  async #follow(): Promise<void> {
    const { database, metrics, shared } = this.#context
    try {
      const changes = await Changes.of(database, feedTree(shared))
      for (;;) {
        const seen = changes.count
        const failure = await this.#drain().then(
          () => undefined,
          (error: unknown) => error,
        )
        if (isClosed(failure)) return
        this.#report(failure)
        await changes.beyond(seen, failure === undefined ? undefined : AbortSignal.timeout(RETRY_MS))
        if (failure === undefined) await new Promise(resolve => setTimeout(resolve, PAUSE_MS).unref())
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

  /** Projects whatever the feed lists behind where it came last time. */
  async #drain(): Promise<void> {
    const { database, shared, metrics } = this.#context
    const progress = placeOf(shared, PROGRESS_KEY)
    let before = (await database.get(progress.scope, progress.tag, progress.key))?.value
    for (;;) {
      const from = before === undefined ? undefined : `${before}\0`
      const page = await database.scan({ ...feedTree(shared), from, limit: LISTED_MAX })
      metrics.waitingSince = page[0]?.time
      if (page.length === 0) return
      const scopes = new Set(page.map(entry => parseFeed(entry).scope))
      for (const scope of scopes) await this.advance(parseScope(scope).run)
      before = page[page.length - 1].key
      await this.#reach(before)
    }
  }

  /** Everything up to this key of the feed is projected. Another process may have come farther. */
  async #reach(key: ByteString): Promise<void> {
    const { database, shared } = this.#context
    const progress = placeOf(shared, PROGRESS_KEY)
    await database.update([progress], ([entry]) => {
      const isFarther = entry === undefined || entry.value < key
      return { operations: isFarther ? [{ op: 'put', ...progress, value: key }] : [], result: undefined }
    })
  }
}

interface Reduction {
  /** Which event, and why. */
  readonly refusals: readonly (readonly [number, Refusal])[]
  /** Steps whose state is another. */
  readonly changed: ReadonlySet<string>
}

function addAll(reducer: Reducer, facts: readonly Fact[]): Reduction {
  const refusals: [number, Refusal][] = []
  const changed = new Set<string>()
  for (const [index, fact] of facts.entries()) {
    const { stepId } = fact
    const before = stepId === undefined ? undefined : reducer.steps.get(stepId)
    const refusal = reducer.add(fact)
    if (refusal !== undefined) refusals.push([index, refusal])
    if (stepId !== undefined && reducer.steps.get(stepId) !== before) changed.add(stepId)
  }
  return { refusals, changed }
}

/** What the index of runs has to follow; a run that somebody archived stays so. */
function indexWrites(
  index: ByteString,
  entry: Entry | undefined,
  state: RunState | undefined,
  time: number,
): Write[] {
  if (entry === undefined || state === undefined) return []
  const before = runOf(entry)
  const status = INDEXED[state.status]
  if (before.status === status || before.status === 'Archived') return []
  const { completedAt: _, ...rest } = before
  const end = state.completedAt === undefined ? undefined : parseRfc3339(state.completedAt)
  const after: Run = {
    ...rest,
    status,
    updatedAt: Math.max(before.updatedAt, time),
    ...(end === undefined ? {} : { completedAt: end }),
  }
  return runOperations(index, before, after)
}

function isClosed(error: unknown): boolean {
  return error instanceof AnnalsError && error.code === 'CLOSED'
}
