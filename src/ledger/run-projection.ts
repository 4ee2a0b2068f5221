import type { ByteString } from '../core/bytes.ts'
import { invariant } from '../core/invariant.ts'
import { timeOf } from '../engine/log.ts'
import type { Entry, Put } from '../engine/storage.ts'
import { FactReader } from './facts.ts'
import { indexedStatus } from './indexed-run.ts'
import type { PendingAlert } from './raised-alerts.ts'
import { alertOf, type Fact, Reducer, type Refusal, type RunState, stepStateOf } from './reduce.ts'
import type { LedgerAlert, RunStateStatus, StepSnapshot } from './run-events.ts'
import type { StepState } from './steps.ts'
import { placeOf, putChunk, putRunState, RUN_STATE_KEY, recordOf, STEPS_PER_CHUNK } from './stored.ts'

/** The parts of a record that the projector needs. */
export interface Projectable extends Fact {
  /** The version of the record's commit. It distinguishes records of a later run with the same id. */
  readonly version: number
  /** When the record was persisted. */
  readonly time: number
  /** Makes the alert. Called only for invalid transitions. */
  alert(refusal: Refusal): LedgerAlert
}

/** The changes of a projection that are not stored yet. */
export interface Unstored {
  readonly puts: readonly Put[]
  /** When the newest record that changes the run's status in the index was persisted; undefined if none does. */
  readonly movedAt: number | undefined
  readonly alerts: readonly PendingAlert[]
  /** Marks the changes as not stored again, after a failed commit. */
  undo(): void
}

/**
 * The projected state of one run in memory, with the changes that are not stored
 * yet. It is loaded once, changed by each record, and stored from time to time.
 * The records are authoritative; a projection can always be rebuilt from them.
 */
export class RunProjection {
  readonly scope: ByteString
  readonly runId: string
  /** The version of the stored state that this one is based on; 0 if there was none. If it differs, another process wrote. */
  baseVersion: number
  /** The version of the first record. If it differs, the log is of another run with the same id. */
  firstVersion = 0
  /** The version of the last reduced record. */
  lastVersion = 0
  /** When the first record was persisted; 0 if the loaded state included it. */
  firstTime = 0
  /** The run's entry in the index of runs at the last store; undefined before the first. */
  indexed: { readonly version: number; readonly status: RunStateStatus } | undefined = undefined
  /** The `runSeq` of the last record that the stored state includes. */
  storedSeq: number
  /** The number of the projector's round that used this last. */
  usedAt = 0
  /** See `movedAt`. */
  #movedAt: number | undefined
  #alerts: PendingAlert[] = []
  readonly #facts = new FactReader()
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

  /** The steps in order of first appearance. */
  get steps(): readonly StepState[] {
    return this.#reducer.steps.all
  }

  /** Alerts that are not stored yet. */
  get pendingAlerts(): readonly PendingAlert[] {
    return this.#alerts
  }

  /** When the newest unstored record that changes the run's status in the index was persisted; undefined if none does. */
  get movedAt(): number | undefined {
    return this.#movedAt
  }

  get isStored(): boolean {
    return this.storedSeq === this.lastSeq
  }

  /** Adds a stored step. */
  restore(step: StepSnapshot): void {
    this.#reducer.steps.add(stepStateOf(step, this.steps.length))
  }

  /** Reduces a stored record like `take`. Its error is replaced by its `runSeq`, so that stored states stay small. */
  takeEntry(entry: Entry): boolean {
    const fact = this.#facts.read(entry)
    return this.take({
      ...fact,
      error: fact.error === undefined ? undefined : fact.runSeq,
      version: entry.version,
      time: timeOf(entry),
      alert: refusal => alertOf(recordOf(entry), refusal),
    })
  }

  /** Reduces the record if it is the next one, and returns whether it was. Other records change nothing. */
  take(record: Projectable): boolean {
    const { runSeq, version, time } = record
    if (runSeq !== this.lastSeq + 1) return false
    const indexedBefore = indexedStatus(this.run?.status)
    const refusal = this.#reducer.add(record)
    const { changed } = this.#reducer
    if (changed !== undefined) {
      const { position } = changed
      invariant(this.steps[position] === changed, 'a new step gets the next position')
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

  /** Returns the changes to store and marks them as stored. If the commit fails, `undo` reverts that. */
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

  /** Yields the changed state in pieces. No record may be reduced until the generator is done. */
  *unstoredPuts(): Generator<Put, void, void> {
    invariant(this.run !== undefined, 'a projection that is stored has records')
    yield putRunState(placeOf(this.scope, RUN_STATE_KEY), this.run)
    for (const chunk of this.#dirty) yield putChunk(this.scope, chunk, this.#chunk(chunk))
  }

  /** The number of step chunks that are not stored yet. */
  get unstoredChunks(): number {
    return this.#dirty.size
  }

  #chunk(chunk: number): StepState[] {
    return this.steps.slice(chunk * STEPS_PER_CHUNK, (chunk + 1) * STEPS_PER_CHUNK)
  }
}
