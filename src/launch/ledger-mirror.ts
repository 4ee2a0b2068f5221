import type { Ledger, Runs } from 'annals'
import { createProducer, type Producer } from '../ledger/producer.ts'
import type { LaunchEvent } from './events.ts'

/** What of a database a launch shows itself in. */
export interface MirrorDatabase {
  readonly ledger: Pick<Ledger, 'appendEvent' | 'fetchEvents' | 'projectSnapshot' | 'registry'>
  readonly runs: Pick<Runs, 'create' | 'get'>
}

export interface MirrorOptions {
  readonly tenant: string
  readonly project: string
  readonly environment: string
}

interface Step {
  /** Executions that did not follow a failure. */
  count: number
  hasFailed: boolean
}

/**
 * ND11: a launch as a run of the ledger. It is told every event of the log, from
 * the first, in each process that works on the run: what the ledger knows
 * already it answers, so what a process that died had not told is told now.
 */
export class LedgerMirror {
  readonly #db: MirrorDatabase
  readonly #options: MirrorOptions
  #heading: { readonly planId: string; readonly planVersion: string } | undefined
  #producer: Producer | undefined
  #runId = ''
  #isPaused = false
  #hasEnded = false
  /** By work item, worker and scope. */
  readonly #items = new Map<string, string>()
  /** By work item, the step that it is executed as. */
  readonly #stepIds = new Map<string, string>()
  readonly #steps = new Map<string, Step>()
  #last: Promise<void> = Promise.resolve()

  constructor(db: MirrorDatabase, options: MirrorOptions) {
    this.#db = db
    this.#options = options
  }

  /** In the order of the log; what fails is heard of by who settles. */
  push(event: LaunchEvent): void {
    this.#last = this.#last.then(() => this.#take(event))
    this.#last.catch(() => undefined)
  }

  settle(): Promise<void> {
    return this.#last
  }

  async #take(event: LaunchEvent): Promise<void> {
    switch (event.type) {
      case 'RUN_CREATED': {
        const { launch, launch_version } = event.payload
        this.#heading = { planId: launch, planVersion: launch_version }
        return this.#begin(event.run_id, event, undefined)
      }
      case 'RUN_RESTARTED': {
        if (!this.#hasEnded) await this.#producer?.runCancelled({ reason: 'restarted by force' })
        return this.#begin(`${event.run_id}~${event.payload.generation}`, event, event.run_id)
      }
      case 'RUN_PAUSED':
        this.#isPaused = true
        await this.#producer?.pause(event.payload)
        return
      case 'RUN_RESUMED':
        if (this.#isPaused) await this.#producer?.resume()
        this.#isPaused = false
        return
      case 'RUN_COMPLETED':
      case 'RUN_FAILED':
      case 'RUN_CANCELLED':
        this.#hasEnded = true
        if (event.type === 'RUN_COMPLETED') await this.#producer?.runCompleted()
        else if (event.type === 'RUN_FAILED') await this.#producer?.runFailed(event.payload.error)
        else await this.#producer?.runCancelled(event.payload)
        // Whoever waits for the run's end may close the database, and shall find the end in snapshot and index.
        await this.#db.ledger.projectSnapshot(this.#runId)
        return
      default:
        await this.#takeStep(event)
    }
  }

  async #takeStep(event: LaunchEvent): Promise<void> {
    switch (event.type) {
      case 'WORK_ITEM_QUEUED': {
        const { work_item_id, worker, scope_key } = event.payload
        this.#items.set(work_item_id, `${worker}/${escapeStep(scope_key)}`)
        return
      }
      case 'WORK_ITEM_STARTED': {
        const { work_item_id } = event.payload
        await this.#producer?.stepStarted(this.#nextStep(work_item_id), { work_item_id })
        return
      }
      case 'WORK_ITEM_SKIPPED': {
        const { work_item_id, reason } = event.payload
        await this.#producer?.stepSkipped(this.#nextStep(work_item_id), { work_item_id, reason })
        return
      }
      case 'WORK_ITEM_FINISHED': {
        const { work_item_id, outputs } = event.payload
        await this.#producer?.stepCompleted(this.#stepId(work_item_id, false), { work_item_id, outputs })
        return
      }
      case 'WORK_ITEM_FAILED': {
        const { work_item_id, error } = event.payload
        await this.#producer?.stepFailed(this.#stepId(work_item_id, true), error, { work_item_id })
        return
      }
      default:
        // The rest is the log's alone.
        return
    }
  }

  async #begin(runId: string, event: LaunchEvent, parentRun: string | undefined): Promise<void> {
    const { tenant, project, environment } = this.#options
    const { planId, planVersion } = this.#heading as { planId: string; planVersion: string }
    if ((await this.#db.runs.get(runId)) === undefined) {
      await this.#db.runs.create({
        runId,
        ...(parentRun === undefined ? {} : { parentRun }),
        tags: ['launch', planId],
        metadata: { launch: planId, launchVersion: planVersion, traceId: event.trace_id },
      })
    }
    this.#runId = runId
    this.#steps.clear()
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
    await this.#producer.runStarted({ trace_id: event.trace_id })
  }

  /** Of an execution that begins: a new one, unless the last one failed. */
  #nextStep(workItemId: string): string {
    const name = this.#items.get(workItemId) as string
    const step = this.#steps.get(name) ?? { count: 0, hasFailed: false }
    if (!step.hasFailed) step.count++
    step.hasFailed = false
    this.#steps.set(name, step)
    const stepId = `${name}/${step.count}`
    this.#stepIds.set(workItemId, stepId)
    return stepId
  }

  #stepId(workItemId: string, hasFailed: boolean): string {
    const name = this.#items.get(workItemId) as string
    const step = this.#steps.get(name) as Step
    step.hasFailed = hasFailed
    return this.#stepIds.get(workItemId) as string
  }
}

/** `|` separates the fields of the ledger's keys. */
function escapeStep(scope: string): string {
  return scope.replace(/[%|]/g, char => (char === '%' ? '%25' : '%7C'))
}
