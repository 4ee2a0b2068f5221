import type { Disk } from '../disk/disk.ts'
import type { Artifacts } from './artifacts.ts'
import type { FinishedActivity, LaunchObserver } from './context.ts'
import type { Launch } from './definition.ts'
import type { LaunchFailure } from './events.ts'
import type { Journal } from './journal.ts'
import type { RunLlm } from './run-llm.ts'
import type { Slots } from './slots.ts'

/** What the parts of an orchestrator share while a process works on a run. */
export interface Session {
  readonly launch: Launch
  readonly folder: string
  /** The same, to write there. */
  readonly disk: Disk
  readonly journal: Journal
  readonly artifacts: Artifacts
  readonly slots: Slots
  /** Aborts when the run is cancelled or stopped. */
  readonly signal: AbortSignal
  readonly llm: RunLlm
  readonly clock: () => number
  /** Tells the observer, whose troubles are not the run's. */
  tell<K extends keyof LaunchObserver>(hook: K, ...args: Parameters<NonNullable<LaunchObserver[K]>>): void
}

/** How something ended, for the observer. */
export function outcomeOf(failure: LaunchFailure | undefined): Pick<FinishedActivity, 'outcome' | 'error'> {
  if (failure === undefined) return { outcome: 'success' }
  const outcome =
    failure.code === 'TIMEOUT' ? 'timeout' : failure.code === CANCELLED ? 'cancelled' : 'failure'
  return { outcome, error: failure }
}

export const CANCELLED = 'CANCELLED'
