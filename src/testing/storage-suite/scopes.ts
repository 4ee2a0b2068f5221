import { expect } from 'vitest'
import { append, commit, del, drop, expectError, put, type Suite } from './suite.ts'

const SCOPES = ['\x01', 'a', 'a\x01', 'a:b', 'aa', 'b', 'b\xff', '\xff'] as const

/** `scopes` lists the scopes that have at least one entry. */
export function testScopes(suite: Suite): void {
  suite.holds('scopes are listed in byte order, each once, however many trees they have', async storage => {
    expect(await storage.scopes({ limit: 10 })).toEqual([])
    for (const scope of [...SCOPES].reverse()) {
      await commit(
        storage,
        put('k', '1', { scope }),
        put('l', '1', { scope, tag: 3 }),
        append('x', { scope }),
      )
    }
    expect(await storage.scopes({ limit: 100 })).toEqual(SCOPES)
  })

  suite.holds('scopes are listed from an inclusive to an exclusive bound, up to a limit', async storage => {
    await commit(storage, ...SCOPES.map(scope => put('k', '1', { scope })))
    const bounds = [undefined, '', ...SCOPES, 'a\0', 'a:', 'b\0', '\xff\0']
    for (const from of bounds) {
      for (const to of bounds) {
        const inside = SCOPES.filter(
          scope => (from === undefined || scope >= from) && (to === undefined || scope < to),
        )
        expect(await storage.scopes({ from, to, limit: 100 }), `${from} ${to}`).toEqual(inside)
        expect(await storage.scopes({ from, to, limit: 2 }), `${from} ${to}`).toEqual(inside.slice(0, 2))
      }
    }
  })

  suite.holds('1,000 scopes are listed page by page', async storage => {
    const scopes = Array.from({ length: 1_000 }, (_, i) => `run-${String(i).padStart(4, '0')}`)
    await Promise.all(scopes.map(scope => commit(storage, put('k', '1', { scope }))))
    const found: string[] = []
    for (let from: string | undefined; ; from = `${found.at(-1)}\0`) {
      const page = await storage.scopes({ from, limit: 64 })
      found.push(...page)
      if (page.length < 64) break
    }
    expect(found).toEqual(scopes)
  })

  suite.holds(
    'a scope is not listed after a drop or its last delete, and is listed again after a new write',
    async storage => {
      await commit(
        storage,
        put('k', '1', { scope: 'a' }),
        put('k', '1', { scope: 'b' }),
        append('x', { scope: 'c' }),
      )
      await commit(storage, drop('c'), del('k', { scope: 'a' }), del('k', { scope: 'none' }))
      expect(await storage.scopes({ limit: 10 })).toEqual(['b'])
      await commit(storage, drop('b'), append('x', { scope: 'b' }), drop('none'))
      expect(await storage.scopes({ limit: 10 })).toEqual(['b'])
      await commit(storage, drop('b'))
      expect(await storage.scopes({ limit: 10 })).toEqual([])
    },
  )

  suite.holdsInTime('internal entries of the engine never appear as a scope', async (storage, clock) => {
    await commit(storage, put('k', '1', { scope: 'a', expiresAt: clock.now() + 10 }))
    expect(await storage.scopes({ limit: 10 })).toEqual(['a'])
    expect(await storage.scopes({ from: '', limit: 1 })).toEqual(['a'])
    await commit(storage, drop('a'))
    expect(await storage.scopes({ limit: 10 })).toEqual([])
  })

  suite.holds('an invalid limit is INVALID_ARGUMENT', async storage => {
    for (const limit of [0, -1, 1.5, Number.NaN]) {
      await expectError(storage.scopes({ limit }), 'INVALID_ARGUMENT')
    }
  })
}
