import { randomUUID } from 'node:crypto'
import { deriveIdempotencyKey, open } from '../../dist/index.js'
import { stepOf } from '../data.mjs'

export async function openStore(folder, { durability, cacheBytes }) {
  const db = await open({ path: folder, durability, cacheBytes })
  return { ...ledgerStore(db), settle: () => db.checkpoint(), close: () => db.close() }
}

/** The ledger through its public API. The producer derives each key, and the store checks the event and derives it again. */
export function ledgerStore({ ledger }) {
  const started = new Set()

  /** Builds an event with every field, as a program would. */
  function event(runId, { eventType, stepId }, payload) {
    const identity = {
      runId,
      stepId,
      logicalAttemptId: 1,
      eventType,
      planId: 'nightly-orders',
      planVersion: '42',
    }
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
      idempotencyKey: deriveIdempotencyKey(identity),
      stepId,
      payload,
    }
  }
  const step = (run, payload, dedupeKey) => event(run, stepOf(dedupeKey), payload)

  async function begin(run) {
    started.add(run)
    await ledger.appendEvent(event(run, { eventType: 'RunStarted' }))
  }
  // The run's first event is RunStarted, so sequences are shifted. Producers don't see the chain's hash: the event id replaces it.
  const answer = ({ idempotent, runSeq, eventId }) => ({
    duplicate: idempotent,
    sequence: runSeq - 2,
    hash: eventId,
  })

  return {
    event,
    ledger,
    begin,
    async appendOnce(run, payload, dedupeKey) {
      if (!started.has(run)) await begin(run)
      return answer(await ledger.appendEvent(step(run, payload, dedupeKey)))
    },
    /** Returns a function that sends the i-th of these events again, as a producer that retries does. */
    async prepared(run, events) {
      const made = events.map(([payload, dedupeKey]) => step(run, payload, dedupeKey))
      return i => ledger.appendEvent(made[i]).then(answer)
    },
    async appendManyOnce(run, events) {
      if (!started.has(run)) await begin(run)
      const made = events.map(([payload, dedupeKey]) => step(run, payload, dedupeKey))
      return (await ledger.appendEvents(made)).map(answer)
    },
  }
}
