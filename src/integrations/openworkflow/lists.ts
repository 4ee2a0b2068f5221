import type { ListOptions, RunKv, ScopedKv } from 'annals'
import type {
  ListStepAttemptsParams,
  ListWorkflowRunsParams,
  PaginatedResponse,
  StepAttempt,
  WorkflowRun,
  WorkflowRunCounts,
} from 'openworkflow/internal'
import { NAMES, part, runKey, runsWith, stepsOf } from './keys.ts'
import { type PageRequest, pageOf, pageRequest } from './pages.ts'
import type { StoredRun, StoredStep } from './records.ts'

const STATUSES: readonly (keyof WorkflowRunCounts)[] = [
  'pending',
  'running',
  'completed',
  'failed',
  'canceled',
]

export async function listRuns(
  kv: RunKv,
  params: Readonly<ListWorkflowRunsParams>,
  whole: (run: StoredRun) => Promise<WorkflowRun>,
): Promise<PaginatedResponse<WorkflowRun>> {
  const page = pageRequest(params)
  const { status, workflowName } = params
  const runs =
    !status && !workflowName
      ? (await kv.entries<StoredRun>(rangeOf(runKey(''), page, true))).map(([, run]) => run)
      : await kv.transaction(tx => filtered(tx, params, page))
  return pageOf(await Promise.all(runs.map(whole)), page)
}

export async function listSteps(
  kv: RunKv,
  params: Readonly<ListStepAttemptsParams>,
  asAttempt: (step: StoredStep) => StepAttempt,
): Promise<PaginatedResponse<StepAttempt>> {
  const page = pageRequest(params)
  const steps = await kv.entries<StoredStep>(rangeOf(stepsOf(params.workflowRunId), page, false))
  return pageOf(
    steps.map(([, step]) => asAttempt(step)),
    page,
  )
}

export async function countRuns(kv: RunKv): Promise<WorkflowRunCounts> {
  return kv.transaction(async tx => {
    const counts: WorkflowRunCounts = { pending: 0, running: 0, completed: 0, failed: 0, canceled: 0 }
    const names = await namesIn(tx)
    for (const status of STATUSES) {
      for (const name of names) counts[status] += (await tx.list({ prefix: runsWith(status, name) })).length
    }
    return counts
  })
}

/** Reads a page from each part of the index that matches, and joins them. */
async function filtered(
  tx: ScopedKv,
  { status, workflowName }: Readonly<ListWorkflowRunsParams>,
  page: PageRequest,
): Promise<readonly StoredRun[]> {
  const names = workflowName ? [part(workflowName)] : await namesIn(tx)
  const ids: string[] = []
  for (const one of status ? [status] : STATUSES) {
    for (const name of names) {
      const prefix = runsWith(one, name)
      const keys = await tx.list(rangeOf(prefix, page, true))
      ids.push(...keys.map(key => key.slice(prefix.length)))
    }
  }
  ids.sort()
  if (!page.isBefore) ids.reverse()
  const runs = await tx.getMany<StoredRun>(ids.slice(0, page.limit + 1).map(runKey))
  return runs.filter(run => run !== undefined)
}

async function namesIn(tx: ScopedKv): Promise<readonly string[]> {
  return (await tx.list({ prefix: NAMES })).map(key => key.slice(NAMES.length))
}

/** The range of a page, and one entry more. The ids after the prefix sort by time, so the newest come last. */
function rangeOf(prefix: string, page: PageRequest, isNewestFirst: boolean): ListOptions {
  const reverse = isNewestFirst !== page.isBefore
  const after = page.cursor === undefined ? {} : { after: prefix + page.cursor }
  return { prefix, ...after, reverse, limit: page.limit + 1 }
}
