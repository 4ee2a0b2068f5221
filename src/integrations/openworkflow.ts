import type { Annals, RunKv } from 'annals'
import type {
  Backend,
  CancelWorkflowRunParams,
  ClaimWorkflowRunParams,
  CompleteStepAttemptParams,
  CompleteWorkflowRunParams,
  CreateStepAttemptParams,
  CreateWorkflowRunParams,
  ExtendWorkflowRunLeaseParams,
  FailStepAttemptParams,
  FailWorkflowRunParams,
  GetSignalDeliveryParams,
  GetStepAttemptParams,
  GetWorkflowRunParams,
  ListStepAttemptsParams,
  ListWorkflowRunsParams,
  PaginatedResponse,
  RescheduleWorkflowRunAfterFailedStepAttemptParams,
  SendSignalParams,
  SendSignalResult,
  SetStepAttemptChildWorkflowRunParams,
  SleepWorkflowRunParams,
  StepAttempt,
  StepAttemptStatus,
  WorkflowRun,
  WorkflowRunCounts,
} from 'openworkflow/internal'
import { checkOptions } from '../core/options.ts'
import { namespace } from '../index.ts'
import {
  type Changes,
  isActive,
  isOwned,
  joined,
  RUN_RANGE,
  runChanges,
  type Stored,
  update,
  woken,
} from './openworkflow/changes.ts'
import { claimNext } from './openworkflow/claim.ts'
import {
  deliveryKey,
  givenKey,
  idempotencyKey,
  nameKey,
  nextAttemptId,
  RunIds,
  runIdOf,
  runKey,
  stepKey,
  stepsOf,
  waitKey,
  waitsFor,
} from './openworkflow/keys.ts'
import { countRuns, listRuns, listSteps } from './openworkflow/lists.ts'
import {
  type GivenParts,
  type Json,
  jsonOf,
  newRun,
  newStep,
  type StoredRun,
  type StoredStep,
  signalOf,
  timeOf,
  toStepAttempt,
  toWorkflowRun,
} from './openworkflow/records.ts'
import { retryTime } from './openworkflow/retry-time.ts'
import { deliverSignal } from './openworkflow/signals.ts'

/** A run that is created again with the same idempotency key within this time is the first one. */
const IDEMPOTENCY_MS = 24 * 60 * 60 * 1_000
const DEADLINE_EXCEEDED = { message: 'Workflow run deadline exceeded' }

export type { Json }

/** Options of `AnnalsBackend`. */
export interface AnnalsBackendOptions {
  /** Separates the runs of several applications in one store. `default` if it is not given. */
  readonly namespaceId?: string
}

/**
 * The backend of OpenWorkflow on an Annals store: in memory, in a folder or on PostgreSQL. Each call is one commit. Leases, sleeps and
 * deadlines follow the clock of the process that makes the call.
 */
export class AnnalsBackend implements Backend {
  readonly #namespaceId: string
  readonly #kv: RunKv
  readonly #ids = new RunIds()
  /** The names of workflows that this process has stored. */
  readonly #names = new Set<string>()

  /** Uses an open database. Closing it stays with the caller. */
  constructor(db: Pick<Annals, 'run' | 'tenant'>, options: AnnalsBackendOptions = {}) {
    checkOptions('AnnalsBackend', options, ['namespaceId'])
    const { namespaceId = 'default' } = options
    this.#namespaceId = namespaceId
    const scope = namespace({ tenant: db.tenant, app: 'openworkflow', agent: 'default', run: namespaceId })
    this.#kv = db.run(scope).kv
  }

  /** Does nothing. The store stays open, because the backend has not opened it. */
  async stop(): Promise<void> {}

  /** Creates a run. With an idempotency key, it returns the run that the same workflow has got with this key in the last 24 hours. */
  async createWorkflowRun(params: Readonly<CreateWorkflowRunParams>): Promise<WorkflowRun> {
    const now = Date.now()
    const { run, apart } = newRun(this.#ids.next(now), params, now)
    const { workflowName } = run
    const puts: { key: string; value: Stored; ttlMs?: number }[] = [...runChanges(undefined, run).puts]
    if (apart !== undefined) puts.push({ key: givenKey(run.id), value: { ...apart } })
    if (!this.#names.has(workflowName)) puts.push({ key: nameKey(workflowName), value: true })
    if (run.idempotencyKey === null) {
      await this.#kv.write<Stored>(puts.map(put => ({ op: 'put', ...put })))
    } else {
      const key = idempotencyKey(workflowName, run.idempotencyKey)
      puts.push({ key, value: { id: run.id, createdAt: now }, ttlMs: IDEMPOTENCY_MS })
      const existing = await update(this.#kv, { keys: puts.map(put => put.key) }, found => {
        const earlier = found.get<{ id: string; createdAt: number }>(key)
        const isValid = earlier !== undefined && earlier.createdAt >= now - IDEMPOTENCY_MS
        return isValid ? { result: earlier.id } : { puts, result: undefined }
      })
      if (existing !== undefined) return this.#existing(existing)
    }
    this.#names.add(workflowName)
    return toWorkflowRun(this.#namespaceId, { ...run, ...apart })
  }

  /** Returns a run, or null if there is none with this id. */
  async getWorkflowRun({ workflowRunId }: Readonly<GetWorkflowRunParams>): Promise<WorkflowRun | null> {
    const run = await this.#kv.get<StoredRun>(runKey(workflowRunId))
    return run === undefined ? null : this.#whole(run)
  }

  /** Lists runs, the newest first. */
  async listWorkflowRuns(params: Readonly<ListWorkflowRunsParams>): Promise<PaginatedResponse<WorkflowRun>> {
    return listRuns(this.#kv, params, run => this.#whole(run))
  }

  /** Counts the runs of each status. */
  async countWorkflowRuns(): Promise<WorkflowRunCounts> {
    return countRuns(this.#kv)
  }

  /** Claims the next run: pending ones first, then those that slept or whose lease has expired, each in the order in which they are due. */
  async claimWorkflowRun(params: Readonly<ClaimWorkflowRunParams>): Promise<WorkflowRun | null> {
    for (;;) {
      const { expired, claimed } = await claimNext(this.#kv, params)
      if (expired === undefined) return claimed === undefined ? null : this.#whole(claimed)
      await this.#expire(expired)
    }
  }

  /** Extends the lease of a run that the worker owns. */
  async extendWorkflowRunLease(params: Readonly<ExtendWorkflowRunLeaseParams>): Promise<WorkflowRun> {
    return this.#changeOwned(params, 'extend lease for workflow run', (run, now) => ({
      ...run,
      availableAt: now + params.leaseDurationMs,
      updatedAt: now,
    }))
  }

  /** Releases a run until a time. If something that it waits for has arrived meanwhile, it is due at once. */
  async sleepWorkflowRun(params: Readonly<SleepWorkflowRunParams>): Promise<WorkflowRun> {
    const resumeAt = timeOf(params.availableAt)
    return this.#changeOwned(params, 'sleep workflow run', (run, now) => ({
      ...run,
      availableAt: run.arrived.length > 0 ? Math.min(resumeAt, now) : resumeAt,
      workerId: null,
      updatedAt: now,
    }))
  }

  /** Ends a run with its output, and wakes its parent. */
  async completeWorkflowRun(params: Readonly<CompleteWorkflowRunParams>): Promise<WorkflowRun> {
    const output = jsonOf(params.output)
    return this.#changeOwned(params, 'mark workflow run completed', (run, now) => ({
      ...run,
      status: 'completed',
      output,
      error: null,
      availableAt: null,
      finishedAt: now,
      updatedAt: now,
    }))
  }

  /** Schedules the run's next attempt. If its policy or its deadline allows none, the run fails, and its parent is woken. */
  async failWorkflowRun(params: Readonly<FailWorkflowRunParams>): Promise<WorkflowRun> {
    const error = jsonOf(params.error)
    return this.#changeOwned(params, 'mark workflow run failed', (run, now) => {
      const deadlineAt =
        params.deadlineAt === undefined ? run.deadlineAt : (params.deadlineAt?.getTime() ?? null)
      const isLate = deadlineAt !== null && now >= deadlineAt
      const attempts = params.attempts ?? run.attempts
      const retryAt = isLate ? undefined : retryTime(params.retryPolicy, attempts, deadlineAt, now)
      return {
        ...run,
        status: retryAt === undefined ? 'failed' : 'pending',
        availableAt: retryAt ?? null,
        finishedAt: retryAt === undefined ? now : null,
        error: isLate ? DEADLINE_EXCEEDED : error,
        workerId: null,
        startedAt: null,
        updatedAt: now,
      }
    })
  }

  /** Schedules a run again after one of its steps has failed. */
  async rescheduleWorkflowRunAfterFailedStepAttempt(
    params: Readonly<RescheduleWorkflowRunAfterFailedStepAttemptParams>,
  ): Promise<WorkflowRun> {
    const error = jsonOf(params.error)
    const availableAt = timeOf(params.availableAt)
    return this.#changeOwned(params, 'reschedule workflow run after failed step attempt', (run, now) => ({
      ...run,
      status: 'pending',
      availableAt,
      finishedAt: null,
      error,
      workerId: null,
      startedAt: null,
      updatedAt: now,
    }))
  }

  /** Cancels a run that has not ended, and wakes its parent. A run that is canceled already stays as it is. */
  async cancelWorkflowRun({ workflowRunId }: Readonly<CancelWorkflowRunParams>): Promise<WorkflowRun> {
    return this.#change(workflowRunId, (run, now) => {
      if (run === undefined) throw new Error(`Workflow run ${workflowRunId} does not exist`)
      if (run.status === 'canceled') return run
      if (!isActive(run.status))
        throw new Error(`Cannot cancel workflow run ${workflowRunId} with status ${run.status}`)
      return {
        ...run,
        status: 'canceled',
        workerId: null,
        availableAt: null,
        finishedAt: now,
        updatedAt: now,
      }
    })
  }

  /** Records that a worker begins a step of a run that it owns. */
  async createStepAttempt(params: Readonly<CreateStepAttemptParams>): Promise<StepAttempt> {
    const { workflowRunId, workerId } = params
    const now = Date.now()
    const signal = signalOf(params)
    const newest = { prefix: stepsOf(workflowRunId), reverse: true, limit: 1 }
    const waits = signal === undefined ? [] : [{ prefix: waitsFor(signal), limit: 1 }]
    const reads = { keys: [runKey(workflowRunId)], ranges: [newest, ...waits] }
    const step = await update(this.#kv, reads, found => {
      if (!isOwned(found.get(runKey(workflowRunId)), workerId))
        throw new Error('Failed to create step attempt')
      const [previous] = found.range<StoredStep>(0)
      const id = nextAttemptId(workflowRunId, previous?.[1].id)
      // The order of the ids is that of the times, even if the clock was set back.
      const created = newStep(id, params, Math.max(now, previous?.[1].createdAt ?? now))
      const puts: { key: string; value: Stored }[] = [{ key: stepKey(id), value: created }]
      if (signal !== undefined) puts.push({ key: waitKey(signal, id), value: true })
      return { puts, result: created }
    })
    return toStepAttempt(this.#namespaceId, step)
  }

  /** Returns a step attempt, or null if there is none with this id. */
  async getStepAttempt({ stepAttemptId }: Readonly<GetStepAttemptParams>): Promise<StepAttempt | null> {
    const step = await this.#kv.get<StoredStep>(stepKey(stepAttemptId))
    return step === undefined ? null : toStepAttempt(this.#namespaceId, step)
  }

  /** Lists the step attempts of a run in the order in which they began. */
  async listStepAttempts(params: Readonly<ListStepAttemptsParams>): Promise<PaginatedResponse<StepAttempt>> {
    return listSteps(this.#kv, params, step => toStepAttempt(this.#namespaceId, step))
  }

  /** Records the output of a step. A completed step attempt stays as it is. */
  async completeStepAttempt(params: Readonly<CompleteStepAttemptParams>): Promise<StepAttempt> {
    const output = jsonOf(params.output)
    return this.#finishStep(params, 'completed', { output, error: null })
  }

  /** Records the error of a step. A failed step attempt stays as it is. */
  async failStepAttempt(params: Readonly<FailStepAttemptParams>): Promise<StepAttempt> {
    const error = jsonOf(params.error)
    return this.#finishStep(params, 'failed', { output: null, error })
  }

  /** Links a step attempt to the run that it waits for. */
  async setStepAttemptChildWorkflowRun(
    params: Readonly<SetStepAttemptChildWorkflowRunParams>,
  ): Promise<StepAttempt> {
    const { workflowRunId, stepAttemptId, workerId, childWorkflowRunId, childWorkflowRunNamespaceId } = params
    const [run, step, child] = [runKey(workflowRunId), stepKey(stepAttemptId), runKey(childWorkflowRunId)]
    const now = Date.now()
    const reads = { keys: [run, step, child], ranges: [RUN_RANGE] }
    const linked = await update(this.#kv, reads, found => {
      const parent = found.get<StoredRun>(run)
      const attempt = found.get<StoredStep>(step)
      if (
        !isOwned(parent, workerId) ||
        attempt?.workflowRunId !== workflowRunId ||
        attempt.status !== 'running'
      )
        throw new Error('Failed to set step attempt child workflow run')
      const after = { ...attempt, childWorkflowRunNamespaceId, childWorkflowRunId, updatedAt: now }
      const changes = { puts: [{ key: step, value: after }], deletes: [] }
      const status = found.get<StoredRun>(child)?.status
      const hasEnded =
        childWorkflowRunNamespaceId === this.#namespaceId && status !== undefined && !isActive(status)
      const arrival = hasEnded && runChanges(parent, woken(parent, stepAttemptId, now))
      return { ...(arrival ? joined(changes, arrival) : changes), result: after }
    })
    return toStepAttempt(this.#namespaceId, linked)
  }

  /** Delivers a signal to all step attempts that wait for it, and wakes their runs. Each step attempt gets one signal. */
  async sendSignal(params: Readonly<SendSignalParams>): Promise<SendSignalResult> {
    return deliverSignal(this.#kv, params)
  }

  /** Returns the data of the signal that a step attempt has received, or undefined if it has received none. */
  async getSignalDelivery({ stepAttemptId }: Readonly<GetSignalDeliveryParams>): Promise<Json | undefined> {
    return (await this.#kv.get<{ data: Json }>(deliveryKey(stepAttemptId)))?.data
  }

  /** Changes a run that the worker owns. */
  #changeOwned(
    { workflowRunId, workerId }: { readonly workflowRunId: string; readonly workerId: string },
    task: string,
    change: (run: StoredRun, now: number) => StoredRun,
  ): Promise<WorkflowRun> {
    return this.#change(workflowRunId, (run, now) => {
      if (!isOwned(run, workerId)) throw new Error(`Failed to ${task}`)
      return change(run, now)
    })
  }

  /** Changes a run. If that ends it, and a step attempt of another run waits for it, this wakes the other run. */
  async #change(
    id: string,
    change: (run: StoredRun | undefined, now: number) => StoredRun,
  ): Promise<WorkflowRun> {
    const now = Date.now()
    const changed = await update(this.#kv, { keys: [runKey(id)], ranges: [RUN_RANGE] }, found => {
      const before = found.get<StoredRun>(runKey(id))
      const after = change(before, now)
      if (after === before) return { result: after }
      const changes = runChanges(before, after)
      const attemptId = isActive(after.status) ? undefined : this.#parentAttempt(after)
      if (attemptId === undefined) return { ...changes, result: after }
      const attempt = found.get<StoredStep>(stepKey(attemptId))
      const parent = found.get<StoredRun>(runKey(runIdOf(attemptId)))
      const isWaiting =
        attempt?.kind === 'workflow' &&
        attempt.status === 'running' &&
        attempt.childWorkflowRunId === id &&
        attempt.childWorkflowRunNamespaceId === this.#namespaceId
      if (!isWaiting || parent?.status !== 'running') return { ...changes, result: after }
      return {
        ...joined(changes, runChanges(parent, woken(parent, attemptId, now))),
        result: after,
      }
    })
    return this.#whole(changed)
  }

  #parentAttempt(run: StoredRun): string | undefined {
    const isHere = run.parentStepAttemptNamespaceId === this.#namespaceId
    return isHere ? (run.parentStepAttemptId ?? undefined) : undefined
  }

  /** Fails a run whose deadline has passed. Another worker may have ended it meanwhile. */
  async #expire(id: string): Promise<void> {
    await this.#change(id, (run, now) => {
      if (run === undefined) throw new Error(`Workflow run ${id} does not exist`)
      if (!isActive(run.status)) return run
      return {
        ...run,
        status: 'failed',
        error: DEADLINE_EXCEEDED,
        workerId: null,
        availableAt: null,
        finishedAt: now,
        updatedAt: now,
      }
    })
  }

  async #finishStep(
    params: { readonly workflowRunId: string; readonly stepAttemptId: string; readonly workerId: string },
    status: StepAttemptStatus,
    outcome: { readonly output: Json; readonly error: Json },
  ): Promise<StepAttempt> {
    const { workflowRunId, stepAttemptId, workerId } = params
    const [runId, stepId] = [runKey(workflowRunId), stepKey(stepAttemptId)]
    const now = Date.now()
    const reads = { keys: [runId, stepId], ranges: [RUN_RANGE] }
    const finished = await update(this.#kv, reads, found => {
      const run = found.get<StoredRun>(runId)
      const step = found.get<StoredStep>(stepId)
      const isKnown = step?.workflowRunId === workflowRunId
      if (!isOwned(run, workerId) || !isKnown || (step.status !== 'running' && step.status !== status))
        throw new Error(`Failed to mark step attempt ${status}`)
      if (step.status === status) return { result: step }
      const after = { ...step, ...outcome, status, finishedAt: now, updatedAt: now }
      const changes: Changes[] = [{ puts: [{ key: stepId, value: after }], deletes: [] }]
      const signal = signalOf(toStepAttempt(this.#namespaceId, step))
      if (signal !== undefined && found.get(waitKey(signal, step.id)) !== undefined)
        changes.push({ puts: [], deletes: [waitKey(signal, step.id)] })
      if (run.arrived.includes(step.id))
        changes.push(runChanges(run, { ...run, arrived: run.arrived.filter(id => id !== step.id) }))
      return { ...joined(...changes), result: after }
    })
    return toStepAttempt(this.#namespaceId, finished)
  }

  async #existing(id: string): Promise<WorkflowRun> {
    const run = await this.getWorkflowRun({ workflowRunId: id })
    if (run === null) throw new Error(`Workflow run ${id} does not exist`)
    return run
  }

  /** The run with its given parts. */
  async #whole(run: StoredRun): Promise<WorkflowRun> {
    const given = run.isApart ? await this.#kv.get<GivenParts>(givenKey(run.id)) : undefined
    return toWorkflowRun(this.#namespaceId, { ...run, ...given })
  }
}
