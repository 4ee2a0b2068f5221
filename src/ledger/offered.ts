import type { ByteString } from '../core/bytes.ts'
import type { Envelope } from './envelope.ts'
import { alertOf, type Refusal } from './reduce.ts'
import type { AppendResult, LedgerAlert } from './run-events.ts'
import type { Projectable } from './run-projection.ts'

/** A record that this process has appended just now, as the projector would read it. */
export interface Offered extends Projectable {
  /** Of the run. */
  readonly scope: ByteString
  readonly envelope: Envelope
}

/** One plain object, and nothing beside it: there is one for each append. */
export function offered(
  scope: ByteString,
  envelope: Envelope,
  { runSeq, persistedAt }: AppendResult,
  time: number,
  version: number,
): Offered {
  return {
    scope,
    envelope,
    runSeq,
    persistedAt,
    eventType: envelope.eventType,
    stepId: envelope.stepId,
    logicalAttemptId: envelope.logicalAttemptId,
    engineAttemptId: envelope.engineAttemptId,
    error: envelope.hasError ? runSeq : undefined,
    version,
    time,
    alert: alertOfOffered,
  }
}

function alertOfOffered(this: Offered, refusal: Refusal): LedgerAlert {
  const { envelope, runSeq, persistedAt } = this
  return alertOf({ ...envelope, runSeq, persistedAt }, refusal)
}
