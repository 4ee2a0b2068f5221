import { expect, test } from 'vitest'
import { type Annals, verifyBundle } from '../../src/index.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { newEvent } from '../ledger/run-event.ts'
import { bytesOf, chunked } from './bundles.ts'

/** A run always gives the same bundle, on any engine. */

const RUN = 'run-1'

/** Valid, invalid and unknown events. */
const EVENTS = ['RunSubmitted', 'RunQueued', 'RunStarted', 'RunPaused', 'RunResumed', 'Noted'] as const
const ENDS = ['RunCompleted', 'RunFailed', 'RunCancelled', 'Noted'] as const

/** The status in the index is Active at the beginning and the end, and Paused in between. */
const BACK_AND_FORTH = ['RunStarted', 'RunPaused', 'RunResumed', 'Noted'] as const

interface Opened {
  readonly db: Annals
  close(): Promise<void>
}

/** The header of a bundle, which is its first line. */
function headerIn(bundle: Buffer): { readonly run: { readonly status: string; readonly updatedAt: number } } {
  return JSON.parse(bundle.toString().split('\n', 1)[0])
}

/** Declares the tests. `openAt` opens a new empty store, whose projector may start at any time. */
export function testSameBundle(rounds: number, openAt: (clock: () => number) => Promise<Opened>): void {
  const exported = async (db: Annals): Promise<Buffer> => bytesOf(db.exportRun(RUN))

  test('has the status of its snapshot, also before the run was projected', async () => {
    const { db, close } = await openAt(new SimulatedClock().now)
    const random = new Random(1)
    for (const eventType of ['RunStarted', 'RunCompleted'])
      await db.ledger.appendEvent(newEvent(random, { runId: RUN, eventType }))
    const first = await exported(db)
    expect(headerIn(first).run).toMatchObject({ status: 'Completed' })
    expect(await verifyBundle(chunked(first))).toMatchObject({
      isValid: true,
      snapshot: { status: 'COMPLETED' },
    })
    await db.ledger.projectSnapshot(RUN)
    expect((await exported(db)).toString()).toBe(first.toString())
    await close()
  })

  test('is the same bytes however often and whenever the run was projected', async () => {
    const seed = seedOfRun()
    console.log(`ANNALS_SEED=${seed}`)
    const random = new Random(seed)
    for (let round = 0; round < rounds; round++) {
      const some = Array.from({ length: 2 + random.below(8) }, () => EVENTS[random.below(EVENTS.length)])
      const types = round === 0 ? BACK_AND_FORTH : [...some, ENDS[random.below(ENDS.length)]]
      const events = types.map((eventType, i) =>
        newEvent(random, { runId: RUN, eventType, logicalAttemptId: i + 1 }),
      )
      const isAdopted = random.chance(0.3)
      const bundles: string[] = []
      // When the run is projected: after each event, after the first, after some, never.
      const schedules = [() => true, (i: number) => i === 0, () => random.chance(0.4), () => false]
      for (const isProjected of schedules) {
        const clock = new SimulatedClock()
        const { db, close } = await openAt(clock.now)
        if (isAdopted) {
          await db.runs.create({ runId: RUN, tags: ['nightly'] })
          await db.runs.pause(RUN)
        }
        for (const [i, event] of events.entries()) {
          clock.advance(10)
          await db.ledger.appendEvent(event)
          if (isProjected(i)) await db.ledger.projectSnapshot(RUN)
        }
        bundles.push((await exported(db)).toString())
        await db.ledger.projectSnapshot(RUN)
        bundles.push((await exported(db)).toString())
        await close()
      }
      for (const bundle of bundles) expect(bundle, types.join(' ')).toBe(bundles[0])
      expect(await verifyBundle(chunked(Buffer.from(bundles[0])))).toMatchObject({ isValid: true })
    }
  })

  test('is the same bytes for a run that the ledger does not know', async () => {
    const { db, close } = await openAt(new SimulatedClock().now)
    await db.runs.create({ runId: RUN })
    await db.events.append(RUN, 'note', 1)
    await db.runs.complete(RUN)
    const first = await exported(db)
    expect(headerIn(first).run).toMatchObject({ status: 'Completed' })
    expect(await exported(db)).toEqual(first)
    await close()
  })
}
