import type { ArtifactRef, LaunchFailure, WorkItem } from './events.ts'
import type { LaunchState } from './launch-state.ts'

/** Questions about the work items of a run; pure. */

export const NO_SCOPE = '-'
const INTERRUPTED = 'INTERRUPTED'

/** What makes two pieces of work the same. */
export interface WorkKey {
  readonly worker: string
  readonly scope: string
  /** In the order in which they were given. */
  readonly inputs: readonly ArtifactRef[]
}

/** ND7: unambiguous, whatever characters the parts have. */
export function workItemId(runId: string, worker: string, attempt: number, scope: string): string {
  return [runId, worker, String(attempt), scope].map(escapePart).join(':')
}

function escapePart(part: string): string {
  return part.replace(/[%:]/g, char => (char === '%' ? '%25' : '%3A'))
}

/** Counted over the whole run, generations and all. */
export function nextAttempt({ work_items }: LaunchState, worker: string, scope: string): number {
  return 1 + work_items.filter(item => item.worker === worker && item.scope_key === scope).length
}

/** Those of this generation: earlier ones are history. */
export function currentItems({ work_items, memory }: LaunchState): readonly WorkItem[] {
  return work_items.slice(memory.firstItem)
}

export function itemsOf(state: LaunchState, key: WorkKey): readonly WorkItem[] {
  return currentItems(state).filter(
    item =>
      item.worker === key.worker && item.scope_key === key.scope && haveSameInputs(item.inputs, key.inputs),
  )
}

/** The item that did this work, unless the same worker has done other work on the scope since: that replaced what it left. */
export function lastFinished(state: LaunchState, { worker, scope, inputs }: WorkKey): WorkItem | undefined {
  const last = currentItems(state).findLast(
    item => item.worker === worker && item.scope_key === scope && item.status === 'finished',
  )
  return last !== undefined && haveSameInputs(last.inputs, inputs) ? last : undefined
}

function haveSameInputs(a: readonly ArtifactRef[], b: readonly ArtifactRef[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ name, sha256 }, index) => name === b[index].name && sha256 === b[index].sha256)
  )
}

/** Tries that came to an end of their own and failed; one that was cut off by a crash is nobody's fault. */
export function failuresOf(items: readonly WorkItem[]): number {
  return items.filter(({ status, error }) => status === 'failed' && error?.code !== INTERRUPTED).length
}

export const INTERRUPTION: LaunchFailure = {
  code: INTERRUPTED,
  message: 'the process ended while this was under way',
  retryable: true,
}

/** Of what others say, this much is enough. */
const TEXT_LENGTH_MAX = 4_000

/** What an error comes to in the log. */
export function failureOf(error: unknown): LaunchFailure {
  const { code, message, retryable, details } = Object(error) as {
    readonly code?: unknown
    readonly message?: unknown
    readonly retryable?: unknown
    readonly details?: unknown
  }
  // Of a call of a model, the details know whether it may pass.
  const told = retryable ?? (Object(details) as { readonly retryable?: unknown }).retryable
  const given = typeof code === 'string' ? code : error instanceof Error ? error.name : ''
  return {
    code: shortText(given) || 'ERROR',
    message: shortText(typeof message === 'string' ? message : String(error)),
    retryable: told !== false,
  }
}

/** A text that canonical JSON can hold. */
function shortText(text: string): string {
  return text.slice(0, TEXT_LENGTH_MAX).toWellFormed()
}
