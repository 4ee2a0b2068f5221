import { parseRfc3339 } from '../core/time.ts'
import type { RunHead, RunStatus } from '../primitives/run.ts'
import type { RunStateStatus } from './run-events.ts'

/** The status in the index of runs for each projected status (LD15). */
const INDEXED: Readonly<Record<RunStateStatus, RunStatus>> = {
  PENDING: 'Active',
  RUNNING: 'Active',
  PAUSED: 'Paused',
  COMPLETED: 'Completed',
  FAILED: 'Failed',
  CANCELLED: 'Cancelled',
}

/** Returns a run's status in the index. Undefined stands for a run without events. */
export function indexedStatus(status: RunStateStatus | undefined): RunStatus {
  return status === undefined ? 'Active' : INDEXED[status]
}

/** The input for an update of the index: a run's state, and facts about the records since the last update. */
export interface Followed {
  readonly status: RunStateStatus
  readonly completedAt: string | undefined
  /** When the last of these records was persisted that changed the run's status in the index; undefined if none did. */
  readonly movedAt: number | undefined
  /** When the run's first record was persisted, if it is one of these; else 0. */
  readonly firstTime: number
}

/**
 * The run's entry in the index after these records; `before` itself if nothing changes. The result depends on the records
 * alone, not on how many of them one update covers. An archived run stays archived.
 */
export function indexedRun(before: RunHead, { status, completedAt, movedAt, firstTime }: Followed): RunHead {
  if (before.status === 'Archived') return before
  const after = indexedStatus(status)
  // An entry that was made by hand, and then adopted, may have had another status before the first record.
  const changedAt = movedAt ?? (before.status === after ? 0 : firstTime)
  const updatedAt = Math.max(before.updatedAt, changedAt)
  const { completedAt: endedBefore, ...rest } = before
  const ended = completedAt === undefined ? undefined : parseRfc3339(completedAt)
  if (before.status === after && before.updatedAt === updatedAt && endedBefore === ended) return before
  return { ...rest, status: after, updatedAt, ...(ended === undefined ? {} : { completedAt: ended }) }
}
