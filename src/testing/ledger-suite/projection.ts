import { createHash } from 'node:crypto'
import { expect } from 'vitest'
import { type RunSnapshot, reduce } from '../../index.ts'
import { expectFrozen, times } from '../annals-suite/suite.ts'
import { newEvent, PLAN, probe, RUN } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** The canonical form of plain JSON with ASCII keys. It is independent of the ledger's encoder, which it checks. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const parts = Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, part]) => `${JSON.stringify(key)}:${canonical(part)}`)
  return `{${parts.join(',')}}`
}

/** L27–L29, L31, L32, LD13: the snapshot that is projected from the records. */
export function testProjection(suite: LedgerSuite): void {
  suite.holds(
    'LD13, L27, L28: a snapshot has every field, with the ledger’s times',
    async (ledger, { clock }) => {
      const at: string[] = []
      for (const event of [
        newEvent({ eventType: 'RunQueued' }),
        newEvent({ eventType: 'RunStarted' }),
        newEvent({ eventType: 'StepStarted', stepId: 'b' }),
        newEvent({ eventType: 'StepSkipped', stepId: 'a' }),
        newEvent({
          eventType: 'StepFailed',
          stepId: 'b',
          engineAttemptId: 3,
          payload: { error: { why: 'é' }, x: 1 },
        }),
        newEvent({ eventType: 'RunFailed', payload: { error: 'b failed' } }),
      ]) {
        clock.advance(250)
        at.push((await ledger.appendEvent(event)).persistedAt)
      }
      const { hash, ...rest } = await ledger.projectSnapshot(RUN)
      expect(rest).toEqual({
        runId: RUN,
        ...PLAN,
        status: 'FAILED',
        lastEventSeq: 6,
        steps: [
          {
            stepId: 'b',
            status: 'FAILED',
            logicalAttemptId: 1,
            engineAttemptId: 3,
            startedAt: at[2],
            completedAt: at[4],
            error: { why: 'é' },
            attempts: [],
          },
          {
            stepId: 'a',
            status: 'SKIPPED',
            logicalAttemptId: 1,
            engineAttemptId: 1,
            completedAt: at[3],
            attempts: [],
          },
        ],
        startedAt: at[1],
        completedAt: at[5],
        totalDurationMs: 1_000,
        consistency: 'CONSISTENT',
        invalidEvents: 0,
      })
      expect(hash).toBe(createHash('sha256').update(canonical(rest)).digest('hex'))
    },
    ['clock'],
  )

  suite.each(
    'LD13: a run that is %s has a completedAt',
    [
      ['COMPLETED', 'RunCompleted'],
      ['FAILED', 'RunFailed'],
      ['CANCELLED', 'RunCancelled'],
    ],
    async (ledger, [status, eventType]) => {
      const records = await tell(ledger, ['RunStarted', eventType])
      const { completedAt, startedAt, totalDurationMs } = await ledger.projectSnapshot(RUN)
      expect({ startedAt, completedAt }).toEqual({
        startedAt: records[0].persistedAt,
        completedAt: records[1].persistedAt,
      })
      expect(totalDurationMs, status).toBe(
        Date.parse(records[1].persistedAt) - Date.parse(records[0].persistedAt),
      )
    },
  )

  suite.holds('LD13: a snapshot has no start, end, duration or error before they exist', async ledger => {
    await tell(ledger, ['RunQueued', 'RunCancelled'])
    const snapshot = await ledger.projectSnapshot(RUN)
    expect(Object.keys(snapshot)).not.toContain('startedAt')
    expect(Object.keys(snapshot)).not.toContain('totalDurationMs')
    expect(snapshot.completedAt).toBeDefined()
    await tell(ledger, ['RunStarted', 'StepStarted fetch'], { runId: 'run-2' })
    const [step] = (await ledger.projectSnapshot('run-2')).steps
    expect(Object.keys(step).sort()).toEqual([
      'attempts',
      'engineAttemptId',
      'logicalAttemptId',
      'startedAt',
      'status',
      'stepId',
    ])
  })

  suite.holds('LD13: a snapshot is deeply frozen', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a'])
    await tell(ledger, ['StepFailed a'], { payload: { error: { list: [{ n: 1 }] } } })
    await tell(ledger, ['StepStarted a 2'])
    expectFrozen(await ledger.projectSnapshot(RUN))
    expectFrozen(await ledger.getSnapshot(RUN))
  })

  suite.holds('LD13: steps are in the order of their first events', async ledger => {
    const names = ['z', '10', 'ä', '2', 'a', '🚀', '__proto__', 'constructor']
    await tell(ledger, ['RunStarted'])
    for (const stepId of names) await ledger.appendEvent(newEvent({ eventType: 'StepStarted', stepId }))
    await tell(ledger, ['StepFailed z', 'StepStarted z 2'])
    expect((await ledger.projectSnapshot(RUN)).steps.map(({ stepId }) => stepId)).toEqual(names)
  })

  suite.holds('LD13: projectSnapshot includes every acknowledged record', async ledger => {
    await tell(ledger, ['RunStarted'])
    for (let i = 0; i < 30; i++) {
      const { runSeq } = await ledger.appendEvent(newEvent({ eventType: 'StepStarted', stepId: `s${i}` }))
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({ lastEventSeq: runSeq })
    }
  })

  suite.holds(
    'LD13: getSnapshot may lag, but is always the state of a prefix of the records, and catches up',
    async ledger => {
      const records = await tell(ledger, ['RunStarted', 'StepStarted a', 'StepCompleted a', 'RunCompleted'])
      const prefixes: (RunSnapshot | null)[] = []
      for (const record of records) prefixes.push(reduce(prefixes.at(-1), record))
      const last = await eventually(
        async () => {
          const snapshot = await ledger.getSnapshot(RUN)
          expect(prefixes).toContainEqual(snapshot)
          return snapshot
        },
        snapshot => snapshot?.lastEventSeq === 4,
      )
      expect(last).toEqual(await ledger.projectSnapshot(RUN))
    },
  )

  suite.holds('L31: reducing the records yourself gives the same snapshot, byte for byte', async ledger => {
    const texts = [
      'RunStarted',
      'StepStarted a',
      'Noted',
      'StepFailed a',
      'StepStarted a 2',
      'RunQueued',
      'RunPaused',
    ]
    const records = await tell(ledger, texts)
    let own: RunSnapshot | undefined
    for (const record of records) own = reduce(own, record)
    expect(JSON.stringify(await ledger.projectSnapshot(RUN))).toBe(JSON.stringify(own))
    for (const record of records) own = reduce(own, record)
    expect(JSON.stringify(own), 'duplicates are no-ops').toBe(
      JSON.stringify(await ledger.projectSnapshot(RUN)),
    )
  })

  suite.holds('L31: repeated projections, concurrent and sequential, change nothing', async ledger => {
    await tell(ledger, ['RunStarted', 'StepStarted a', 'RunStarted a'.slice(0, 10), 'RunCompleted'])
    const first = JSON.stringify(await ledger.projectSnapshot(RUN))
    const others = await Promise.all(times(20, () => ledger.projectSnapshot(RUN)))
    for (const other of others) expect(JSON.stringify(other)).toBe(first)
  })

  suite.holds(
    'L31: the snapshot is the same after reopening',
    async (ledger, given) => {
      await tell(ledger, ['RunStarted', 'StepStarted a', 'StepSkipped a', 'RunPaused'])
      const before = JSON.stringify(await ledger.projectSnapshot(RUN))
      const { ledger: again } = await given.reopen()
      expect(JSON.stringify(await again.projectSnapshot(RUN))).toBe(before)
      expect(JSON.stringify(await again.getSnapshot(RUN))).toBe(before)
    },
    ['reopen'],
  )

  suite.holds(
    'L31, L16: unknown types advance the watermark, in the middle of a run and at its end',
    async ledger => {
      await tell(ledger, [
        'Noted1',
        'RunStarted',
        'Noted2',
        'StepStarted a',
        'StepPolled a',
        'RunCompleted',
        'Noted3',
      ])
      expect(await ledger.projectSnapshot(RUN)).toMatchObject({
        status: 'COMPLETED',
        lastEventSeq: 7,
        invalidEvents: 0,
        steps: [{ stepId: 'a', status: 'RUNNING' }],
      })
    },
  )

  suite.holds('LD4, LD13: a run with events of unknown types only has not begun', async ledger => {
    await tell(ledger, ['RunSubmitted', 'Noted'])
    const pending = { status: 'PENDING', lastEventSeq: 2, begun: false, consistency: 'CONSISTENT', steps: [] }
    const snapshot = await ledger.projectSnapshot(RUN)
    expect(snapshot).toMatchObject(pending)
    const { hash, ...rest } = snapshot
    expect(createHash('sha256').update(canonical(rest)).digest('hex')).toBe(hash)
    expect(await ledger.getSnapshot(RUN)).toEqual(snapshot)
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 2 })
    // The first event of a known type begins the run, even if it is invalid.
    await ledger.appendEvent(probe('RunPaused'))
    const begun = await ledger.projectSnapshot(RUN)
    expect(begun).toMatchObject({ status: 'PENDING', invalidEvents: 1 })
    expect(Object.keys(begun)).not.toContain('begun')
    await ledger.appendEvent(probe('RunQueued'))
    expect(await ledger.projectSnapshot(RUN), 'RunQueued opens a run that has not begun').toMatchObject({
      invalidEvents: 2,
    })
  })

  suite.holds(
    'L16, LD13: a run that has not begun is still in that state after reopening',
    async (ledger, given) => {
      await tell(ledger, ['RunSubmitted'])
      await ledger.projectSnapshot(RUN)
      const { ledger: again } = await given.reopen()
      expect(await again.getSnapshot(RUN)).toMatchObject({ begun: false })
      await tell(again, ['RunQueued'])
      expect(await again.projectSnapshot(RUN)).toMatchObject({ status: 'PENDING', invalidEvents: 0 })
    },
    ['reopen'],
  )

  suite.holds('L32: a consumer with its own checkpoint changes nothing in the ledger', async ledger => {
    const records = await tell(ledger, ['RunStarted', 'StepStarted a'])
    const before = JSON.stringify([await ledger.projectSnapshot(RUN), await ledger.fetchEvents(RUN)])
    // A stream that is not persisted: the consumer numbers these events itself, and nothing appends them.
    const unsent = ['StepFailed', 'RunStarted', 'RunCompleted'].map((eventType, i) => ({
      ...records[1],
      eventType,
      runSeq: 3 + i,
      persistedAt: records[1].persistedAt,
    }))
    const follow = (): string => {
      let state: RunSnapshot | undefined
      for (const record of [...records, ...unsent]) state = reduce(state, record)
      return JSON.stringify(state)
    }
    expect(follow()).toBe(follow())
    expect(JSON.parse(follow())).toMatchObject({ status: 'COMPLETED', lastEventSeq: 5 })
    expect(JSON.stringify([await ledger.projectSnapshot(RUN), await ledger.fetchEvents(RUN)])).toBe(before)
    expect(await ledger.alerts()).toEqual([])
  })
}
