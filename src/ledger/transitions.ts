import type { KnownRunEventType, RunStateStatus, StepStatus } from './run-events.ts'

/** The valid transitions of runs and steps, as tables (LD4, LD5). */

type RunEvent = Extract<KnownRunEventType, `Run${string}`>
type StepEvent = Extract<KnownRunEventType, `Step${string}`>

/** The effect of a run event, and the states in which it is valid. */
export interface RunTransition {
  readonly to: RunStateStatus
  /** Whether the event may be a run's first known event. */
  readonly opens: boolean
  readonly from: readonly RunStateStatus[]
}

const UNDER_WAY: readonly RunStateStatus[] = ['PENDING', 'RUNNING', 'PAUSED']

const RUN_TRANSITIONS: Readonly<Record<RunEvent, RunTransition>> = {
  RunQueued: { to: 'PENDING', opens: true, from: [] },
  RunStarted: { to: 'RUNNING', opens: true, from: ['PENDING'] },
  RunPaused: { to: 'PAUSED', opens: false, from: ['RUNNING'] },
  RunResumed: { to: 'RUNNING', opens: false, from: ['PAUSED'] },
  RunCompleted: { to: 'COMPLETED', opens: false, from: ['RUNNING'] },
  RunFailed: { to: 'FAILED', opens: false, from: UNDER_WAY },
  RunCancelled: { to: 'CANCELLED', opens: false, from: UNDER_WAY },
}

/** The effect of a step event, and the states in which it is valid. */
export interface StepTransition {
  readonly to: StepStatus
  readonly from: StepStatus
  /** The run states in which the event is valid; absent for all. A running step may report its end in any of them. */
  readonly whileRun?: readonly RunStateStatus[]
}

const STEP_TRANSITIONS: Readonly<Record<StepEvent, StepTransition>> = {
  StepStarted: { from: 'PENDING', to: 'RUNNING', whileRun: ['RUNNING'] },
  StepCompleted: { from: 'RUNNING', to: 'SUCCESS' },
  StepFailed: { from: 'RUNNING', to: 'FAILED' },
  StepSkipped: { from: 'PENDING', to: 'SKIPPED', whileRun: ['RUNNING', 'PAUSED'] },
}

/** The terminal states of a run. */
export const ENDED: readonly RunStateStatus[] = ['COMPLETED', 'FAILED', 'CANCELLED']

/** Whether the type is a known event of a run. */
export function isRunEvent(eventType: string): eventType is RunEvent {
  return Object.hasOwn(RUN_TRANSITIONS, eventType)
}

/** Whether the type is a known event of a step. */
export function isStepEvent(eventType: string): eventType is StepEvent {
  return Object.hasOwn(STEP_TRANSITIONS, eventType)
}

/** The transition that an event type causes. */
export type Transition =
  | { readonly about: 'run'; readonly eventType: RunEvent; readonly rule: RunTransition }
  | { readonly about: 'step'; readonly eventType: StepEvent; readonly rule: StepTransition }

const TRANSITIONS: ReadonlyMap<string, Transition> = new Map(
  [
    ...Object.entries(RUN_TRANSITIONS).map(([eventType, rule]) => ({ about: 'run', eventType, rule })),
    ...Object.entries(STEP_TRANSITIONS).map(([eventType, rule]) => ({ about: 'step', eventType, rule })),
  ].map(transition => [transition.eventType, transition as Transition]),
)

/** Returns the transition of an event type; undefined for an unknown type, which changes no state. */
export function transitionOf(eventType: string): Transition | undefined {
  return TRANSITIONS.get(eventType)
}

/** Lists the states in which an event is valid, separated by `|`, for error details. */
export function expectedStates(eventType: string): string {
  if (isStepEvent(eventType)) return STEP_TRANSITIONS[eventType].from
  if (!isRunEvent(eventType)) return 'any'
  const { from, opens } = RUN_TRANSITIONS[eventType]
  return [...(opens ? ['NONE'] : []), ...from].join('|')
}
