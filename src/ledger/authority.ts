import { type ByteString, u64 } from '../core/bytes.ts'
import { AnnalsError, type ErrorDetails } from '../core/errors.ts'
import { isLong, mapInSlices } from '../core/slices.ts'
import { TimeFormatter } from '../core/time.ts'
import { getMany } from '../engine/many-gets.ts'
import type { Appended } from '../engine/storage.ts'
import { type Answer, AppendRequest } from './append-request.ts'
import { CheckedHeadings } from './checked-headings.ts'
import type { LedgerContext } from './context.ts'
import { Envelope } from './envelope.ts'
import { catchUpGuard } from './guard.ts'
import { offered } from './offered.ts'
import type { Projector } from './projector.ts'
import { RepeatedEvents } from './repeated-events.ts'
import type { AppendResult } from './run-events.ts'
import { LOG, saysOther } from './stored.ts'

/** A duplicate that has to be compared with its record. */
interface Duplicate {
  readonly answer: Answer
  readonly found: Appended
  readonly result: AppendResult
}

const TENANT_OF_ALL = 'default'
const BEGUN_MAX = 10_000

/**
 * The Append Authority. Every append goes one way: accept the events → judge them in one step over declared reads, whose
 * appends the engine commits with it → answer. The engine orders such steps, so an append never conflicts. Imports and copies
 * write records that another authority accepted.
 */
export class Authority {
  readonly #context: LedgerContext
  readonly #projector: Projector
  readonly #headings = new CheckedHeadings()
  readonly #repeats = new RepeatedEvents()
  readonly #times = new TimeFormatter()
  /**
   * By id, the scopes of runs that are known to have begun. A run has its heading only in the scope where it lives, so an append
   * that finds the heading there need not read the index, which all runs share.
   */
  readonly #begun = new Map<string, ByteString>()

  constructor(context: LedgerContext, projector: Projector) {
    this.#context = context
    this.#projector = projector
  }

  /** Checks an event. `index` is its place in a list of events, for the error. */
  accept(event: unknown, index: number | undefined): Envelope {
    try {
      const repeated = this.#repeats.find(event)
      if (repeated !== undefined) return repeated
      const envelope = new Envelope(event, this.#headings)
      this.#checkTenant(envelope)
      return envelope
    } catch (error) {
      if (index === undefined || !(error instanceof AnnalsError)) throw error
      throw new AnnalsError(error.code, `event ${index}: ${error.message}`, { ...error.details, index })
    }
  }

  /** LD8: a tenant's handle accepts only events of that tenant. The default handle treats the tenant as data. */
  #checkTenant({ runId, tenantId }: Envelope): void {
    const { tenant } = this.#context
    if (tenant === TENANT_OF_ALL || tenantId === tenant) return
    const message = `this handle accepts only events of tenant ${JSON.stringify(tenant)}`
    throw new AnnalsError('RUN_SCOPE_MISMATCH', message, { runId, field: 'tenantId' })
  }

  /**
   * Appends all of the events or none, and answers in their order. The step runs again if it has looked in the wrong place, or
   * if the guard's state has to catch up first.
   */
  async append(envelopes: readonly Envelope[], epoch: number | undefined): Promise<readonly AppendResult[]> {
    const { database, metrics } = this.#context
    const request = new AppendRequest(this.#context, envelopes, epoch, runId => this.#begun.get(runId))
    for (;;) {
      if (isLong(envelopes, ({ bytes }) => bytes.length)) await request.prepare()
      const updated = await database.update(request.reads, found => request.judge(found), { appends: true })
      const { result, appended, version } = updated
      if (result.kind === 'done') return this.#answerAll(result.answers, appended, version)
      if (result.kind === 'unlocated') request.readIndex()
      else if (result.kind === 'elsewhere') request.moveTo(result.homes)
      else if (result.kind === 'behind') await catchUpGuard(this.#context, result.scope)
      else {
        metrics.rejected++
        throw rejection(result.details)
      }
    }
  }

  #answerAll(
    answers: readonly Answer[],
    appended: readonly Appended[],
    version: number,
  ): readonly AppendResult[] | Promise<readonly AppendResult[]> {
    const unknown: Duplicate[] = []
    const results = mapInSlices(answers, answer => {
      const { scope, source, envelope, isDuplicate } = answer
      const found = typeof source === 'number' ? appended[source] : source
      this.#noteBegun(envelope.runId, scope)
      const repeat = isDuplicate ? this.#repeats.answered(envelope, found.hash) : undefined
      if (repeat !== undefined) {
        this.#count(repeat.isDivergent)
        return repeat.answer
      }
      const result = resultOf(found, this.#times.format(found.time), isDuplicate)
      if (isDuplicate) unknown.push({ answer, found, result })
      else {
        this.#context.metrics.appended++
        this.#projector.offer(offered(scope, envelope, result, found.time, version))
      }
      return result
    })
    if (results instanceof Promise) return results.then(all => this.#compare(unknown).then(() => all))
    return unknown.length === 0 ? results : this.#compare(unknown).then(() => results)
  }

  #noteBegun(runId: string, scope: ByteString): void {
    if (this.#begun.get(runId) === scope) return
    if (this.#begun.size === BEGUN_MAX) this.#begun.clear()
    this.#begun.set(runId, scope)
  }

  /** LD11: compares duplicates with their records. One with another event id or payload is divergent. */
  async #compare(duplicates: readonly Duplicate[]): Promise<void> {
    const places = duplicates.map(({ answer, found }) => ({
      scope: answer.scope,
      tag: LOG,
      key: u64(found.sequence),
    }))
    // A record that can't be read, because the store is damaged or closes, is not counted as divergent. The answer stands.
    const records = await getMany(this.#context.database, places).catch(() => [])
    for (const [i, { answer, found, result }] of duplicates.entries()) {
      const { envelope, source } = answer
      const { memo, hash } = found
      const record = records[i]
      const isOther = record !== undefined && saysOther(record, hash, envelope)
      const isDivergent = memo !== envelope.eventId || isOther
      this.#count(isDivergent)
      if (record === undefined || typeof source === 'number') continue
      this.#repeats.add(envelope, hash, isDivergent, result)
    }
  }

  #count(isDivergent: boolean): void {
    const { metrics } = this.#context
    metrics.duplicates++
    if (isDivergent) metrics.divergentDuplicates++
  }
}

function resultOf({ sequence, memo }: Appended, persistedAt: string, isDuplicate: boolean): AppendResult {
  return Object.freeze({
    eventId: memo,
    runSeq: sequence + 1,
    persistedAt,
    idempotent: isDuplicate,
    persisted: !isDuplicate,
  })
}

function rejection(details: ErrorDetails): AnnalsError {
  const { eventType, attemptedState, reason } = details
  const message = `${eventType} can't lead to ${attemptedState}: ${reason}`
  return new AnnalsError('INVALID_TRANSITION', message, details)
}
