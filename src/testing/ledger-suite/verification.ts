import { expect } from 'vitest'
import { times } from '../annals-suite/suite.ts'
import { newEvent, probe, RUN } from './events.ts'
import { eventually, type LedgerSuite, tell } from './suite.ts'

/** LD14: the records of a run are a hash chain. Tampering is tested beside the source of the ledger. */
export function testVerification(suite: LedgerSuite): void {
  suite.holds('LD14: a run verifies after each of its events, and after it is projected', async ledger => {
    for (const [i, text] of ['RunStarted', 'StepStarted a', 'RunQueued', 'Noted', 'RunCompleted'].entries()) {
      await tell(ledger, [text])
      expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: i + 1 })
    }
    await ledger.projectSnapshot(RUN)
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 5 })
  })

  suite.holds('LD14: a run verifies despite duplicates, refused events and other runs', async ledger => {
    const event = newEvent()
    await ledger.appendEvent(event)
    await ledger.appendEvent(event)
    await expect(ledger.appendEvent({ ...event, tenantId: 'other' })).rejects.toThrow()
    await ledger.appendEvent(newEvent({ runId: 'run-2' }))
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 1 })
    expect(await ledger.verifyRun('run-2')).toEqual({ isValid: true, events: 1 })
  })

  suite.holds('LD14: a run verifies during concurrent appends', async ledger => {
    await tell(ledger, ['RunStarted'])
    const writes = times(60, i => ledger.appendEvent(probe('StepStarted', `s${i}`)))
    await eventually(
      async () => {
        const report = await ledger.verifyRun(RUN)
        expect(report).toMatchObject({ isValid: true })
        return report.events
      },
      events => events === 61,
    )
    await Promise.all(writes)
  })

  suite.holds('LD14: a long run with payloads of every kind verifies', async ledger => {
    const payload = JSON.parse(
      '{"__proto__":1,"ключ":"значение 🚀","e\\u0301":[0.1,1e21,-5e-324,null,true,"\\u0000\\u2028"]}',
    )
    await ledger.appendEvents(
      times(2_500, i => newEvent({ eventType: 'Noted', logicalAttemptId: i + 1, payload })),
    )
    expect(await ledger.verifyRun(RUN)).toEqual({ isValid: true, events: 2_500 })
  })

  suite.holds(
    'LD14: a run verifies after reopening',
    async (ledger, given) => {
      await tell(ledger, ['RunStarted', 'StepStarted a', 'RunCompleted', 'StepFailed a'])
      await ledger.projectSnapshot(RUN)
      const { ledger: again } = await given.reopen()
      expect(await again.verifyRun(RUN)).toEqual({ isValid: true, events: 4 })
      await tell(again, ['Noted'])
      expect(await again.verifyRun(RUN)).toEqual({ isValid: true, events: 5 })
    },
    ['reopen'],
  )
}
