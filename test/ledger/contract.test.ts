import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Annals } from '../../src/annals.ts'
import type { EmbeddedStore } from '../../src/embedded/embedded-store.ts'
import { openEmbedded } from '../../src/embedded/open.ts'
import { Database } from '../../src/engine/database.ts'
import { deriveIdempotencyKey, type RunEventWrite } from '../../src/index.ts'

/** Computes a stored record from docs/contracts/README.md alone, and compares it with the store's. */
const PAGE = readFileSync(new URL('../../docs/contracts/README.md', import.meta.url), 'utf8')
const TIME_MS = 1_750_000_000_000
const SCOPE = 'default:default:default:run-1'
const SHARED = 'default:_shared:_shared:_shared'

const blockOf = (language: string): string =>
  new RegExp(`\`\`\`${language}\\n(.*)\\n\`\`\``).exec(PAGE)?.[1] ?? ''
const rowOf = (name: string): string =>
  new RegExp(`^\\| ${name} \\| \`(.*)\` \\|$`, 'm').exec(PAGE)?.[1] ?? ''
const PREIMAGE = blockOf('')
const BODY = blockOf('json')

const sha256 = (...parts: readonly Uint8Array[]): Buffer =>
  createHash('sha256').update(Buffer.concat(parts)).digest()
function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(BigInt(value))
  return bytes
}
function item(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8')
  return Buffer.concat([u64(bytes.length), bytes])
}

const bodyHash = sha256(
  Buffer.from('annals:body:1\0'),
  ...['default', 'default', 'default', 'run-1', 'StepStarted', BODY].map(item),
)
const hash = sha256(Buffer.from('annals:link:1\0'), Buffer.alloc(32), u64(0), u64(TIME_MS), bodyHash)

async function openWithClock(validateTransitions = false): Promise<{ db: Annals; storage: EmbeddedStore }> {
  const storage = await openEmbedded({ clock: () => TIME_MS })
  const store = { storage, database: new Database(storage), guards: {}, ledger: { validateTransitions } }
  return { db: new Annals(store, 'default'), storage }
}

async function keysOf(storage: EmbeddedStore, scope: string, tag: number): Promise<Buffer[]> {
  const found = await storage.scan({ scope, tag })
  return found.map(({ key }) => Buffer.from(key, 'latin1'))
}

describe('docs/contracts, the stored record', () => {
  test('the key, body hash and hash of the vector follow from the page', () => {
    expect(sha256(Buffer.from(PREIMAGE)).toString('hex')).toBe(rowOf('idempotency key'))
    expect(JSON.parse(BODY)).toMatchObject({ idempotencyKey: rowOf('idempotency key') })
    expect(Buffer.from(BODY).length).toBe(403)
    expect(bodyHash.toString('hex')).toBe(rowOf('body hash'))
    expect(hash.toString('hex')).toBe(rowOf('hash'))
  })

  test('the store has the record, its dedupe entry and its feed entry as the page specifies', async () => {
    const { db, storage } = await openWithClock()
    const event = JSON.parse(BODY) as RunEventWrite
    await db.ledger.appendEvent(event)
    const [record] = await storage.scan({ scope: SCOPE, tag: 0x06 })
    expect(Buffer.from(record.key, 'latin1')).toEqual(u64(0))
    const stored = Buffer.concat([Buffer.alloc(32), hash, u64(TIME_MS), Buffer.from(BODY)])
    expect(Buffer.from(record.value, 'latin1')).toEqual(stored)
    const [dedupe] = await storage.scan({ scope: SCOPE, tag: 0x86 })
    expect(`run-1|${dedupe.key}`).toBe(PREIMAGE)
    const remembered = Buffer.concat([u64(0), u64(TIME_MS), hash, Buffer.from(event.eventId)])
    expect(Buffer.from(dedupe.value, 'latin1')).toEqual(remembered)
    const [head] = await storage.scan({ scope: SCOPE, tag: 0xc6 })
    expect(head.key).toBe('head')
    expect(Buffer.from(head.value, 'latin1')).toEqual(Buffer.concat([u64(1), hash]))
    const [listed] = await storage.scan({ scope: SHARED, tag: 0xa6 })
    expect(Buffer.from(listed.key, 'latin1')).toEqual(Buffer.concat([u64(record.version), Buffer.alloc(4)]))
    const where = Buffer.concat([u64(0), u64(TIME_MS), Buffer.from(SCOPE)])
    expect(Buffer.from(listed.value, 'latin1')).toEqual(where)
    await db.close()
  })

  test('L17: an event with a long step id is deduplicated by its idempotency key', async () => {
    const { db, storage } = await openWithClock()
    const { stepId: _, idempotencyKey: __, ...rest } = JSON.parse(BODY) as RunEventWrite
    // The identity has 256 bytes, the longest that is its own key, and then one more.
    for (const length of [256, 257].map(bytes => bytes - '|1|StepStarted|nightly|3'.length)) {
      const fields = { ...rest, stepId: 'é'.repeat(length >> 1) + 's'.repeat(length & 1) }
      const event = { ...fields, idempotencyKey: deriveIdempotencyKey(fields) }
      expect(await db.ledger.appendEvent(event)).toMatchObject({ idempotent: false })
      expect(await db.ledger.appendEvent(event)).toMatchObject({ idempotent: true })
    }
    const known = await keysOf(storage, SCOPE, 0x86)
    expect(known.map(key => key.length).sort()).toEqual([256, 64].sort())
    expect(await db.ledger.verifyRun('run-1')).toMatchObject({ isValid: true, events: 2 })
    await db.close()
  })

  test('derived entries are under tag 08 and have only the letters on the page', async () => {
    const { db, storage } = await openWithClock()
    const { ledger } = db
    const { epoch } = await ledger.acquireLease('run-1', { owner: 'worker', ttlMs: 1_000 })
    const [early, started, next] = eventsOf('fetch', undefined, 'parse')
    await ledger.registry.claim('run-1', early.idempotencyKey, early.eventId)
    // The first event is invalid, because its run has not started.
    await ledger.appendEvents([early, started, next], { epoch })
    await ledger.projectSnapshot('run-1')
    const alerted = `u${early.eventId.toLowerCase()}`
    const letters = [`i${early.idempotencyKey}`, 'l', 'm', 'r', `s${'\0'.repeat(8)}`, alerted].map(key =>
      Buffer.from(key),
    )
    const alert = Buffer.concat([Buffer.from('a'), u64(1)])
    expect(await keysOf(storage, SCOPE, 0x08)).toEqual([alert, ...letters])
    const listed = Buffer.concat([Buffer.from('a'), u64(TIME_MS), Buffer.from('run-1\0'), u64(1)])
    // The projector's position depends on timing.
    const shared = (await keysOf(storage, SHARED, 0x08)).filter(key => key.toString() !== 'p')
    const numbered = Buffer.concat([Buffer.from('n'), u64(1)])
    expect(shared).toEqual([listed, Buffer.from('c'), Buffer.from('erun-1'), numbered])
    const [counted, first] = await Promise.all(
      [Buffer.from('c'), numbered].map(key => storage.get(SHARED, 0x08, key.toString('latin1'))),
    )
    expect(Buffer.from(counted?.value ?? '', 'latin1')).toEqual(u64(1))
    expect(Buffer.from(first?.value ?? '', 'latin1')).toEqual(listed.subarray(1))
    await db.close()
  })

  test('entries for validating appends are under tag 08 and have only the letters on the page', async () => {
    const { db, storage } = await openWithClock(true)
    const [early, started, next] = eventsOf('fetch', undefined, 'parse')
    await expect(db.ledger.appendEvent(early)).rejects.toMatchObject({ code: 'INVALID_TRANSITION' })
    await db.ledger.appendEvents([started, next])
    const keys = (await keysOf(storage, SCOPE, 0x08)).map(String)
    expect(keys.filter(key => key !== 'r' && !key.startsWith('s'))).toEqual([
      'g',
      'hparse',
      'l',
      'm',
      `x${early.idempotencyKey}`,
    ])
    await db.close()
  })
})

/** A `StepStarted` for each step id, and a `RunStarted` for each undefined. */
function eventsOf(...steps: readonly (string | undefined)[]): RunEventWrite[] {
  const { stepId: _, ...run } = JSON.parse(BODY) as RunEventWrite
  return steps.map(stepId => {
    const event = stepId === undefined ? { ...run, eventType: 'RunStarted' } : { ...run, stepId }
    return { ...event, idempotencyKey: deriveIdempotencyKey(event) }
  })
}
