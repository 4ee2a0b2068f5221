import type { ArtifactRef, LaunchFailure, LaunchPayloads, WorkItem } from './events.ts'
import type { LaunchState } from './launch-state.ts'

/** Questions about the work items of a run. All functions are pure. */

/** The scope of work that has none. */
export const NO_SCOPE = '-'
const INTERRUPTED = 'INTERRUPTED'

/** What identifies a piece of work. Two items with the same key are attempts at the same work. */
export type WorkKey = Pick<WorkItem, 'worker' | 'scope_key' | 'inputs'>

/** The next attempt at a piece of work, ready to be queued. Attempts are counted over the whole run, across generations. */
export function nextAttempt(
  { run_id, work_items }: Pick<LaunchState, 'run_id' | 'work_items'>,
  { worker, scope_key, inputs }: WorkKey,
): LaunchPayloads['WORK_ITEM_QUEUED'] {
  const earlier = work_items.filter(item => item.worker === worker && item.scope_key === scope_key)
  const attempt = earlier.length + 1
  // ND7: escaped, so that the id is unambiguous whatever its parts contain.
  const work_item_id = [run_id, worker, String(attempt), scope_key].map(encodePart).join(':')
  return { work_item_id, worker, scope_key, attempt, inputs }
}

function encodePart(part: string): string {
  return part.replace(/[%:]/g, char => (char === '%' ? '%25' : '%3A'))
}

/** The worker and the scope of a work item, which its id contains. */
export function workOf(workItemId: string): Pick<WorkItem, 'worker' | 'scope_key'> {
  const [, worker = workItemId, , scope = NO_SCOPE] = workItemId.split(':')
  return { worker: decodePart(worker), scope_key: decodePart(scope) }
}

function decodePart(part: string): string {
  return part.replace(/%(25|3A)/g, (_, code) => (code === '25' ? '%' : ':'))
}

/** The work items of the current generation. */
export function currentItems({ work_items, memory }: LaunchState): readonly WorkItem[] {
  return work_items.slice(memory.firstItem)
}

/** All attempts at a piece of work in the current generation. */
export function itemsOf(state: LaunchState, key: WorkKey): readonly WorkItem[] {
  return currentItems(state).filter(item => isSameWork(item, key))
}

/** The item that finished this work, unless the worker did other work on the scope since: that replaced its outputs. */
export function lastFinished(state: LaunchState, key: WorkKey): WorkItem | undefined {
  const last = currentItems(state).findLast(
    ({ worker, scope_key, status }) =>
      worker === key.worker && scope_key === key.scope_key && status === 'finished',
  )
  return last !== undefined && isSameWork(last, key) ? last : undefined
}

function isSameWork(a: WorkKey, b: WorkKey): boolean {
  return a.worker === b.worker && a.scope_key === b.scope_key && haveSameInputs(a.inputs, b.inputs)
}

function haveSameInputs(a: readonly ArtifactRef[], b: readonly ArtifactRef[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ name, sha256 }, index) => name === b[index].name && sha256 === b[index].sha256)
  )
}

/** How many attempts failed by themselves. An attempt that a crash interrupted does not count. */
export function failuresOf(items: readonly WorkItem[]): number {
  return items.filter(({ status, error }) => status === 'failed' && error?.code !== INTERRUPTED).length
}

/** The failure of work that was running when its process died. */
export const INTERRUPTION: LaunchFailure = {
  code: INTERRUPTED,
  message: 'the process ended during this attempt',
  retryable: true,
}

/** Error texts in the log are cut at this length. */
const TEXT_LENGTH_MAX = 4_000

/** An error as the log records it. */
export function failureOf(error: unknown): LaunchFailure {
  const { code, message, retryable, details } = Object(error) as Partial<Record<string, unknown>>
  // A failed call of a model says in its details whether a retry may succeed.
  const mayRetry = retryable ?? (Object(details) as Partial<Record<string, unknown>>)['retryable']
  const given = typeof code === 'string' ? code : error instanceof Error ? error.name : ''
  return {
    code: shortText(given) || 'ERROR',
    message: shortText(typeof message === 'string' ? message : String(error)),
    retryable: mayRetry !== false,
  }
}

/** Canonical JSON refuses lone surrogates, which cutting a text can leave behind. */
function shortText(text: string): string {
  return text.slice(0, TEXT_LENGTH_MAX).toWellFormed()
}
