import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { schemaProblems } from '../../src/core/schema-problems.ts'
import { AnnalsError, open } from '../../src/index.ts'
import { ledgerSchema } from '../../src/ledger/formats.ts'
import { newEvent } from '../../src/testing/ledger-suite/events.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'

/**
 * The documented format of an event matches the ledger's own check. The ledger may refuse more events than the format,
 * but never accepts an event that the format excludes.
 */

/** An event with these fields. Its idempotency key is that of the event without them. */
function eventWith(fields: Record<string, unknown> = {}): Record<string, unknown> {
  const event = newEvent({
    eventType: 'StepStarted',
    stepId: 'fetch',
    runId: randomUUID(),
    payload: { a: 1 },
  })
  return { ...event, ...fields }
}

/** All fields except the key, which has its own error code. */
const FIELDS = Object.keys(eventWith()).filter(name => name !== 'idempotencyKey')
const WRONG = [null, '', 0, -1, 1.5, true, [], {}, 'a\0b', 'x'.repeat(5_000), '2025-06-15', 'RUN']

function isDocumented(event: unknown): boolean {
  return schemaProblems(ledgerSchema('run-event'), event, neverReferenced).length === 0
}

function neverReferenced(ref: string): never {
  throw new Error(`the schema has no reference ${ref}`)
}

async function isTaken(event: unknown): Promise<boolean> {
  await using db = await open({ memory: true })
  try {
    await db.ledger.appendEvent(event as never)
    return true
  } catch (error) {
    if (error instanceof AnnalsError && error.code === 'INVALID_ENVELOPE') return false
    // The key belongs to the event without the changed field.
    if (error instanceof AnnalsError && error.code === 'IDEMPOTENCY_KEY_MISMATCH') return true
    throw error
  }
}

describe('the documented event', () => {
  test('LD9: is accepted by the ledger', async () => {
    expect(isDocumented(eventWith())).toBe(true)
    expect(await isTaken(eventWith())).toBe(true)
  })

  test.each(FIELDS)('LD9: has the same rules for %s as the ledger', async field => {
    const { [field]: _, ...without } = eventWith()
    const isOptional = field === 'payload' || field === 'stepId'
    expect(isDocumented(without)).toBe(isOptional)
    for (const value of WRONG) {
      const event = eventWith({ [field]: value })
      const taken = await isTaken(event)
      // 'RUN' is refused by a rule that no pattern can express.
      const said = isDocumented(event)
      if (taken) expect(said, JSON.stringify(value)).toBe(true)
      else if (value !== 'RUN') expect(said, JSON.stringify(value)).toBe(false)
    }
  })

  test('LD9: has no other fields', () => {
    for (const field of ['runSeq', 'persistedAt', 'occurredAt', 'colour']) {
      expect(isDocumented(eventWith({ [field]: 1 }))).toBe(false)
    }
  })

  test('LD9: allows every text that the ledger accepts', async () => {
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
        expect(isDocumented(event), `seed ${seed}: ${JSON.stringify(text)}`).toBe(true)
    }
  })
})
