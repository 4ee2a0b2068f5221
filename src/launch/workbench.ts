import { AnnalsError } from '../core/errors.ts'
import type { Disk } from '../disk/disk.ts'
import type { Artifacts } from './artifacts.ts'
import type { Activity, FinishedActivity, LaunchEvents, LaunchObserver } from './context.ts'
import type { Launch } from './definition.ts'
import type { LaunchFailure } from './events.ts'
import type { Journal, Spans } from './journal.ts'
import { llmEvents, type OpenLlm, type RunLlm } from './run-llm.ts'
import type { Slots } from './slots.ts'
import { withTimeLimit } from './time-limit.ts'
import { failureOf } from './work-items.ts'

/** What nodes, workers and gates share while this process works on a run. */
export interface Workbench {
  readonly launch: Launch
  /** The path of the run's folder. */
  readonly folder: string
  /** The run's folder, open for writing. */
  readonly disk: Disk
  readonly journal: Journal
  readonly artifacts: Artifacts
  readonly slots: Slots
  /** Aborts when the run is cancelled or stopped. */
  readonly signal: AbortSignal
  readonly llm: RunLlm
  readonly clock: () => number
  /** Calls the observer. Its errors become warnings. */
  tell<K extends keyof LaunchObserver>(hook: K, ...args: Parameters<NonNullable<LaunchObserver[K]>>): void
}

/** The code of an error that came from a cancellation. */
export const CANCELLED = 'CANCELLED'

/** How an activity ended, in the observer's words. */
export function outcomeOf(failure: LaunchFailure | undefined): Pick<FinishedActivity, 'outcome' | 'error'> {
  if (failure === undefined) return { outcome: 'success' }
  const outcome =
    failure.code === 'TIMEOUT' ? 'timeout' : failure.code === CANCELLED ? 'cancelled' : 'failure'
  return { outcome, error: failure }
}

/**
 * Runs an activity and tells the observer of its start and its end. An activity
 * that does not throw can still have failed: it says so by calling `fail`.
 */
export async function observed<T>(
  { clock, tell }: Workbench,
  kind: 'node' | 'worker' | 'gate',
  activity: Omit<Activity, 'startedAt'>,
  work: (fail: (failure: LaunchFailure) => void) => Promise<T>,
): Promise<T> {
  const startedAt = clock()
  let failure: LaunchFailure | undefined
  tell(`${kind}Started`, { ...activity, startedAt })
  try {
    return await work(found => {
      failure = found
    })
  } catch (error) {
    failure ??= failureOf(error)
    throw error
  } finally {
    const durationMs = clock() - startedAt
    tell(`${kind}Finished`, { ...activity, startedAt, ...outcomeOf(failure), durationMs })
  }
}

/** What the code of a worker or a gate gets to work with. */
export interface CodeTools {
  /** Aborts when the run ends or the time is up. */
  readonly signal: AbortSignal
  /** Aborts when the code has ended. Writes are refused from then on. */
  readonly ended: AbortSignal
  readonly events: LaunchEvents
  readonly models: OpenLlm
}

/**
 * Runs the code of a worker or a gate within its time. A call of a model that
 * the code did not wait for is aborted, and its end is in the log when this
 * returns.
 */
export async function runCode<T>(
  bench: Workbench,
  what: string,
  {
    spans,
    signal,
    timeoutMs,
  }: {
    readonly spans: Required<Spans>
    readonly signal: AbortSignal
    readonly timeoutMs: number | undefined
  },
  code: (tools: CodeTools) => T | Promise<T>,
): Promise<T> {
  const end = new AbortController()
  let models: OpenLlm | undefined
  try {
    return await withTimeLimit(what, signal, timeoutMs, limited => {
      const events = llmEvents(bench, end.signal, spans)
      models = bench.llm.open(bench, spans, events, AbortSignal.any([limited, end.signal]))
      return code({ signal: limited, ended: end.signal, events, models })
    })
  } finally {
    end.abort(
      new AnnalsError('ILLEGAL_STATE', `${what} has ended: it can't write events or artifacts any more`),
    )
    await models?.settled()
  }
}
