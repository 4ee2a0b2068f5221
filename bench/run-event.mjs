import { hash, randomUUID } from 'node:crypto'
import { stepOf } from './data.mjs'

/**
 * The run event that Annals stores, made without it: for the peers to store the same. Its key is the contract's, a SHA-256;
 * so keys come in no order, for everybody.
 */
export function runEvent(runId, dedupeKey, payload) {
  const { eventType, stepId } = stepOf(dedupeKey)
  return {
    eventId: randomUUID(),
    eventType,
    emittedAt: '2026-01-28T00:00:00.000Z',
    runId,
    tenantId: 'acme',
    projectId: 'shop',
    environmentId: 'production',
    planId: 'nightly-orders',
    planVersion: '42',
    engineAttemptId: 1,
    logicalAttemptId: 1,
    idempotencyKey: hash('sha256', `${runId}|${stepId}|1|${eventType}|nightly-orders|42`, 'hex'),
    stepId,
    payload,
  }
}

/** A store of bodies under dedupe keys, as one of run events. */
export function ofRunEvents(store) {
  return {
    ...store,
    appendOnce(run, payload, dedupeKey) {
      const event = runEvent(run, dedupeKey, payload)
      return store.appendOnce(run, event, event.idempotencyKey)
    },
    /** The same events again and again: what a producer that retries has in its hands. */
    async prepared(run, events) {
      const made = events.map(([payload, dedupeKey]) => runEvent(run, dedupeKey, payload))
      return i => store.appendOnce(run, made[i], made[i].idempotencyKey)
    },
    appendManyOnce(run, events) {
      const made = events.map(([payload, dedupeKey]) => runEvent(run, dedupeKey, payload))
      return store.appendManyOnce(
        run,
        made.map(event => [event, event.idempotencyKey]),
      )
    },
  }
}
