import { afterEach, describe, expect, test } from 'vitest'
import { type Annals, openOn } from '../../src/annals.ts'
import { AnnalsError } from '../../src/core/errors.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { type AppendResult, createProducer, type Producer, type RunEventWrite } from '../../src/index.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { newEvent, PLAN } from './run-event.ts'

/** LD16: a worker can't write into a run that another worker has taken over. */
const RUN = 'run-1'
const TTL_MS = 10_000

const clock = new SimulatedClock()
const opened: Annals[] = []
afterEach(async () => {
  for (const db of opened.splice(0)) await db.close()
})

async function openWithClock(): Promise<Annals> {
  const storage = await openEmbedded({ clock: clock.now })
  const db = await openOn(storage)
  opened.push(db)
  return db
}

function producerOf(db: Annals, epoch: number, replay = false): Producer {
  const { ledger } = db
  return createProducer({ ...PLAN, store: ledger, registry: ledger.registry, runId: RUN, epoch, replay })
}

type Outcome = AppendResult | AnnalsError

async function outcomeOf(append: Promise<AppendResult>): Promise<Outcome> {
  return append.catch((error: unknown) => {
    if (error instanceof AnnalsError) return error
    throw error
  })
}

const codeOf = (outcome: Outcome): string => (outcome instanceof AnnalsError ? outcome.code : 'stored')

describe('LD16, a replaced worker', () => {
  test('can’t write after the takeover, with any epoch or none', async () => {
    const db = await openWithClock()
    // Two handles of one store, like two workers in one process.
    const elsewhere = db.forTenant('default')
    const a = await db.ledger.acquireLease(RUN, { owner: 'a', ttlMs: TTL_MS })
    const workerA = producerOf(db, a.epoch)
    await workerA.runStarted()
    await workerA.stepStarted('fetch')

    // A stalls and its lease expires. B continues the run.
    clock.advance(TTL_MS + 1)
    const b = await elsewhere.ledger.acquireLease(RUN, { owner: 'b', ttlMs: TTL_MS })
    expect(b.epoch).toBeGreaterThan(a.epoch)
    const workerB = producerOf(elsewhere, b.epoch)
    await workerB.stepFailed('fetch', 'the worker is gone')
    await workerB.stepStarted('fetch')

    const late = await outcomeOf(workerA.stepCompleted('fetch'))
    expect(late).toMatchObject({
      code: 'WRITER_FENCED',
      details: { runId: RUN, epoch: a.epoch, held: b.epoch },
    })
    const random = new Random(7)
    const event = newEvent(random, { runId: RUN, eventType: 'RunCompleted' })
    const options = [{ epoch: a.epoch }, {}, { epoch: b.epoch + 1 }]
    for (const each of options) {
      expect(codeOf(await outcomeOf(db.ledger.appendEvent(event, each)))).toBe('WRITER_FENCED')
    }
    const others = newEvent(random, { runId: 'run-2', eventType: 'RunStarted' })
    await expect(db.ledger.appendEvents([others, event])).rejects.toMatchObject({ code: 'WRITER_FENCED' })
    await expect(
      db.ledger.acquireLease(RUN, { owner: 'a', ttlMs: TTL_MS, epoch: a.epoch }),
    ).rejects.toMatchObject({ code: 'WRITER_FENCED' })

    await workerB.stepCompleted('fetch')
    await workerB.runCompleted()
    const records = await db.ledger.fetchEvents(RUN)
    expect(records.map(({ eventType }) => eventType)).toEqual([
      'RunStarted',
      'StepStarted',
      'StepFailed',
      'StepStarted',
      'StepCompleted',
      'RunCompleted',
    ])
    expect(await db.ledger.fetchEvents('run-2')).toEqual([])
    expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({
      status: 'COMPLETED',
      consistency: 'CONSISTENT',
    })
    expect(db.stats().ledger.fenced).toBe(5)
  })

  test('is refused even if the other worker has stored the same event, so it can’t mistake that result for its own', async () => {
    const db = await openWithClock()
    const a = await db.ledger.acquireLease(RUN, { owner: 'a', ttlMs: TTL_MS })
    await producerOf(db, a.epoch).runStarted()
    const b = await db.ledger.acquireLease(RUN, { owner: 'b', ttlMs: TTL_MS })
    const random = new Random(8)
    const resultOf = (worker: string): RunEventWrite =>
      newEvent(random, { runId: RUN, eventType: 'Computed', stepId: 'sum', payload: { worker } })
    await db.ledger.appendEvent(resultOf('b'), b)
    expect(codeOf(await outcomeOf(db.ledger.appendEvent(resultOf('a'), a)))).toBe('WRITER_FENCED')
    const records = await db.ledger.fetchEvents(RUN)
    expect(records.map(({ payload }) => payload)).toEqual([undefined, { worker: 'b' }])
  })

  test('in a race of a hundred appends, each append of A is stored before B’s first one or refused', async () => {
    const seed = seedOfRun()
    console.log(`ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    let raced = 0
    for (let round = 0; round < 50; round++) {
      const db = await openWithClock()
      const { ledger } = db
      const a = await ledger.acquireLease(RUN, { owner: 'a', ttlMs: TTL_MS })
      await ledger.appendEvent(newEvent(random, { runId: RUN, eventType: 'RunStarted' }), a)
      const eventOf = (worker: string, n: number): RunEventWrite =>
        newEvent(random, { runId: RUN, eventType: 'Progress', stepId: `${worker}-${n}` })
      const takeOverAt = random.below(50)
      const outcomes: Promise<Outcome>[] = []
      const takeOver: Promise<void>[] = []
      let fromB: readonly AppendResult[] = []
      for (let n = 0; n < 50; n++) {
        if (n === takeOverAt) {
          takeOver.push(
            ledger.acquireLease(RUN, { owner: 'b', ttlMs: TTL_MS }).then(async b => {
              // B writes as soon as it has its epoch, while appends of A are still pending.
              fromB = await Promise.all(
                Array.from({ length: 50 }, (_, i) => ledger.appendEvent(eventOf('b', i), b)),
              )
            }),
          )
        }
        outcomes.push(outcomeOf(ledger.appendEvent(eventOf('a', n), a)))
        if (random.chance(0.1)) await Promise.resolve()
        if (random.chance(0.05)) await new Promise(resolve => setImmediate(resolve))
      }
      const ofA = await Promise.all(outcomes)
      await Promise.all(takeOver)
      const stored = ofA.filter(outcome => !(outcome instanceof AnnalsError)) as AppendResult[]
      const refused = ofA.filter(outcome => outcome instanceof AnnalsError)
      expect(new Set(refused.map(codeOf))).toEqual(new Set(refused.length > 0 ? ['WRITER_FENCED'] : []))
      expect(fromB).toHaveLength(50)
      const firstOfB = Math.min(...fromB.map(({ runSeq }) => runSeq))
      for (const { runSeq } of stored) expect(runSeq).toBeLessThan(firstOfB)
      expect(await ledger.fetchEvents(RUN)).toHaveLength(1 + stored.length + 50)
      if (stored.length > 0 && refused.length > 0) raced++
    }
    // Most rounds must have stored and refused appends of A. Otherwise the race proves nothing.
    expect(raced).toBeGreaterThan(25)
  })

  test('of two producers that acquire the lease, the later one continues, the earlier one is refused, and no event is stored twice', async () => {
    const db = await openWithClock()
    const a = await db.ledger.acquireLease(RUN, { owner: 'a', ttlMs: TTL_MS })
    const workerA = producerOf(db, a.epoch, true)
    await workerA.runStarted()
    const b = await db.ledger.acquireLease(RUN, { owner: 'b', ttlMs: TTL_MS })
    const workerB = producerOf(db, b.epoch, true)
    const script = async (worker: Producer): Promise<void> => {
      await worker.runStarted()
      for (let n = 0; n < 10; n++) {
        await worker.stepStarted(`step-${n}`)
        await worker.stepCompleted(`step-${n}`)
      }
      await worker.runCompleted()
    }
    const [ofA, ofB] = await Promise.allSettled([script(workerA), script(workerB)])
    expect(ofB.status).toBe('fulfilled')
    expect(ofA).toMatchObject({ status: 'rejected', reason: { code: 'WRITER_FENCED' } })
    expect(await db.ledger.fetchEvents(RUN)).toHaveLength(22)
    expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({
      status: 'COMPLETED',
      consistency: 'CONSISTENT',
    })
    expect(await db.ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 22 })
  })
})
