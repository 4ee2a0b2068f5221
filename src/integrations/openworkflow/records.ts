import type {
  CreateStepAttemptParams,
  CreateWorkflowRunParams,
  StepAttempt,
  StepAttemptStatus,
  StepKind,
  WorkflowRun,
  WorkflowRunStatus,
} from 'openworkflow/internal'

/** A JSON value. */
export type Json = WorkflowRun['input']

/** Larger inputs have their own key, so that claims and heartbeats do not write them again. In characters of JSON. */
const INLINE_MAX = 2_048

/** What the creator of a run gives to it. */
export interface GivenParts {
  readonly config: Json
  readonly context: Json
  readonly input: Json
}

/** A run as it is stored. Times are milliseconds since 1970. */
export interface StoredRun extends GivenParts {
  readonly id: string
  readonly workflowName: string
  readonly version: string | null
  readonly status: WorkflowRunStatus
  readonly idempotencyKey: string | null
  readonly output: Json
  readonly error: Json
  readonly attempts: number
  readonly parentStepAttemptNamespaceId: string | null
  readonly parentStepAttemptId: string | null
  readonly workerId: string | null
  readonly availableAt: number | null
  readonly deadlineAt: number | null
  readonly startedAt: number | null
  readonly finishedAt: number | null
  readonly createdAt: number
  readonly updatedAt: number
  /** The running step attempts whose signal has arrived or whose child has ended. A run that has some is not put to sleep. */
  readonly arrived: readonly string[]
  /** Whether the given parts have their own key and are null here. */
  readonly isApart: boolean
}

/** A step attempt as it is stored. */
export interface StoredStep {
  readonly id: string
  readonly workflowRunId: string
  readonly stepName: string
  readonly kind: StepKind
  readonly status: StepAttemptStatus
  readonly config: Json
  readonly context: Json
  readonly output: Json
  readonly error: Json
  readonly childWorkflowRunNamespaceId: string | null
  readonly childWorkflowRunId: string | null
  readonly startedAt: number
  readonly finishedAt: number | null
  readonly createdAt: number
  readonly updatedAt: number
}

/** A new run, and its given parts if they are too large for the record. */
export function newRun(
  id: string,
  params: Readonly<CreateWorkflowRunParams>,
  now: number,
): { readonly run: StoredRun; readonly apart: GivenParts | undefined } {
  const { workflowName, version, idempotencyKey, parentStepAttemptNamespaceId, parentStepAttemptId } = params
  const text = JSON.stringify({ config: params.config, context: params.context, input: params.input })
  const given = { config: null, context: null, input: null, ...(JSON.parse(text) as Partial<GivenParts>) }
  const isApart = text.length > INLINE_MAX
  const run: StoredRun = {
    id,
    workflowName,
    version: version ?? null,
    status: 'pending',
    idempotencyKey: idempotencyKey ?? null,
    ...(isApart ? { config: null, context: null, input: null } : given),
    output: null,
    error: null,
    attempts: 0,
    parentStepAttemptNamespaceId: parentStepAttemptNamespaceId ?? null,
    parentStepAttemptId: parentStepAttemptId ?? null,
    workerId: null,
    availableAt: params.availableAt ? timeOf(params.availableAt) : now,
    deadlineAt: params.deadlineAt ? timeOf(params.deadlineAt) : null,
    startedAt: null,
    finishedAt: null,
    createdAt: now,
    updatedAt: now,
    arrived: [],
    isApart,
  }
  return { run, apart: isApart ? given : undefined }
}

export function newStep(id: string, params: Readonly<CreateStepAttemptParams>, now: number): StoredStep {
  return {
    id,
    workflowRunId: params.workflowRunId,
    stepName: params.stepName,
    kind: params.kind,
    status: 'running',
    config: jsonOf(params.config),
    context: jsonOf(params.context),
    output: null,
    error: null,
    childWorkflowRunNamespaceId: null,
    childWorkflowRunId: null,
    startedAt: now,
    finishedAt: null,
    createdAt: now,
    updatedAt: now,
  }
}

/** The run as OpenWorkflow knows it. */
export function toWorkflowRun(namespaceId: string, stored: StoredRun): WorkflowRun {
  const { arrived: _, isApart: __, ...run } = stored
  return {
    ...run,
    namespaceId,
    error: run.error as WorkflowRun['error'],
    availableAt: dateOf(run.availableAt),
    deadlineAt: dateOf(run.deadlineAt),
    startedAt: dateOf(run.startedAt),
    finishedAt: dateOf(run.finishedAt),
    createdAt: new Date(run.createdAt),
    updatedAt: new Date(run.updatedAt),
  }
}

/** The step attempt as OpenWorkflow knows it. */
export function toStepAttempt(namespaceId: string, step: StoredStep): StepAttempt {
  return {
    ...step,
    namespaceId,
    context: step.context as StepAttempt['context'],
    startedAt: new Date(step.startedAt),
    finishedAt: dateOf(step.finishedAt),
    createdAt: new Date(step.createdAt),
    updatedAt: new Date(step.updatedAt),
  }
}

/** The value as JSON has it: without members that are undefined, and null instead of undefined. */
export function jsonOf(value: unknown): Json {
  return value === undefined ? null : (JSON.parse(JSON.stringify(value)) as Json)
}

/** The signal that a step attempt waits for. */
export function signalOf({ kind, context }: Pick<StepAttempt, 'kind' | 'context'>): string | undefined {
  return kind === 'signal-wait' && context?.kind === 'signal-wait' ? context.signal : undefined
}

export function timeOf(date: Readonly<Date>): number {
  const time = date.getTime()
  if (Number.isNaN(time)) throw new RangeError('Invalid time value')
  return time
}

function dateOf(time: number | null): Date | null {
  return time === null ? null : new Date(time)
}
