import { expect } from 'vitest'
import { commit, expectError, put, range, SCOPE, type Suite, valueAt } from './suite.ts'

/** The optional members of the storage port. An engine may omit a member, but a member that it has must work. */
export function testCapabilities(suite: Suite): void {
  suite.holds(
    'an engine opened for writing is not read-only, and any kind and durability it reports are valid',
    async storage => {
      expect(storage.readOnly ?? false).toBe(false)
      if (storage.engine !== undefined) {
        expect(storage.engine.kind).toMatch(/^\S+$/)
        expect(['durable', 'relaxed']).toContain(storage.engine.durability)
      }
      // A new store has nothing to recover.
      expect(storage.recovery).toBeUndefined()
    },
  )

  suite.holds('a checkpoint changes no visible data', async storage => {
    const { version } = await commit(storage, put('k', '1'))
    await storage.checkpoint?.()
    expect(await valueAt(storage, 'k')).toBe('1')
    await storage.checkpoint?.()
    expect((await commit(storage, put('k', '2'))).version).toBeGreaterThan(version)
  })

  suite.holds('checkWritable accepts a store that takes commits, and writes nothing', async storage => {
    const { version } = await commit(storage, put('k', '1'))
    await storage.checkWritable?.()
    // The version of a snapshot may count commits of other stores on the same server.
    expect((await storage.scan(range())).map(entry => [entry.key, entry.version])).toEqual([['k', version]])
    expect(await storage.scopes({ limit: 10 })).toEqual([SCOPE])
  })

  suite.holds('the stats report a writable store, and its version', async storage => {
    const { version } = await commit(storage, put('k', '1'))
    const { writable = true, writeProblem, version: known = version } = storage.stats?.() ?? {}
    expect({ writable, writeProblem }).toEqual({ writable: true, writeProblem: undefined })
    expect(known).toBeGreaterThanOrEqual(version)
  })

  suite.holds(
    'after closing, maintenance calls are CLOSED, and the stats report a store that is not writable',
    async storage => {
      await storage.close()
      for (const call of [storage.checkpoint, storage.checkWritable]) {
        if (call !== undefined) await expectError(call.call(storage), 'CLOSED')
      }
      if (storage.backup !== undefined) await expectError(storage.backup('backup'), 'CLOSED')
      expect(storage.stats?.().writable ?? false).toBe(false)
    },
  )
}
