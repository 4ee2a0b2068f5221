import { describe, expect, test } from 'vitest'
import { type Annals, createProducer, open, type Producer } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { newEvent, PLAN } from './run-event.ts'

const RUN = 'run-1'

function replaying({ ledger }: Annals): Producer {
  return createProducer({ ...PLAN, store: ledger, registry: ledger.registry, runId: RUN, replay: true })
}

describe('L25, a producer with replay', () => {
  test('starts no step in a run that another program has ended', async () => {
    const db = await open({ memory: true })
    const first = replaying(db)
    await first.runStarted()
    await first.stepStarted('fetch')
    await db.ledger.appendEvent(newEvent(new Random(1), { runId: RUN, eventType: 'RunCancelled' }))

    const second = replaying(db)
    // Earlier calls are answered as duplicates, and a running step may still end, but no step may start.
    expect(await second.runStarted()).toMatchObject({ idempotent: true, runSeq: 1 })
    expect(await second.stepStarted('fetch')).toMatchObject({ idempotent: true, runSeq: 2 })
    expect(await second.stepCompleted('fetch')).toMatchObject({ persisted: true, runSeq: 4 })
    await expect(second.stepStarted('parse')).rejects.toMatchObject({
      code: 'INVALID_TRANSITION',
      details: { attemptedEventType: 'StepStarted' },
    })
    expect(await db.ledger.fetchEvents(RUN)).toHaveLength(4)
    expect(await db.ledger.projectSnapshot(RUN)).toMatchObject({
      status: 'CANCELLED',
      consistency: 'CONSISTENT',
    })
    await db.close()
  })

  test('does not send an event that the stored records make invalid, if the program takes another path', async () => {
    const db = await open({ memory: true })
    const first = replaying(db)
    await first.runStarted()
    await first.stepStarted('fetch')
    await first.stepCompleted('fetch')
    await first.runCompleted()
    const second = replaying(db)
    await second.runStarted()
    await expect(second.stepStarted('another')).rejects.toMatchObject({ code: 'INVALID_TRANSITION' })
    await expect(second.stepFailed('fetch', 'late')).rejects.toMatchObject({ code: 'INVALID_TRANSITION' })
    expect(await db.ledger.fetchEvents(RUN)).toHaveLength(4)
    await db.close()
  })

  test('counts attempts and pauses from the beginning of the program', async () => {
    const db = await open({ memory: true })
    const script = async (run: Producer): Promise<void> => {
      await run.runStarted()
      for (let cycle = 0; cycle < 3; cycle++) {
        await run.stepStarted('fetch')
        await run.stepFailed('fetch', 'no route')
        await run.pause()
        await run.resume()
      }
    }
    await script(replaying(db))
    const once = await db.ledger.fetchEvents(RUN)
    expect(once).toHaveLength(13)
    const again = replaying(db)
    await script(again)
    expect(await db.ledger.fetchEvents(RUN)).toEqual(once)
    await again.stepStarted('fetch')
    await again.pause()
    const [step, pause] = await db.ledger.fetchEvents(RUN, { afterSeq: 13 })
    expect([step.logicalAttemptId, pause.logicalAttemptId]).toEqual([4, 4])
    await db.close()
  })
})
