import type { LaunchRun } from './launch-run.ts'
import { isTerminal, stableStateOf } from './states.ts'
import { INTERRUPTION, nextAttempt, workItemId } from './work-items.ts'

/** N8: says that the run goes on, closes what was cut off, and brings it to where it can go on. */
export async function goOn({ journal, session, orchestrator }: LaunchRun): Promise<void> {
  const { states } = session.launch
  const { run_state, paused } = journal.state
  await journal.append('RUN_RESUMED', { from_state: run_state, cause: paused ? 'unpause' : 'resume' })
  if (isTerminal(states, run_state)) {
    // It died between its last change of state and the word that it has ended.
    const why = run_state === states.failed ? INTERRUPTION : 'the process ended before it said why'
    await orchestrator.end(run_state, why)
    return
  }
  await closeInterrupted({ journal }, true)
  const back = stableStateOf(states, run_state)
  if (back !== run_state) await journal.append('RESUME_REWIND', { from_state: run_state, to_state: back })
}

/** N9: the next generation, from the first state; the log goes on. */
export async function startOver({ journal }: LaunchRun): Promise<void> {
  const { run_state, generation } = journal.state
  if (!journal.state.memory.hasEnded) {
    await closeInterrupted({ journal }, false)
    for (const { work_item_id, status } of journal.state.work_items) {
      if (status !== 'queued') continue
      await journal.append('WORK_ITEM_SKIPPED', { work_item_id, reason: 'the run is started over' })
    }
  }
  await journal.append('RUN_RESTARTED', { generation: generation + 1, from_state: run_state })
  await journal.append('RUN_RESUMED', { from_state: journal.state.run_state, cause: 'resume' })
}

/** ND7: what was running when the process died has failed, and its next attempt is queued. */
export async function closeInterrupted(
  { journal }: Pick<LaunchRun, 'journal'>,
  isQueuedAgain: boolean,
): Promise<void> {
  for (const { work_item_id, status, worker, scope_key, inputs } of journal.state.work_items) {
    if (status !== 'running') continue
    await journal.append('WORK_ITEM_FAILED', { work_item_id, error: INTERRUPTION })
    if (!isQueuedAgain) continue
    const attempt = nextAttempt(journal.state, worker, scope_key)
    const next = workItemId(journal.state.run_id, worker, attempt, scope_key)
    await journal.append('WORK_ITEM_QUEUED', { work_item_id: next, worker, scope_key, attempt, inputs })
  }
}
