import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { contextOver, scopeOf } from '../../test/ledger/memory-ledger.ts'
import { open } from '../annals.ts'
import { Database } from '../engine/database.ts'
import { pages } from '../engine/pages.ts'
import type { Operation } from '../engine/storage.ts'
import { newEvent, RUN } from '../testing/ledger-suite/events.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import type { LedgerContext } from './context.ts'
import { Ledger } from './ledger.ts'
import { Projector } from './projector.ts'
import type { LedgerAlert, RunEventWrite } from './run-events.ts'
import { chunksIn, placeOf, RUN_STATE_KEY } from './stored.ts'

function eventOf(eventType: string, fields: Partial<RunEventWrite> = {}): RunEventWrite {
  return newEvent({ eventType, ...fields })
}

function setUp(): { context: LedgerContext; ledger: Ledger; projector: Projector } {
  const context = contextOver(new Database(new ReferenceStorage()))
  // A read-only ledger has no projector of its own.
  return { context, ledger: new Ledger(context, true), projector: new Projector(context) }
}

const MIXED: readonly RunEventWrite[] = [
  eventOf('RunPaused'),
  eventOf('RunStarted'),
  eventOf('StepStarted', { stepId: 'a' }),
  eventOf('StepFailed', { stepId: 'a', payload: { error: { deep: [1] } } }),
  eventOf('StepSkipped', { stepId: 'a' }),
  eventOf('StepStarted', { stepId: 'a', logicalAttemptId: 2 }),
  eventOf('RunCompleted'),
  eventOf('RunFailed'),
]

describe('the projector', () => {
  test('L30, L31: rebuilding a deleted state gives the same state and raises no alert twice', async () => {
    const { context, ledger, projector } = setUp()
    const { database } = context
    await ledger.appendEvents(MIXED)
    await projector.project(scopeOf(RUN))
    const before = JSON.stringify([await ledger.getSnapshot(RUN), await ledger.alerts()])
    expect(await ledger.alerts()).toHaveLength(3)

    const scope = scopeOf(RUN)
    const operations: Operation[] = [{ op: 'delete', ...placeOf(scope, RUN_STATE_KEY) }]
    for await (const page of pages(database, chunksIn(scope))) {
      for (const { key } of page) operations.push({ op: 'delete', ...placeOf(scope, key) })
    }
    expect(operations).toHaveLength(2)
    await database.write(operations)
    await new Projector(context).project(scopeOf(RUN))
    expect(JSON.stringify([await ledger.getSnapshot(RUN), await ledger.alerts()])).toBe(before)
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: MIXED.length })
  })

  test('L31: gives the same state wherever it was interrupted', async () => {
    const states: unknown[] = []
    for (let cut = 0; cut <= MIXED.length; cut++) {
      const { ledger, projector } = setUp()
      if (cut > 0) await ledger.appendEvents(MIXED.slice(0, cut))
      await projector.project(scopeOf(RUN))
      await ledger.appendEvents(MIXED)
      await Promise.all([projector.project(scopeOf(RUN)), projector.project(scopeOf(RUN))])
      const snapshot = await ledger.getSnapshot(RUN)
      const alerts = await ledger.alerts()
      states.push({
        status: snapshot?.status,
        steps: snapshot?.steps.map(({ status }) => status),
        ids: idsOf(alerts),
      })
    }
    expect(new Set(states.map(state => JSON.stringify(state))).size).toBe(1)
    expect(states[0]).toMatchObject({ status: 'COMPLETED', steps: ['RUNNING'] })
  })

  test('L31: projects a run that is too long for one commit', async () => {
    const { ledger, projector, context } = setUp()
    const events = Array.from({ length: 2_500 }, (_, i) => eventOf('RunResumed', { logicalAttemptId: i + 1 }))
    await ledger.appendEvents(events)
    await projector.project(scopeOf(RUN))
    expect(await ledger.getSnapshot(RUN)).toMatchObject({ lastEventSeq: 2_500, invalidEvents: 2_500 })
    expect(await ledger.alerts({ runId: RUN })).toHaveLength(2_500)
    expect(context.metrics).toMatchObject({ projected: 2_500, alerts: 2_500 })
  })

  test('LD13: a read-only store projects without writing, and refuses appends', async () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-projector-'))
    try {
      const writer = await open({ path })
      await writer.ledger.appendEvents(MIXED)
      const expected = await writer.ledger.projectSnapshot(RUN)
      await writer.close()
      const reader = await open({ path, readOnly: true })
      expect(await reader.ledger.projectSnapshot(RUN)).toEqual(expected)
      expect(await reader.ledger.getSnapshot(RUN)).toEqual(expected)
      expect(await reader.ledger.verifyRun(RUN)).toEqual({ isValid: true, events: MIXED.length })
      expect(await reader.ledger.alerts()).toHaveLength(3)
      await expect(reader.ledger.appendEvent(eventOf('Noted'))).rejects.toMatchObject({ code: 'READ_ONLY' })
      await reader.close()
    } finally {
      rmSync(path, { recursive: true, force: true })
    }
  })

  test('L29, L30: records that a dead process left unprojected are projected when the store is opened', async () => {
    const path = mkdtempSync(join(tmpdir(), 'annals-projector-'))
    try {
      const first = await open({ path })
      // The store is closed during the projector's pause, so these records are not projected yet.
      await first.ledger.appendEvents(MIXED)
      await first.close()
      const db = await open({ path })
      const runs = db.runs
      for (let status = ''; status !== 'Completed'; status = (await runs.get(RUN))?.status ?? '') {
        await new Promise(resolve => setImmediate(resolve))
      }
      expect(await db.ledger.alerts()).toHaveLength(3)
      await db.close()
    } finally {
      rmSync(path, { recursive: true, force: true })
    }
  })
})

function idsOf(alerts: readonly LedgerAlert[]): string[] {
  return alerts.map(({ eventId }) => eventId)
}
