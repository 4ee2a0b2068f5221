import { describe, expect, test, vi } from 'vitest'
import { openOn } from './annals.ts'
import type { Entry, Range, Storage } from './engine/storage.ts'
import { STORAGE_METHODS } from './open-options.ts'
import { testCells } from './testing/annals-suite/cells.ts'
import { testClosing } from './testing/annals-suite/closing.ts'
import { testEvents } from './testing/annals-suite/events.ts'
import { testKv } from './testing/annals-suite/kv.ts'
import { Suite } from './testing/annals-suite/suite.ts'
import { testTransactions } from './testing/annals-suite/transactions.ts'
import { ReferenceStorage } from './testing/reference-storage.ts'

/** The suite on a user's own engine, which implements nothing but the port. */
const suite = new Suite(
  async ({ guards = {}, clock }) => {
    const db = await openOn(new ReferenceStorage({ clock }), { guards })
    return { db, close: () => db.close() }
  },
  { noReopen: 'the reference storage is in memory' },
)

// Only a part of the suite, because the reference storage copies a tree at every change, which takes minutes for large trees.
describe.concurrent('Annals on an engine of the user', () => {
  describe('kv', () => testKv(suite))
  describe('events', () => testEvents(suite))
  describe('cells', () => testCells(suite))
  describe('transactions', () => testTransactions(suite))
  describe('closing', () => testClosing(suite))
})

describe('openOn', () => {
  test('closes the engine with the handle', async () => {
    const storage = new ReferenceStorage()
    const db = await openOn(storage)
    await db.close()
    await expect(storage.snapshot()).rejects.toMatchObject({ code: 'CLOSED' })
  })

  test('closes the engine if opening fails, and rejects with the reason', async () => {
    const bad: readonly [object, string][] = [
      [{ tenants: 'acme' }, 'tenants'],
      [{ tenant: '' }, 'tenant'],
      [{ verifyOnOpen: 1 }, 'verifyOnOpen'],
      [{ guards: { even: 2 } }, 'the guard even'],
      [{ ledger: { strict: true } }, 'strict'],
    ]
    for (const [options, name] of bad) {
      const storage = new ReferenceStorage()
      await expect(openOn(storage, options)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        details: { name },
      })
      await expect(storage.snapshot()).rejects.toMatchObject({ code: 'CLOSED' })
    }
  })

  test.each([undefined, null, 7, 'engine'])('refuses %s as an engine', async value => {
    await expect(openOn(value as never)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      details: { name: 'storage' },
    })
  })

  test.each(STORAGE_METHODS)(
    'refuses an engine without the method %s, and closes it if it can',
    async name => {
      const storage = new ReferenceStorage()
      const close = vi.spyOn(storage, 'close')
      Object.defineProperty(storage, name, { value: undefined })
      await expect(openOn(storage)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        message: `storage.${name} must be a function, not undefined`,
        details: { name: `storage.${name}` },
      })
      expect(close).toHaveBeenCalledTimes(name === 'close' ? 0 : 1)
    },
  )

  test('rejects with the reason even if closing the engine fails too', async () => {
    const storage = new ReferenceStorage()
    vi.spyOn(storage, 'close').mockRejectedValue(new Error('closing failed'))
    await expect(openOn(storage, { tenant: '' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('opens the data of the given tenant', async () => {
    const storage = new ReferenceStorage()
    const db = await openOn(storage, { tenant: 'acme' })
    await db.kv.put('r', 'k', 1)
    expect(await storage.scopes({ limit: 2 })).toEqual(['acme:default:default:r'])
    await db.close()
  })

  test('verifies every hash chain first with verifyOnOpen', async () => {
    const storage = new DamagingStorage()
    const db = await openOn(storage, { verifyOnOpen: true })
    await db.events.append('r', 'noted', 'hello')
    storage.isDamaged = true
    await expect(openOn(storage, { verifyOnOpen: true })).rejects.toMatchObject({
      code: 'EVENT_CHAIN_BROKEN',
    })
  })
})

/** A storage that returns a changed event once `isDamaged` is set. */
class DamagingStorage extends ReferenceStorage {
  isDamaged = false

  override async scan(range: Range): Promise<readonly Entry[]> {
    const found = await super.scan(range)
    if (!this.isDamaged) return found
    return found.map(entry => ({ ...entry, value: entry.value.replace('hello', 'hullo') }))
  }
}

describe('an engine without capabilities', () => {
  test('has no figures, no recovery, no checkpoint and no backup, and is writable', async () => {
    const db = await openOn(new ReferenceStorage())
    expect(db.engine).toEqual({ kind: 'other', durability: 'durable' })
    expect(db.stats()).toEqual({ aheadOfClockMs: 0, ledger: db.ledger.stats() })
    expect(db.recovery).toBeUndefined()
    await db.checkpoint()
    await db.checkWritable()
    await expect(db.backup('backup')).rejects.toMatchObject({ code: 'INVALID_OPERATION' })
    await db.close()
  })
})

describe('an engine with capabilities', () => {
  test('is used for each of them', async () => {
    const calls: string[] = []
    const recovery = { damagedManifests: ['a'], strayBytes: [] }
    const storage: Storage = Object.assign(new ReferenceStorage(), {
      engine: { kind: 'paper', durability: 'relaxed' as const },
      recovery,
      checkpoint: async () => void calls.push('checkpoint'),
      backup: async (folder: string) => void calls.push(`backup ${folder}`),
      checkWritable: async () => void calls.push('checkWritable'),
      stats: () => ({ version: 7 }),
    })
    const db = await openOn(storage)
    await db.checkpoint()
    await db.backup('there')
    await db.checkWritable()
    expect(calls).toEqual(['checkpoint', 'backup there', 'checkWritable'])
    expect(db.engine).toEqual({ kind: 'paper', durability: 'relaxed' })
    expect(db.stats()).toMatchObject({ version: 7, aheadOfClockMs: 0 })
    expect(db.recovery).toBe(recovery)
    await db.close()
  })

  test('that is read-only gets no background writes, and checkWritable rejects with READ_ONLY', async () => {
    const storage = Object.assign(new ReferenceStorage(), { readOnly: true })
    const db = await openOn(storage)
    await expect(db.checkWritable()).rejects.toMatchObject({ code: 'READ_ONLY' })
    await db.close()
  })
})
