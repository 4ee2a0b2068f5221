import { AnnalsError } from '../core/errors.ts'
import type { Value } from '../core/value.ts'
import { DEFAULT_PART, type NamespaceParts } from '../engine/keys.ts'

export type RunStatus = 'Active' | 'Completed' | 'Failed' | 'Cancelled' | 'Paused' | 'Archived'

export interface Run {
  readonly runId: string
  /** The app that the run belongs to; absent if it is `default`. */
  readonly app?: string
  /** The agent that the run belongs to; absent if it is `default`. */
  readonly agent?: string
  readonly parentRun?: string
  readonly status: RunStatus
  readonly createdAt: number
  readonly updatedAt: number
  /** Set once it is Completed, Failed or Cancelled. */
  readonly completedAt?: number
  readonly tags: readonly string[]
  readonly metadata: Value
  /** Why it failed. */
  readonly error?: string
}

/** What is left of a run that was deleted, or of a scope that was dropped. */
export interface Tombstone {
  readonly runId: string
  /** The app that it belonged to; absent if it was `default`. */
  readonly app?: string
  /** The agent that it belonged to; absent if it was `default`. */
  readonly agent?: string
  readonly deletedAt: number
  readonly reason?: string
  /** How many events it had, and the hash of the last one: 64 zeros if it had none. */
  readonly events: number
  readonly headHash: string
}

/** What of a namespace a run's record holds: `default` is not written down. */
export function placeIn({ app, agent }: Pick<NamespaceParts, 'app' | 'agent'>): Pick<Run, 'app' | 'agent'> {
  return { ...(app === DEFAULT_PART ? {} : { app }), ...(agent === DEFAULT_PART ? {} : { agent }) }
}

/** P10: what may follow what. Nothing rises again, nothing fails twice, and what is archived stays so. */
const NEXT: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  Active: ['Completed', 'Failed', 'Cancelled', 'Paused', 'Archived'],
  Paused: ['Active', 'Cancelled', 'Archived'],
  Completed: ['Archived'],
  Failed: ['Archived'],
  Cancelled: ['Archived'],
  Archived: [],
}

export const STATUSES: readonly RunStatus[] = Object.keys(NEXT) as RunStatus[]
const ENDS: readonly RunStatus[] = ['Completed', 'Failed', 'Cancelled']

export function checkStatus(status: unknown): RunStatus {
  if (STATUSES.includes(status as RunStatus)) return status as RunStatus
  const message = `status must be one of ${STATUSES.join(', ')}`
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'status', value: status })
}

/** The run in another status, or `INVALID_TRANSITION`. */
export function withStatus(run: Run, status: RunStatus, now: number, error?: string): Run {
  const allowed = NEXT[run.status]
  if (!allowed.includes(status)) {
    const message = `run ${JSON.stringify(run.runId)} is ${run.status}: it can't become ${status}`
    throw new AnnalsError('INVALID_TRANSITION', message, {
      runId: run.runId,
      from: run.status,
      to: status,
      allowed,
    })
  }
  const changed = touched({ ...run, status }, now)
  return {
    ...changed,
    ...(ENDS.includes(status) ? { completedAt: changed.updatedAt } : {}),
    ...(error === undefined ? {} : { error }),
  }
}

/** As changed now; its time never goes back, whatever the clock does. */
export function touched(run: Run, now: number): Run {
  return { ...run, updatedAt: Math.max(run.updatedAt, now) }
}
