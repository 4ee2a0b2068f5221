import { describe, expect, test } from 'vitest'
import { codeOf, producerOf, typesIn, withDb } from '../../test/ledger/memory-ledger.ts'
import type { Annals } from '../annals.ts'
import { AnnalsError } from '../core/errors.ts'
import { isUuidV4, newId } from '../core/id.ts'
import { RUN } from '../testing/ledger-suite/events.ts'
import type { EventIdRegistry } from './event-id-registry.ts'
import type { Producer, ProducerOptions } from './producer.ts'
import type { RunEventWrite } from './run-events.ts'

type Store = ProducerOptions['store']

/** Wraps the store and the registry, and records the producer's calls. */
function watched(db: Annals): {
  store: Store
  registry: EventIdRegistry
  seen: string[]
  sent: RunEventWrite[]
} {
  const seen: string[] = []
  const sent: RunEventWrite[] = []
  const { ledger } = db
  return {
    seen,
    sent,
    store: {
      fetchEvents: (runId, options) => ledger.fetchEvents(runId, options),
      async appendEvent(event, options) {
        seen.push(`append ${event.eventType}`)
        sent.push(event)
        return ledger.appendEvent(event, options)
      },
    },
    registry: {
      async claim(...claimed) {
        const id = await ledger.registry.claim(...claimed)
        seen.push('claimed')
        return id
      },
      async adopt(...adopted) {
        seen.push('adopt')
        return ledger.registry.adopt(...adopted)
      },
    },
  }
}

describe('ids', () => {
  test('L22: an id is claimed before the event is sent, is a UUID v4, and becomes the id of the record', () =>
    withDb(async db => {
      const { seen, sent, ...parts } = watched(db)
      const { eventId } = await producerOf(db, parts).runStarted()
      expect(seen).toEqual(['claimed', 'append RunStarted'])
      expect(sent[0].eventId).toBe(eventId)
      expect(isUuidV4(eventId)).toBe(true)
    }))

  test('L22: every retry sends the same id', () =>
    withDb(async db => {
      const { sent, store, registry } = watched(db)
      let failures = 3
      const flaky: Store = {
        ...store,
        async appendEvent(event, options) {
          const result = await store.appendEvent(event, options)
          if (failures-- > 0) throw new AnnalsError('OUTCOME_UNKNOWN', 'the answer was lost on its way')
          return result
        },
      }
      const result = await producerOf(db, { store: flaky, registry }).runStarted()
      expect(sent).toHaveLength(4)
      expect(new Set(sent.map(({ eventId }) => eventId)).size).toBe(1)
      expect(result).toMatchObject({ eventId: sent[0].eventId, runSeq: 1, idempotent: true })
      expect(await typesIn(db)).toEqual(['RunStarted'])
    }))

  test('L22: a producer that died between claim and append sends the same id after its restart', () =>
    withDb(async db => {
      const { sent, store, registry } = watched(db)
      const dead: Store = { ...store, appendEvent: () => Promise.reject(new Error('the process is gone')) }
      await expect(producerOf(db, { store: dead, registry }).runStarted()).rejects.toThrow('gone')
      const claimed = await db.ledger.registry.claim(RUN, KEY_OF_START, newId())
      await producerOf(db, { store, registry }).runStarted()
      expect(sent.map(({ eventId }) => eventId)).toEqual([claimed])
    }))

  test('L23: an id that the registry has lost is adopted from the ledger', () =>
    withDb(async db => {
      const first = await producerOf(db, { registry: forgetful() }).runStarted()
      const { seen, store, registry } = watched(db)
      const again = await producerOf(db, { store, registry, replay: true }).runStarted()
      expect(again).toEqual({ ...first, idempotent: true, persisted: false })
      expect(seen).toEqual(['claimed', 'append RunStarted', 'adopt'])
      expect(await db.ledger.registry.claim(RUN, KEY_OF_START, newId())).toBe(first.eventId)
    }))

  test('L24: engineAttemptId is 1 or the runtime’s number, and the producer never increases it', () =>
    withDb(async db => {
      const producer = producerOf(db)
      await producer.runStarted()
      await producer.stepStarted('a')
      await producer.stepFailed('a', 'x')
      await producer.stepStarted('a')
      const third = producerOf(db, { engineAttemptId: 3 })
      await third.stepCompleted('a')
      const attempts = (await db.ledger.fetchEvents(RUN)).map(record => record.engineAttemptId)
      expect(attempts).toEqual([1, 1, 1, 1, 3])
    }))
})

const KEY_OF_START = '84aa85852bafcae757b6f28bd8679cff89fb8b398bc8e3a5b4a4a798576ac327'

/** A registry that forgets every claim. */
function forgetful(): EventIdRegistry {
  return { claim: async (_, __, eventId) => eventId, adopt: async () => {} }
}

describe('L25: Layer 1', () => {
  test('L25: an invalid transition throws an error with the expected state, and nothing is sent', () =>
    withDb(async db => {
      const { seen, store, registry } = watched(db)
      const producer = producerOf(db, { store, registry })
      const error: unknown = await producer.runCompleted().catch((reason: unknown) => reason)
      expect(error).toMatchObject({
        code: 'INVALID_TRANSITION',
        details: {
          runId: RUN,
          invalidTransitionDetected: true,
          expectedState: 'RUNNING',
          actualState: 'PENDING',
          attemptedEventType: 'RunCompleted',
        },
      })
      expect(seen).toEqual([])
    }))

  test('L25: after an invalid run event, no event of the run is sent', () =>
    withDb(async db => {
      const producer = producerOf(db)
      await producer.runStarted()
      expect(await codeOf(producer.resume())).toBe('INVALID_TRANSITION')
      expect(await codeOf(producer.runCompleted())).toBe('ILLEGAL_STATE')
      expect(await codeOf(producer.stepStarted('a'))).toBe('ILLEGAL_STATE')
      expect(await codeOf(producer.emit('Noted'))).toBe('ILLEGAL_STATE')
      expect(await typesIn(db)).toEqual(['RunStarted'])
    }))

  test('L25: after an invalid step event, only events of other steps and the run are sent', () =>
    withDb(async db => {
      const producer = producerOf(db)
      await producer.runStarted()
      expect(await codeOf(producer.stepCompleted('a'))).toBe('INVALID_TRANSITION')
      expect(await codeOf(producer.stepStarted('a'))).toBe('ILLEGAL_STATE')
      await producer.stepStarted('b')
      await producer.runCompleted()
      expect(await typesIn(db)).toEqual(['RunStarted', 'StepStarted', 'RunCompleted'])
    }))

  test('L25: with onInvalid: fail, the run is failed with the details in the payload, if that is valid', () =>
    withDb(async db => {
      const producer = producerOf(db, { onInvalid: 'fail' })
      await producer.runStarted()
      expect(await codeOf(producer.resume())).toBe('INVALID_TRANSITION')
      const [, failed] = await db.ledger.fetchEvents(RUN)
      expect(failed).toMatchObject({
        eventType: 'RunFailed',
        payload: {
          invalidTransitionDetected: true,
          expectedState: 'PAUSED',
          actualState: 'RUNNING',
          attemptedEventType: 'RunResumed',
        },
      })
      expect(await codeOf(producer.emit('Noted'))).toBe('ILLEGAL_STATE')
    }))

  test('L25: with onInvalid: fail, a step is failed only if it is RUNNING', () =>
    withDb(async db => {
      const producer = producerOf(db, { onInvalid: 'fail' })
      await producer.runStarted()
      expect(await codeOf(producer.stepCompleted('pending'))).toBe('INVALID_TRANSITION')
      await producer.stepStarted('running')
      expect(await codeOf(producer.stepSkipped('running'))).toBe('INVALID_TRANSITION')
      await producer.stepStarted('done')
      await producer.stepCompleted('done')
      expect(await codeOf(producer.stepFailed('done', 'x'))).toBe('INVALID_TRANSITION')
      const failed = (await db.ledger.fetchEvents(RUN)).filter(({ eventType }) => eventType === 'StepFailed')
      expect(failed).toMatchObject([
        {
          stepId: 'running',
          payload: {
            invalidTransitionDetected: true,
            actualState: 'RUNNING',
            attemptedEventType: 'StepSkipped',
          },
        },
      ])
      expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({ consistency: 'CONSISTENT' })
    }))

  test('L25: with onInvalid: fail, a run that has ended is not failed', () =>
    withDb(async db => {
      const producer = producerOf(db, { onInvalid: 'fail' })
      await producer.runStarted()
      await producer.runCompleted()
      expect(await codeOf(producer.pause())).toBe('INVALID_TRANSITION')
      expect(await typesIn(db)).toEqual(['RunStarted', 'RunCompleted'])
    }))

  test('L25: if the failure event can’t be sent, the producer stops and throws the original error', () =>
    withDb(async db => {
      const { ledger } = db
      const store: Store = {
        fetchEvents: (runId, options) => ledger.fetchEvents(runId, options),
        appendEvent: async event =>
          event.eventType === 'RunFailed'
            ? Promise.reject(new Error('no way through'))
            : ledger.appendEvent(event),
      }
      const producer = producerOf(db, { store, onInvalid: 'fail' })
      await producer.runStarted()
      expect(await codeOf(producer.resume())).toBe('INVALID_TRANSITION')
      expect(await codeOf(producer.runCompleted())).toBe('ILLEGAL_STATE')
      expect(await typesIn(db)).toEqual(['RunStarted'])
    }))

  test('L25: a producer’s events are always consistent, for any sequence of calls', () =>
    withDb(async db => {
      const asks: readonly ((producer: Producer) => Promise<unknown>)[] = [
        p => p.runQueued(),
        p => p.runStarted(),
        p => p.pause(),
        p => p.resume(),
        p => p.runCompleted(),
        p => p.runFailed('x'),
        p => p.runCancelled(),
        p => p.stepStarted('a'),
        p => p.stepCompleted('a'),
        p => p.stepFailed('a', 'x'),
        p => p.stepSkipped('a'),
        p => p.emit('Noted'),
      ]
      for (let seed = 0; seed < 60; seed++) {
        const producer = producerOf(db, { runId: `run-${seed}`, onInvalid: seed % 2 === 0 ? 'stop' : 'fail' })
        let random = seed + 1
        if (seed % 3 > 0) await producer.runStarted()
        for (let i = 0; i < 12; i++) {
          random = (random * 48_271) % 2_147_483_647
          await asks[random % asks.length](producer).catch((error: unknown) => {
            if (!(error instanceof AnnalsError)) throw error
          })
        }
        const snapshot = await db.ledger.getSnapshot(`run-${seed}`)
        if (snapshot !== null) expect(snapshot.consistency, `seed ${seed}`).toBe('CONSISTENT')
      }
      expect(await db.ledger.alerts()).toEqual([])
    }))
})

describe('LD1: pauses', () => {
  test('LD1: a pause and its resumption have the number of their cycle, and other run events have 1', () =>
    withDb(async db => {
      const producer = producerOf(db)
      await producer.runStarted()
      for (let i = 0; i < 3; i++) {
        await producer.pause()
        await producer.resume()
      }
      await producer.runCompleted()
      const records = await db.ledger.fetchEvents(RUN)
      expect(records.map(record => record.logicalAttemptId)).toEqual([1, 1, 1, 2, 2, 3, 3, 1])
      expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'COMPLETED',
        consistency: 'CONSISTENT',
      })
    }))

  test('LD1: a restarted producer continues with the next cycle', () =>
    withDb(async db => {
      const first = producerOf(db)
      await first.runStarted()
      await first.pause()
      await first.resume()
      await first.pause()
      const second = producerOf(db)
      expect(await second.pause(), 'it is paused already').toMatchObject({ idempotent: true, runSeq: 4 })
      await second.resume()
      await producerOf(db).pause()
      const records = await db.ledger.fetchEvents(RUN)
      const cycles = records
        .slice(1)
        .map(({ eventType, logicalAttemptId }) => `${eventType} ${logicalAttemptId}`)
      expect(cycles).toEqual(['RunPaused 1', 'RunResumed 1', 'RunPaused 2', 'RunResumed 2', 'RunPaused 3'])
    }))
})

describe('stepFailed', () => {
  const THROWN: Readonly<Record<string, unknown>> = {
    undefined: undefined,
    'a text': 'no',
    'an object': { code: 7 },
    'an object that JSON can’t hold': { n: 1n },
    'an instance of a class': new Map([['a', 1]]),
    'an Error with a lone surrogate': new Error('\ud800'),
    'an Error without a name': Object.assign(new Error('x'), { name: undefined }),
    'an Error that is too long': new Error('x'.repeat(2 * 1024 * 1024)),
  }

  test.each(Object.entries(THROWN))('L14: accepts %s as the error', (_, thrown) =>
    withDb(async db => {
      const producer = producerOf(db)
      await producer.runStarted()
      await producer.stepStarted('a')
      await producer.stepFailed('a', thrown)
      const { steps } = await db.ledger.projectSnapshot(RUN)
      expect(steps[0].status).toBe('FAILED')
      expect(steps[0].error).toBeDefined()
    }),
  )
})

test('createProducer refuses missing or invalid options', () =>
  withDb(async db => {
    for (const wrong of [{ store: undefined }, { registry: {} }, { onInvalid: 'explode' }]) {
      expect(() => producerOf(db, wrong as never)).toThrow(
        expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
      )
    }
  }))
