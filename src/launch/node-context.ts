import { setMaxListeners } from 'node:events'
import type { AnyNodeContext } from './context.ts'
import { docsMethods } from './docs/pipeline.ts'
import { fix, validate } from './fix-loop.ts'
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
    ...docsMethods(journal, spans, allowed),
    validate: async () => {
      await allowed()
      return validate(session, workers, spans.spanId)
    },
    fix: async () => {
      await allowed()
      await fix(session, workers, spans.spanId)
    },
  }
}
