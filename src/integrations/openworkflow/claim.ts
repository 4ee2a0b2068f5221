import type { RunKv, UpdateRange } from 'annals'
import type { ClaimWorkflowRunParams } from 'openworkflow/internal'
import { RUN_RANGE, runChanges, update } from './changes.ts'
import { DEADLINES, PENDING, RUNNING } from './keys.ts'
import type { StoredRun } from './records.ts'

/** The first pending run, the first run that slept or was claimed before, and the first deadline. */
const RANGES: readonly UpdateRange[] = [
  { prefix: PENDING, limit: 1 },
  { prefix: RUNNING, limit: 1 },
  { prefix: DEADLINES, limit: 1 },
  RUN_RANGE,
]

/** Claims the next run that is due. If the deadline of a run has passed, it claims nothing and returns that run's id. */
export async function claimNext(
  kv: RunKv,
  { workerId, leaseDurationMs }: Readonly<ClaimWorkflowRunParams>,
): Promise<{ readonly expired?: string; readonly claimed?: StoredRun }> {
  const now = Date.now()
  return update<{ expired?: string; claimed?: StoredRun }>(kv, { ranges: RANGES }, found => {
    const [deadline] = found.range<{ id: string; deadlineAt: number }>(2)
    if (deadline !== undefined && deadline[1].deadlineAt <= now)
      return { result: { expired: deadline[1].id } }
    const first = [...found.range<StoredRun>(0), ...found.range<StoredRun>(1)]
    const run = first.map(([, value]) => value).find(({ availableAt }) => (availableAt ?? 0) <= now)
    if (run === undefined) return { result: {} }
    const claimed: StoredRun = {
      ...run,
      status: 'running',
      attempts: run.attempts + 1,
      workerId,
      availableAt: now + leaseDurationMs,
      startedAt: run.startedAt ?? now,
      updatedAt: now,
    }
    return { ...runChanges(run, claimed), result: { claimed } }
  })
}
