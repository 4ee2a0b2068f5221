import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { AnnalsError, open } from '../../src/index.ts'
import { runEvent } from '../../src/server/schemas.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'

/** What is documented of an event is held against what the ledger takes; the ledger knows more, and never less. */

/** The key is that of the event as it would be without the fields. */
function eventWith(fields: Record<string, unknown> = {}): Record<string, unknown> {
  const event = newEvent({
    eventType: 'StepStarted',
    stepId: 'fetch',
    runId: randomUUID(),
    payload: { a: 1 },
  })
  return { ...event, ...fields }
}

/** But for the key, which has a code of its own. */
const FIELDS = Object.keys(eventWith()).filter(name => name !== 'idempotencyKey')
const WRONG = [null, '', 0, -1, 1.5, true, [], {}, 'a\0b', 'x'.repeat(5_000), '2025-06-15', 'RUN']

async function isTaken(event: unknown): Promise<boolean> {
  await using db = await open({ memory: true })
  try {
    await db.ledger.appendEvent(event as never)
    return true
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'INVALID_ENVELOPE') return false
    // The key is of the event as it was before.
    if (error instanceof AnnalsError && error.code === 'IDEMPOTENCY_KEY_MISMATCH') return true
    throw error
  }
}

describe('the documented event', () => {
  test('LD9: is what the ledger takes', async () => {
    expect(runEvent.safeParse(eventWith()).success).toBe(true)
    expect(await isTaken(eventWith())).toBe(true)
  })

  test.each(FIELDS)('LD9: has %s as the ledger has it', async field => {
    const { [field]: _, ...without } = eventWith()
    const isOptional = field === 'payload' || field === 'stepId'
    expect(runEvent.safeParse(without).success).toBe(isOptional)
    for (const value of WRONG) {
      const event = eventWith({ [field]: value })
      const taken = await isTaken(event)
      // Whatever the ledger takes is documented, and what it does not take is refused here too, but for what no pattern says.
      const said = runEvent.safeParse(event).success
      if (taken) expect(said, JSON.stringify(value)).toBe(true)
      else if (value !== 'RUN') expect(said, JSON.stringify(value)).toBe(false)
    }
  })

  test('LD9: has no other fields', () => {
    for (const field of ['runSeq', 'persistedAt', 'occurredAt', 'colour']) {
      expect(runEvent.safeParse(eventWith({ [field]: 1 })).success).toBe(false)
    }
  })

  test('LD9: texts that the ledger takes are documented, whatever is in them', async () => {
    const seed = seedOfRun()
    console.log(`seed ${seed}`)
    const random = new Random(seed)
    for (let i = 0; i < 300; i++) {
      const field = random.pick(['eventType', 'runId', 'tenantId', 'planId', 'stepId'])
      const text = String.fromCharCode(
        ...Array.from({ length: 1 + random.below(6) }, () => random.below(0xffff)),
      )
      const event = eventWith({ [field]: text })
      if (await isTaken(event))
        expect(runEvent.safeParse(event).success, `seed ${seed}: ${JSON.stringify(text)}`).toBe(true)
    }
  })
})
