import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type { RuntimeNode } from './definition.ts'
import type { LaunchFailure } from './events.ts'
import { nodeContext } from './node-context.ts'
import { isTerminal, ruleOf } from './states.ts'
import { withTimeLimit } from './time-limit.ts'
import { failureOf } from './work-items.ts'
import { CANCELLED, observed, type Workbench } from './workbench.ts'
import { WorkerRuns } from './worker-runs.ts'

/** Why a run ends early. */
export type Ending = { readonly kind: 'cancel'; readonly reason: string } | { readonly kind: 'stop' }

/** The abort reason of a run's signal. */
export class LaunchEnding extends Error {
  override readonly name = 'LaunchEnding'
  readonly code: string = CANCELLED
  readonly ending: Ending

  constructor(ending: Ending) {
    super(ending.kind === 'cancel' ? `the run was cancelled: ${ending.reason}` : 'the run was stopped')
    this.ending = ending
  }
}

/**
 * Drives a run: it runs the node of the current state, moves to the state that
 * the node returns, and so on until a terminal state. Nothing else changes the
 * state. A node that throws fails the run.
 */
export class Orchestrator {
  readonly #bench: Workbench
  readonly #workers: WorkerRuns
  /** How often this process has run each node. */
  readonly #nodeRuns = new Map<string, number>()

  constructor(bench: Workbench) {
    this.#bench = bench
    this.#workers = new WorkerRuns(bench)
  }

  /** Resolves when the run has ended or was stopped. Rejects only if its log can't be written. */
  async drive(): Promise<void> {
    const { journal, launch, signal, slots, tell } = this.#bench
    const { states } = launch
    for (;;) {
      const { run_state } = journal.state
      if (isTerminal(states, run_state)) return
      if (ruleOf(states, run_state)?.kind === 'stable') tell('stableState', run_state)
      const node = launch.nodes.get(run_state)
      invariant(node !== undefined, 'every state has a node')
      try {
        await slots.opened(signal)
        const next = await this.#runNode(node)
        await slots.opened(signal)
        if (next === states.done) await this.end(states.done)
        else await this.#moveTo(next)
      } catch (error) {
        await this.#workers.settle()
        // Without a log the failure can't be recorded.
        if (journal.failure !== undefined) throw journal.failure
        if (error instanceof LaunchEnding || signal.aborted) {
          const { ending } = signal.reason as LaunchEnding
          if (ending.kind === 'stop') return
          await this.end(states.cancelled, ending.reason)
        } else await this.end(states.failed, failureOf(error))
      }
    }
  }

  /** Skips everything that is queued, moves to a terminal state, and records why. */
  async end(state: string, why?: string | LaunchFailure): Promise<void> {
    const { journal, launch } = this.#bench
    const { done, failed } = launch.states
    const reason = state === done ? 'no node needed it any more' : `the run is ${state}`
    for (const { work_item_id, status } of journal.state.work_items) {
      if (status === 'queued') await journal.append('WORK_ITEM_SKIPPED', { work_item_id, reason })
    }
    if (journal.state.run_state !== state) await this.#moveTo(state)
    if (state === done) await journal.append('RUN_COMPLETED', {})
    else if (state === failed) await journal.append('RUN_FAILED', { error: why as LaunchFailure })
    else await journal.append('RUN_CANCELLED', { reason: why as string })
  }

  async #moveTo(new_state: string): Promise<void> {
    const { journal } = this.#bench
    await journal.append('RUN_STATE_CHANGED', { old_state: journal.state.run_state, new_state })
  }

  async #runNode(node: RuntimeNode): Promise<string> {
    const { journal, signal } = this.#bench
    const { name } = node
    const count = 1 + (this.#nodeRuns.get(name) ?? 0)
    this.#nodeRuns.set(name, count)
    const spans = { spanId: journal.nodeSpanId, parentSpanId: journal.rootSpanId }
    return observed(this.#bench, 'node', { name, id: `${name}-${count}`, ...spans }, async () => {
      const end = new AbortController()
      try {
        const context = nodeContext(this.#bench, this.#workers, spans, end.signal)
        const next = await withTimeLimit(`node ${name}`, signal, undefined, () => node.run(context))
        // Work that the node did not wait for ends with the node.
        await this.#workers.settle()
        return this.#checkNext(name, next)
      } finally {
        end.abort(new AnnalsError('ILLEGAL_STATE', `node ${name} has ended: it can't do any more`))
      }
    })
  }

  #checkNext(node: string, next: unknown): string {
    const { failed, cancelled } = this.#bench.launch.states
    if (typeof next !== 'string') {
      throw new AnnalsError('ILLEGAL_STATE', `node ${node} must return the next state`, { node })
    }
    if (next !== failed && next !== cancelled) return next
    throw new AnnalsError('ILLEGAL_STATE', `node ${node} returned ${next}: throw an error to fail the run`, {
      node,
    })
  }
}
