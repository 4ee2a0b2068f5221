/** The events of a run, as the contract names them: what a producer writes, and what is read back. */

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

/** Others are stored and shown, and change no state: tomorrow's producers meet today's readers. */
export type RunEventType = KnownRunEventType | (string & {})

/** Whose run it is, and of what. */
export interface RunHeading {
  readonly runId: string
  readonly tenantId: string
  readonly projectId: string
  readonly environmentId: string
  readonly planId: string
  readonly planVersion: string
}

/** An event on its way into the ledger. Its place and its time there are the ledger's to give. */
export interface RunEventWrite extends RunHeading {
  /** A UUID v4; the same for every retry. */
  readonly eventId: string
  readonly eventType: RunEventType
  /** The producer's clock; RFC 3339, UTC. */
  readonly emittedAt: string
  /** 1 where the runtime knows no attempts. */
  readonly engineAttemptId: number
  /** From 1. */
  readonly logicalAttemptId: number
  /** What `deriveIdempotencyKey` makes of the event. */
  readonly idempotencyKey: string
  /** Of step events; run events have none. */
  readonly stepId?: string
  /** Whatever else there is to say; JSON. */
  readonly payload?: { readonly [key: string]: unknown }
}

/** An event in the ledger: nothing changes it any more. */
export interface RunEventRecord extends RunEventWrite {
  /** 1, 2, 3 …: the order within the run. */
  readonly runSeq: number
  /** The ledger's clock; RFC 3339, UTC. */
  readonly persistedAt: string
}

export interface AppendResult {
  /** Of the record: of an earlier one, if the event was known already. */
  readonly eventId: string
  readonly runSeq: number
  readonly persistedAt: string
  /** The event was known already. */
  readonly idempotent: boolean
  /** A record was written. */
  readonly persisted: boolean
}

/** What a producer needs of a ledger; `db.ledger` is one, and so is a client of a server. */
export interface RunStateStore {
  appendEvent(event: RunEventWrite, options?: { readonly epoch?: number }): Promise<AppendResult>
  fetchEvents(
    runId: string,
    options?: { readonly afterSeq?: number; readonly limit?: number },
  ): Promise<readonly RunEventRecord[]>
  getSnapshot(runId: string): Promise<RunSnapshot | null>
  projectSnapshot(runId: string): Promise<RunSnapshot>
}

export type RunStateStatus = 'PENDING' | 'RUNNING' | 'PAUSED' | 'COMPLETED' | 'FAILED' | 'CANCELLED'
export type StepStatus = 'PENDING' | 'RUNNING' | 'SUCCESS' | 'FAILED' | 'SKIPPED'

export interface StepAttempt {
  readonly status: StepStatus
  readonly logicalAttemptId: number
  readonly engineAttemptId: number
  readonly startedAt?: string
  readonly completedAt?: string
  /** The `payload.error` of the event that said so. */
  readonly error?: unknown
}

export interface StepSnapshot extends StepAttempt {
  readonly stepId: string
  /** The earlier ones, which failed. */
  readonly attempts: readonly StepAttempt[]
}

/**
 * What a run's records come to; its heading is that of the first. The same records always give the same snapshot, byte for
 * byte.
 */
export interface RunSnapshot extends RunHeading {
  /** There while all events are of unknown types, which change no state: `RunQueued` may still follow. */
  readonly begun?: false
  readonly status: RunStateStatus
  /** The `runSeq` up to which this is. */
  readonly lastEventSeq: number
  /** In the order in which they first appeared. */
  readonly steps: readonly StepSnapshot[]
  readonly startedAt?: string
  /** When it ended, however it ended. */
  readonly completedAt?: string
  readonly totalDurationMs?: number
  /** `INCONSISTENT` once an event came that no transition allows. */
  readonly consistency: 'CONSISTENT' | 'INCONSISTENT'
  /** How many such events there are; none of them changed anything else. */
  readonly invalidEvents: number
  /** SHA-256 of the rest in canonical JSON (RFC 8785), in hex. */
  readonly hash: string
}

/** An event that no transition allows; one per `(runId, eventId)`, for ever. */
export interface LedgerAlert {
  readonly code: 'INVALID_TRANSITION'
  readonly runId: string
  readonly tenantId: string
  readonly projectId: string
  readonly environmentId: string
  readonly eventId: string
  readonly eventType: string
  readonly runSeq: number
  readonly persistedAt: string
  readonly stepId?: string
  /** Of the run, or of the step that the event is about. */
  readonly priorState: string
  readonly attemptedState: string
  readonly reason: string
}
