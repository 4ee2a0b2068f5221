import { hash, randomUUID } from 'node:crypto'

/**
 * The run event that Annals stores, made without it: for the peers to store the same. Its key is the contract's, a SHA-256;
 * so keys come in no order, for everybody.
 */
export function runEvent(runId, stepId, payload) {
  return {
    eventId: randomUUID(),
    eventType: 'StepStarted',
    emittedAt: '2026-01-28T00:00:00.000Z',
    runId,
    tenantId: 'acme',
    projectId: 'shop',
    environmentId: 'production',
    planId: 'nightly-orders',
    planVersion: '42',
    engineAttemptId: 1,
    logicalAttemptId: 1,
    idempotencyKey: hash('sha256', `${runId}|${stepId}|1|StepStarted|nightly-orders|42`, 'hex'),
    stepId,
    payload,
  }
}

/** A store of bodies under dedupe keys, as one of run events. */
export function ofRunEvents(store) {
  return {
    ...store,
    appendOnce(run, payload, stepId) {
      const event = runEvent(run, stepId, payload)
      return store.appendOnce(run, event, event.idempotencyKey)
    },
    /** The same events again and again: what a producer that retries has in its hands. */
    async prepared(run, events) {
      const made = events.map(([payload, stepId]) => runEvent(run, stepId, payload))
      return i => store.appendOnce(run, made[i], made[i].idempotencyKey)
    },
    appendManyOnce(run, events) {
      const made = events.map(([payload, stepId]) => runEvent(run, stepId, payload))
      return store.appendManyOnce(
        run,
        made.map(event => [event, event.idempotencyKey]),
      )
    },
  }
}
