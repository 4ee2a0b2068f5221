import { type ByteString, u64 } from '../core/bytes.ts'
import { parseRfc3339 } from '../core/time.ts'
import type { Database } from '../engine/database.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Place, PointRead, Put } from '../engine/storage.ts'
import type { Run, RunStatus } from '../primitives/run.ts'
import { runOf, runOperations, runPlace } from '../primitives/run-records.ts'
import type { RunState } from './reduce.ts'
import type { RunStateStatus } from './run-events.ts'
import type { RunProjection } from './run-projection.ts'
import { LOG, placeOf, RUN_STATE_KEY } from './stored.ts'

/** LD15: what a run's status is in the index of runs. */
const INDEXED: Readonly<Record<RunStateStatus, RunStatus>> = {
  PENDING: 'Active',
  RUNNING: 'Active',
  PAUSED: 'Paused',
  COMPLETED: 'Completed',
  FAILED: 'Failed',
  CANCELLED: 'Cancelled',
}

/**
 * Stores what a run has come to, if its records and its stored state are those
 * that this goes on from, and lets the index of runs follow. Answers with the
 * version; undefined if somebody else was faster, or the run is another now.
 */
export async function storeProjection(
  database: Database,
  index: ByteString,
  projection: RunProjection,
  run: RunState,
  puts: readonly Put[],
): Promise<number | undefined> {
  const { scope, runId, indexed, baseVersion, firstVersion, lastVersion, lastSeq, lastTime } = projection
  // It goes on changing while this waits.
  const { status, completedAt } = run
  const record = (runSeq: number): Place => ({ scope, tag: LOG, key: u64(runSeq - 1) })
  const state = placeOf(scope, RUN_STATE_KEY)
  const entry = runPlace(index, runId)
  if (indexed?.status === status) {
    // All is known that would be read: to write if it is still so is less than to look first.
    const points: PointRead[] = [
      { ...state, version: baseVersion },
      { ...entry, version: indexed.version },
      { ...record(1), version: firstVersion },
      { ...record(lastSeq), version: lastVersion },
    ]
    const written = await database.writeIf(points, puts)
    if (written !== undefined) return written.version
  }
  const reads = [state, entry, record(1), record(lastSeq)]
  const { result, version } = await database.update(reads, ([stored, found, first, last]) => {
    const isSameRun = first?.version === firstVersion && last?.version === lastVersion
    if (!isSameRun || (stored?.version ?? 0) !== baseVersion) return { operations: [], result: undefined }
    const writes = indexWrites(index, found, status, completedAt, lastTime)
    return { operations: [...puts, ...writes], result: { found, isWritten: writes.length > 0 } }
  })
  if (result === undefined) return undefined
  projection.indexed = { status, version: result.isWritten ? version : (result.found?.version ?? 0) }
  return version
}

/** What the index of runs has to follow; a run that somebody archived stays so. */
function indexWrites(
  index: ByteString,
  entry: Entry | undefined,
  state: RunStateStatus,
  completedAt: string | undefined,
  time: number,
): Write[] {
  if (entry === undefined) return []
  const before = runOf(entry)
  const status = INDEXED[state]
  if (before.status === status || before.status === 'Archived') return []
  const { completedAt: _, ...rest } = before
  const end = completedAt === undefined ? undefined : parseRfc3339(completedAt)
  const after: Run = {
    ...rest,
    status,
    updatedAt: Math.max(before.updatedAt, time),
    ...(end === undefined ? {} : { completedAt: end }),
  }
  return runOperations(index, before, after)
}
