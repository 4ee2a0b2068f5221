import { AnnalsError } from '../core/errors.ts'
import { invariant } from '../core/invariant.ts'
import type { RuntimeNode } from './definition.ts'
import type { LaunchFailure } from './events.ts'
import { nodeContext } from './node-context.ts'
import { CANCELLED, outcomeOf, type Session } from './session.ts'
import { isTerminal, ruleOf } from './states.ts'
import { withTimeLimit } from './time-limit.ts'
import { failureOf } from './work-items.ts'
import { WorkerRuns } from './worker-runs.ts'

/** Why a run is called off: the reason of its signal. */
export type Ending = { readonly kind: 'cancel'; readonly reason: string } | { readonly kind: 'stop' }

/** What the signal of a session is aborted with. */
export class LaunchEnding extends Error {
  override readonly name = 'LaunchEnding'
  readonly code: string = CANCELLED
  readonly ending: Ending

  constructor(ending: Ending) {
    super(ending.kind === 'cancel' ? `the run is cancelled: ${ending.reason}` : 'the run is to stop here')
    this.ending = ending
  }
}

/**
 * Drives a run: the node of the state it is in → the state that the node
 * answers with → the next node, until a state is terminal. It alone changes
 * the state. A node that fails, fails the run.
 */
export class Orchestrator {
  readonly #session: Session
  readonly #workers: WorkerRuns
  /** Of each node, how often it was run by this process. */
  readonly #nodeRuns = new Map<string, number>()

  constructor(session: Session) {
    this.#session = session
    this.#workers = new WorkerRuns(session)
  }

  /** Resolves when the run has ended, or was told to stop. Rejects only if its log can't be written. */
  async drive(): Promise<void> {
    const { journal, launch, signal, slots, tell } = this.#session
    const { states } = launch
    for (;;) {
      const { run_state } = journal.state
      if (isTerminal(states, run_state)) return
      if (ruleOf(states, run_state)?.kind === 'stable') tell('stableState', run_state)
      const node = launch.nodes.get(run_state)
      invariant(node !== undefined, 'every state has its node')
      try {
        await slots.opened(signal)
        const next = await this.#runNode(node)
        await slots.opened(signal)
        if (next === states.done) await this.end(states.done)
        else await this.#moveTo(next)
      } catch (error) {
        await this.#workers.settle()
        // Without a log there is nobody to tell.
        if (journal.failure !== undefined) throw journal.failure
        if (error instanceof LaunchEnding || signal.aborted) {
          const { ending } = signal.reason as LaunchEnding
          if (ending.kind === 'stop') return
          await this.end(states.cancelled, ending.reason)
        } else await this.end(states.failed, failureOf(error))
      }
    }
  }

  /** Leaves nothing queued, moves to a terminal state, and says why. */
  async end(state: string, why?: string | LaunchFailure): Promise<void> {
    const { journal, launch } = this.#session
    const { done, failed } = launch.states
    const reason = state === done ? 'nobody asked for it any more' : `the run is ${state}`
    for (const { work_item_id, status } of journal.state.work_items) {
      if (status === 'queued') await journal.append('WORK_ITEM_SKIPPED', { work_item_id, reason })
    }
    if (journal.state.run_state !== state) await this.#moveTo(state)
    if (state === done) await journal.append('RUN_COMPLETED', {})
    else if (state === failed) await journal.append('RUN_FAILED', { error: why as LaunchFailure })
    else await journal.append('RUN_CANCELLED', { reason: why as string })
  }

  async #moveTo(new_state: string): Promise<void> {
    const { journal } = this.#session
    await journal.append('RUN_STATE_CHANGED', { old_state: journal.state.run_state, new_state })
  }

  async #runNode(node: RuntimeNode): Promise<string> {
    const { journal, clock, tell, signal, launch } = this.#session
    const { name } = node
    const count = 1 + (this.#nodeRuns.get(name) ?? 0)
    this.#nodeRuns.set(name, count)
    const spans = { spanId: journal.nodeSpanId, parentSpanId: journal.rootSpanId }
    const activity = { name, id: `${name}-${count}`, ...spans, startedAt: clock() }
    tell('nodeStarted', activity)
    const finish = (failure?: LaunchFailure): void =>
      tell('nodeFinished', { ...activity, ...outcomeOf(failure), durationMs: clock() - activity.startedAt })
    const end = new AbortController()
    try {
      const context = nodeContext(this.#session, this.#workers, spans, end.signal)
      const next = await withTimeLimit(`node ${name}`, signal, undefined, () => node.run(context))
      // What a node has not waited for ends with it.
      await this.#workers.settle()
      if (typeof next !== 'string') {
        throw new AnnalsError('ILLEGAL_STATE', `node ${name} must answer with the state that follows`, {
          node: name,
        })
      }
      if (next === launch.states.failed || next === launch.states.cancelled) {
        throw new AnnalsError('ILLEGAL_STATE', `node ${name} answered with ${next}: it fails by throwing`, {
          node: name,
        })
      }
      finish()
      return next
    } catch (error) {
      finish(failureOf(error))
      throw error
    } finally {
      end.abort(new AnnalsError('ILLEGAL_STATE', `node ${name} has ended: it can't do any more`))
    }
  }
}
