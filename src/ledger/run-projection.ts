import type { ByteString } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import type { Put } from '../engine/storage.ts'
import { indexedStatus } from './indexed-run.ts'
import type { PendingAlert } from './raised-alerts.ts'
import { type Fact, Reducer, type Refusal, type RunState, stepStateOf } from './reduce.ts'
import type { LedgerAlert, RunStateStatus, StepSnapshot } from './run-events.ts'
import type { StepState } from './steps.ts'
import { placeOf, putChunk, putRunState, RUN_STATE_KEY, STEPS_PER_CHUNK } from './stored.ts'

/** A record, as far as the projector has to know it. */
export interface Projectable extends Fact {
  /** Of the commit that brought it; tells it from one of a later run with the same id. */
  readonly version: number
  /** When it was persisted. */
  readonly time: number
  /** Made only for what no transition allows. */
  alert(refusal: Refusal): LedgerAlert
}

/** What of a run is to be written. */
export interface Unstored {
  readonly puts: readonly Put[]
  /** When the last of its records changed the run's status in the index, if one did. */
  readonly movedAt: number | undefined
  readonly alerts: readonly PendingAlert[]
  undo(): void
}

/**
 * What one run has come to, in memory, and what of that is not stored yet. It is
 * read once, changed record by record, and written now and then: the records
 * are the truth, this can be had from them again at any time.
 */
export class RunProjection {
  readonly scope: ByteString
  readonly runId: string
  /** Of the stored state that this one goes on from; 0 if there was none. Another version means that somebody else wrote. */
  baseVersion: number
  /** Of the first record: another one means another run with the same id. */
  firstVersion = 0
  /** Of the last record. */
  lastVersion = 0
  /** When the first record was persisted; 0 if it was stored before this was loaded. */
  firstTime = 0
  /** What the index of runs had when this was stored last; undefined before. */
  indexed: { readonly version: number; readonly status: RunStateStatus } | undefined = undefined
  storedSeq: number
  /** The look at the feed in which the projector used it last. */
  usedAt = 0
  /** When the last record was persisted that changed the run's status in the index and is not stored yet. */
  #movedAt: number | undefined
  #alerts: PendingAlert[] = []
  readonly #reducer = new Reducer()
  #dirty = new Set<number>()

  constructor(scope: ByteString, runId: string, baseVersion = 0, run?: RunState) {
    this.scope = scope
    this.runId = runId
    this.baseVersion = baseVersion
    this.#reducer.run = run
    this.storedSeq = run?.lastEventSeq ?? 0
  }

  get run(): RunState | undefined {
    return this.#reducer.run
  }

  get lastSeq(): number {
    return this.run?.lastEventSeq ?? 0
  }

  /** In the order in which they first appeared. */
  get steps(): readonly StepState[] {
    return this.#reducer.steps.all
  }

  /** Alerts that are not stored yet. */
  get pendingAlerts(): readonly PendingAlert[] {
    return this.#alerts
  }

  /** When the last of the records that are not stored yet changed the run's status in the index, if one did. */
  get movedAt(): number | undefined {
    return this.#movedAt
  }

  get isStored(): boolean {
    return this.storedSeq === this.lastSeq
  }

  /** A step as it was stored. */
  restore(step: StepSnapshot): void {
    this.#reducer.steps.add(stepStateOf(step, this.steps.length))
  }

  /** Takes the next record in; one that is not the next changes nothing. Answers whether it was. */
  take(record: Projectable): boolean {
    const { runSeq, version, time } = record
    if (runSeq !== this.lastSeq + 1) return false
    const indexedBefore = indexedStatus(this.run?.status)
    const refusal = this.#reducer.add(record)
    const { changed } = this.#reducer
    if (changed !== undefined) {
      const { position } = changed
      invariant(this.steps[position] === changed, 'steps appear one after the other')
      this.#dirty.add(Math.floor(position / STEPS_PER_CHUNK))
    }
    if (refusal !== undefined) this.#alerts.push({ alert: record.alert(refusal), time })
    if (runSeq === 1) {
      this.firstVersion = version
      this.firstTime = time
    }
    if (indexedStatus(this.run?.status) !== indexedBefore) this.#movedAt = time
    this.lastVersion = version
    return true
  }

  /** What has to be written to store it as it is now. `undo` makes it unwritten again. */
  unstored(): Unstored {
    const puts = [...this.unstoredPuts()]
    const chunks = this.#dirty
    const alerts = this.#alerts
    const movedAt = this.#movedAt
    this.#dirty = new Set()
    this.#alerts = []
    this.#movedAt = undefined
    return {
      puts,
      movedAt,
      alerts,
      undo: () => {
        this.#movedAt ??= movedAt
        for (const chunk of chunks) this.#dirty.add(chunk)
        this.#alerts = [...alerts, ...this.#alerts]
      },
    }
  }

  /** Its state one by one; no record may be taken in between them. */
  *unstoredPuts(): Generator<Put, void, void> {
    invariant(this.run !== undefined, 'what has no records is not stored')
    yield putRunState(placeOf(this.scope, RUN_STATE_KEY), this.run)
    for (const chunk of this.#dirty) yield putChunk(this.scope, chunk, this.#chunk(chunk))
  }

  /** How many chunks of steps are to be stored. */
  get unstoredChunks(): number {
    return this.#dirty.size
  }

  #chunk(chunk: number): StepState[] {
    return this.steps.slice(chunk * STEPS_PER_CHUNK, (chunk + 1) * STEPS_PER_CHUNK)
  }
}
