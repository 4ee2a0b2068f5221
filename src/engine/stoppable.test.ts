import { expect, test } from 'vitest'
import { open } from '../annals.ts'
import { newEvent } from '../testing/ledger-suite/events.ts'

test('an aborted verification rejects with the reason of its signal, before it begins and while it runs', async () => {
  const db = await open({ memory: true })
  const events = Array.from({ length: 3_000 }, (_, i) =>
    newEvent({ eventType: 'Noted', runId: 'run', logicalAttemptId: i + 1 }),
  )
  await db.ledger.appendEvents(events)
  await db.events.appendBatch(
    'run',
    events.map(() => ({ type: 'note', payload: 1 })),
  )
  const reason = new Error('nobody waits for it')
  for (const verify of [
    (signal: AbortSignal) => db.ledger.verifyRun('run', { signal }),
    (signal: AbortSignal) => db.events.verifyChain('run', { signal }),
  ]) {
    expect(await verify(new AbortController().signal)).toMatchObject({ isValid: true })
    await expect(verify(AbortSignal.abort(reason))).rejects.toBe(reason)
    const stop = new AbortController()
    const stopped = verify(stop.signal)
    stop.abort(reason)
    await expect(stopped).rejects.toBe(reason)
    await expect(verify('no signal' as unknown as AbortSignal)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  }
  await db.close()
})
