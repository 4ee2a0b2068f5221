import type { LaunchRun } from './launch-run.ts'
import { isTerminal, stableStateOf } from './states.ts'
import { INTERRUPTION, nextAttempt } from './work-items.ts'

/** N8: records that the run continues, closes interrupted work, and rewinds to a stable state. */
export async function goOn({ journal, bench, orchestrator }: LaunchRun): Promise<void> {
  const { states } = bench.launch
  const { run_state, paused } = journal.state
  await journal.append('RUN_RESUMED', { from_state: run_state, cause: paused ? 'unpause' : 'resume' })
  if (isTerminal(states, run_state)) {
    // The process died between the last change of state and the event that ends the run.
    const why = run_state === states.failed ? INTERRUPTION : 'the process ended before it recorded the reason'
    await orchestrator.end(run_state, why)
    return
  }
  await closeInterrupted({ journal }, true)
  const back = stableStateOf(states, run_state)
  if (back !== run_state) await journal.append('RESUME_REWIND', { from_state: run_state, to_state: back })
}

/** N9: starts the next generation from the initial state. The log continues. */
export async function startOver({ journal }: LaunchRun): Promise<void> {
  const { run_state, generation } = journal.state
  if (!journal.state.memory.hasEnded) {
    await closeInterrupted({ journal }, false)
    for (const { work_item_id, status } of journal.state.work_items) {
      if (status !== 'queued') continue
      await journal.append('WORK_ITEM_SKIPPED', { work_item_id, reason: 'the run was restarted' })
    }
  }
  await journal.append('RUN_RESTARTED', { generation: generation + 1, from_state: run_state })
  await journal.append('RUN_RESUMED', { from_state: journal.state.run_state, cause: 'resume' })
}

/** ND7: work that was running when the process died has failed. With `isQueuedAgain` its next attempt is queued. */
export async function closeInterrupted(
  { journal }: Pick<LaunchRun, 'journal'>,
  isQueuedAgain: boolean,
): Promise<void> {
  for (const item of journal.state.work_items) {
    if (item.status !== 'running') continue
    await journal.append('WORK_ITEM_FAILED', { work_item_id: item.work_item_id, error: INTERRUPTION })
    if (isQueuedAgain) await journal.append('WORK_ITEM_QUEUED', nextAttempt(journal.state, item))
  }
}
