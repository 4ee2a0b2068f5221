import type { KnownRunEventType, RunStateStatus, StepStatus } from './run-events.ts'

/** What may follow what, as data. */

type RunEvent = Extract<KnownRunEventType, `Run${string}`>
type StepEvent = Extract<KnownRunEventType, `Step${string}`>

export interface RunTransition {
  readonly to: RunStateStatus
  /** Whether it may be a run's first event. */
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

export interface StepTransition {
  readonly to: StepStatus
  readonly from: StepStatus
  /** How the run has to stand; absent if it does not matter: a step that runs may always say how it ended. */
  readonly whileRun?: readonly RunStateStatus[]
}

const STEP_TRANSITIONS: Readonly<Record<StepEvent, StepTransition>> = {
  StepStarted: { from: 'PENDING', to: 'RUNNING', whileRun: ['RUNNING'] },
  StepCompleted: { from: 'RUNNING', to: 'SUCCESS' },
  StepFailed: { from: 'RUNNING', to: 'FAILED' },
  StepSkipped: { from: 'PENDING', to: 'SKIPPED', whileRun: ['RUNNING', 'PAUSED'] },
}

export const ENDED: readonly RunStateStatus[] = ['COMPLETED', 'FAILED', 'CANCELLED']

export function isRunEvent(eventType: string): eventType is RunEvent {
  return Object.hasOwn(RUN_TRANSITIONS, eventType)
}

export function isStepEvent(eventType: string): eventType is StepEvent {
  return Object.hasOwn(STEP_TRANSITIONS, eventType)
}

/** What an event of a type does. */
export type Transition =
  | { readonly about: 'run'; readonly eventType: RunEvent; readonly rule: RunTransition }
  | { readonly about: 'step'; readonly eventType: StepEvent; readonly rule: StepTransition }

const TRANSITIONS: ReadonlyMap<string, Transition> = new Map(
  [
    ...Object.entries(RUN_TRANSITIONS).map(([eventType, rule]) => ({ about: 'run', eventType, rule })),
    ...Object.entries(STEP_TRANSITIONS).map(([eventType, rule]) => ({ about: 'step', eventType, rule })),
  ].map(transition => [transition.eventType, transition as Transition]),
)

/** Undefined for a type that changes no state. */
export function transitionOf(eventType: string): Transition | undefined {
  return TRANSITIONS.get(eventType)
}

/** From which states an event is right, in words. */
export function expectedStates(eventType: string): string {
  if (isStepEvent(eventType)) return STEP_TRANSITIONS[eventType].from
  if (!isRunEvent(eventType)) return 'any'
  const { from, opens } = RUN_TRANSITIONS[eventType]
  return [...(opens ? ['NONE'] : []), ...from].join('|')
}
