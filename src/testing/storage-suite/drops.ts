import { expect } from 'vitest'
import type { ByteString } from '../../core/bytes.ts'
import { ZERO_HASH } from '../../core/hash.ts'
import { dedupeTag, HEAD_KEY, headTag, TAGS } from '../../engine/keys.ts'
import { parseLogEntry } from '../../engine/log.ts'
import type { Operation, Reader } from '../../engine/storage.ts'
import { bodiesOfChain } from './logs.ts'
import {
  append,
  commit,
  drop,
  eventually,
  expectError,
  KV,
  keysOf,
  LOG,
  place,
  put,
  range,
  readPoint,
  readRange,
  SCOPE,
  type Suite,
  valueAt,
} from './suite.ts'

/** The tags of all trees that a scope can have, including the internal trees of the engine. */
const ALL_TAGS: readonly number[] = [
  KV,
  TAGS.state,
  ...[TAGS.event, TAGS.ledger].flatMap(tag => [tag, dedupeTag(tag), headTag(tag)]),
]
const ONCE = { dedupe: { key: 'once', memo: 'memo' } }
/** Scopes that share a prefix with the dropped scope, or sort next to it. */
const NEIGHBOURS: readonly ByteString[] = [SCOPE.slice(0, -1), `${SCOPE}\x01`, `${SCOPE}2`, `${SCOPE}:x`, 'z']

function filled(scope: ByteString): Operation[] {
  return [
    put('k', '1', { scope }),
    put('s', '1', { scope, tag: TAGS.state }),
    append('event', { scope, ...ONCE }),
    append('entry', { scope, tag: TAGS.ledger, ...ONCE }),
  ]
}

/** Counts the entries in each tree of a scope. */
function sizes(reader: Reader, scope: ByteString = SCOPE): Promise<number[]> {
  return Promise.all(ALL_TAGS.map(async tag => (await reader.scan({ scope, tag })).length))
}

const FULL = ALL_TAGS.map(() => 1)
const EMPTY = ALL_TAGS.map(() => 0)

/** A drop removes a whole scope atomically. */
export function testDrops(suite: Suite): void {
  suite.holds(
    'P5: a drop removes every tree of its scope, including logs, and nothing of other scopes',
    async storage => {
      await commit(storage, ...[SCOPE, ...NEIGHBOURS].flatMap(filled))
      expect(await sizes(storage)).toEqual(FULL)
      await commit(storage, drop())
      expect(await sizes(storage)).toEqual(EMPTY)
      expect(await valueAt(storage, 'k')).toBeUndefined()
      expect(await storage.get(SCOPE, headTag(LOG), HEAD_KEY)).toBeUndefined()
      for (const scope of NEIGHBOURS) expect(await sizes(storage, scope)).toEqual(FULL)
    },
  )

  suite.holds('P7: after a drop a log restarts at 0, and its dedupe keys are forgotten', async storage => {
    await commit(storage, append('a', ONCE), append('b'), append('c'))
    await commit(storage, drop())
    const { appended } = await commit(storage, append('anew', { dedupe: { key: 'once', memo: 'other' } }))
    expect(appended).toMatchObject([{ sequence: 0, duplicate: false, memo: 'other' }])
    const [first, ...more] = await storage.scan(range({ tag: LOG }))
    expect(more).toEqual([])
    expect(parseLogEntry(first)).toMatchObject({ sequence: 0, prevHash: ZERO_HASH, body: 'anew' })
    expect(await bodiesOfChain(storage)).toEqual(['anew'])
    const again = await commit(storage, append('again', ONCE))
    expect(again.appended).toEqual([{ ...appended[0], duplicate: true }])
  })

  suite.holds(
    'P5: in one commit, a drop removes the writes before it and keeps those after it',
    async storage => {
      await commit(storage, ...filled(SCOPE))
      const { appended } = await commit(
        storage,
        put('before', '1'),
        append('before', { dedupe: { key: 'before' } }),
        drop(),
        put('after', '1'),
        append('after', { dedupe: { key: 'before' } }),
        append('after', ONCE),
      )
      expect(appended.map(({ sequence, duplicate }) => [sequence, duplicate])).toEqual([
        [1, false],
        [0, false],
        [1, false],
      ])
      expect(keysOf(await storage.scan(range()))).toEqual(['after'])
      expect(await bodiesOfChain(storage)).toEqual(['after', 'after'])
      await commit(storage, put('x', '1'), drop(), put('y', '1'), drop())
      expect(await sizes(storage)).toEqual(EMPTY)
    },
  )

  suite.holds(
    'P12: a snapshot taken before a drop keeps all entries, and one taken after it is empty',
    async storage => {
      const keys = Array.from({ length: 500 }, (_, i) => `key ${i}`)
      await commit(storage, ...keys.map(key => put(key, 'x'.repeat(100))), ...filled(SCOPE))
      const before = await storage.snapshot()
      const sizesBefore = await sizes(before)
      await commit(storage, drop())
      const after = await storage.snapshot()
      await Promise.all(keys.map(key => commit(storage, put(key, 'new'), append(key))))
      await commit(storage, drop(), put('k', 'newest'))
      expect(await sizes(before)).toEqual(sizesBefore)
      expect(await valueAt(before, 'key 499')).toBe('x'.repeat(100))
      expect(await bodiesOfChain(before)).toEqual(['event'])
      expect(await sizes(after)).toEqual(EMPTY)
      expect(await valueAt(after, 'key 499')).toBeUndefined()
      before.release()
      after.release()
      expect(keysOf(await storage.scan(range()))).toEqual(['k'])
    },
  )

  suite.holds(
    'P12: a drop conflicts with a read of an entry that it removes, but not with a read of an absent entry',
    async storage => {
      await commit(storage, put('k', '1'), append('event'))
      const point = await readPoint(storage, 'k')
      const absent = await readPoint(storage, 'none')
      const ranges = [
        await readRange(storage),
        await readRange(storage, { tag: LOG, reverse: true, limit: 1 }),
      ]
      const empty = await readRange(storage, { from: 'x' })
      const elsewhere = { ...(await readRange(storage, { scope: 'elsewhere' })) }
      await commit(storage, drop())
      const operations = [put('written', '1', { scope: 'elsewhere' })]
      expect((await storage.commit({ points: [point], operations })).status).toBe('conflict')
      for (const each of ranges) {
        expect((await storage.commit({ ranges: [each], operations })).status).toBe('conflict')
      }
      const untouched = { points: [absent], ranges: [empty, elsewhere], operations }
      expect((await storage.commit(untouched)).status).toBe('committed')
    },
  )

  suite.holds(
    'P12: commits sent after a drop that is still in flight are validated as if it had been applied',
    async storage => {
      await commit(storage, ...filled(SCOPE))
      const point = await readPoint(storage, 'k')
      const all = await readRange(storage)
      const [, pointRead, rangeRead, step, absent, , later] = await Promise.all([
        commit(storage, drop()),
        storage.commit({ points: [point], operations: [put('a', '1')] }),
        storage.commit({ ranges: [all], operations: [put('b', '1')] }),
        storage.update([place('k'), place('\0'.repeat(8), { tag: LOG })], found => ({
          operations: [append('anew', ONCE)],
          result: found,
        })),
        storage.commit({ points: [{ ...point, version: 0 }], operations: [] }),
        commit(storage, put('c', '1')),
        storage.commit({ ranges: [{ ...all, found: [] }], operations: [put('d', '1')] }),
      ])
      expect([pointRead.status, rangeRead.status]).toEqual(['conflict', 'conflict'])
      expect(step.result).toEqual([undefined, undefined])
      expect(step.appended).toMatchObject([{ sequence: 0, duplicate: false }])
      expect(absent.status).toBe('committed')
      expect(later.status).toBe('conflict')
      expect(keysOf(await storage.scan(range()))).toEqual(['c'])
      expect(await bodiesOfChain(storage)).toEqual(['anew'])
    },
  )

  suite.holds('a drop notifies the subscribers of every dropped tree, and no others', async storage => {
    await commit(storage, ...filled(SCOPE), ...filled('elsewhere'))
    const calls = new Map<number, number>()
    let elsewhere = 0
    for (const tag of [KV, TAGS.state, LOG, TAGS.ledger]) {
      await storage.subscribe({ scope: SCOPE, tag }, () => calls.set(tag, (calls.get(tag) ?? 0) + 1))
      await storage.subscribe({ scope: 'elsewhere', tag }, () => elsewhere++)
    }
    await commit(storage, drop())
    await eventually(() => calls.size === 4)
    expect(elsewhere).toBe(0)
  })

  suite.holds('dropping an empty scope succeeds, even repeatedly', async storage => {
    await commit(storage, put('k', '1'))
    await commit(storage, drop('nothing'))
    await commit(storage, drop('nothing'), drop('nothing'))
    await commit(storage, drop())
    await commit(storage, drop())
    expect(await sizes(storage)).toEqual(EMPTY)
    await commit(storage, put('k', '2'))
    expect(await valueAt(storage, 'k')).toBe('2')
  })

  suite.holds('a drop of a malformed scope is INVALID_ARGUMENT and changes nothing', async storage => {
    await commit(storage, put('k', '1'))
    for (const scope of ['', 'a\0b', 's'.repeat(5_000)]) {
      await expectError(storage.commit({ operations: [drop(), drop(scope)] }), 'INVALID_ARGUMENT')
    }
    expect(await valueAt(storage, 'k')).toBe('1')
  })

  suite.holds('P5: a commit in conflict drops nothing', async storage => {
    await commit(storage, ...filled(SCOPE))
    const points = [{ ...place('k'), version: 0 }]
    expect((await storage.commit({ points, operations: [drop()] })).status).toBe('conflict')
    expect(await sizes(storage)).toEqual(FULL)
    const { appended } = await commit(storage, append('second'))
    expect(appended[0].sequence).toBe(1)
  })

  suite.holds(
    'P7: after concurrent drops and appends every log is one chain since its last drop',
    async storage => {
      const scopes = ['a', 'a:b', 'b']
      const work = Array.from({ length: 300 }, (_, i) => {
        const scope = scopes[i % 3]
        if (i % 37 === 36) return commit(storage, drop(scope))
        if (i % 41 === 40)
          return commit(storage, append('gone', { scope }), drop(scope), append(`${i}`, { scope }))
        return commit(
          storage,
          append(`${i}`, { scope, dedupe: { key: `${i % 20}` } }),
          put(`${i}`, '', { scope }),
        )
      })
      await Promise.all(work)
      for (const scope of scopes) {
        const bodies = await bodiesOfChain(storage, { scope, tag: LOG })
        expect(bodies).not.toContain('gone')
        const head = await storage.get(scope, headTag(LOG), HEAD_KEY)
        expect(head === undefined).toBe(bodies.length === 0)
        const { appended } = await commit(storage, append('last', { scope }))
        expect(appended[0].sequence).toBe(bodies.length)
      }
    },
  )

  suite.holdsInTime(
    'P14: an entry put after a drop does not expire with the old entry',
    async (storage, clock) => {
      await commit(
        storage,
        put('k', '1', { expiresAt: clock.now() + 10 }),
        put('l', '1', { expiresAt: clock.now() + 10 }),
      )
      await commit(storage, drop(), put('k', '2'))
      clock.advance(10)
      await commit(storage, put('other', '1'))
      expect(keysOf(await storage.scan(range()))).toEqual(['k', 'other'])
    },
  )
}
