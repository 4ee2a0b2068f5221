import { setMaxListeners } from 'node:events'
import { canonicalJson } from '../core/canonical-json.ts'
import type { AnyNodeContext } from './context.ts'
import { fix, validate } from './fix-loop.ts'
import { sectionState } from './reduce.ts'
import type { Session } from './session.ts'
import type { WorkerRuns } from './worker-runs.ts'

/**
 * What a node works with. A node that runs again after a crash asks for the
 * same again: what is in the log already is not written twice. Once its node
 * has ended, or was called off, everything is refused.
 */
export function nodeContext(
  session: Session,
  workers: WorkerRuns,
  spans: { readonly spanId: string; readonly parentSpanId: string },
  ended: AbortSignal,
): AnyNodeContext {
  const { journal, artifacts, folder, signal, slots } = session
  const { run_id: runId, memory } = journal.state
  const either = AbortSignal.any([signal, ended])
  // As many may wait for it as a node has work: that is no leak.
  setMaxListeners(0, either)
  const allowed = async (): Promise<void> => {
    ended.throwIfAborted()
    await slots.opened(signal)
  }
  return {
    runId,
    config: memory.config,
    folder,
    signal,
    artifacts: artifacts.view,
    work: async (worker, options = {}) => {
      ended.throwIfAborted()
      return workers.run(worker, options, { parentSpanId: spans.spanId, signal: either })
    },
    inputsCloned: async inputs => {
      await allowed()
      if (isSame(journal.state.memory.clonedInputs, inputs)) return
      await journal.append('INPUTS_CLONED', { inputs }, spans)
    },
    section: async (section, new_state) => {
      await allowed()
      const old_state = sectionState(journal.state.section_states, section)
      if (old_state === new_state) return
      await journal.append('SECTION_STATE_CHANGED', { section, old_state, new_state }, spans)
    },
    validate: async () => {
      await allowed()
      return validate(session, workers, spans.spanId)
    },
    fix: async () => {
      await allowed()
      await fix(session, workers, spans.spanId)
    },
    prOpened: async pullRequest => {
      await allowed()
      if (isSame(journal.state.memory.pullRequest, pullRequest)) return
      await journal.append('PR_OPENED', pullRequest, spans)
    },
  }
}

function isSame(a: unknown, b: unknown): boolean {
  return a !== undefined && canonicalJson(a) === canonicalJson(b)
}
