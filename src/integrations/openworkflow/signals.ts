import type { RunKv } from 'annals'
import type { SendSignalParams, SendSignalResult } from 'openworkflow/internal'
import {
  type Changes,
  type Found,
  isActive,
  joined,
  RUN_RANGE,
  runChanges,
  type Stored,
  update,
  woken,
} from './changes.ts'
import { deliveryKey, runIdOf, runKey, sentKey, waitKey, waitsFor } from './keys.ts'
import { jsonOf, type StoredRun } from './records.ts'

/** Delivers a signal to the step attempts that wait for it when the call begins, in one commit. */
export async function deliverSignal(
  kv: RunKv,
  { signal, data, idempotencyKey }: Readonly<SendSignalParams>,
): Promise<SendSignalResult> {
  const now = Date.now()
  const delivery = { data: jsonOf(data) }
  const prefix = waitsFor(signal)
  const waits = await kv.list({ prefix })
  const attempts = waits.map(key => key.slice(prefix.length))
  const key = idempotencyKey ?? undefined
  const sent = key === undefined ? undefined : sentKey(signal, key)
  if (sent === undefined && attempts.length === 0) return { workflowRunIds: [] }
  const runs = [...new Set(attempts.map(runIdOf))]
  const keys = [...waits, ...attempts.map(deliveryKey), ...runs.map(runKey)]
  if (sent !== undefined) keys.push(sent)
  const workflowRunIds = await update<readonly string[]>(kv, { keys, ranges: [RUN_RANGE] }, found => {
    const earlier = sent === undefined ? undefined : found.get<{ workflowRunIds: string[] }>(sent)
    if (earlier !== undefined) return { result: earlier.workflowRunIds }
    const waiting = attempts.filter(id => found.get(waitKey(signal, id)) !== undefined)
    const receivers = runs.filter(run => waiting.some(id => runIdOf(id) === run))
    if (receivers.length === 0) return { result: [] }
    const puts: { key: string; value: Stored }[] = waiting.map(id => ({
      key: deliveryKey(id),
      value: delivery,
    }))
    if (sent !== undefined) puts.push({ key: sent, value: { workflowRunIds: receivers } })
    const deletes = waiting.map(id => waitKey(signal, id))
    const wakings = receivers.map(id => waking(found, id, waiting, now))
    return { ...joined({ puts, deletes }, ...wakings), result: receivers }
  })
  return { workflowRunIds: [...workflowRunIds] }
}

/** The changes of a run whose waiting step attempts get a signal. */
function waking(found: Found, id: string, waiting: readonly string[], now: number): Changes {
  const run = found.get<StoredRun>(runKey(id))
  if (run === undefined || !isActive(run.status)) return { puts: [], deletes: [] }
  const own = waiting.filter(attempt => runIdOf(attempt) === id)
  return runChanges(
    run,
    own.reduce((after, attempt) => woken(after, attempt, now), run),
  )
}
