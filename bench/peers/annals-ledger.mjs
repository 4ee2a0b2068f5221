import { randomUUID } from 'node:crypto'
import { deriveIdempotencyKey, open } from '../../dist/index.js'
import { stepOf } from '../data.mjs'

export async function openStore(folder, { durability, cacheBytes }) {
  const db = await open({ path: folder, durability, cacheBytes })
  return { ...ledgerStore(db), settle: () => db.checkpoint(), close: () => db.close() }
}

/** The ledger as its users have it: each event is checked, its key derived by the producer and again by the store. */
export function ledgerStore({ ledger }) {
  const started = new Set()

  /** Every field by its name, as a program writes down what it is about. */
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
  // The run's first event is its start. The chain's hash is no business of a producer: the event's id stands for it here.
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
    /** The same events again and again: what a producer that retries has in its hands. */
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
