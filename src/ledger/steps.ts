import type { StepAttempt, StepStatus } from './run-events.ts'

/** The state of a step. It changes in place, record by record. */
export interface StepState {
  readonly stepId: string
  /** The step's place in the order of first appearance, from 0. */
  readonly position: number
  status: StepStatus
  logicalAttemptId: number
  engineAttemptId: number
  startedAt: string | undefined
  completedAt: string | undefined
  error: unknown
  attempts: readonly StepAttempt[]
}

/** The steps of a run in the order of their first appearance, found by id. */
export class Steps {
  readonly all: StepState[] = []
  readonly #byId = new Map<string, StepState>()

  get(stepId: string): StepState | undefined {
    return this.#byId.get(stepId)
  }

  /** Adds a step whose id is new. */
  add(step: StepState): void {
    this.all.push(step)
    this.#byId.set(step.stepId, step)
  }
}
