/** The run events of the contract: what a producer writes, what the ledger returns, and the state that follows from it. */

/** The event types that change a run's state. */
export type KnownRunEventType =
  | 'RunQueued'
  | 'RunStarted'
  | 'StepStarted'
  | 'StepCompleted'
  | 'StepFailed'
  | 'StepSkipped'
  | 'RunPaused'
  | 'RunResumed'
  | 'RunCompleted'
  | 'RunFailed'
  | 'RunCancelled'

/** Any event type. Unknown types are stored and returned, but change no state, so newer producers can meet older readers. */
export type RunEventType = KnownRunEventType | (string & {})

/** The fields that say whose run it is and which plan it executes. */
export interface RunHeading {
  /** The run. */
  readonly runId: string
  /** The tenant that owns the run. */
  readonly tenantId: string
  /** The tenant's project. */
  readonly projectId: string
  /** The environment, for example `production`. */
  readonly environmentId: string
  /** The plan that the run executes. */
  readonly planId: string
  /** The version of that plan. */
  readonly planVersion: string
}

/** An event as a producer sends it. The ledger adds its sequence number and its time. */
export interface RunEventWrite extends RunHeading {
  /** A UUID v4 that stays the same for every retry. */
  readonly eventId: string
  /** What happened. */
  readonly eventType: RunEventType
  /** The producer's clock when the event was made, as RFC 3339 in UTC. */
  readonly emittedAt: string
  /** The attempt as the runtime counts it; 1 if the runtime has no attempts. */
  readonly engineAttemptId: number
  /** The attempt of the step, or the pause cycle of `RunPaused` and `RunResumed`. Counts from 1. */
  readonly logicalAttemptId: number
  /** The key that `deriveIdempotencyKey` gives for this event. */
  readonly idempotencyKey: string
  /** The step of a step event. Run events have none. */
  readonly stepId?: string
  /** Anything else about the event, as a JSON object. */
  readonly payload?: { readonly [key: string]: unknown }
}

/** An event in the ledger. It never changes. */
export interface RunEventRecord extends RunEventWrite {
  /** The event's place in its run: 1, 2, 3 and so on. */
  readonly runSeq: number
  /** The ledger's clock at the commit, as RFC 3339 in UTC. It never goes back within a run. */
  readonly persistedAt: string
}

/** The answer to an append. */
export interface AppendResult {
  /** The record's event id. For a duplicate it is the id of the event that was stored first. */
  readonly eventId: string
  /** The record's place in its run. */
  readonly runSeq: number
  /** When the record was stored. */
  readonly persistedAt: string
  /** Whether the event was a duplicate. */
  readonly idempotent: boolean
  /** Whether this call has written the record. */
  readonly persisted: boolean
}

/** The part of a ledger that producers and readers of one run need. `db.ledger` and the HTTP client both implement it. */
export interface RunStateStore {
  /** Stores an event, or returns the record that has its key. */
  appendEvent(event: RunEventWrite, options?: { readonly epoch?: number }): Promise<AppendResult>
  /** Returns a run's records in order; an empty list for an unknown run. */
  fetchEvents(
    runId: string,
    options?: { readonly afterSeq?: number; readonly limit?: number },
  ): Promise<readonly RunEventRecord[]>
  /** Returns the state that was projected last, or null for an unknown run. It may lag behind the records. */
  getSnapshot(runId: string): Promise<RunSnapshot | null>
  /** Returns the state after all records. Throws `RUN_NOT_FOUND` for an unknown run. */
  projectSnapshot(runId: string): Promise<RunSnapshot>
}

/** The status of a run. The last three are final. */
export type RunStateStatus = 'PENDING' | 'RUNNING' | 'PAUSED' | 'COMPLETED' | 'FAILED' | 'CANCELLED'
/** The status of an attempt of a step. */
export type StepStatus = 'PENDING' | 'RUNNING' | 'SUCCESS' | 'FAILED' | 'SKIPPED'

/** One attempt of a step. */
export interface StepAttempt {
  /** How the attempt stands. */
  readonly status: StepStatus
  /** The number of the attempt, from 1. */
  readonly logicalAttemptId: number
  /** The runtime's own attempt number, from the last event of the attempt. */
  readonly engineAttemptId: number
  /** When its `StepStarted` was stored. Absent for a skipped step. */
  readonly startedAt?: string
  /** When the event that ended it was stored. */
  readonly completedAt?: string
  /** The `payload.error` of the event that ended it. */
  readonly error?: unknown
}

/** A step of a run: its current attempt, and the failed ones before. */
export interface StepSnapshot extends StepAttempt {
  /** The step's id. */
  readonly stepId: string
  /** The earlier attempts, all of which failed. */
  readonly attempts: readonly StepAttempt[]
}

/**
 * The state of a run after some of its records. Its heading is that of the first record. The same records always give the
 * same snapshot, byte for byte.
 */
export interface RunSnapshot extends RunHeading {
  /** False while all events have unknown types, so that `RunQueued` may still follow; absent otherwise. */
  readonly begun?: false
  /** How the run stands. */
  readonly status: RunStateStatus
  /** The `runSeq` of the last record that the snapshot covers. */
  readonly lastEventSeq: number
  /** The steps in the order in which they first appeared. */
  readonly steps: readonly StepSnapshot[]
  /** When `RunStarted` was stored. */
  readonly startedAt?: string
  /** When the event that ended the run was stored, whatever the final status is. */
  readonly completedAt?: string
  /** Milliseconds from `startedAt` to `completedAt`. */
  readonly totalDurationMs?: number
  /** `INCONSISTENT` if the run has an event that no transition allows. */
  readonly consistency: 'CONSISTENT' | 'INCONSISTENT'
  /** The number of such events. They change nothing else. */
  readonly invalidEvents: number
  /** The SHA-256 of all other fields in canonical JSON (RFC 8785), in hex. */
  readonly hash: string
}

/** An alert about an event that no transition allows. There is exactly one for each run and event id. */
export interface LedgerAlert {
  /** The kind of alert. */
  readonly code: 'INVALID_TRANSITION'
  /** The event's run. */
  readonly runId: string
  /** The event's tenant. */
  readonly tenantId: string
  /** The event's project. */
  readonly projectId: string
  /** The event's environment. */
  readonly environmentId: string
  /** The event's id. */
  readonly eventId: string
  /** The event's type. */
  readonly eventType: string
  /** The event's place in its run. */
  readonly runSeq: number
  /** When the event was stored. */
  readonly persistedAt: string
  /** The event's step, if it is a step event. */
  readonly stepId?: string
  /** The status of the run, or of the step for a step event, before the event. */
  readonly priorState: string
  /** The status that the event would have led to. */
  readonly attemptedState: string
  /** Why the transition is not allowed. */
  readonly reason: string
}
