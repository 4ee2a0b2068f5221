import type { ByteString } from '../core/bytes.ts'
import { AnnalsError } from '../core/errors.ts'
import { decodeJson, encodeValue } from '../core/value.ts'
import { parseHead } from '../engine/log.ts'
import type { Write } from '../engine/session.ts'
import type { Entry } from '../engine/storage.ts'
import type { RunHead } from '../primitives/run.ts'
import { runOperations } from '../primitives/run-records.ts'
import type { Envelope } from './envelope.ts'
import { Guard } from './guard.ts'
import { checkFence } from './lease.ts'
import {
  HEADING_KEY,
  type Lease,
  leaseIn,
  placeOf,
  putAt,
  putNoLease,
  runStateIn,
  type StoredHeading,
} from './stored.ts'

/** The state of a run during one step. Each event sees the effects of the events before it. */
export class JudgedRun {
  readonly scope: ByteString
  /** As it is stored; undefined before the run's first event. */
  heading: ByteString | undefined
  isIndexed = false
  /** Validates transitions (Layer 2); undefined if that is off. */
  guard: Guard | undefined = undefined
  readonly #lease: Lease | undefined

  constructor(scope: ByteString, heading: Entry | undefined, lease: Entry | undefined) {
    this.scope = scope
    this.heading = heading?.value
    this.#lease = leaseIn(lease)
  }

  /** Validates transitions from the head of the run's log and the state that was stored for it. */
  validate(runId: string, head: Entry | undefined, state: Entry | undefined): void {
    this.guard = new Guard(this.scope, runId, parseHead(head).length, runStateIn(state))
  }

  /** Checks whose run it is (LD8), then the lease (LD16). `isKnown`: the event was stored or rejected before. */
  check(envelope: Envelope, epoch: number | undefined, clock: number, isKnown: boolean): void {
    if (this.heading !== undefined) checkHeading(this.heading, envelope)
    checkFence(envelope.runId, this.#lease, epoch, clock, isKnown)
  }

  /** LD15: the first event creates the run's entry in the index of runs, unless there is one. */
  begin({ runId, storedHeading }: Envelope, index: ByteString, now: number): Write[] {
    this.heading = storedHeading
    const writes: Write[] = [putAt(placeOf(this.scope, HEADING_KEY), storedHeading)]
    if (this.#lease === undefined) writes.push(putNoLease(this.scope))
    if (this.isIndexed) return writes
    const head: RunHead = { runId, status: 'Active', createdAt: now, updatedAt: now, tags: [] }
    return [...writes, ...runOperations(index, undefined, { head, metadata: encodeValue({}) })]
  }
}

const SCOPE_FIELDS = ['tenantId', 'projectId', 'environmentId'] as const

/**
 * LD8: tenant, project and environment must be those of the run's first event. The error must not tell the run's own values to
 * a caller that has others.
 */
function checkHeading(stored: ByteString, envelope: Envelope): void {
  if (stored === envelope.storedHeading) return
  const heading = decodeJson(stored) as StoredHeading
  const field = SCOPE_FIELDS.find(name => heading[name] !== envelope[name])
  if (field === undefined) return
  const { runId } = envelope
  const message = `run ${JSON.stringify(runId)} has another ${field}, set by its first event`
  throw new AnnalsError('RUN_SCOPE_MISMATCH', message, { runId, field })
}
