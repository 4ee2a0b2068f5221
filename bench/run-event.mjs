import { hash, randomUUID } from 'node:crypto'
import { stepOf } from './data.mjs'

/**
 * Builds the run event that Annals stores, without Annals, so that the peers store the same. Its key is the SHA-256 of the
 * contract, so keys come in random order for every peer.
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

/** Wraps a store of bodies with dedupe keys so that it stores run events. */
export function ofRunEvents(store) {
  return {
    ...store,
    appendOnce(run, payload, dedupeKey) {
      const event = runEvent(run, dedupeKey, payload)
      return store.appendOnce(run, event, event.idempotencyKey)
    },
    /** Returns a function that sends the i-th of these events again, as a producer that retries does. */
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
