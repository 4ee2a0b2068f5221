import { describe, expect, test } from 'vitest'
import { codeOf, producerOf, typesIn, withDb } from '../../test/ledger/memory-ledger.ts'
import type { Annals } from '../annals.ts'
import { AnnalsError } from '../core/errors.ts'
import { RUN } from '../testing/ledger-suite/events.ts'
import type { Producer, ProducerOptions } from './producer.ts'
import type { RunEventRecord } from './run-events.ts'

type Store = ProducerOptions['store']

describe('retries', () => {
  const failing = (db: Annals, error: unknown, times: number): { store: Store; calls: () => number } => {
    let calls = 0
    return {
      calls: () => calls,
      store: {
        fetchEvents: (runId, options) => db.ledger.fetchEvents(runId, options),
        appendEvent: async event => (calls++ < times ? Promise.reject(error) : db.ledger.appendEvent(event)),
      },
    }
  }

  const system = (code: string): Error => Object.assign(new Error(code), { code })

  test.each<[string, unknown]>([
    ['CONFLICT', new AnnalsError('CONFLICT', 'x')],
    ['TIMEOUT', new AnnalsError('TIMEOUT', 'x')],
    ['OUTCOME_UNKNOWN', new AnnalsError('OUTCOME_UNKNOWN', 'x')],
    ['IO_ERROR', new AnnalsError('IO_ERROR', 'x')],
    ['ECONNRESET', system('ECONNRESET')],
    ['an error with a transient cause', new TypeError('fetch failed', { cause: system('ECONNREFUSED') })],
  ])('L22: %s is retried', (_, error) =>
    withDb(async db => {
      const { store, calls } = failing(db, error, 2)
      expect(await producerOf(db, { store }).runStarted()).toMatchObject({ persisted: true })
      expect(calls()).toBe(3)
    }),
  )

  test.each<[string, unknown]>([
    ['INVALID_ENVELOPE', new AnnalsError('INVALID_ENVELOPE', 'x')],
    ['RUN_SCOPE_MISMATCH', new AnnalsError('RUN_SCOPE_MISMATCH', 'x')],
    ['INVALID_TRANSITION', new AnnalsError('INVALID_TRANSITION', 'x')],
    ['WRITER_FENCED', new AnnalsError('WRITER_FENCED', 'x')],
    ['CLOSED', new AnnalsError('CLOSED', 'x')],
    ['a programming error', new TypeError('x is not a function')],
    ['a thrown string', 'x'],
  ])('L22: %s is not retried', (_, error) =>
    withDb(async db => {
      const { store, calls } = failing(db, error, 2)
      await expect(producerOf(db, { store }).runStarted()).rejects.toBe(error)
      expect(calls()).toBe(1)
    }),
  )

  test('L22: the number of retries is limited, and the pauses between them grow', () =>
    withDb(async db => {
      const waits: number[] = []
      const sleep = async (ms: number): Promise<void> => {
        waits.push(ms)
      }
      const { store, calls } = failing(db, new AnnalsError('TIMEOUT', 'x'), 99)
      const producer = producerOf(db, {
        store,
        retry: { retries: 4, firstMs: 10, maxMs: 50, random: () => 0, sleep },
      })
      expect(await codeOf(producer.runStarted())).toBe('TIMEOUT')
      expect(calls()).toBe(5)
      expect(waits).toEqual([5, 10, 20, 25])
    }))

  test('L22: a failed append does not change the state, so the next call may repeat it', () =>
    withDb(async db => {
      const { store } = failing(db, new Error('once'), 1)
      const producer = producerOf(db, { store })
      await expect(producer.runStarted()).rejects.toThrow('once')
      expect(await producer.runStarted()).toMatchObject({ persisted: true })
      await producer.runCompleted()
      expect(await typesIn(db)).toEqual(['RunStarted', 'RunCompleted'])
    }))
})

describe('order and restarts', () => {
  test('L25: concurrent calls are sent in the order of the calls', () =>
    withDb(async db => {
      const producer = producerOf(db)
      const calls = [
        producer.runQueued(),
        producer.runStarted(),
        producer.stepStarted('a'),
        producer.stepCompleted('a'),
      ]
      const results = await Promise.all([
        ...calls,
        producer.pause(),
        producer.resume(),
        producer.runCompleted(),
      ])
      expect(results.map(({ runSeq }) => runSeq)).toEqual([1, 2, 3, 4, 5, 6, 7])
      expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({ consistency: 'CONSISTENT' })
    }))

  test('L25: a failed call does not affect the others', () =>
    withDb(async db => {
      const producer = producerOf(db)
      const calls = [producer.runStarted(), producer.stepCompleted('x'), producer.stepStarted('a')]
      const settled = await Promise.allSettled(calls)
      expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    }))

  test('L22: a new producer continues a run that is longer than a page', () =>
    withDb(async db => {
      const first = producerOf(db)
      await first.runStarted()
      await first.stepStarted('a')
      await first.stepFailed('a', 'x')
      for (let i = 1; i <= 1_100; i++) await first.emit('Noted', { logicalAttemptId: i })
      const second = producerOf(db)
      expect(await second.stepStarted('a')).toMatchObject({ runSeq: 1_104, persisted: true })
      expect((await db.ledger.fetchEvents(RUN, { afterSeq: 1_103 }))[0]).toMatchObject({
        logicalAttemptId: 2,
      })
    }))

  /** A program that a workflow engine runs again from its beginning. */
  async function program(producer: Producer, until: number): Promise<void> {
    const calls: readonly (() => Promise<unknown>)[] = [
      () => producer.runStarted(),
      () => producer.stepStarted('a'),
      () => producer.stepFailed('a', 'x'),
      () => producer.pause(),
      () => producer.resume(),
      () => producer.stepStarted('a'),
      () => producer.stepCompleted('a'),
      () => producer.pause(),
      () => producer.resume(),
      () => producer.runCompleted(),
    ]
    for (const call of calls.slice(0, until)) await call()
  }

  test('L22, LD1: with replay, a program that runs again stores no event twice', async () => {
    const shape = ({ eventType, logicalAttemptId, stepId, runSeq }: RunEventRecord): unknown => ({
      eventType,
      logicalAttemptId,
      stepId,
      runSeq,
    })
    let expected: unknown
    await withDb(async db => {
      await program(producerOf(db), 10)
      expected = (await db.ledger.fetchEvents(RUN)).map(shape)
    })
    for (let until = 0; until <= 10; until++) {
      await withDb(async db => {
        await program(producerOf(db, { replay: true }), until)
        await program(producerOf(db, { replay: true }), 10)
        await program(producerOf(db, { replay: true }), 10)
        expect((await db.ledger.fetchEvents(RUN)).map(shape), `died after ${until}`).toEqual(expected)
        expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({ consistency: 'CONSISTENT' })
      })
    }
  })

  test('LD16: a producer writes with its epoch, and is refused once a newer epoch is granted', () =>
    withDb(async db => {
      const { epoch } = await db.ledger.acquireLease(RUN, { owner: 'a', ttlMs: 60_000 })
      const producer = producerOf(db, { epoch })
      await producer.runStarted()
      await db.ledger.acquireLease(RUN, { owner: 'b', ttlMs: 60_000 })
      expect(await codeOf(producer.runCompleted())).toBe('WRITER_FENCED')
    }))

  test('L14: an Error is stored with its name, message and code, and emittedAt comes from the producer’s clock', () =>
    withDb(async db => {
      const producer = producerOf(db, { clock: () => 0 })
      await producer.runStarted()
      await producer.runFailed(Object.assign(new RangeError('too far'), { code: 'E_FAR' }), { at: 'mile 9' })
      expect((await db.ledger.fetchEvents(RUN))[1]).toMatchObject({
        emittedAt: '1970-01-01T00:00:00.000Z',
        payload: { at: 'mile 9', error: { name: 'RangeError', message: 'too far', code: 'E_FAR' } },
      })
    }))
})
