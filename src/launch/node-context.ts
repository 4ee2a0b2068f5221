import { setMaxListeners } from 'node:events'
import type { AnyNodeContext } from './context.ts'
import { docsMethods } from './docs/pipeline.ts'
import { fix, validate } from './fix-loop.ts'
import type { Spans } from './journal.ts'
import type { Workbench } from './workbench.ts'
import type { WorkerRuns } from './worker-runs.ts'

/**
 * What a node works with. A node that runs again after a crash makes the same
 * calls again; what the log has already is not written twice. After the node
 * has ended, all methods reject.
 */
export function nodeContext(
  bench: Workbench,
  workers: WorkerRuns,
  spans: Required<Spans>,
  ended: AbortSignal,
): AnyNodeContext {
  const { journal, artifacts, folder, signal, slots } = bench
  const { run_id: runId, memory } = journal.state
  const either = AbortSignal.any([signal, ended])
  // Every running worker listens to it. That is not a leak.
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
    validate: async () => {
      await allowed()
      return validate(bench, workers, spans.spanId)
    },
    fix: async () => {
      await allowed()
      await fix(bench, workers, spans.spanId)
    },
    ...docsMethods(journal, spans, allowed),
  }
}
