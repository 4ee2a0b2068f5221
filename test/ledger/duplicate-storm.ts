import type { Annals, AppendResult, RunEventWrite } from '../../src/index.ts'
import type { Random } from '../../src/testing/random.ts'
import { newEvent } from './run-event.ts'

/**
 * Workers that send the same events many times, one by one and in batches, in
 * random order. Each event exists in several variants that share only the key.
 */
export interface Storm {
  readonly appends: number
  readonly keys: number
  readonly runs: number
  readonly workers: number
  /** The chance that a worker sends a batch. */
  readonly batches: number
}

export interface StormReport {
  /** The number of answers that were not the first for their key. */
  readonly duplicates: number
  readonly persisted: number
  readonly batches: number
  /** The number of batches that contained an event twice. */
  readonly batchesWithTwins: number
  readonly ms: number
  /** The first answer for each key. */
  readonly answers: ReadonlyMap<string, AppendResult>
}

const VARIANTS = 3
const BATCH_MAX = 40

export async function duplicateStorm(db: Annals, random: Random, storm: Storm): Promise<StormReport> {
  const variants = Array.from({ length: storm.keys }, (_, key) =>
    Array.from({ length: VARIANTS }, (_, variant) => variantOf(random, key, variant, storm.runs)),
  )
  const pick = (of: Random): RunEventWrite => of.pick(of.pick(variants))
  const answers = new Map<string, AppendResult>()
  let sent = 0
  let answered = 0
  let persisted = 0
  let batches = 0
  let batchesWithTwins = 0

  const take = (event: RunEventWrite, answer: AppendResult): void => {
    answered++
    if (answer.persisted) persisted++
    if (answer.persisted === answer.idempotent) throw new Error('an answer is both or neither')
    const first = answers.get(event.idempotencyKey)
    if (first === undefined) answers.set(event.idempotencyKey, answer)
    else if (
      first.eventId !== answer.eventId ||
      first.runSeq !== answer.runSeq ||
      first.persistedAt !== answer.persistedAt
    ) {
      throw new Error(`one key, two answers: ${JSON.stringify([event.idempotencyKey, first, answer])}`)
    }
  }
  const worker = async (own: Random): Promise<void> => {
    while (sent < storm.appends) {
      if (own.chance(0.02)) await new Promise(resolve => setImmediate(resolve))
      if (own.chance(storm.batches)) {
        const events = Array.from({ length: 1 + own.below(BATCH_MAX) }, () => pick(own))
        // Makes batches with duplicates inside frequent.
        if (own.chance(0.5)) events.push(...events.slice(0, 1 + own.below(events.length)))
        sent += events.length
        batches++
        if (new Set(events.map(({ idempotencyKey }) => idempotencyKey)).size < events.length)
          batchesWithTwins++
        const results = await db.ledger.appendEvents(events)
        for (const [i, result] of results.entries()) take(events[i], result)
      } else {
        const event = pick(own)
        sent++
        take(event, await db.ledger.appendEvent(event))
      }
    }
  }

  const since = performance.now()
  await Promise.all(Array.from({ length: storm.workers }, () => worker(random.fork())))
  // Sends the keys that were never picked, so that the number of records is known.
  const missing = variants.filter(([{ idempotencyKey }]) => !answers.has(idempotencyKey))
  await Promise.all(missing.map(async ([event]) => take(event, await db.ledger.appendEvent(event))))
  return {
    duplicates: answered - storm.keys,
    persisted,
    batches,
    batchesWithTwins,
    ms: Math.round(performance.now() - since),
    answers,
  }
}

/** A variant of an event: same run, step, attempt, type and plan, but another id, payload, engine attempt and `emittedAt`. */
function variantOf(random: Random, key: number, variant: number, runs: number): RunEventWrite {
  return newEvent(random, {
    runId: `run-${key % runs}`,
    eventType: key < runs ? 'RunStarted' : 'StepStarted',
    ...(key < runs ? {} : { stepId: `step-${key}` }),
    engineAttemptId: 1 + variant,
    emittedAt: `2025-06-15T15:06:4${variant}Z`,
    payload: { sent: variant },
  })
}
