import { expect } from 'vitest'
import { deriveIdempotencyKey, type RunEventWrite } from '../../index.ts'
import { bad, refused } from '../annals-suite/suite.ts'
import { newEvent, RUN, RUN_EVENTS, STEP_EVENTS } from './events.ts'
import type { LedgerSuite } from './suite.ts'

const REQUIRED = [
  'eventId',
  'eventType',
  'runId',
  'tenantId',
  'projectId',
  'environmentId',
  'planId',
  'planVersion',
  'engineAttemptId',
  'logicalAttemptId',
  'idempotencyKey',
  'emittedAt',
] as const
const TEXTS = [
  'eventType',
  'runId',
  'tenantId',
  'projectId',
  'environmentId',
  'planId',
  'planVersion',
] as const

/** A valid event with these fields replaced. Its key stays unchanged, because no key can match invalid fields. */
function faulty(fields: Readonly<Record<string, unknown>>): RunEventWrite {
  return bad({ ...newEvent({ eventType: 'Noted', stepId: 'fetch' }), ...fields })
}

/** L1–L3, L11–L16, L20, LD6, LD7, LD9, LD10: the fields of an event, and their validation. */
export function testEnvelope(suite: LedgerSuite): void {
  suite.each(
    'L1, LD9: %s is not accepted from the caller',
    [['runSeq'], ['persistedAt'], ['occurredAt'], ['colour']],
    async (ledger, [field]) => {
      const event = bad<RunEventWrite>({ ...newEvent(), [field]: 1 })
      const { details } = await refused(ledger.appendEvent(event), 'INVALID_ENVELOPE')
      expect(details).toMatchObject({ field })
      expect(await ledger.fetchEvents(RUN)).toEqual([])
    },
  )

  suite.holds('L2: the result of an append has exactly five fields', async ledger => {
    const event = newEvent()
    const result = await ledger.appendEvent(event)
    expect(result).toEqual({
      eventId: event.eventId,
      runSeq: 1,
      persistedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,}Z$/),
      idempotent: false,
      persisted: true,
    })
  })

  suite.holds('L3: a record is the event that was written, plus runSeq and persistedAt', async ledger => {
    const event = newEvent({
      eventType: 'StepFailed',
      stepId: 'Schritt ä 🚀',
      logicalAttemptId: 3,
      engineAttemptId: 7,
      payload: { error: { code: 'E', nested: [1, null, true, 'x', { ключ: -0.5 }] }, empty: {} },
    })
    const { runSeq, persistedAt } = await ledger.appendEvent(event)
    expect(await ledger.fetchEvents(RUN)).toEqual([{ ...event, runSeq, persistedAt }])
  })

  suite.holds(
    'L11: the envelope refuses occurredAt, and the payload accepts sourceOccurredAt',
    async ledger => {
      const payload = { sourceOccurredAt: '1999-01-01T00:00:00Z' }
      await ledger.appendEvent(newEvent({ payload }))
      expect((await ledger.fetchEvents(RUN))[0].payload).toEqual(payload)
    },
  )

  suite.each(
    'L12: an event without %s is refused',
    REQUIRED.map(field => [field] as const),
    async (ledger, [field]) => {
      const { [field]: _, ...rest } = newEvent({ eventType: 'StepStarted', stepId: 'fetch' })
      const error = await refused(ledger.appendEvent(bad(rest)), 'INVALID_ENVELOPE')
      expect(error.details).toMatchObject({ field })
    },
  )

  suite.each(
    'L12: %s is an integer, 1 or more',
    [['engineAttemptId'], ['logicalAttemptId']],
    async (ledger, [field]) => {
      for (const value of [0, -1, 1.5, 2 ** 53, '1', null, true, [1]]) {
        const attempt = ledger.appendEvent(faulty({ [field]: value }))
        const { details } = await refused(attempt, 'INVALID_ENVELOPE', `${field}: ${JSON.stringify(value)}`)
        expect(details).toMatchObject({ field })
      }
      const event = newEvent({ eventType: 'Noted', [field]: Number.MAX_SAFE_INTEGER })
      expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
    },
  )

  suite.each(
    'L13: %s carries a stepId that is not empty',
    STEP_EVENTS.map(type => [type] as const),
    async (ledger, [eventType]) => {
      for (const step of [{}, { stepId: '' }, { stepId: null }, { stepId: 7 }]) {
        const event = bad<RunEventWrite>({ ...newEvent({ eventType: 'Noted' }), eventType, ...step })
        const { details } = await refused(ledger.appendEvent(event), 'INVALID_ENVELOPE', JSON.stringify(step))
        expect(details).toMatchObject({ field: 'stepId' })
      }
      const event = newEvent({ eventType, stepId: 'fetch' })
      expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
    },
  )

  suite.each(
    'L13: %s carries no stepId',
    RUN_EVENTS.map(type => [type] as const),
    async (ledger, [eventType]) => {
      const event = { ...newEvent({ eventType }), stepId: 'fetch' }
      const { details } = await refused(ledger.appendEvent(event), 'INVALID_ENVELOPE')
      expect(details).toMatchObject({ field: 'stepId' })
    },
  )

  suite.holds('L14: an absent payload stays absent, and an empty one stays empty', async ledger => {
    await ledger.appendEvent(newEvent())
    await ledger.appendEvent(newEvent({ eventType: 'RunPaused', payload: {} }))
    const [without, empty] = await ledger.fetchEvents(RUN)
    expect(Object.hasOwn(without, 'payload')).toBe(false)
    expect(empty.payload).toEqual({})
  })

  suite.holds('L15: admission control can send RunQueued in the same envelope', async ledger => {
    const event = newEvent({ eventType: 'RunQueued', payload: { queue: 'nightly' } })
    expect(await ledger.appendEvent(event)).toMatchObject({ runSeq: 1, persisted: true })
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'PENDING', consistency: 'CONSISTENT' })
  })

  suite.holds('L16: an event of an unknown type is stored, returned, and changes no state', async ledger => {
    await ledger.appendEvent(newEvent())
    const before = await ledger.projectSnapshot(RUN)
    const event = newEvent({ eventType: 'ModelWarmedUp', payload: { ms: 12 } })
    const result = await ledger.appendEvent(event)
    expect(result).toMatchObject({ runSeq: 2, persisted: true })
    expect((await ledger.fetchEvents(RUN, { afterSeq: 1 }))[0]).toMatchObject(event)
    const { hash: _, ...after } = await ledger.projectSnapshot(RUN)
    const { hash: __, ...expected } = { ...before, lastEventSeq: 2 }
    expect(after).toEqual(expected)
    expect(await ledger.alerts({ runId: RUN })).toEqual([])
  })

  suite.each(
    'L20: | is refused in %s',
    [['runId'], ['eventType'], ['planId'], ['planVersion'], ['stepId']],
    async (ledger, [field]) => {
      for (const value of ['|', 'a|b', '|a', 'a|']) {
        const { details } = await refused(ledger.appendEvent(faulty({ [field]: value })), 'INVALID_ENVELOPE')
        expect(details).toMatchObject({ field })
      }
      const tenant = newEvent({ tenantId: 'a|b', projectId: '|', environmentId: '||' })
      expect(await ledger.appendEvent(tenant), 'others may').toMatchObject({ persisted: true })
    },
  )

  suite.holds(
    'LD6: an event of an unknown type may have a stepId, which is then part of its key',
    async ledger => {
      const fields = { eventType: 'StepHeartbeat', stepId: 'fetch' }
      const event = newEvent(fields)
      expect(event.idempotencyKey).not.toBe(deriveIdempotencyKey({ ...event, stepId: 'parse' }))
      await ledger.appendEvent(event)
      await ledger.appendEvent(newEvent({ ...fields, stepId: 'parse' }))
      await ledger.appendEvent(newEvent({ eventType: 'StepHeartbeat' }))
      expect((await ledger.fetchEvents(RUN)).map(({ stepId }) => stepId)).toEqual([
        'fetch',
        'parse',
        undefined,
      ])
      expect((await ledger.projectSnapshot(RUN)).steps).toEqual([])
    },
  )

  suite.holds('LD6: the stepId RUN is refused, and the stepId run is accepted', async ledger => {
    for (const eventType of ['StepStarted', 'StepHeartbeat']) {
      const event = { ...newEvent({ eventType: 'Noted' }), eventType, stepId: 'RUN' }
      const { details } = await refused(ledger.appendEvent(event), 'INVALID_ENVELOPE')
      expect(details).toMatchObject({ field: 'stepId' })
    }
    const event = newEvent({ eventType: 'StepStarted', stepId: 'run' })
    expect(await ledger.appendEvent(event)).toMatchObject({ persisted: true })
  })

  suite.holds('LD7: an idempotency key that does not match the event is refused', async ledger => {
    const event = newEvent()
    const { idempotencyKey } = event
    const others = [
      newEvent({ runId: 'run-2' }).idempotencyKey,
      newEvent({ logicalAttemptId: 2 }).idempotencyKey,
      idempotencyKey.toUpperCase(),
      ` ${idempotencyKey}`,
      idempotencyKey.slice(1),
      'x',
    ]
    for (const other of others) {
      await refused(
        ledger.appendEvent({ ...event, idempotencyKey: other }),
        'IDEMPOTENCY_KEY_MISMATCH',
        other,
      )
    }
    expect(await ledger.fetchEvents(RUN)).toEqual([])
  })

  suite.each(
    'LD9: %s is a non-empty string without U+0000 and lone surrogates',
    [...TEXTS, 'stepId'].map(field => [field] as const),
    async (ledger, [field]) => {
      for (const value of ['', 'a\0b', '\ud800', 'a\udc00b', 7, null, ['a'], { a: 1 }]) {
        const attempt = ledger.appendEvent(faulty({ [field]: value }))
        const { details } = await refused(attempt, 'INVALID_ENVELOPE', `${field}: ${JSON.stringify(value)}`)
        expect(details).toMatchObject({ field })
      }
    },
  )

  suite.holds('LD9: an empty idempotency key is INVALID_ENVELOPE, not a mismatch', async ledger => {
    for (const idempotencyKey of ['', 'a\0b', '\ud800', null, 7]) {
      const { details } = await refused(ledger.appendEvent(faulty({ idempotencyKey })), 'INVALID_ENVELOPE')
      expect(details).toMatchObject({ field: 'idempotencyKey' })
    }
  })

  suite.holds(
    'LD9, L12: eventId is a UUID v4 in either letter case, and is stored verbatim',
    async ledger => {
      for (const eventId of [
        '6ba7b810-9dad-11d1-80b4-00c04fd430c8',
        '886313e1-3b8a-5372-9b90-0c9aee199e5d',
        '7c9e6679-7425-40de-c44b-e07fc1f90ae7',
        '7c9e6679742540de944be07fc1f90ae7',
        '{7c9e6679-7425-40de-944b-e07fc1f90ae7}',
        ' 7c9e6679-7425-40de-944b-e07fc1f90ae7',
        '7c9e6679-7425-40de-944b-e07fc1f90ae7\n',
        '',
        null,
        7,
      ]) {
        const { details } = await refused(ledger.appendEvent(faulty({ eventId })), 'INVALID_ENVELOPE')
        expect(details).toMatchObject({ field: 'eventId' })
      }
      const eventId = '7C9E6679-7425-40DE-944B-e07fc1f90ae7'
      expect(await ledger.appendEvent(newEvent({ eventId }))).toMatchObject({ eventId })
      expect((await ledger.fetchEvents(RUN))[0].eventId).toBe(eventId)
    },
  )

  suite.holds('LD9: a payload is a JSON object', async ledger => {
    for (const payload of [null, 'x', 7, true, [], [{}]]) {
      const { details } = await refused(ledger.appendEvent(faulty({ payload })), 'INVALID_ENVELOPE')
      expect(details).toMatchObject({ field: 'payload' })
    }
  })

  suite.holds('LD9: a payload may have the key __proto__, and U+0000 in its strings', async ledger => {
    const text = '{"__proto__":{"polluted":true},"constructor":1,"n\\u0000l":"\\u0000"}'
    await ledger.appendEvent(newEvent({ payload: JSON.parse(text) }))
    const [{ payload }] = await ledger.fetchEvents(RUN)
    expect(Object.keys(payload ?? {}).sort()).toEqual(['__proto__', 'constructor', 'n\0l'])
    expect(JSON.parse(JSON.stringify(payload))).toEqual(JSON.parse(text))
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })

  suite.holds('LD10: emittedAt is RFC 3339 in UTC, and is stored verbatim', async ledger => {
    const good = [
      '2024-02-29T23:59:59Z',
      '0000-01-01T00:00:00Z',
      '9999-12-31T23:59:59.999999999999Z',
      '2025-06-15T15:06:40.5+00:00',
      '2025-06-15T15:06:40.000Z',
    ]
    for (const [i, emittedAt] of good.entries()) {
      await ledger.appendEvent(newEvent({ eventType: `Noted${i}`, emittedAt }))
    }
    expect((await ledger.fetchEvents(RUN)).map(({ emittedAt }) => emittedAt)).toEqual(good)
    for (const emittedAt of [
      '2023-02-29T00:00:00Z',
      '2025-06-31T00:00:00Z',
      '2025-13-01T00:00:00Z',
      '2025-06-15T24:00:00Z',
      '2025-06-15T23:59:60Z',
      '2025-06-15t15:06:40Z',
      '2025-06-15T15:06:40z',
      '2025-06-15 15:06:40Z',
      '2025-06-15T15:06:40',
      '2025-06-15T15:06:40+01:00',
      '2025-06-15T15:06:40-00:00',
      '2025-06-15T15:06:40.Z',
      '2025-06-15',
      ' 2025-06-15T15:06:40Z',
      '2025-06-15T15:06:40Z\n',
      '',
      1_750_000_000_000,
      null,
    ]) {
      const attempt = ledger.appendEvent(faulty({ emittedAt }))
      const { details } = await refused(attempt, 'INVALID_ENVELOPE', JSON.stringify(emittedAt))
      expect(details).toMatchObject({ field: 'emittedAt' })
    }
  })
}
