import { AnnalsError } from '../core/errors.ts'
import type { ClonedInput, LaunchSnapshot, NamedArtifact, PullRequest } from './events.ts'

/** The state of a run after an event: what its snapshot shows, and what else is needed to continue the run. */
export interface LaunchState extends Omit<LaunchSnapshot, 'schema_version' | 'artifacts_index' | 'log'> {
  /** In the order in which they were first written. It is a list because each event copies it. */
  readonly artifacts: readonly NamedArtifact[]
  /** What the snapshot leaves out. */
  readonly memory: LaunchMemory
}

/** The part of a run's state that is not in its snapshot. A resumed run gets it from the log. */
export interface LaunchMemory {
  /** The name of the launch. */
  readonly launch: string
  /** The version of the launch that created the run. */
  readonly launchVersion: string
  /** The configuration that the run was started with. */
  readonly config: { readonly [name: string]: unknown }
  /** Work items before this index belong to earlier generations. */
  readonly firstItem: number
  /** The inputs of the last `INPUTS_CLONED` of this generation. */
  readonly clonedInputs?: readonly ClonedInput[]
  /** The pull request of the last `PR_OPENED` of this generation. */
  readonly pullRequest?: PullRequest
  /** How often each gate was started. */
  readonly gateRuns: Readonly<Record<string, number>>
  /** Whether the last event says that the run ended. */
  readonly hasEnded: boolean
}

/** How often a gate was started in this run. */
export function gateRunsOf({ memory: { gateRuns } }: LaunchState, gate: string): number {
  return Object.hasOwn(gateRuns, gate) ? gateRuns[gate] : 0
}

/** A copy of a map with one entry more. A computed key is always an own property, even `__proto__`. */
export function withEntry<T>(map: Readonly<Record<string, T>>, name: string, value: T): Record<string, T> {
  return { ...map, [name]: value }
}

/** The error for an event that may not follow the events before it. */
export function illegal(why: string): AnnalsError {
  return new AnnalsError('ILLEGAL_STATE', why, { reason: why })
}
