import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { openOn } from '../../src/annals.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import type { RunEventRecord } from '../../src/index.ts'
import { Random } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { SimulatedDisk } from '../simulation/simulated-disk.ts'
import { newEvent } from './run-event.ts'

test('an audit of a past time window waits for records of that time that are still being written', async () => {
  const clock = new SimulatedClock()
  let isSlow = false
  const held: (() => void)[] = []
  const disk = new SimulatedDisk({ later: task => void (isSlow ? held.push(task) : queueMicrotask(task)) })
  const storage = await openEmbedded({ disk, clock: clock.now })
  const db = await openOn(storage)
  const random = new Random(1)
  await db.ledger.appendEvent(newEvent(random, { runId: 'run-1', eventType: 'RunStarted' }))

  // The record has its time, but its write is still pending.
  isSlow = true
  const late = db.ledger.appendEvent(newEvent(random, { runId: 'run-2', eventType: 'RunStarted' }))
  await turn()
  clock.advance(10)
  const records: RunEventRecord[] = []
  const audited = (async () => {
    for await (const record of db.ledger.audit({ from: 0, to: clock.now() })) records.push(record)
  })()
  for (let i = 0; i < 10; i++) await turn()
  isSlow = false
  for (const task of held.splice(0)) task()
  const { persistedAt } = await late
  await audited
  expect(Date.parse(persistedAt)).toBeLessThan(clock.now())
  expect(records.map(({ runId }) => runId)).toEqual(['run-1', 'run-2'])
  await db.close()
})
