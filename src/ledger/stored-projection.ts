import { type ByteString, u64 } from '../core/bytes.ts'
import type { Database } from '../engine/database.ts'
import type { Write } from '../engine/session.ts'
import type { Entry, Place, PointRead } from '../engine/storage.ts'
import { recordIn, runOperations, runPlace } from '../primitives/run-records.ts'
import { type Followed, indexedRun } from './indexed-run.ts'
import { alertReads, raise } from './raised-alerts.ts'
import type { RunState } from './reduce.ts'
import type { RunProjection, Unstored } from './run-projection.ts'
import { LOG, placeOf, RUN_STATE_KEY } from './stored.ts'

/**
 * Stores a run's projection, raises its alerts and updates the index of runs, in
 * one commit. Returns undefined, and writes nothing, if another process has
 * stored a newer state, or the run was replaced by one with the same id.
 */
export async function storeProjection(
  database: Database,
  index: ByteString,
  projection: RunProjection,
  run: RunState,
  { puts, movedAt, alerts }: Unstored,
): Promise<{ readonly version: number; readonly raised: number } | undefined> {
  const { scope, runId, indexed, baseVersion, firstVersion, firstTime, lastVersion, lastSeq } = projection
  // Copied now, because the state may change during the commit.
  const { status, completedAt } = run
  const record = (runSeq: number): Place => ({ scope, tag: LOG, key: u64(runSeq - 1) })
  const state = placeOf(scope, RUN_STATE_KEY)
  const entry = runPlace(index, runId)
  if (indexed?.status === status && movedAt === undefined && alerts.length === 0) {
    // The versions of all entries are known, so a conditional write saves the reads.
    const points: PointRead[] = [
      { ...state, version: baseVersion },
      { ...entry, version: indexed.version },
      { ...record(1), version: firstVersion },
      { ...record(lastSeq), version: lastVersion },
    ]
    const written = await database.writeIf(points, puts)
    if (written !== undefined) return { version: written.version, raised: 0 }
  }
  const reads = [state, entry, record(1), record(lastSeq), ...alertReads(scope, index, alerts)]
  const { result, version } = await database.update(reads, ([stored, found, first, last, ...alerted]) => {
    const isSameRun = first?.version === firstVersion && last?.version === lastVersion
    if (!isSameRun || (stored?.version ?? 0) !== baseVersion) return { operations: [], result: undefined }
    const indexed = indexWrites(index, found, { status, completedAt, movedAt, firstTime })
    const { writes, raised } = raise(scope, index, alerts, alerted)
    const operations = [...puts, ...indexed, ...writes]
    return { operations, result: { found, raised, isWritten: indexed.length > 0 } }
  })
  if (result === undefined) return undefined
  projection.indexed = { status, version: result.isWritten ? version : (result.found?.version ?? 0) }
  return { version, raised: result.raised }
}

function indexWrites(index: ByteString, entry: Entry | undefined, followed: Followed): Write[] {
  if (entry === undefined) return []
  const { head: before, metadata } = recordIn(entry)
  const after = indexedRun(before, followed)
  return after === before ? [] : runOperations(index, before, { head: after, metadata })
}
