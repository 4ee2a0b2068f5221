import type { Ledger, Runs } from 'annals'
import { createProducer, type Producer } from '../ledger/producer.ts'
import type { LaunchEvent } from './events.ts'
import { workOf } from './work-items.ts'

/** The part of a database in which a launch is shown as a run. */
export interface MirrorDatabase {
  /** Gets the events of the run. */
  readonly ledger: Pick<Ledger, 'appendEvent' | 'fetchEvents' | 'projectSnapshot' | 'registry'>
  /** Gets an entry for the run. */
  readonly runs: Pick<Runs, 'create' | 'get'>
}

export interface MirrorOptions {
  readonly tenant: string
  readonly project: string
  readonly environment: string
}

/** The executions of a worker on a scope. */
interface Executions {
  /** How many did not follow a failure. Each of them is a step. */
  count: number
  hasFailed: boolean
}

/**
 * ND11: shows a launch as a run of the ledger. Every process that works on the
 * run pushes all events of the log, from the first. The ledger recognizes
 * those that it has, and gets those that a crashed process did not append.
 */
export class LedgerMirror {
  readonly #db: MirrorDatabase
  readonly #options: MirrorOptions
  #heading = { planId: '', planVersion: '' }
  #producer: Producer | undefined
  #runId = ''
  #isPaused = false
  #hasEnded = false
  /** The step of each work item that was started or skipped. */
  readonly #stepIds = new Map<string, string>()
  /** By worker and scope. */
  readonly #executions = new Map<string, Executions>()
  #last: Promise<void> = Promise.resolve()

  constructor(db: MirrorDatabase, options: MirrorOptions) {
    this.#db = db
    this.#options = options
  }

  /** Takes the next event of the log. `settle` rejects if it can't be appended. */
  push(event: LaunchEvent): void {
    this.#last = this.#last.then(() => this.#take(event))
    this.#last.catch(() => undefined)
  }

  /** Resolves when the ledger has all events pushed so far. */
  settle(): Promise<void> {
    return this.#last
  }

  async #take(event: LaunchEvent): Promise<void> {
    const producer = this.#producer
    switch (event.type) {
      case 'RUN_CREATED': {
        const { launch, launch_version } = event.payload
        this.#heading = { planId: launch, planVersion: launch_version }
        return this.#begin(event.run_id, event)
      }
      case 'RUN_RESTARTED':
        if (!this.#hasEnded) await producer?.runCancelled({ reason: 'restarted by force' })
        return this.#begin(`${event.run_id}~${event.payload.generation}`, event, event.run_id)
      case 'RUN_PAUSED':
        this.#isPaused = true
        await producer?.pause(event.payload)
        return
      case 'RUN_RESUMED':
        if (this.#isPaused) await producer?.resume()
        this.#isPaused = false
        return
      case 'RUN_COMPLETED':
        await producer?.runCompleted()
        return this.#ended()
      case 'RUN_FAILED':
        await producer?.runFailed(event.payload.error)
        return this.#ended()
      case 'RUN_CANCELLED':
        await producer?.runCancelled(event.payload)
        return this.#ended()
      case 'WORK_ITEM_STARTED':
        await producer?.stepStarted(this.#nextStep(event.payload.work_item_id), event.payload)
        return
      case 'WORK_ITEM_SKIPPED':
        await producer?.stepSkipped(this.#nextStep(event.payload.work_item_id), event.payload)
        return
      case 'WORK_ITEM_FINISHED':
        await producer?.stepCompleted(this.#endedStep(event.payload.work_item_id, false), event.payload)
        return
      case 'WORK_ITEM_FAILED': {
        const { work_item_id, error } = event.payload
        await producer?.stepFailed(this.#endedStep(work_item_id, true), error, { work_item_id })
      }
    }
  }

  async #begin(runId: string, { trace_id }: LaunchEvent, parentRun?: string): Promise<void> {
    const { tenant, project, environment } = this.#options
    const { planId, planVersion } = this.#heading
    if ((await this.#db.runs.get(runId)) === undefined) {
      await this.#db.runs.create({
        runId,
        ...(parentRun === undefined ? {} : { parentRun }),
        tags: ['launch', planId],
        metadata: { launch: planId, launchVersion: planVersion, traceId: trace_id },
      })
    }
    this.#runId = runId
    this.#executions.clear()
    this.#isPaused = false
    this.#hasEnded = false
    this.#producer = createProducer({
      store: this.#db.ledger,
      registry: this.#db.ledger.registry,
      runId,
      tenantId: tenant,
      projectId: project,
      environmentId: environment,
      planId,
      planVersion,
      replay: true,
    })
    await this.#producer.runStarted({ trace_id })
  }

  /** A caller that waits for the run's end may close the database next, so its snapshot and index are updated now. */
  async #ended(): Promise<void> {
    this.#hasEnded = true
    await this.#db.ledger.projectSnapshot(this.#runId)
  }

  /** The step of an execution that starts: a new step, unless the last execution failed. */
  #nextStep(workItemId: string): string {
    const name = stepName(workItemId)
    const executions = this.#executions.get(name) ?? { count: 0, hasFailed: false }
    if (!executions.hasFailed) executions.count++
    executions.hasFailed = false
    this.#executions.set(name, executions)
    const stepId = `${name}/${executions.count}`
    this.#stepIds.set(workItemId, stepId)
    return stepId
  }

  #endedStep(workItemId: string, hasFailed: boolean): string {
    const executions = this.#executions.get(stepName(workItemId)) as Executions
    executions.hasFailed = hasFailed
    return this.#stepIds.get(workItemId) as string
  }
}

/** `|` separates the fields of the ledger's keys, so it is escaped. */
function stepName(workItemId: string): string {
  const { worker, scope_key } = workOf(workItemId)
  return `${worker}/${scope_key.replace(/[%|]/g, char => (char === '%' ? '%25' : '%7C'))}`
}
