import { AnnalsError, invalidArgument } from '../core/errors.ts'
import type { Value } from '../core/value.ts'
import { DEFAULT_PART, type NamespaceParts } from '../engine/keys.ts'

/** The status of a run. */
export type RunStatus = 'Active' | 'Completed' | 'Failed' | 'Cancelled' | 'Paused' | 'Archived'

/** A run as the run index has it. */
export interface Run<M = Value> {
  /** The id, unique in its tenant. */
  readonly runId: string
  /** The app that the run belongs to; absent if it is `default`. */
  readonly app?: string
  /** The agent that the run belongs to; absent if it is `default`. */
  readonly agent?: string
  /** The id of the parent run; absent if there is none. */
  readonly parentRun?: string
  /** The current status. */
  readonly status: RunStatus
  /** When the run was created, in milliseconds since 1970. */
  readonly createdAt: number
  /** When the run's entry last changed, in milliseconds since 1970. */
  readonly updatedAt: number
  /** When the run became Completed, Failed or Cancelled; absent before. */
  readonly completedAt?: number
  /** Labels to find the run by. */
  readonly tags: readonly string[]
  /** Any value that the caller stored with the run. */
  readonly metadata: M
  /** Why the run failed; absent unless it did. */
  readonly error?: string
}

/** A run without its metadata. Indexes, queries and status changes need no more, and the metadata may be large. */
export type RunHead = Omit<Run, 'metadata'>

/** What remains of a deleted run, or of a dropped scope. */
export interface Tombstone {
  /** The id of the deleted run. */
  readonly runId: string
  /** The app that it belonged to; absent if it was `default`. */
  readonly app?: string
  /** The agent that it belonged to; absent if it was `default`. */
  readonly agent?: string
  /** When it was deleted, in milliseconds since 1970. */
  readonly deletedAt: number
  /** The reason that was given for the deletion. */
  readonly reason?: string
  /** The number of events in the run's own log. */
  readonly events: number
  /** The hash of the last of these events; 64 zeros if there were none. */
  readonly headHash: string
}

/** The app and agent as a run's record has them: `default` is left out. */
export function placeIn({ app, agent }: Pick<NamespaceParts, 'app' | 'agent'>): Pick<Run, 'app' | 'agent'> {
  return { ...(app === DEFAULT_PART ? {} : { app }), ...(agent === DEFAULT_PART ? {} : { agent }) }
}

/** P10: the statuses that may follow each status. A finished run never becomes active again. */
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

/** Returns the status, or throws `INVALID_ARGUMENT` if it is not one. */
export function checkStatus(status: unknown): RunStatus {
  if (STATUSES.includes(status as RunStatus)) return status as RunStatus
  throw invalidArgument('status', `must be one of ${STATUSES.join(', ')}`, status)
}

/** The run with another status. Throws `INVALID_TRANSITION` if that status may not follow the present one. */
export function withStatus(run: RunHead, status: RunStatus, now: number, error?: string): RunHead {
  const allowed = NEXT[run.status]
  if (!allowed.includes(status)) {
    const message = `run ${JSON.stringify(run.runId)} is ${run.status} and can't become ${status}`
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

/** The run with `now` as the time of its last change. That time never goes back, even if the clock does. */
export function touched(run: RunHead, now: number): RunHead {
  return { ...run, updatedAt: Math.max(run.updatedAt, now) }
}
