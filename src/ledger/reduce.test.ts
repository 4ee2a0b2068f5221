import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Annals, open } from '../annals.ts'
import { canonicalJson } from '../core/canonical-json.ts'
import { newEvent, RUN_EVENTS, STEP_EVENTS, said } from '../testing/ledger-suite/events.ts'
import { factOf, Reducer, reduce } from './reduce.ts'
import type { RunEventRecord, RunEventWrite, RunSnapshot } from './run-events.ts'
import { snapshotOf } from './snapshot.ts'

type Fields = Partial<RunEventWrite> & { readonly eventType: string }

function recordOf(fields: Partial<RunEventWrite>, runSeq: number): RunEventRecord {
  const persistedAt = new Date(1_750_000_000_000 + runSeq * 1_000).toISOString()
  return { ...newEvent(fields), runSeq, persistedAt }
}

/** Makes records from short texts: `StepStarted a 2` starts the second attempt of step a. */
function recordsOf(...texts: string[]): RunEventRecord[] {
  return texts.map((text, i) => recordOf(said(text), i + 1))
}

function stepByStep(records: readonly RunEventRecord[]): RunSnapshot {
  let snapshot: RunSnapshot | null = null
  for (const record of records) snapshot = reduce(snapshot, record)
  if (snapshot === null) throw new Error('without records there is nothing')
  return snapshot
}

/** The snapshot without the fields that even an invalid event changes. */
function stateOf(snapshot: RunSnapshot): Partial<RunSnapshot> {
  const {
    hash: _,
    lastEventSeq: __,
    invalidEvents: ___,
    consistency: ____,
    begun: _____,
    ...state
  } = snapshot
  return state
}

function atOnce(records: readonly RunEventRecord[]): RunSnapshot {
  const reducer = new Reducer()
  for (const record of records) reducer.add(factOf(record))
  if (reducer.run === undefined) throw new Error('without records there is nothing')
  return snapshotOf(records[0], reducer.run, reducer.steps.all)
}

/** Any event, valid or not. */
const fieldsArbitrary: fc.Arbitrary<Fields> = fc.oneof(
  fc.record({ eventType: fc.constantFrom(...RUN_EVENTS), logicalAttemptId: fc.integer({ min: 1, max: 3 }) }),
  fc.record({
    eventType: fc.constantFrom(...STEP_EVENTS),
    stepId: fc.constantFrom('a', 'b', 'é'),
    logicalAttemptId: fc.integer({ min: 1, max: 3 }),
    engineAttemptId: fc.integer({ min: 1, max: 2 }),
    payload: fc.constantFrom(
      {},
      { error: 'x' },
      { error: { code: 1, deep: [{ n: null }] } },
      { error: null },
    ),
  }),
  fc.record({ eventType: fc.constantFrom('Noted', 'StepPolled'), stepId: fc.constantFrom('a', 'c') }),
)
/** First events that make valid runs more frequent: none, a start, or an unknown event before the queueing. */
const BEGINNINGS: readonly (readonly Fields[])[] = [
  [],
  [{ eventType: 'RunStarted' }],
  [{ eventType: 'RunSubmitted' }, { eventType: 'RunQueued' }],
]
const runsArbitrary = fc
  .tuple(fc.constantFrom(...BEGINNINGS), fc.array(fieldsArbitrary, { minLength: 1, maxLength: 25 }))
  .map(([beginning, rest]) => [...beginning, ...rest])

const seqs = (fields: readonly Fields[]): RunEventRecord[] => fields.map((each, i) => recordOf(each, i + 1))

describe('reduce', () => {
  test('L31: the same records give the same bytes, one by one or all at once', () => {
    fc.assert(
      fc.property(runsArbitrary, fields => {
        const records = seqs(fields)
        const copies = structuredClone(records)
        const one = canonicalJson(stepByStep(records))
        expect(canonicalJson(atOnce(records))).toBe(one)
        expect(canonicalJson(stepByStep(copies))).toBe(one)
        expect(JSON.stringify(stepByStep(records))).toBe(JSON.stringify(atOnce(copies)))
      }),
    )
  })

  test('L31: duplicates are no-ops at any position', () => {
    fc.assert(
      fc.property(runsArbitrary, fc.array(fc.nat(), { maxLength: 10 }), (fields, again) => {
        const records = seqs(fields)
        const once = stepByStep(records)
        const noisy = records.flatMap((record, i) => [record, ...again.map(n => records[n % (i + 1)])])
        expect(stepByStep(noisy)).toEqual(once)
      }),
    )
  })

  test('L16, L31: unknown events, including a run’s first, change only the watermark', () => {
    const unknown = ['Noted', 'StepPolled', 'RunSubmitted']
    const unknownFirst = fc.array(fc.constantFrom(...unknown), { maxLength: 3 })
    fc.assert(
      fc.property(unknownFirst, runsArbitrary, (first, rest) => {
        const records = seqs([...first.map(eventType => ({ eventType })), ...rest])
        const { hash: _, lastEventSeq, ...all } = stepByStep(records)
        expect(lastEventSeq).toBe(records.length)
        const known = records.filter(({ eventType }) => !unknown.includes(eventType))
        if (known.length > 0) {
          const { hash: __, lastEventSeq: ___, ...expected } = stepByStep(known)
          expect(all).toEqual(expected)
        } else {
          expect(all).toMatchObject({ begun: false, status: 'PENDING', steps: [], invalidEvents: 0 })
        }
      }),
    )
  })

  test('L29: an invalid event changes only the count, the consistency and the watermark', () => {
    fc.assert(
      fc.property(runsArbitrary, fields => {
        let before: RunSnapshot | null = null
        for (const record of seqs(fields)) {
          const after: RunSnapshot = reduce(before, record)
          if (before !== null && after.invalidEvents > before.invalidEvents) {
            expect(after.invalidEvents).toBe(before.invalidEvents + 1)
            expect(after.consistency).toBe('INCONSISTENT')
            expect(stateOf(after)).toEqual(stateOf(before))
          }
          before = after
        }
      }),
    )
  })

  test('L27: a terminal status is final', () => {
    fc.assert(
      fc.property(
        runsArbitrary,
        fc.constantFrom('RunCompleted', 'RunFailed', 'RunCancelled'),
        (rest, end) => {
          const records = seqs([{ eventType: 'RunStarted' }, { eventType: end }, ...rest])
          const { status, completedAt } = stepByStep(records.slice(0, 2))
          expect(stepByStep(records)).toMatchObject({ status, completedAt })
        },
      ),
    )
  })

  test('L8: a consumer survives gaps in runSeq', () => {
    const records = recordsOf('RunStarted', 'StepStarted a', 'StepCompleted a', 'RunCompleted')
    const gapped = records.map((record, i) => ({ ...record, runSeq: [3, 7, 8, 1_000][i] }))
    const { hash: _, lastEventSeq, ...state } = stepByStep(gapped)
    expect(lastEventSeq).toBe(1_000)
    expect(stepByStep(records)).toMatchObject(state)
    expect(atOnce(gapped)).toEqual(stepByStep(gapped))
  })

  test('L10: times do not affect the order', () => {
    const [start, end] = recordsOf('RunStarted', 'RunCompleted')
    const snapshot = stepByStep([start, { ...end, emittedAt: '1999-01-01T00:00:00Z' }])
    expect(snapshot).toMatchObject({ status: 'COMPLETED', consistency: 'CONSISTENT' })
  })

  test('LD13: reduce neither changes nor freezes its arguments', () => {
    const payload = { error: { list: [1] } }
    const records = recordsOf('RunStarted', 'StepStarted a')
    const failed = { ...recordOf({ eventType: 'StepFailed', stepId: 'a' }, 3), payload }
    const snapshot = stepByStep([...records, failed])
    expect(Object.isFrozen(payload.error) || Object.isFrozen(payload.error.list)).toBe(false)
    payload.error.list.push(2)
    expect(snapshot.steps[0].error).toEqual({ list: [1] })
    expect(Object.isFrozen(snapshot.steps[0].error)).toBe(true)
  })

  test('LD13: a snapshot that lists a step twice is refused', () => {
    const snapshot = stepByStep(recordsOf('RunStarted', 'StepStarted a'))
    const twice = { ...snapshot, steps: [snapshot.steps[0], snapshot.steps[0]] }
    const record = recordOf({ eventType: 'StepCompleted', stepId: 'a' }, 3)
    const refusal = { code: 'INVALID_ARGUMENT', details: { name: 'snapshot', stepId: 'a' } }
    expect(() => reduce(twice, record)).toThrow(expect.objectContaining(refusal))
  })

  test('LD13: an error of null is kept, and a missing error stays absent', () => {
    const start = recordsOf('RunStarted', 'StepStarted a')
    const failed = recordOf({ eventType: 'StepFailed', stepId: 'a' }, 3)
    expect(stepByStep([...start, { ...failed, payload: { error: null } }]).steps[0]).toMatchObject({
      error: null,
    })
    expect(Object.keys(stepByStep([...start, { ...failed, payload: {} }]).steps[0])).not.toContain('error')
  })

  test('LD13: a run of 20,000 steps, each with a large error, has a snapshot', () => {
    const reducer = new Reducer()
    const [started] = recordsOf('RunStarted')
    reducer.add(factOf(started))
    const error = 'x'.repeat(1_000)
    for (let i = 0; i < 20_000; i++) {
      const about = {
        persistedAt: started.persistedAt,
        stepId: `s${i}`,
        logicalAttemptId: 1,
        engineAttemptId: 1,
      }
      reducer.add({ ...about, runSeq: 2 * i + 2, eventType: 'StepStarted' })
      reducer.add({ ...about, runSeq: 2 * i + 3, eventType: 'StepFailed', error })
    }
    if (reducer.run === undefined) throw new Error('it began')
    const { steps, lastEventSeq } = snapshotOf(started, reducer.run, reducer.steps.all)
    expect(steps).toHaveLength(20_000)
    expect(lastEventSeq).toBe(40_001)
  })
})

async function withMemory<T>(work: (db: Annals) => Promise<T>): Promise<T> {
  const db = await open({ memory: true })
  try {
    return await work(db)
  } finally {
    await db.close()
  }
}

test('L31, LD13: the ledger’s snapshot equals the one reduced from its records, for any events', async () => {
  await withMemory(async db => {
    let runs = 0
    await fc.assert(
      fc.asyncProperty(runsArbitrary, fc.nat({ max: 25 }), async (fields, cut) => {
        const runId = `run-${runs++}`
        const events = fields.map(each => newEvent({ ...each, runId }))
        for (const [i, event] of events.entries()) {
          await db.ledger.appendEvent(event)
          // Projects in the middle, so that the rest is reduced from the stored state.
          if (i === cut) await db.ledger.projectSnapshot(runId)
        }
        const records = await db.ledger.fetchEvents(runId)
        const projected = JSON.stringify(await db.ledger.projectSnapshot(runId))
        expect(JSON.stringify(stepByStep(records))).toBe(projected)
        expect(JSON.stringify(atOnce(records))).toBe(projected)
        expect(JSON.stringify(await db.ledger.replaySnapshot(runId))).toBe(projected)
        const alerts = await db.ledger.alerts({ runId })
        expect(alerts).toHaveLength(stepByStep(records).invalidEvents)
        const half = Math.ceil(records.length / 2)
        const early = await db.ledger.replaySnapshot(runId, { atSeq: half })
        expect(early).toEqual(stepByStep(records.slice(0, half)))
        expect(await db.ledger.verifyRun(runId)).toEqual({ isValid: true, events: records.length })
      }),
      { numRuns: 60 },
    )
  })
})

test('L26, L29: validated appends accept exactly the events that the projector finds valid, for any events', async () => {
  const db = await open({ memory: true, ledger: { validateTransitions: true } })
  try {
    let runs = 0
    await fc.assert(
      fc.asyncProperty(runsArbitrary, async fields => {
        const runId = `run-${runs++}`
        let expected: RunSnapshot | null = null
        const rejected = new Set<string>()
        const known = new Set<string>()
        for (const event of fields.map(each => newEvent({ ...each, runId }))) {
          const { idempotencyKey } = event
          if (known.has(idempotencyKey)) continue
          const runSeq: number = (expected?.lastEventSeq ?? 0) + 1
          const trial = reduce(expected, { ...event, runSeq, persistedAt: '2025-01-01T00:00:00.000Z' })
          const isValid = !rejected.has(idempotencyKey) && trial.invalidEvents === 0
          const code = await db.ledger.appendEvent(event).then(
            () => undefined,
            (error: { code: string }) => error.code,
          )
          expect(code).toBe(isValid ? undefined : 'INVALID_TRANSITION')
          if (isValid) {
            expected = trial
            known.add(idempotencyKey)
          } else rejected.add(idempotencyKey)
        }
        if (expected !== null) {
          const { status, lastEventSeq } = expected
          expect(await db.ledger.projectSnapshot(runId)).toMatchObject({
            status,
            lastEventSeq,
            invalidEvents: 0,
          })
        }
      }),
      { numRuns: 60 },
    )
  } finally {
    await db.close()
  }
})

test('LD2, L26: validation can be turned on in the middle of any run', async () => {
  const path = mkdtempSync(join(tmpdir(), 'annals-layer-two-'))
  try {
    const first = await open({ path })
    for (const eventType of ['RunStarted', 'RunQueued'])
      await first.ledger.appendEvent(newEvent({ eventType }))
    await first.close()
    const db = await open({ path, ledger: { validateTransitions: true } })
    await expect(db.ledger.appendEvent(newEvent({ eventType: 'RunResumed' }))).rejects.toMatchObject({
      code: 'INVALID_TRANSITION',
    })
    expect(await db.ledger.appendEvent(newEvent({ eventType: 'RunPaused' }))).toMatchObject({ runSeq: 3 })
    expect(await db.ledger.projectSnapshot('run-1')).toMatchObject({ status: 'PAUSED', invalidEvents: 1 })
    await db.close()
  } finally {
    rmSync(path, { recursive: true, force: true })
  }
})
